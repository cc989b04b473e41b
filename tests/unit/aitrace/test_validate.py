from dataclasses import replace

import pytest

from aitrace.schema import (
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
    Update,
    Usage,
    Wire,
)
from aitrace.testing import (
    TraceBuilder,
    find_problems,
    make_call,
    make_segment,
    make_trace,
    make_update,
    recorded_lines,
)
from aitrace.units import NS_PER_S
from aitrace.validate import MAX_SEGMENT_BLOCKS, ReferenceRules, TraceRules

HEADER = Header(producer="aitrace 0", unit="tokens", block_size=64)
ROOT = Session(id=0, root=0)


def problems(*lines, header=HEADER, end=False):
    """Findings of lines that stand after a header, as (line, rule, message); line 1 is the header."""
    rules = TraceRules()
    found = [
        finding for number, line in enumerate((header, *lines), 1) for finding in rules.check(number, line)
    ]
    return [(f.line, f.rule, f.message) for f in found + (rules.finish() if end else [])]


def lines_of(trace):
    return [trace.header, *trace.sessions, *trace.segments, *trace.calls, trace.footer]


def tree():
    """A main agent with two calls, a sub-agent with one, and the join."""
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main, [builder.segment(100)])
    child = builder.session(main)
    inner = builder.call(child, [builder.segment(100)])
    builder.call(main, [builder.segment(100)], after=[first, inner])
    return builder.trace()


def test_a_whole_trace_has_no_problems():
    for trace in (make_trace(3, 4), tree()):
        assert list(find_problems(enumerate(lines_of(trace), 1))) == []


def test_the_header_is_known_once_it_was_seen():
    rules = TraceRules()
    assert rules.header is None
    rules.check(1, HEADER)
    assert rules.header == HEADER


def test_an_empty_trace_is_in_doubt():
    assert [p[:2] for p in problems(end=True)] == [(1, "no-footer"), (1, "no-calls")]
    assert {"warning"} == {f.severity for f in find_problems([(1, HEADER)])}


def test_the_block_size_is_at_least_one():
    bad = replace(HEADER, block_size=0)
    assert problems(header=bad) == [(1, "header", "header.block_size: expected at least 1, got 0")]
    assert problems(make_segment(0, 100, 0), header=bad)[1:] == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([Session(id=1, root=1)], "session.id: expected 0, got 1"),
        ([ROOT, ROOT], "session.id: expected 1, got 0"),
        ([make_segment(3, 64, 0)], "segment.id: expected 0, got 3"),
        ([ROOT, make_call(5)], "call.id: expected 0, got 5"),
    ],
)
def test_ids_are_dense_in_order_of_appearance(lines, message):
    assert [(len(lines) + 1, "id", message)] == problems(*lines)


def test_one_lost_line_is_one_finding():
    calls = [make_call(i) for i in range(50)]
    assert problems(ROOT, *calls[:6], *calls[7:]) == [(9, "id", "call.id: expected 6, got 7")]


def test_a_reference_into_the_hole_of_a_lost_line_is_a_finding():
    late = make_call(8, prompt=Prompt(base=6, keep=0))
    found = problems(ROOT, *[make_call(i) for i in (0, 1, 2, 3, 4, 5, 7)], late)
    assert found[-1] == (10, "reference", "call.prompt.base: call 6 is not in the file")


@pytest.mark.parametrize(
    ("session", "rule", "message"),
    [
        (
            Session(id=1, root=0),
            "tree",
            "session.root: a session without parent is its own root, got 0",
        ),
        (Session(id=1, parent=2, root=0), "reference", "session.parent: session 2 comes later or never"),
        (Session(id=1, parent=1, root=1), "reference", "session.parent: session 1 comes later or never"),
        (Session(id=1, parent=-1, root=0), "reference", "session.parent: session -1 is no id"),
        (
            Session(id=1, parent=0, root=1),
            "tree",
            "session.root: expected 0, the root of its parent, got 1",
        ),
    ],
)
def test_sessions_form_trees(session, rule, message):
    assert [(3, rule, message)] == problems(ROOT, session)


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        (make_segment(0, 129, 0, blocks=((0, 2),)), "size 129 in blocks of 64 makes 3, got 2"),
        (make_segment(0, 64, 0, blocks=()), "size 64 in blocks of 64 makes 1, got 0"),
        (make_segment(0, 0, 0, blocks=((0, 1),)), "size 0 in blocks of 64 makes 0, got 1"),
        (make_segment(0, 64, 1), "a new block has id 0, got 1"),
        (make_segment(0, 128, 0, blocks=((0, 1), (2, 1))), "a new block has id 1, got 2"),
    ],
)
def test_blocks_cover_the_size_and_are_numbered_in_order(segment, message):
    assert [(2, "blocks", f"segment.blocks: {message}")] == problems(segment)


@pytest.mark.parametrize(
    ("blocks", "is_right"), [(MAX_SEGMENT_BLOCKS, True), (MAX_SEGMENT_BLOCKS + 1, False)]
)
def test_a_segment_has_a_bounded_number_of_blocks(blocks, is_right):
    """A line of 80 bytes must not stand for 2^40 ids that a reader would list."""
    found = problems(make_segment(0, blocks, 0, blocks=((0, blocks),)), header=replace(HEADER, block_size=1))
    message = f"segment.blocks: expected at most {MAX_SEGMENT_BLOCKS} blocks, got {blocks}"
    assert found == ([] if is_right else [(2, "blocks", message)])


def test_blocks_and_sizes_are_not_negative():
    assert "segment.blocks: expected a first id from 0 and a count from 1, got -1, 1" in [
        p[2] for p in problems(make_segment(0, 64, -1))
    ]
    assert "segment.blocks: expected a first id from 0 and a count from 1, got 0, 0" in [
        p[2] for p in problems(make_segment(0, 0, 0, blocks=((0, 0),)))
    ]
    assert problems(make_segment(0, -1, 0, blocks=())) == [
        (2, "blocks", "segment.size: expected at least 0, got -1")
    ]


def test_blocks_may_be_used_again():
    assert problems(make_segment(0, 128, 0), make_segment(1, 192, 0, blocks=((0, 2), (2, 1)))) == []


def test_text_needs_a_header_that_says_so():
    segment = make_segment(0, 64, 0, text="hello")
    assert [p[:2] for p in problems(segment)] == [(2, "privacy")]
    assert problems(segment, header=replace(HEADER, privacy="content")) == []


def prompts(prompt):
    first = make_call(0, prompt=Prompt(add=(0, 1)))
    segments = [make_segment(0, 64, 0), make_segment(1, 64, 1)]
    return problems(ROOT, *segments, first, make_call(1, prompt=prompt))


@pytest.mark.parametrize(
    ("prompt", "rule", "message"),
    [
        (
            Prompt(base=0, keep=3),
            "prompt",
            "call.prompt.keep: expected 0 to 2, the length of the base, got 3",
        ),
        (
            Prompt(base=0, keep=-1),
            "prompt",
            "call.prompt.keep: expected 0 to 2, the length of the base, got -1",
        ),
        (Prompt(keep=1), "prompt", "call.prompt.keep: expected 0 without a base, got 1"),
        (Prompt(base=1), "reference", "call.prompt.base: call 1 comes later or never"),
        (Prompt(base=-2), "reference", "call.prompt.base: call -2 is no id"),
        (Prompt(add=(1, 2)), "reference", "call.prompt.add: segment 2 comes later or never"),
    ],
)
def test_prompts_can_be_resolved(prompt, rule, message):
    assert [(6, rule, message)] == prompts(prompt)


def test_the_length_of_a_prompt_counts_what_it_keeps():
    assert prompts(Prompt(base=0, keep=1, add=(0, 0))) == []
    long = make_call(1, prompt=Prompt(base=0, keep=2, add=(0, 1)))
    lines = [
        ROOT,
        make_segment(0, 64, 0),
        make_segment(1, 64, 1),
        make_call(0, prompt=Prompt(add=(0, 1))),
        long,
    ]
    assert problems(*lines, make_call(2, prompt=Prompt(base=1, keep=4))) == []
    assert [p[1] for p in problems(*lines, make_call(2, prompt=Prompt(base=1, keep=5)))] == ["prompt"]


@pytest.mark.parametrize("keep", [-5, 99])
def test_a_wrong_keep_is_one_finding(keep):
    """The next call is judged by the length that the prompt can have."""
    segments = [make_segment(0, 64, 0), make_segment(1, 64, 1)]
    calls = [
        make_call(0, prompt=Prompt(add=(0, 1))),
        make_call(1, prompt=Prompt(base=0, keep=keep, add=(0,))),
        make_call(2, prompt=Prompt(base=1, keep=1)),
        make_call(3, prompt=Prompt(base=1, keep=4)),
    ]
    assert [p[:2] for p in problems(ROOT, *segments, *calls)] == [(6, "prompt"), (8, "prompt")]


@pytest.mark.parametrize(
    ("dependency_call", "message"),
    [(9, "call 5 waits for call 9, which comes later or never"), (5, "call 5 waits for itself")],
)
def test_a_call_waits_for_earlier_calls_only(dependency_call, message):
    calls = [make_call(i) for i in range(5)]
    wait = Dependency(call=dependency_call, relation="sequence")
    assert [(8, "reference", f"call.after.0.call: {message}")] == problems(
        ROOT, *calls, make_call(5, after=(wait,))
    )


def test_a_call_is_of_a_session_that_was_written():
    assert problems(make_call(0)) == [(2, "reference", "call.session: session 0 comes later or never")]


def with_dependency(dependency, **fields):
    """A main agent (session 0), its child (1) and another tree (2), each with one call, then a call of session 0."""
    sessions = [ROOT, Session(id=1, parent=0, root=0), Session(id=2, root=2)]
    calls = [make_call(i, session=i) for i in range(3)]
    call = make_call(3, after=(dependency,), **fields)
    return problems(*sessions, *calls, call)


def test_relations_stay_within_a_session_or_a_tree():
    assert with_dependency(Dependency(call=0, relation="sequence")) == []
    assert with_dependency(Dependency(call=1, relation="join")) == []
    assert with_dependency(Dependency(call=1, relation="sequence")) == [
        (8, "dependency", "call.after.0: sequence of call 1, which is of session 1")
    ]
    assert with_dependency(Dependency(call=2, relation="spawn")) == [
        (8, "dependency", "call.after.0: spawn of call 2, which is of another tree")
    ]


def test_a_dependency_on_a_call_of_a_lost_session_is_one_finding():
    call = make_call(1, session=7, after=(Dependency(call=0, relation="join"),))
    assert [p[1] for p in problems(ROOT, make_call(0), call)] == ["reference"]


@pytest.mark.parametrize(
    ("gap_ns", "is_right"),
    [(29 * NS_PER_S, True), (29 * NS_PER_S + 1, True), (29 * NS_PER_S + 2, False), (None, True)],
)
def test_a_gap_is_the_difference_of_the_times(gap_ns, is_right):
    found = with_dependency(Dependency(call=0, relation="sequence", gap_ns=gap_ns))
    expected = f"call.after.0.gap_ns: the times of both calls make {29 * NS_PER_S}, got {gap_ns}"
    assert ([] if is_right else [(8, "gap", expected)]) == found


def test_a_gap_after_dispatch_counts_from_the_request():
    wait = Dependency(call=0, relation="sequence", trigger="dispatch", gap_ns=30 * NS_PER_S)
    assert with_dependency(wait) == []


def test_a_gap_after_an_unknown_end_is_taken_as_told():
    first = make_call(0, times=CallTimes(request_ns=0))
    wait = Dependency(call=0, relation="sequence", gap_ns=77)
    assert problems(ROOT, first, make_call(1, after=(wait,))) == []


def retries(**fields):
    other = Session(id=1, parent=0, root=0)
    calls = [make_call(0), make_call(1, attempt=2, retry_of=0), make_call(2, session=1)]
    return [p[1:] for p in problems(ROOT, other, *calls, make_call(3, **fields))]


@pytest.mark.parametrize("status", [100, 200, 529, 999])
def test_a_status_that_an_endpoint_invents_is_no_fault_of_the_trace(status):
    assert problems(ROOT, make_call(0, outcome=Outcome(status=status))) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attempt": 2}, "call.attempt: 2 with retry_of None; only a retry is beyond 1"),
        ({"attempt": 0}, "call.attempt: 0 with retry_of None; only a retry is beyond 1"),
        ({"retry_of": 0}, "call.attempt: 1 with retry_of 0; only a retry is beyond 1"),
        ({"attempt": 2, "retry_of": 2}, "call.retry_of: call 2 is of session 1, not 0"),
        ({"attempt": 2, "retry_of": 1}, "call.attempt: expected 3 after the attempt it repeats, got 2"),
    ],
)
def test_retries_name_the_attempt_they_repeat(fields, message):
    assert [("retry", message)] == retries(**fields)


def test_a_good_retry_is_no_finding():
    wait = Dependency(call=1, relation="retry")
    assert retries(attempt=3, retry_of=1, after=(wait,)) == []


def test_a_retry_waits_for_the_attempt_it_repeats():
    found = retries(after=(Dependency(call=1, relation="retry"),))
    assert found == [("dependency", "call.after.0: retry of call 1, but retry_of is None")]


def test_a_retry_of_a_later_call_is_refused_once():
    assert retries(attempt=2, retry_of=4) == [
        ("reference", "call.retry_of: call 3 repeats call 4, which comes later or never")
    ]
    assert retries(attempt=2, retry_of=3) == [("reference", "call.retry_of: call 3 repeats itself")]


POINTS = (
    "request_ns",
    "headers_ns",
    "first_byte_ns",
    "first_event_ns",
    "first_token_ns",
    "first_visible_ns",
    "last_token_ns",
    "end_ns",
)


@pytest.mark.parametrize("index", range(1, len(POINTS)))
def test_times_do_not_run_backwards(index):
    good = {name: 10 * i for i, name in enumerate(POINTS)}
    times = CallTimes(**{**good, POINTS[index]: good[POINTS[index - 1]] - 1})
    message = (
        f"call.times.{POINTS[index]}: {10 * index - 11} lies before {POINTS[index - 1]} {10 * index - 10}"
    )
    assert [(3, "times", message)] == problems(ROOT, make_call(0, times=times))


def test_unknown_times_are_passed_over():
    times = CallTimes(request_ns=10, first_token_ns=10, end_ns=5)
    assert problems(ROOT, make_call(0, times=times)) == [
        (3, "times", "call.times.end_ns: 5 lies before first_token_ns 10")
    ]


def test_headers_may_come_before_the_request_was_passed_on():
    early = CallTimes(request_ns=0, forwarded_ns=20, headers_ns=10)
    assert problems(ROOT, make_call(0, times=early)) == []
    assert [p[1] for p in problems(ROOT, make_call(0, times=CallTimes(request_ns=5, forwarded_ns=4)))] == [
        "times"
    ]


@pytest.mark.parametrize(
    ("at_ns", "is_right"), [(-1, False), (0, True), (NS_PER_S, True), (NS_PER_S + 1, False)]
)
def test_a_tool_call_ends_within_the_call(at_ns, is_right):
    found = problems(ROOT, make_call(0, tool_calls=(ToolCall(), ToolCall(end_ns=at_ns))))
    message = f"call.tool_calls.1.end_ns: {at_ns} lies outside of the call, 0 to {NS_PER_S}"
    assert found == ([] if is_right else [(3, "times", message)])


def test_a_tool_call_of_a_call_without_end_may_end_at_any_time():
    call = make_call(0, times=CallTimes(request_ns=0), tool_calls=(ToolCall(end_ns=77),))
    assert problems(ROOT, call) == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (Events(at_ns=(1, 2), size_bytes=(5,)), "size_bytes: expected 2 sizes, one for each time, got 1"),
        (Events(at_ns=(2, 1), size_bytes=(5, 5)), "at_ns: runs backwards"),
        (Events(at_ns=(-1, 1), size_bytes=(5, 5)), "at_ns: begins at -1, before request_ns 0"),
        (
            Events(at_ns=(1, 2 * NS_PER_S), size_bytes=(5, 5)),
            f"at_ns: ends at {2 * NS_PER_S}, after end_ns {NS_PER_S}",
        ),
        (Events(at_ns=(1, 2), size_bytes=(5, -5)), "size_bytes: expected at least 0, got -5"),
    ],
)
def test_events_lie_within_the_call(events, message):
    assert [(3, "events", f"call.events.{message}")] == problems(ROOT, make_call(0, events=events))


def test_good_events_are_no_finding():
    assert problems(ROOT, make_call(0, events=Events())) == []
    open_end = make_call(0, times=CallTimes(request_ns=0), events=Events(at_ns=(5, 5), size_bytes=(1, 0)))
    assert problems(ROOT, open_end) == []


@pytest.mark.parametrize(
    ("fields", "rule", "message"),
    [
        (
            {"usage": Usage(output_tokens=-1)},
            "usage",
            "call.usage.output_tokens: expected at least 0, got -1",
        ),
        ({"turn": -1}, "range", "call.turn: expected at least 0, got -1"),
        ({"window": -1}, "range", "call.window: expected at least 0, got -1"),
        (
            {"tool_calls": (ToolCall(), ToolCall(duration_ns=-5))},
            "range",
            "call.tool_calls.1.duration_ns: expected at least 0, got -5",
        ),
        ({"outcome": Outcome(status=99)}, "range", "call.outcome.status: expected 100 to 999, got 99"),
        (
            {"outcome": Outcome(retry_after_ns=-1)},
            "range",
            "call.outcome.retry_after_ns: expected at least 0, got -1",
        ),
    ],
)
def test_counts_and_lengths_are_in_range(fields, rule, message):
    assert [(3, rule, message)] == problems(ROOT, make_call(0, **fields))


@pytest.mark.parametrize(
    ("usage", "message"),
    [
        (
            Usage(input_tokens=10, cache_read_tokens=11),
            "call.usage.cache_read_tokens: 11 of 10 input tokens",
        ),
        (
            Usage(output_tokens=10, reasoning_tokens=11),
            "call.usage.reasoning_tokens: 11 of 10 output tokens",
        ),
    ],
)
def test_what_an_endpoint_misreports_is_a_warning(usage, message):
    rules = TraceRules()
    for number, line in enumerate((HEADER, ROOT), 1):
        rules.check(number, line)
    [finding] = rules.check(3, make_call(0, usage=usage))
    assert ("warning", "usage", message) == (finding.severity, finding.rule, finding.message)


@pytest.mark.parametrize("name", ["sessions", "segments", "calls", "blocks"])
def test_the_footer_counts_what_is_there(name):
    counts = {"sessions": 1, "segments": 1, "calls": 1, "blocks": 2}
    lines = [ROOT, make_segment(0, 100, 0), make_call(0)]
    assert problems(*lines, Footer(**counts), end=True) == []
    assert [(5, "footer", f"footer.{name}: says 7, the file has {counts[name]}")] == problems(
        *lines, Footer(**{**counts, name: 7})
    )


def test_dropped_calls_are_not_negative():
    footer = Footer(sessions=0, segments=0, calls=0, blocks=0, dropped_calls=-1)
    assert problems(footer) == [(2, "footer", "footer.dropped_calls: expected at least 0, got -1")]


def test_the_reference_rules_are_enough_without_a_header():
    rules = ReferenceRules()
    assert rules.check(1, Segment(id=0, role="user", type="text", size=1, blocks=((0, 1),))) == []
    assert rules.call_count == 0
    assert rules.check(2, ROOT) == []
    assert rules.check(3, Call(id=0, session=0, prompt=Prompt(), times=CallTimes(request_ns=0))) == []
    assert rules.call_count == 1


def test_calls_whose_ids_are_not_dense_are_known_by_their_ids():
    rules = ReferenceRules()
    rules.check(1, ROOT)
    for number, call in enumerate((0, 2, 3, 1, 2, -1, 10**15), 2):
        rules.check(number, make_call(call, attempt=number))
    known = {call: facts.attempt for call in (-1, 0, 1, 2, 3, 10**15) if (facts := rules.calls.get(call))}
    assert known == {-1: 7, 0: 2, 1: 5, 2: 6, 3: 4, 10**15: 8}
    assert (rules.calls.get(4), rules.calls.get(None)) == (None, None)
    with pytest.raises(KeyError):
        rules.calls[4]


def test_the_end_of_a_call_is_known_once_an_update_tells_it():
    rules = ReferenceRules()
    rules.check(1, ROOT)
    rules.check(2, OPEN)
    assert rules.calls[0].end_ns is None
    rules.check(3, make_update(0))
    assert rules.calls[0].end_ns == make_update(0).times.end_ns


def test_a_segment_with_text_before_any_header_is_judged_by_nothing():
    assert TraceRules().check(1, make_segment(0, 64, 0, text="x")) == []


# --- updates ---


OPEN = make_call(
    0, times=CallTimes(request_ns=0), outcome=Outcome(error="unrecorded", ended_by="recorder"), usage=Usage()
)


def test_a_recording_has_no_problems():
    for trace in (make_trace(3, 4), tree()):
        assert list(find_problems(enumerate(recorded_lines(trace), 1))) == []


def test_an_update_names_an_earlier_call():
    early = make_update(1, times=CallTimes(request_ns=0, end_ns=-1), tool_calls=(ToolCall(end_ns=-1),))
    found = problems(ROOT, OPEN, early, make_update(0), make_call(1))
    assert found[0] == (4, "reference", "update.call: call 1 comes later or never")
    assert [p[1] for p in found] == ["reference", "times"]
    assert problems(Update(call=-1)) == [(2, "reference", "update.call: call -1 is no id")]


@pytest.mark.parametrize(
    ("update", "rule", "message"),
    [
        (Update(call=0, times=CallTimes(request_ns=3)), "times", "times.request_ns: the call's is 0, got 3"),
        (
            Update(call=0, times=CallTimes(request_ns=0, headers_ns=7, end_ns=6)),
            "times",
            "times.end_ns: 6 lies before headers_ns 7",
        ),
        (
            make_update(0, tool_calls=(ToolCall(end_ns=NS_PER_S + 1),)),
            "times",
            f"tool_calls.0.end_ns: {NS_PER_S + 1} lies outside of the call, 0 to {NS_PER_S}",
        ),
        (
            make_update(0, events=Events(at_ns=(5, NS_PER_S + 1), size_bytes=(1, 1))),
            "events",
            f"events.at_ns: ends at {NS_PER_S + 1}, after end_ns {NS_PER_S}",
        ),
        (
            make_update(0, usage=Usage(input_tokens=-1)),
            "usage",
            "usage.input_tokens: expected at least 0, got -1",
        ),
        (make_update(0, outcome=Outcome(status=7)), "range", "outcome.status: expected 100 to 999, got 7"),
        (
            make_update(0, outcome=Outcome(retry_after_ns=-7)),
            "range",
            "outcome.retry_after_ns: expected at least 0, got -7",
        ),
        (
            make_update(0, tool_calls=(ToolCall(duration_ns=-7),)),
            "range",
            "tool_calls.0.duration_ns: expected at least 0, got -7",
        ),
        (make_update(0, wire=Wire(connect_ns=-7)), "range", "wire.connect_ns: expected at least 0, got -7"),
    ],
)
def test_the_call_with_its_update_keeps_the_rules(update, rule, message):
    assert [(4, rule, f"update.{message}")] == problems(ROOT, OPEN, update)


def test_what_an_update_misreports_is_a_warning():
    rules = TraceRules()
    for number, line in enumerate((HEADER, ROOT, OPEN), 1):
        rules.check(number, line)
    [finding] = rules.check(4, make_update(0, usage=Usage(output_tokens=1, reasoning_tokens=2)))
    assert (finding.severity, finding.rule) == ("warning", "usage")
    assert finding.message == "update.usage.reasoning_tokens: 2 of 1 output tokens"


def test_what_is_known_of_a_call_before_its_end_is_judged_when_the_end_is_known():
    """Events and tool calls of one update, the end of the next."""
    events = Events(at_ns=(2 * NS_PER_S,), size_bytes=(1,))
    first = Update(call=0, events=events, tool_calls=(ToolCall(end_ns=3 * NS_PER_S),))
    assert problems(ROOT, OPEN, first, Update(call=0, usage=Usage())) == []
    found = problems(ROOT, OPEN, first, Update(call=0, usage=Usage()), make_update(0))
    assert [(p[0], p[1]) for p in found] == [(6, "times"), (6, "events")]
    better = make_update(0, events=Events(), tool_calls=())
    assert problems(ROOT, OPEN, first, better) == []


def test_what_comes_after_the_end_is_judged_by_it():
    late = Update(call=0, tool_calls=(ToolCall(end_ns=NS_PER_S), ToolCall(end_ns=NS_PER_S + 1)))
    assert [p[:2] for p in problems(ROOT, OPEN, make_update(0), late)] == [(5, "times")]


def test_an_end_that_is_known_stays():
    other = Update(call=0, times=CallTimes(request_ns=0, end_ns=5))
    assert problems(ROOT, OPEN, make_update(0), make_update(0)) == []
    assert problems(ROOT, OPEN, make_update(0), other) == [
        (5, "times", f"update.times.end_ns: the call's is {NS_PER_S} already, got 5")
    ]


@pytest.mark.parametrize(
    ("gap_ns", "is_right"), [(None, True), (9 * NS_PER_S, True), (9 * NS_PER_S + 2, False), (0, False)]
)
def test_a_gap_is_judged_when_both_times_are_known(gap_ns, is_right):
    """The line that states it is written before the end that it counts from."""
    wait = make_call(1, after=(Dependency(call=0, relation="sequence", gap_ns=gap_ns),))
    assert problems(ROOT, OPEN, wait) == []
    found = problems(ROOT, OPEN, wait, Update(call=0, wire=Wire()), make_update(0))
    message = f"call.after.0.gap_ns: the times of both calls make {9 * NS_PER_S}, got {gap_ns}"
    assert ([] if is_right else [(4, "gap", message)]) == found


def test_a_gap_after_a_dispatch_needs_no_end():
    wait = Dependency(call=0, relation="sequence", trigger="dispatch", gap_ns=10 * NS_PER_S)
    assert problems(ROOT, OPEN, make_call(1, after=(wait,)), make_update(0)) == []


def test_a_call_that_never_got_its_update_is_in_doubt():
    lines = [ROOT, OPEN, make_call(1, outcome=OPEN.outcome), make_update(1)]
    footer = Footer(sessions=1, segments=0, calls=2, blocks=0)
    message = "call.outcome: how call 0 ended is not in the file"
    assert problems(*lines, footer, end=True) == [(3, "unrecorded", message)]
    assert problems(*lines, make_update(0), footer, end=True) == []
    assert [f.severity for f in find_problems(enumerate([HEADER, *lines, footer], 1))] == ["warning"]


def test_an_update_that_does_not_tell_the_outcome_leaves_it_open():
    lines = [ROOT, OPEN, make_update(0, outcome=None), make_update(0, outcome=OPEN.outcome)]
    footer = Footer(sessions=1, segments=0, calls=1, blocks=0)
    assert [p[1] for p in problems(*lines, footer, end=True)] == ["unrecorded"]


@pytest.mark.parametrize("name", ["connection", "connect_ns", "request_bytes", "response_bytes"])
def test_what_is_told_of_the_wire_is_not_negative(name):
    message = f"call.wire.{name}: expected at least 0, got -1"
    assert problems(ROOT, make_call(0, wire=Wire(**{name: -1}))) == [(3, "range", message)]
