"""Whatever dataclass is written comes back; whatever bytes are read, one kind of error comes out."""

import dataclasses
import types
import typing
from contextlib import suppress
from typing import Any, Literal

import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.codec import KINDS, decode_line, decode_record, encode_line, encode_record
from aitrace.errors import InputError
from aitrace.results import CallResult, RunEnd, RunHeader, Scrape
from aitrace.schema import MAX_COUNT, Call, Segment, Update, Usage, Wire
from aitrace.store import TraceReader, read_trace, write_trace
from aitrace.testing import TraceBuilder, find_problems, recorded_lines
from aitrace.updates import updated_call

# Differences of two of them have 64 bits too.
INTEGERS = st.integers(-(2**62) + 1, 2**62)
COUNTS = st.integers(-MAX_COUNT, MAX_COUNT)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
UNKNOWN_NAMES = TEXTS.map(lambda name: f"x_{name}")
SCALARS = {
    int: INTEGERS,
    str: TEXTS,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Any: JSON,
    types.NoneType: st.none(),
}


def values(hint):
    """Any value of a type hint."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*[values(argument) for argument in arguments])
    if origin is tuple and arguments[1:] == (...,):
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[values(argument) for argument in arguments])
    if origin is dict:
        return st.dictionaries(TEXTS, values(arguments[1]), max_size=3)
    return instances(hint)


def instances(cls):
    """Any instance of a dataclass; versions are the current one, `extra` holds names that no version has."""
    hints = typing.get_type_hints(cls)
    fields = {
        field.name: values(hints[field.name])
        for field in dataclasses.fields(cls)
        if field.name not in ("extra", "version")
    }
    if cls is Segment:
        fields["size"] = COUNTS
    if cls is Usage:
        fields = {name: st.none() | COUNTS for name in fields}
    if "extra" in hints:
        fields["extra"] = st.dictionaries(UNKNOWN_NAMES, JSON, max_size=2)
    return st.builds(cls, **fields)


@pytest.mark.parametrize("cls", KINDS.values())
def test_every_line_comes_back(cls):
    @given(instances(cls))
    @settings(max_examples=50, deadline=None)
    def check(line):
        data = encode_line(line)
        assert decode_line(data, place="x:1") == line
        assert data.index(b"\n") == len(data) - 1

    check()


@pytest.mark.parametrize("cls", [RunHeader, RunEnd, CallResult, Scrape])
def test_every_record_comes_back(cls):
    @given(instances(cls))
    @settings(max_examples=40, deadline=None)
    def check(record):
        assert decode_record(cls, encode_record(record), place="x:1") == record

    check()


@given(instances(KINDS["call"]) | instances(KINDS["update"]), st.data())
@settings(max_examples=100, deadline=None)
def test_unknown_fields_anywhere_in_a_line_are_written_back(line, data):
    """Add fields to random objects of the line's JSON; read and write must give the same JSON."""
    fields = orjson.loads(encode_line(line))
    objects = [fields, *(v for k, v in fields.items() if isinstance(v, dict) and not k.startswith("x_"))]
    for name in ("tool_calls", "after"):
        objects += fields.get(name) or []
    chosen = data.draw(st.lists(st.sampled_from(range(len(objects))), max_size=4))
    for index in chosen:
        objects[index].update(data.draw(st.dictionaries(UNKNOWN_NAMES, JSON, min_size=1, max_size=2)))
    again = decode_line(orjson.dumps(fields), place="x:1")
    assert orjson.loads(encode_line(again)) == fields


@given(JSON | st.dictionaries(TEXTS, JSON), st.sampled_from([*KINDS, "prompt"]))
@settings(max_examples=100, deadline=None)
def test_random_json_is_a_line_or_an_input_error(value, kind):
    fields = {**value, "kind": kind} if isinstance(value, dict) else value
    with suppress(InputError):
        decode_line(orjson.dumps(fields), place="x:1")


@given(instances(KINDS["call"]) | instances(KINDS["update"]), st.data())
@settings(max_examples=100, deadline=None)
def test_a_damaged_field_is_a_line_or_an_input_error(line, data):
    fields = orjson.loads(encode_line(line))
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(JSON)
    with suppress(InputError):
        decode_line(orjson.dumps(fields), place="x:1")


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x28\xb5\x2f\xfd", b'{"kind":"header"', b"\x50\x2a\x4d\x18"]),
)
@settings(max_examples=100, deadline=None)
def test_random_bytes_are_no_trace(tmp_path_factory, data, start):
    path = tmp_path_factory.getbasetemp() / "random.aitrace"
    path.write_bytes(start + data)
    with pytest.raises(InputError):
        read_trace(path)


WIRES = st.builds(
    Wire,
    transport=st.sampled_from(["http/1.1", "h2", "websocket"]),
    connection=st.none() | st.integers(0, 9),
    response_encoding=st.sampled_from([None, "gzip", "br"]),
)


@st.composite
def traces(draw):
    """A trace of some sessions in trees, with calls that continue, restart and wait for each other."""
    builder = TraceBuilder(
        unit=draw(st.sampled_from(["bytes", "tokens"])), block_size=draw(st.sampled_from([1, 16, 64]))
    )
    sessions = [builder.session()]
    segments = [builder.segment(draw(st.integers(0, 300)))]
    calls = 0
    for _ in range(draw(st.integers(1, 12))):
        action = draw(st.sampled_from(["session", "segment", "like", "call", "call", "call"]))
        if action == "session":
            told = (
                {"harness_version": "2.1.332", "evidence": ["inferred/prefix"]} if draw(st.booleans()) else {}
            )
            sessions.append(builder.session(draw(st.none() | st.sampled_from(sessions)), **told))
        elif action == "call":
            add = draw(st.lists(st.sampled_from(segments), max_size=3))
            options = {"unseen_start": True} if draw(st.booleans()) else {}
            wire = draw(st.none() | WIRES)
            duration_ns = draw(st.integers(0, 10**10))
            builder.call(draw(st.sampled_from(sessions)), add, duration_ns=duration_ns, wire=wire, **options)
            calls += 1
        else:
            like = draw(st.sampled_from(segments)) if action == "like" else None
            segments.append(builder.segment(draw(st.integers(0, 300)), like=like))
    return builder.trace()


def lines_of(trace):
    return [trace.header, *trace.sessions, *trace.segments, *trace.calls, trace.footer]


@given(traces())
@settings(max_examples=40, deadline=None)
def test_what_the_builder_makes_is_valid_and_comes_back(tmp_path_factory, trace):
    path = tmp_path_factory.getbasetemp() / "built.aitrace"
    write_trace(path, trace)
    assert read_trace(path) == trace
    assert {f.rule for f in find_problems(enumerate(lines_of(trace), 1))} <= {"no-calls"}


@given(traces())
@settings(max_examples=40, deadline=None)
def test_a_recording_is_valid_and_read_as_whole_calls(tmp_path_factory, trace):
    path = tmp_path_factory.getbasetemp() / "recorded.aitrace"
    lines = recorded_lines(trace)
    path.write_bytes(b"".join(map(encode_line, lines)))
    assert read_trace(path) == trace
    assert {f.rule for f in find_problems(enumerate(lines, 1))} <= {"no-calls"}


@given(traces(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_recording_that_breaks_off_has_no_problem_but_its_end(trace, data):
    """After any of its lines."""
    lines = recorded_lines(trace)[:-1]
    good = lines[: data.draw(st.integers(1, len(lines)))]
    found = list(find_problems(enumerate(good, 1)))
    assert {f.rule for f in found} <= {"no-calls", "no-footer", "unrecorded"}
    begun = sum(isinstance(line, Call) for line in good)
    ended = sum(isinstance(line, Update) for line in good)
    assert sum(f.rule == "unrecorded" for f in found) == begun - ended


@given(instances(KINDS["call"]), st.lists(instances(KINDS["update"]), max_size=3))
@settings(max_examples=75, deadline=None)
def test_a_call_with_its_updates_can_be_written_back(call, updates):
    whole = call
    for update in updates:
        whole = updated_call(whole, update)
    assert decode_line(encode_line(whole), place="x:1") == whole
    told = [update.times for update in updates if update.times is not None]
    assert whole.times == (told[-1] if told else call.times)


@given(traces(), st.data())
@settings(max_examples=50, deadline=None)
def test_a_cut_file_gives_a_prefix_of_its_lines(tmp_path_factory, trace, data):
    """Frames end at random lines; the file is cut at a random byte."""
    path = tmp_path_factory.getbasetemp() / "cut.aitrace"
    lines = lines_of(trace)
    rows = [encode_line(line) for line in lines]
    size = data.draw(st.integers(1, len(rows)))
    whole = b"".join(
        zstandard.compress(b"".join(rows[start : start + size])) for start in range(0, len(rows), size)
    )
    keep = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:keep])
    reader = TraceReader(path)
    got = []
    try:
        got.extend(line for _, line in reader)
    except InputError:
        assert got == []
    assert got == lines[: len(got)]
    assert reader.report.clean_end == (keep == len(whole))


@given(traces(), st.data())
@settings(max_examples=50, deadline=None)
def test_a_flipped_byte_gives_a_prefix_or_an_input_error(tmp_path_factory, trace, data):
    """Frames that aitrace writes carry a checksum: no changed line is ever taken for a good one."""
    path = tmp_path_factory.getbasetemp() / "flipped.aitrace"
    write_trace(path, trace)
    damaged = bytearray(path.read_bytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    got = []
    with suppress(InputError):
        got.extend(line for _, line in TraceReader(path))
    assert got == lines_of(trace)[: len(got)]


@given(st.lists(st.tuples(INTEGERS, INTEGERS), max_size=5))
@settings(max_examples=40, deadline=None)
def test_blocks_are_written_flat(blocks):
    segment = Segment(id=0, role="user", type="text", size=0, blocks=tuple(blocks))
    assert orjson.loads(encode_line(segment))["blocks"] == [number for pair in blocks for number in pair]
