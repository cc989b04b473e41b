"""A run as OpenTelemetry spans."""

from collections import Counter
from dataclasses import replace

import orjson
import pytest

from aitrace.codec import encode_record
from aitrace.results import Attempt
from aitrace.schema import Usage
from aitrace.testing import make_call_result, make_run_header
from reports.export.links import CallLink, SessionLink, TraceLinks
from reports.export.otlp import BATCH_SPANS, otlp_chunks
from reports.export.testing import make_source, source_of_run
from reports.testing import make_up_run

RUN = make_up_run(trees=4, calls=10, seed=2, refused_ratio=0.05)
LINES = [orjson.loads(encode_record(call)) for call in RUN.calls]
START = RUN.header.started_unix_ns


def spans_of(source):
    lines = [orjson.loads(line) for line in otlp_chunks(source)]
    return [
        span
        for line in lines
        for one in line["resourceSpans"]
        for scope in one["scopeSpans"]
        for span in scope["spans"]
    ]


def value_of(value):
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return [value_of(one) for one in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def attributes_of(span):
    return {one["key"]: value_of(one["value"]) for one in span["attributes"]}


def only(source, prefix):
    return [span for span in spans_of(source) if span["name"].startswith(prefix)]


def chat(call, **header):
    (span,) = only(make_source([call], header=make_run_header(**header)), "chat")
    return span, attributes_of(span)


def test_each_call_that_was_sent_is_a_span_with_the_times_of_its_line():
    sent = {line["index"]: line for line in LINES if "sent_ns" in line}
    spans = {attributes_of(span)["aitrace.index"]: span for span in only(source_of_run(RUN), "chat")}
    assert len(spans) > 50
    assert spans.keys() == sent.keys()
    for index, span in spans.items():
        line, told = sent[index], attributes_of(span)
        assert span["startTimeUnixNano"] == str(START + line["due_ns"])
        assert span["endTimeUnixNano"] == str(START + line["end_ns"])
        assert told.get("gen_ai.usage.input_tokens") == line.get("usage", {}).get("input_tokens")
        assert told.get("gen_ai.usage.output_tokens") == line.get("usage", {}).get("output_tokens")
        wanted = [
            (f"aitrace.{name}", line.get(f"{name}_ns")) for name in ("headers", "first_token", "last_token")
        ]
        assert [(one["name"], int(one["timeUnixNano"]) - START) for one in span["events"]] == [
            (name, at_ns) for name, at_ns in wanted if at_ns is not None
        ]


def test_ids_are_unique_and_parents_exist_in_the_same_trace():
    spans = spans_of(source_of_run(RUN))
    ids = {span["spanId"]: span for span in spans}
    assert len(ids) == len(spans)
    assert {(len(span["traceId"]), len(span["spanId"])) for span in spans} == {(32, 16)}
    for span in spans:
        if "parentSpanId" in span:
            assert ids[span["parentSpanId"]]["traceId"] == span["traceId"]
        for link in span.get("links", ()):
            assert ids[link["spanId"]]["traceId"] == link["traceId"] == span["traceId"]


def test_sessions_stand_below_the_one_that_spawned_them_and_above_their_calls():
    spans = spans_of(source_of_run(RUN))
    session_of = {
        span["spanId"]: attributes_of(span)["aitrace.session"] for span in spans if span["kind"] == 1
    }
    for span in spans:
        told = attributes_of(span)
        parent = session_of.get(span.get("parentSpanId"))
        if span["kind"] == 3:
            assert parent == told["aitrace.session"]
        else:
            assert parent == RUN.trace.sessions[told["aitrace.session"]].parent
            assert told["aitrace.calls"] == sum(line["session"] == told["aitrace.session"] for line in LINES)


def test_links_are_the_calls_that_one_waited_for():
    spans = only(source_of_run(RUN), "chat")
    call_of = {span["spanId"]: attributes_of(span)["aitrace.call"] for span in spans}
    linked = {(call_of[link["spanId"]], call_of[span["spanId"]]) for span in spans for link in span["links"]}
    sent = set(call_of.values())
    waited = {
        (one.call, call.id) for call in RUN.trace.calls for one in call.after if {one.call, call.id} <= sent
    }
    assert len(waited) > 50
    assert linked == waited


def test_a_trace_is_a_tree_of_one_playing():
    calls = [make_call_result(0), make_call_result(1, instance=2), make_call_result(2, session=5, root=5)]
    assert len({span["traceId"] for span in spans_of(make_source(calls))}) == 3


def test_two_exports_are_equal_and_two_runs_are_not():
    def export(**header):
        return b"".join(otlp_chunks(make_source([make_call_result()], header=make_run_header(**header))))

    assert export() == export()
    assert {s["spanId"] for s in spans_of(make_source([make_call_result()]))}.isdisjoint(
        {
            s["spanId"]
            for s in spans_of(make_source([make_call_result()], header=make_run_header(text_seed=7)))
        }
    )


@pytest.mark.parametrize(
    ("protocol", "provider"), [("anthropic", "anthropic"), ("responses", "openai"), ("chat", "openai")]
)
def test_a_call_has_the_names_of_the_conventions(protocol, provider):
    span, told = chat(make_call_result(events=3), protocol=protocol, model="m", url="https://host/v1")
    assert (span["name"], span["kind"]) == ("chat m", 3)
    assert told["gen_ai.provider.name"] == provider
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "m")
    assert (told["server.address"], told["server.port"]) == ("host", 443)
    assert (told["gen_ai.request.stream"], told["gen_ai.response.finish_reasons"]) == (True, ["stop"])
    assert told["gen_ai.response.time_to_first_chunk"] == 0.25
    assert "status" not in span


def test_tokens_written_to_caches_of_either_lifetime_are_one_number():
    usage = Usage(cache_read_tokens=7, cache_write_5m_tokens=2, cache_write_1h_tokens=3, reasoning_tokens=0)
    _, told = chat(make_call_result(usage=usage))
    assert told["gen_ai.usage.cache_read.input_tokens"] == 7
    assert told["gen_ai.usage.cache_write.input_tokens"] == 5
    assert told["gen_ai.usage.reasoning.output_tokens"] == 0


def test_what_is_not_known_is_left_out():
    _, told = chat(make_call_result(usage=Usage(), finish=None, events=None))
    assert not {name for name in told if name.startswith("gen_ai.usage")}
    assert "gen_ai.request.stream" not in told
    assert "gen_ai.response.finish_reasons" not in told


def test_a_failure_has_a_type_a_status_and_the_text_if_there_is_one():
    span, told = chat(make_call_result(error="refused", status=429, error_text="no \n room"))
    assert span["status"] == {"code": 2, "message": "no \n room"}
    assert (told["error.type"], told["http.response.status_code"]) == ("refused", 429)
    assert told["gen_ai.response.finish_reasons"] == ["error"]
    span, _ = chat(make_call_result(error="timeout"))
    assert span["status"] == {"code": 2}


def test_tries_are_spans_below_their_call():
    attempts = (
        Attempt(
            sent_ns=5,
            end_ns=9,
            error="refused",
            status=429,
            retry_after_ns=2_000_000_000,
            wait_ns=1_500_000_000,
        ),
        Attempt(end_ns=1_500_000_100, error="connect", wait_ns=10),
    )
    source = make_source(
        [make_call_result(at_ns=2_000_000_000, due_ns=0, retry_due_ns=1_999_000_000, attempts=attempts)]
    )
    (call,) = only(source, "chat")
    assert attributes_of(call)["aitrace.lateness_s"] == 0.001
    first, last = only(source, "try")
    assert [first["name"], last["name"]] == ["try 1", "try 3"]
    assert {first["parentSpanId"], last["parentSpanId"]} == {call["spanId"]}
    assert attributes_of(first) == {
        "http.response.status_code": 429,
        "http.request.resend_count": 0,
        "error.type": "refused",
        "aitrace.retry_after_s": 2.0,
        "aitrace.backoff_s": 1.5,
    }
    assert (first["status"], "status" in last) == ({"code": 2}, False)


def test_a_try_without_an_end_ends_with_its_call():
    attempt = Attempt(sent_ns=5, end_ns=9, error="refused", wait_ns=1)
    call = make_call_result(due_ns=0, end_ns=None, last_token_ns=70, sent_ns=20, attempts=(attempt,))
    last = only(make_source([call]), "try")[-1]
    assert int(last["endTimeUnixNano"]) - make_run_header().started_unix_ns == 70


def test_signals_and_flags_keep_their_types():
    _, told = chat(make_call_result(signals={"nvext.timing.ttft_ms": 1.5, "x-smg-error-code": "full"}))
    assert (told["aitrace.signal.nvext.timing.ttft_ms"], told["aitrace.signal.x-smg-error-code"]) == (
        1.5,
        "full",
    )


def test_unsent_calls_and_sessions_without_a_call_have_no_span():
    nothing = {"due_ns": None, "sent_ns": None, "end_ns": None}
    assert spans_of(make_source([make_call_result(unsent="duration", **nothing)])) == []


def test_a_session_whose_parent_sent_nothing_stands_below_the_next_above():
    links = TraceLinks(
        sessions={1: SessionLink(parent=0, agent=None), 2: SessionLink(parent=1, agent="Plan")},
        after={},
        planned_calls={},
    )
    calls = [make_call_result(0), make_call_result(1, session=2)]
    for known in (links, None):
        main, below = only(make_source(calls, links=known), "invoke_agent")
        assert below["parentSpanId"] == main["spanId"]
    assert only(make_source(calls, links=links), "invoke_agent")[1]["name"] == "invoke_agent Plan"
    assert only(make_source(calls), "invoke_agent")[1]["name"] == "invoke_agent agent"


def test_a_session_of_a_tree_whose_root_sent_nothing_has_no_parent():
    (below,) = only(make_source([make_call_result(session=3)]), "invoke_agent")
    assert "parentSpanId" not in below


def test_lines_hold_a_bounded_number_of_spans_and_each_stands_alone():
    calls = [make_call_result(index) for index in range(BATCH_SPANS + 10)]
    lines = [orjson.loads(line) for line in otlp_chunks(make_source(calls))]
    sizes = [len(line["resourceSpans"][0]["scopeSpans"][0]["spans"]) for line in lines]
    assert sizes == [BATCH_SPANS, 11]
    for line in lines:
        resource = attributes_of(line["resourceSpans"][0]["resource"])
        assert (resource["service.name"], resource["aitrace.run.ended"]) == ("aitrace", True)
        assert len(orjson.dumps(line)) < 2**20


def test_a_primed_call_has_no_links():
    source = source_of_run(RUN)
    primed = replace(source, calls=lambda: (replace(call, phase="prime") for call in RUN.calls))
    assert Counter(len(span["links"]) for span in only(primed, "chat")).keys() == {0}


def test_a_link_needs_a_call_that_was_played():
    after = {1: (CallLink(call=0, relation="sequence", trigger="completion"),)}
    links = TraceLinks(sessions={}, after=after, planned_calls={})
    calls = [make_call_result(0), make_call_result(1)]
    assert [len(span["links"]) for span in only(make_source(calls, links=links), "chat")] == [0, 1]
    assert [len(span["links"]) for span in only(make_source(calls[1:], links=links), "chat")] == [0]
