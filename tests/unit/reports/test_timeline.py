import pytest

from aitrace.results import Attempt
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.figures.timeline import MAX_ROWS, timeline
from reports.summary import report_from_facts

S = 10**9


@pytest.fixture
def drawn(facts_of):
    return lambda calls, **options: timeline(report_from_facts(facts_of(calls, **options)))


def bars(figure):
    return {
        trace["name"]: list(zip(trace["y"], trace["base"], trace["x"], strict=True))
        for trace in figure.traces
        if trace["type"] == "bar"
    }


def test_a_call_is_a_gap_a_wait_and_a_stream(drawn):
    call = make_call_result(
        1,
        gap_ns=3 * S,
        gap_cause="tool",
        due_ns=5 * S,
        sent_ns=5 * S,
        first_token_ns=6 * S,
        last_token_ns=8 * S,
    )
    assert bars(drawn([call])) == {
        "tool gap": [(0, 2.0, 3.0)],
        "waiting for the first token": [(0, 5.0, 1.0)],
        "first to last token": [(0, 6.0, 2.0)],
    }


@pytest.mark.parametrize(
    ("cause", "name"), [("user", "user gap"), ("backoff", "other gap"), (None, "other gap")]
)
def test_gaps_are_told_apart_by_cause(drawn, cause, name):
    assert name in bars(drawn([make_call_result(1, gap_cause=cause, at_ns=5 * S)]))


@pytest.mark.parametrize(("cause", "words"), [("backoff", "backoff in the recording"), (None, "not known")])
def test_hover_tells_the_cause_of_a_gap_in_words(drawn, cause, words):
    figure = drawn([make_call_result(1, call=1, gap_cause=cause, at_ns=5 * S)])
    assert figure.traces[0]["text"] == [f"gap before call 1: {words}"]


def test_hover_tells_an_error_in_words(drawn):
    figure = drawn([make_call_result(0, error="http_error", status=500, error_text="boom")])
    assert figure.traces[-1]["text"][0].endswith("<br>HTTP error 500: boom")


def test_a_failed_call_is_one_red_bar_with_a_mark(drawn):
    figure = drawn([make_call_result(0, error="refused", status=429, error_text="<script>")])
    assert bars(figure) == {"refused or failed": [(0, 0.0, 1.0)]}
    assert figure.traces[-1]["marker"]["symbol"] == "x"
    assert "refused 429: &lt;script&gt;" in figure.traces[-1]["text"][0]


def test_a_call_that_never_ended_reaches_as_far_as_it_is_known(drawn):
    call = make_call_result(0, end_ns=None, last_token_ns=None, first_token_ns=2 * S)
    assert bars(drawn([call])) == {"waiting for the first token": [(0, 0.0, 2.0)]}
    nothing = make_call_result(0, end_ns=None, last_token_ns=None, first_token_ns=None)
    assert bars(drawn([nothing])) == {"waiting for the first token": [(0, 0.0, 0.0)]}


def test_hover_tells_the_call_and_its_tokens(drawn):
    usage = Usage(input_tokens=4000, cache_read_tokens=3000, output_tokens=50)
    figure = drawn([make_call_result(0, call=12, usage=usage)])
    text = figure.traces[0]["text"][0]
    assert text == "call 12 (request-0)<br>prompt 4,000 tokens<br>cached 3,000 tokens<br>output 50 tokens"


def test_without_usage_hover_tells_the_plan(drawn):
    text = drawn([make_call_result(0, usage=Usage())]).traces[0]["text"][0]
    assert "prompt 1,000 tokens by plan" in text


def test_rows_are_sessions_with_trees_together_in_order_of_their_start(drawn):
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main)
    builder.call(builder.session(parent=main, agent="<Explore>"))
    builder.call(builder.session())
    calls = [
        make_call_result(0, at_ns=5 * S),
        make_call_result(1, at_ns=9 * S, session=1, gap_ns=None),
        make_call_result(2, at_ns=S, session=2, root=2, gap_ns=None),
    ]
    figure = drawn(calls, trace=builder.trace())
    assert figure.layout["yaxis"]["ticktext"] == ["main 2", "main 0", "&lt;Explore&gt; 1"]
    assert [shape["y0"] for shape in figure.layout["shapes"]] == [0.5]


def test_played_again_a_session_is_named_with_its_instance(drawn):
    figure = drawn([make_call_result(0), make_call_result(1, instance=2, at_ns=S)])
    assert figure.layout["yaxis"]["ticktext"] == ["main 0 · 1", "main 0 · 2"]


def test_of_too_many_sessions_whole_trees_are_left_out_and_counted(drawn):
    calls = [
        make_call_result(i, session=i, root=i - i % 2, at_ns=i * S, gap_ns=None) for i in range(MAX_ROWS * 3)
    ]
    figure = drawn(calls)
    assert len(figure.layout["yaxis"]["ticktext"]) == MAX_ROWS
    assert "n = 600; 200 of them in 100 of 300 trees are drawn" in figure.note


def test_one_tree_of_too_many_sessions_is_cut(drawn):
    calls = [make_call_result(i, session=i, at_ns=i * S, gap_ns=None) for i in range(MAX_ROWS + 1)]
    assert len(drawn(calls).layout["yaxis"]["ticktext"]) == MAX_ROWS


def test_sessions_of_which_nothing_was_sent_have_no_row(drawn):
    figure = drawn([make_call_result(0, sent_ns=None, unsent="interrupted")])
    assert figure.traces == []


def test_earlier_tries_and_the_wait_after_them_have_bars_and_marks(drawn):
    attempts = (
        Attempt(sent_ns=1 * S, end_ns=2 * S, status=429, error="refused", wait_ns=3 * S),
        Attempt(end_ns=6 * S, error="connect", wait_ns=0),
    )
    call = make_call_result(
        0,
        call=7,
        attempts=attempts,
        due_ns=S,
        retry_due_ns=6 * S,
        sent_ns=6 * S,
        first_token_ns=7 * S,
        last_token_ns=7 * S,
    )
    figure = drawn([call])
    assert bars(figure) == {
        "backoff after a try": [(0, 2.0, 3.0)],
        "waiting for the first token": [(0, 6.0, 1.0)],
        "refused or failed": [(0, 1.0, 1.0), (0, 6.0, 0.0)],
    }
    marks = figure.traces[-1]
    assert marks["x"] == [1.0, 6.0]
    assert marks["text"] == ["try 1 of call 7: refused 429", "try 2 of call 7: no connection"]


def test_tries_of_sessions_that_are_not_drawn_have_no_bars(drawn):
    attempt = Attempt(sent_ns=0, end_ns=1, status=429, error="refused", wait_ns=S)
    calls = [
        make_call_result(i, session=i, root=i, at_ns=i * S, gap_ns=None, attempts=(attempt,) * (i == 1))
        for i in range(MAX_ROWS * 2)
    ]
    assert "backoff after a try" not in bars(drawn(calls))


def test_marks_are_left_out_of_the_table_that_has_the_bars(drawn):
    figure = drawn([make_call_result(0, error="refused", status=429)])
    assert [trace.get("meta") for trace in figure.traces] == [None, {"in_table": False}]
    assert figure.columns["y"] == "session"
