import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.summary import report_from_facts
from reports.timeline import MAX_ROWS, timeline

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
