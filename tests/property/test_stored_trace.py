"""A stored trace is the trace that would be in memory, or the same error, whatever the file holds."""

import tempfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace import stored_trace as module
from aitrace.codec import encode_line
from aitrace.columns import call_columns, segment_columns
from aitrace.errors import InputError
from aitrace.identity import BlockIdentity
from aitrace.prompts import PromptResolver, prompt_size
from aitrace.store import read_trace
from aitrace.stored_trace import stored_trace
from aitrace.testing import TraceBuilder, recorded_lines

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 6)
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(st.characters(codec="utf-8"), max_size=3)
    | st.lists(st.integers(-1, 5), max_size=4)
)


@st.composite
def traces(draw):
    """Some trees whose prompts branch, with segments that share blocks."""
    builder = TraceBuilder()
    callers, lengths = [], []
    sessions = [builder.session(harness="a")]
    segments = [builder.segment(draw(st.integers(0, 300)), role="system", type="system")]
    for _ in range(draw(st.integers(1, 10))):
        if draw(st.booleans()):
            parent = draw(st.none() | st.sampled_from(callers)) if callers else None
            sessions.append(builder.session(parent, harness=draw(st.sampled_from([None, "a"]))))
        if draw(st.booleans()):
            like = draw(st.none() | st.sampled_from(segments))
            kind = draw(st.sampled_from(["system", "text"]))
            segments.append(builder.segment(draw(st.integers(0, 300)), type=kind, like=like))
        base = draw(st.none() | st.sampled_from(range(len(lengths)))) if lengths else None
        keep = 0 if base is None else draw(st.integers(0, lengths[base]))
        add = draw(st.lists(st.sampled_from(segments), max_size=3))
        session = draw(st.sampled_from(sessions))
        builder.call(session, add, base=base, keep=keep)
        callers.append(session)
        lengths.append(keep + len(add))
    return builder.trace()


@pytest.fixture(scope="module", autouse=True)
def spools(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("spools")))
        yield


def file_of(rows):
    path = Path(tempfile.gettempdir(), "x.aitrace")
    path.write_bytes(b"".join(rows))
    return path


def outcome(read):
    """A trace as tuples, or the text and hint of what is wrong with it."""
    try:
        trace = read()
    except InputError as error:
        return str(error), error.hint
    return trace.header, trace.sessions, tuple(trace.segments), tuple(trace.calls), trace.footer


def stored_outcome(path, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH_LINES", batch)

        def read():
            with stored_trace(path) as stored:
                return outcome(lambda: stored.trace)

        try:
            return read()
        except InputError as error:
            return str(error), error.hint


def rows_of(trace, *, is_recorded):
    plain = (trace.header, *trace.sessions, *trace.segments, *trace.calls, trace.footer)
    return [encode_line(line) for line in (recorded_lines(trace) if is_recorded else plain)]


@given(traces(), st.booleans(), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_what_is_stored_is_what_would_be_in_memory(trace, is_recorded, batch):
    path = file_of(rows_of(trace, is_recorded=is_recorded))
    assert outcome(lambda: trace) == stored_outcome(path, batch)


@given(traces(), st.booleans(), st.integers(1, 8), st.data())
@settings(max_examples=250, deadline=None)
def test_a_damaged_field_gives_the_same_trace_or_the_same_error(trace, is_recorded, batch, data):
    rows = rows_of(trace, is_recorded=is_recorded)
    place = data.draw(st.integers(0, len(rows) - 1))
    line = orjson.loads(rows[place])
    parts = [line, *(value for value in line.values() if isinstance(value, dict)), *line.get("after", ())]
    part = data.draw(st.sampled_from([part for part in parts if part]))
    name = data.draw(st.sampled_from(sorted(part)))
    if data.draw(st.booleans()):
        part[name] = data.draw(VALUES)
    else:
        del part[name]
    path = file_of([*rows[:place], orjson.dumps(line) + b"\n", *rows[place + 1 :]])
    assert outcome(lambda: read_trace(path)) == stored_outcome(path, batch)


@given(traces(), st.booleans(), st.integers(1, 8), st.data())
@settings(max_examples=80, deadline=None)
def test_lines_out_of_place_give_the_same_trace_or_the_same_error(trace, is_recorded, batch, data):
    rows = rows_of(trace, is_recorded=is_recorded)
    taken = rows.pop(data.draw(st.integers(0, len(rows) - 1)))
    rows.insert(data.draw(st.integers(0, len(rows))), taken)
    path = file_of(rows)
    assert outcome(lambda: read_trace(path)) == stored_outcome(path, batch)


@given(traces(), st.booleans(), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_columns_of_a_stored_trace_are_those_of_its_lines(trace, is_recorded, batch):
    path = file_of(rows_of(trace, is_recorded=is_recorded))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH_LINES", batch)
        with stored_trace(path) as stored:
            for columns in (call_columns, segment_columns):
                ours, theirs = columns(stored.trace), columns(trace)
                for field in fields(ours):
                    assert np.array_equal(getattr(ours, field.name), getattr(theirs, field.name)), field.name
            prompts, few = PromptResolver(stored.trace.calls), PromptResolver(trace.calls, kept_ids=4)
            for call in trace.calls:
                ids = prompts.segment_ids(call.id)
                assert ids == few.segment_ids(call.id) == plain_ids(trace, call)
                assert prompt_size(trace, ids) == theirs_size(stored.trace, call.id)


def plain_ids(trace, call):
    prompt = call.prompt
    kept = () if prompt.base is None else plain_ids(trace, trace.calls[prompt.base])[: prompt.keep]
    return kept + prompt.add


def theirs_size(trace, call):
    return int(call_columns(trace).prompt_size[call])


@given(traces(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_blocks_have_equal_keys_in_two_trees_exactly_if_the_trace_shares_them(trace, share_system):
    """Block by block, from the prompts as they are."""
    identity = BlockIdentity(trace, share_system=share_system)
    roots = {}
    for call in trace.calls:
        for segment in plain_ids(trace, call):
            for block in blocks_of(trace, segment):
                roots.setdefault(block, set()).add(trace.sessions[call.session].root)
    for segment in range(len(trace.segments)):
        one, two = (keys_of(identity.runs(segment, instance)) for instance in (1, 2))
        assert len(one) == len(two) == len(blocks_of(trace, segment))
        for block, first, second in zip(blocks_of(trace, segment), one, two, strict=True):
            if not share_system:
                assert (first == second == block) == (len(roots.get(block, ())) > 1)
            elif len(roots.get(block, ())) > 1:
                assert first == second


def blocks_of(trace, segment):
    return [block for first, count in trace.segments[segment].blocks for block in range(first, first + count)]


def keys_of(runs):
    return [key for first, count in runs for key in range(first, first + count)]
