import re
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import orjson
import pytest

from aitrace import codec, results, schema
from aitrace.codec import conform, decode_line, decode_record, encode_line, encode_record
from aitrace.errors import InputError
from aitrace.results import CallResult, RunEnd, RunHeader, Scrape
from aitrace.schema import (
    FORMAT_VERSION,
    Call,
    CallTimes,
    Dependency,
    Events,
    Footer,
    Header,
    Outcome,
    Prompt,
    Segment,
    Session,
    ToolCall,
    Usage,
)
from aitrace.testing import make_call_result, make_run_end, make_run_header

FULL_CALL = Call(
    id=17,
    session=2,
    turn=3,
    window=1,
    call_class="main",
    protocol="anthropic",
    model="claude-x-1",
    prompt=Prompt(base=16, keep=4, add=(31, 32)),
    max_output_tokens=32000,
    streamed=True,
    usage=Usage(
        input_tokens=1000,
        cache_read_tokens=900,
        cache_write_5m_tokens=50,
        cache_write_1h_tokens=0,
        output_tokens=70,
        reasoning_tokens=10,
    ),
    tool_calls=(ToolCall(name="Bash", end_ns=5000, duration_ns=700), ToolCall()),
    tool_results=1,
    outcome=Outcome(status=529, error="refused", finish="tool_use", retry_after_ns=10**9, ended_by="client"),
    attempt=2,
    retry_of=16,
    times=CallTimes(
        request_ns=1000,
        forwarded_ns=1001,
        headers_ns=1500,
        first_byte_ns=1600,
        first_event_ns=1700,
        first_token_ns=1800,
        first_visible_ns=1900,
        last_token_ns=5000,
        end_ns=5100,
    ),
    events=Events(at_ns=(1700, 1800, 1800, 5000), size_bytes=(10, 20, 30, 40)),
    after=(Dependency(call=16, relation="retry", trigger="dispatch", gap_ns=-5, cause="backoff"),),
)


def call_fields(**changes):
    return {"kind": "call", "id": 0, "session": 0, "prompt": {}, "times": {"request_ns": 0}, **changes}


def decode(fields_):
    return decode_line(orjson.dumps(fields_), place="x.aitrace:17")


@pytest.mark.parametrize(
    "line",
    [
        Header(producer="aitrace 1", unit="bytes", block_size=256),
        Header(
            producer="aitrace 1",
            created_unix_ns=1,
            clock_unix_ns=2,
            clock_scope="tree",
            clock_resolution_ns=1000,
            unit="tokens",
            block_size=64,
            block_scope="tree",
            privacy="content",
            source="weka",
            attribution="MIT",
            normalised=("a", "b"),
            unknown=("c",),
        ),
        Session(id=0, root=0),
        Session(id=1, parent=0, root=0, harness="codex", agent="Explore", label="t_1"),
        Segment(id=0, role="user", type="text", size=0, blocks=()),
        Segment(id=1, role="tool", type="tool_result", size=200, blocks=((5, 3), (1, 1)), text="hello"),
        Call(id=0, session=0, prompt=Prompt(), times=CallTimes(request_ns=0)),
        FULL_CALL,
        Footer(sessions=1, segments=2, calls=3, blocks=4),
        Footer(sessions=1, segments=2, calls=3, blocks=4, dropped_calls=5, notes={"parse_errors": 6}),
    ],
    ids=lambda line: type(line).__name__,
)
def test_a_line_comes_back_as_it_was(line):
    data = encode_line(line)
    assert line == decode_line(data, place="x:1")
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 1


@pytest.mark.parametrize(
    "record",
    [
        make_run_header(options={"rate": 1.5, "url": "x"}),
        make_run_end(loop_lag_p99_ns=None),
        make_call_result(3),
        make_call_result(unsent="session_lost", gap_cause=None, error="cut", error_text="gone"),
        Scrape(at_ns=5, url="http://h/metrics", values={"running": 3.0, "waiting": 0.0}),
        Scrape(at_ns=5, url="http://h/metrics", error="timeout"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_comes_back_as_it_was(record):
    assert record == decode_record(type(record), encode_record(record), place="x:1")


def test_what_equals_its_default_is_not_written():
    call = Call(id=0, session=0, prompt=Prompt(), times=CallTimes(request_ns=5))
    assert encode_line(call) == b'{"kind":"call","id":0,"session":0,"prompt":{},"times":{"request_ns":5}}\n'


def test_the_version_is_always_written():
    fields_ = orjson.loads(encode_line(Header(producer="p", unit="bytes", block_size=1)))
    assert fields_ == {
        "kind": "header",
        "version": FORMAT_VERSION,
        "producer": "p",
        "unit": "bytes",
        "block_size": 1,
    }


def test_the_compact_forms_are_those_of_the_format():
    fields_ = orjson.loads(encode_line(FULL_CALL))
    assert fields_["class"] == "main"
    assert fields_["events"]["at_ns"] == [1700, 100, 0, 3200]
    segment = Segment(id=0, role="user", type="text", size=200, blocks=((5, 3), (1, 1)))
    assert orjson.loads(encode_line(segment))["blocks"] == [5, 3, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": {"request_ns": "abc"}}, "call.times.request_ns: expected an integer, got 'abc'"),
        ({"times": {"request_ns": True}}, "call.times.request_ns: expected an integer, got True"),
        ({"times": {"request_ns": 1.0}}, "call.times.request_ns: expected an integer, got 1.0"),
        ({"times": {"request_ns": None}}, "call.times.request_ns: expected an integer, got None"),
        ({"times": {}}, "call.times.request_ns: missing"),
        ({"times": 5}, "call.times: expected an object, got 5"),
        ({"window": None}, "call.window: expected an integer, got None"),
        ({"streamed": 1}, "call.streamed: expected true or false, got 1"),
        ({"model": 5}, "call.model: expected a string, got 5"),
        (
            {"protocol": "grpc"},
            "call.protocol: expected one of 'anthropic', 'responses', 'chat', got 'grpc'",
        ),
        (
            {"protocol": ["chat"]},
            "call.protocol: expected one of 'anthropic', 'responses', 'chat', got ['chat']",
        ),
        ({"prompt": {"add": 5}}, "call.prompt.add: expected a list, got 5"),
        ({"prompt": {"add": [0, "x"]}}, "call.prompt.add.1: expected an integer, got 'x'"),
        ({"tool_calls": [{}, {"name": 5}]}, "call.tool_calls.1.name: expected a string, got 5"),
        ({"tool_calls": [{}, 7]}, "call.tool_calls.1: expected an object, got 7"),
        ({"after": [{"call": 1}]}, "call.after.0.relation: missing"),
        ({"events": {"at_ns": [1, None]}}, "call.events.at_ns: expected a list of integers, got [1, None]"),
        ({"events": {"at_ns": 1}}, "call.events.at_ns: expected a list of integers, got 1"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(changes, message):
    with pytest.raises(InputError) as error:
        decode(call_fields(**changes))
    assert f"x.aitrace:17: {message}" == str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "x:1: not JSON: "),
        (b"\xff\xfe", "x:1: not JSON: "),
        (b"[1]", "x:1: expected a JSON object, got [1]"),
        (
            b"{}",
            "x:1: kind: expected one of 'header', 'session', 'segment', 'call', 'update', 'footer', got None",
        ),
        (b'{"kind":["call"]}', "x:1: kind: expected one of"),
        (b'{"kind":"call"}', "x:1: call.id: missing"),
        (b'{"kind":"header","unit":"bytes"}', "x:1: header.version: missing"),
        (
            b'{"kind":"segment","blocks":[1,2,3]}',
            "x:1: segment.blocks: expected pairs of first id and count, got 3 numbers",
        ),
        (b'{"kind":"footer","notes":{"a":"b"}}', "x:1: footer.notes.a: expected an integer, got 'b'"),
        (b'{"kind":"footer","notes":[]}', "x:1: footer.notes: expected an object, got []"),
    ],
)
def test_what_is_no_line_is_refused(data, message):
    with pytest.raises(InputError) as error:
        decode_line(data, place="x:1")
    assert str(error.value).startswith(message)


def test_long_values_are_shortened_in_messages():
    with pytest.raises(InputError) as error:
        decode(call_fields(id="x" * 500))
    assert len(str(error.value)) < 120


def test_unknown_fields_are_kept_and_written_back_where_they_stood():
    fields_ = call_fields(
        future={"a": [1]},
        extra=5,
        usage={"new_tokens": 7},
        tool_calls=[{"name": "Bash"}, {"name": "Read", "exit": 1}],
        events={"at_ns": [5], "size_bytes": [1], "colour": "red"},
        after=[{"call": 0, "relation": "join", "why": "x"}],
    )
    call = decode(fields_)
    assert call.extra["future"] == {"a": [1]}
    assert call.extra["tool_calls"] == {"1": {"exit": 1}}
    assert fields_ == orjson.loads(encode_line(call))


def test_unknown_fields_of_list_items_that_are_gone_go_with_them():
    call = decode(call_fields(after=[{"call": 0, "relation": "join", "why": "x"}]))
    assert call_fields() == orjson.loads(encode_line(replace(call, after=())))


def test_unknown_fields_that_could_not_be_written_back_are_refused():
    data = orjson.dumps(call_fields())[:-1] + b',"deep":' + b"[" * 500 + b"]" * 500 + b"}"
    with pytest.raises(InputError, match=r"^x:1: unknown fields are nested too deep: 'deep'$"):
        decode_line(data, place="x:1")


@pytest.mark.parametrize("name", ["kind", "id"])
def test_extra_cannot_replace_a_field(name):
    call = Call(id=0, session=0, prompt=Prompt(), times=CallTimes(request_ns=0), extra={name: 5})
    with pytest.raises(ValueError, match=name):
        encode_line(call)


def test_records_of_a_later_program_are_read():
    data = orjson.dumps({**orjson.loads(encode_record(make_run_end())), "new": {"a": 1}})
    assert make_run_end() == decode_record(RunEnd, data, place="x")


def test_a_number_field_takes_an_integer():
    data = orjson.dumps({"at_ns": 1, "url": "u", "values": {"running": 3}})
    assert decode_record(Scrape, data, place="x").values == {"running": 3.0}


def test_a_wrong_record_is_named_with_its_place():
    with pytest.raises(InputError, match=r"^calls.jsonl:4: index: missing$"):
        decode_record(CallResult, b"{}", place="calls.jsonl:4")
    with pytest.raises(InputError, match=r"^s:1: values.running: expected a number, got 'x'$"):
        decode_record(Scrape, b'{"at_ns":1,"url":"u","values":{"running":"x"}}', place="s:1")
    with pytest.raises(InputError, match=r"^r:1: values: expected an object, got 5$"):
        decode_record(Scrape, b'{"at_ns":1,"url":"u","values":5}', place="r:1")
    with pytest.raises(InputError, match=r"^r:1: options: expected an object, got 5$"):
        decode_record(RunHeader, b'{"options":5}', place="r:1")


def test_metrics_that_are_not_numbers_are_left_out():
    scrape = Scrape(at_ns=1, url="u", values={"running": float("nan"), "waiting": 2.0})
    assert decode_record(Scrape, encode_record(scrape), place="x").values == {"waiting": 2.0}


def test_a_number_that_json_lacks_is_refused_elsewhere():
    with pytest.raises(ValueError, match="inf"):
        encode_record(make_run_header(time_scale=float("inf")))


def test_a_type_without_json_form_is_refused_when_the_plan_is_made():
    @dataclass
    class Odd:
        value: bytes

    with pytest.raises(TypeError, match="bytes"):
        codec._plan(Odd)


def test_every_dataclass_of_the_schema_has_a_json_form():
    classes = [value for value in vars(schema).values() if isinstance(value, type) and is_dataclass(value)]
    lines = [cls for cls in classes if cls is not schema.Trace]
    assert len(lines) >= 12
    for cls in lines:
        names = {field.name for field in fields(cls)} - {"extra"}
        assert names == {field.name for field in codec._plan(cls).fields}
        assert get_type_hints(cls)


def test_fields_of_a_record_are_what_is_written():
    end = make_run_end()
    assert orjson.loads(encode_record(end)) == codec.fields_from_record(end)


FORMAT_PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text()


@pytest.mark.parametrize("module", [schema, results])
def test_every_field_and_word_is_in_the_documents(module):
    """docs/format.md is normative, so it names every field and every word of every closed set."""
    named = set(re.findall(r"`([A-Za-z0-9_./]+)`", FORMAT_PAGE))
    classes = [value for value in vars(module).values() if isinstance(value, type) and is_dataclass(value)]
    words = {
        word for value in vars(module).values() if get_origin(value) is Literal for word in get_args(value)
    }
    assert len(classes) >= 5
    assert {field.name for cls in classes for field in fields(cls)} | words <= named


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63)])
def test_integers_have_64_bits_with_a_sign(number):
    """JSON libraries also read what only an unsigned integer can hold; every place of an integer is bounded."""
    lines = [
        (f'{{"kind":"call","id":{number},"session":0,"prompt":{{}},"times":{{"request_ns":0}}}}', "call.id"),
        (
            f'{{"kind":"call","id":0,"session":0,"prompt":{{"add":[0,{number}]}},"times":{{"request_ns":0}}}}',
            "call.prompt.add.1",
        ),
        (
            f'{{"kind":"segment","id":0,"role":"user","type":"text","size":1,"blocks":[{number},1]}}',
            "segment.blocks",
        ),
        (
            f'{{"kind":"footer","sessions":0,"segments":0,"calls":0,"blocks":0,"notes":{{"a":{number}}}}}',
            "footer.notes.a",
        ),
    ]
    for text, place in lines:
        if number == -(2**63):
            decode_line(text.encode(), place="x:1")
            continue
        with pytest.raises(InputError, match=rf"^x:1: {re.escape(place)}: expected .*64 bits, got"):
            decode_line(text.encode(), place="x:1")


def test_integers_of_run_records_have_64_bits_too():
    data = encode_record(results.Scrape(at_ns=0, url="u", values={})).replace(
        b'"at_ns":0', b'"at_ns":%d' % 2**63
    )
    with pytest.raises(InputError, match=rf"^x:1: at_ns: expected an integer of 64 bits, got {2**63}$"):
        decode_record(results.Scrape, data, place="x:1")


def test_signals_of_a_call_are_strings_and_numbers():
    call = make_call_result(signals={"worker": "w1", "id": 7, "ttft_ms": 1.5})
    assert decode_record(results.CallResult, encode_record(call), place="x:1") == call


@pytest.mark.parametrize("value", [b"true", b"null", b"[]", b"9223372036854775808"])
def test_a_signal_of_another_kind_is_refused(value):
    data = encode_record(make_call_result(signals={"id": 7})).replace(b'{"id":7}', b'{"id":%b}' % value)
    with pytest.raises(InputError, match=r"^x:1: signals.id: expected a string or a number, got"):
        decode_record(results.CallResult, data, place="x:1")


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("call", [FULL_CALL, replace(FULL_CALL, usage=Usage(), streamed=None)]),
        ("session", [Session(id=0, root=0), Session(id=1, root=0, parent=0, evidence=("a",))]),
        ("segment", [Segment(id=0, role="user", type="text", size=1, blocks=((0, 1),), text="x")]),
        ("footer", [Footer(sessions=1, segments=0, calls=0, blocks=0)]),
    ],
)
def test_lines_conform_together_as_they_do_one_by_one(kind, lines):
    fields = [orjson.loads(encode_line(line)) for line in lines]
    assert conform(kind, fields)
    for number in range(len(fields)):
        assert not conform(kind, [*fields[:number], {**fields[number], "x_new": 1}, *fields[number + 1 :]])
        for name in fields[number]:
            damaged = [dict(line) for line in fields]
            damaged[number][name] = {"not": ["right"]}
            assert name == "kind" or not conform(kind, damaged)


@pytest.mark.parametrize("kind", ["header", "x"])
def test_a_kind_that_does_not_follow_the_header_conforms_to_nothing(kind):
    assert not conform(kind, [{"kind": kind}])


def test_lists_that_are_empty_everywhere_conform():
    fields = orjson.loads(encode_line(replace(FULL_CALL, prompt=Prompt())))
    fields["after"], fields["tool_calls"], fields["prompt"]["add"] = [], [], []
    fields["events"] = {"at_ns": [], "size_bytes": []}
    assert conform("call", [fields])
    assert not conform("call", [{**fields, "after": [[]]}])


def test_what_is_not_known_conforms_beside_what_is():
    fields = [orjson.loads(encode_line(replace(FULL_CALL, turn=turn))) for turn in (1, 2, 3)]
    fields[1]["turn"] = None
    assert conform("call", fields)
    fields[1]["turn"] = "2"
    assert not conform("call", fields)
    fields[1]["turn"], fields[2]["id"] = 2, None
    assert not conform("call", fields)
