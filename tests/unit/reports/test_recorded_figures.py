"""Figures of a recorded trace."""

import pytest

from aitrace.schema import CallTimes, Dependency, Outcome, Usage
from aitrace.testing import TraceBuilder
from reports.recorded import figures
from reports.recorded.answers import answers_from_recorded
from reports.recorded.facts import recorded_from_trace

S = 10**9
EVERY = (
    figures.time_shares,
    figures.gap_ecdf,
    figures.prompt_growth,
    figures.new_by_turn,
    figures.cache_survival,
    figures.cache_by_turn,
    figures.in_flight,
    figures.timeline,
)


def answers_of(builder):
    return answers_from_recorded(recorded_from_trace(builder.trace()))


def recording(**header):
    """A main agent with a tool gap, a sub-agent beside it, and a refused call."""
    builder = TraceBuilder(block_size=10, **header)
    main = builder.session()
    usage = Usage(input_tokens=2000, cache_read_tokens=0)
    builder.call(main, [builder.segment(2000)], at_ns=100 * S, duration_ns=4 * S, usage=usage, model="<i>m")
    child = builder.session(parent=main, agent="<b>x</b>")
    builder.call(child, [builder.segment(30)], at_ns=101 * S, duration_ns=2 * S, usage=Usage(input_tokens=30))
    wait = Dependency(call=0, relation="sequence", gap_ns=2 * S, cause="tool")
    reused = Usage(input_tokens=2100, cache_read_tokens=2000)
    builder.call(
        main, [builder.segment(100)], at_ns=106 * S, duration_ns=S, after=[wait], usage=reused, model="<i>m"
    )
    refused = Outcome(error="refused", status=529)
    builder.call(
        main,
        at_ns=108 * S,
        times=CallTimes(request_ns=108 * S, end_ns=109 * S),
        outcome=refused,
        usage=Usage(),
    )
    return builder


def drawn(figure):
    return {trace["name"]: list(zip(trace["x"], trace["y"], strict=True)) for trace in figure.traces}


@pytest.mark.parametrize("draw", EVERY)
def test_a_trace_without_calls_has_figures_that_say_so(draw):
    figure = draw(answers_of(TraceBuilder()))
    assert figure.traces == []
    assert figure.note.startswith("nothing to draw: ")


@pytest.mark.parametrize("draw", EVERY)
def test_each_figure_has_its_n(draw):
    figure = draw(answers_of(recording()))
    assert figure.traces
    assert "n = " in figure.note


def test_shares_of_time_are_stacked_by_group():
    bars = drawn(figures.time_shares(answers_of(recording())))
    assert bars["tool gap"] == [
        (pytest.approx(2 / 11, abs=1e-5), "all sessions"),
        (pytest.approx(2 / 9, abs=1e-5), "main agents"),
    ]


def test_gaps_are_cumulated_by_cause():
    assert drawn(figures.gap_ecdf(answers_of(recording())))["tool"] == [(2.0, 1.0)]


def test_sessions_are_lines_parted_by_a_gap():
    lines = drawn(figures.prompt_growth(answers_of(recording())))
    assert lines["main agents"] == [(1, 2000), (2, 2100), (3, 2100), (None, None)]
    assert lines["sub-agents"] == [(1, 30), (None, None)]


def test_of_many_sessions_those_with_the_most_calls_are_drawn():
    builder = TraceBuilder()
    for number in range(figures.MAX_LINES + 1):
        session = builder.session()
        for _ in range(1 if number == 3 else 2):
            builder.call(session, [builder.segment(10)])
    figure = figures.prompt_growth(answers_of(builder))
    assert figure.note == "sessions with known prompt tokens, n = 41; the 40 with the most calls are drawn"
    assert "session 3" not in figure.traces[0]["text"]


def test_new_tokens_are_stacked_by_who_brought_them_in():
    bars = drawn(figures.new_by_turn(answers_of(recording())))
    assert bars["user"][0] == ("call 0<br>n = 2", 1015.0)


def test_survival_has_its_interval():
    (trace,) = figures.cache_survival(answers_of(recording())).traces
    assert (trace["x"], trace["y"]) == (["1 s – 10 s<br>n = 1"], [1.0])
    # Wilson's interval of 1 of 1 begins at 1 / (1 + 1.96²).
    assert trace["error_y"]["arrayminus"] == [pytest.approx(1 - 1 / (1 + 1.96**2), abs=1e-4)]


def test_reported_is_drawn_within_possible():
    figure = figures.cache_by_turn(answers_of(recording()))
    bars = drawn(figure)
    assert [round(share, 3) for _, share in bars["reported by the API"]] == [0.0, 0.952]
    assert [trace["name"] for trace in figure.traces] == ["unlimited cache", "reported by the API"]
    for trace in figure.traces:
        assert [part / whole for part, whole in trace["customdata"]] == pytest.approx(trace["y"])


def test_calls_in_flight_count_from_the_first_request():
    lines = drawn(figures.in_flight(answers_of(recording())))
    assert lines["calls in flight"][:4] == [(0, 1), (1, 2), (3, 1), (4, 0)]
    assert lines["sessions under way"] == [(0, 1), (1, 2), (3, 1), (9, 0)]


def test_trees_of_clocks_of_their_own_are_not_counted_together_and_begin_at_0():
    builder = recording(clock_scope="tree")
    builder.call(builder.session(), [builder.segment(5)], at_ns=500 * S)
    assert figures.in_flight(answers_of(builder)).traces == []
    figure = figures.timeline(answers_of(builder))
    waits = next(trace for trace in figure.traces if trace["name"] == "waiting for the first token")
    assert sorted(zip(waits["y"], waits["base"], strict=True)) == [(0, 0.0), (0, 6.0), (1, 1.0), (2, 0.0)]
    assert figure.layout["xaxis"]["title"]["text"] == "s since the start of each tree"


def test_the_timeline_has_thin_gaps_crosses_at_failures_and_escaped_names():
    figure = figures.timeline(answers_of(recording()))
    widths = {trace["name"]: trace.get("width") for trace in figure.traces}
    assert (widths["tool gap"], widths["waiting for the first token"]) == (0.35, 0.8)
    assert figure.traces[-1]["mode"] == "markers"
    assert figure.layout["yaxis"]["ticktext"] == ["main 0", "&lt;b&gt;x&lt;/b&gt; 1"]
    assert "&lt;i&gt;m" in " ".join(text for trace in figure.traces for text in trace["text"])


def test_a_call_without_a_model_names_none():
    builder = TraceBuilder()
    builder.call(builder.session(), [builder.segment(5)], model=None, call_class="main")
    trace = figures.timeline(answers_of(builder)).traces[0]
    assert trace["text"] == ["call 0: main agent<br>prompt 5 tokens<br>cached –<br>output 100 tokens"]


def test_of_many_sessions_whole_trees_are_left_out_of_the_timeline():
    builder = TraceBuilder()
    for _ in range(210):
        builder.call(builder.session(), [builder.segment(5)])
    assert (
        figures.timeline(answers_of(builder)).note
        == "sessions with calls, n = 210; 105 of them in 105 of 210 trees are drawn"
    )


def test_gaps_and_failures_are_told_in_words():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, outcome=Outcome(error="http_error", status=500))
    builder.call(main, call_class="count_tokens", cause="backoff")
    answers = answers_of(builder)
    assert list(drawn(figures.gap_ecdf(answers))) == ["backoff in the recording"]
    texts = [text for trace in figures.timeline(answers).traces for text in trace["text"]]
    assert any(text.endswith("<br>HTTP error 500") for text in texts)
    assert any(text.startswith("call 1: counting of tokens<br>") for text in texts)
