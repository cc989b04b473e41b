"""Tables of a recorded trace."""

import pytest

from aitrace.schema import Outcome
from aitrace.testing import TraceBuilder
from reports.recorded.summary import report_from_trace
from reports.recorded.tables import (
    MAX_BREAKS,
    MAX_ROWS,
    break_table,
    class_table,
    growth_table,
    length_table,
    loss_table,
    model_table,
    outcome_table,
    ratio_cell,
    reuse_by_depth_table,
    reuse_by_gap_table,
    reuse_table,
    seconds_cell,
    session_table,
    short_session_table,
    tells_tools,
    time_table,
    tree_table,
    value_cell,
)


def session_row(**fields):
    row = dict.fromkeys(
        (
            "root", "parent", "harness", "agent", "label", "turns", "tools", "duration_s", "model_ratio", "prompt_tokens",
            "largest_prompt_tokens", "output_tokens", "reported_tokens", "reported_ratio", "possible_ratio",
        )
    )  # fmt: skip
    return row | {"session": 0, "depth": 0, "calls": 1, "prefix_breaks": 0} | fields


def test_cells_say_what_is_not_known():
    assert (value_cell(None), ratio_cell(None), seconds_cell(None), value_cell("x")) == ("–", "–", "–", "–")
    assert (value_cell(1234), ratio_cell(0.5), seconds_cell(90)) == ("1,234", "50.0 %", "1 min 30 s")


def test_sub_agents_are_indented_and_agents_named():
    rows = [
        session_row(label="a_1"),
        session_row(session=3, depth=2, agent="Plan"),
        session_row(session=4, depth=1),
    ]
    table = session_table(rows, limit=9)
    assert [row[:2] for row in table.rows] == [("0 a_1", "main"), ("\u2003\u20033", "Plan"), ("\u20034", "–")]


def test_the_harness_is_a_column_only_where_there_are_several():
    one, two = session_row(harness="codex"), session_row(harness=None)
    assert "harness" not in session_table([one, one], limit=9).columns
    table = session_table([one, two], limit=9)
    assert [row[table.columns.index("harness")] for row in table.rows] == ["codex", "–"]


def test_rows_beyond_the_limit_are_told():
    table = session_table([session_row()] * 3, limit=2)
    assert (len(table.rows), table.caption[:28]) == (2, "The first 2 of 3 sessions. I")


def test_the_terminal_gets_fewer_columns():
    table = short_session_table([session_row(output_tokens=5)], limit=9)
    assert "output" not in table.columns
    assert len(table.columns) == len(table.rows[0])


def test_trees_are_rows():
    row = {
        "root": 7, "sessions": 2, "depth": 1, "most_at_once": 2, "calls": 3, "turns": 1, "duration_s": 5.0,
        "prompt_tokens": 1000, "reported_ratio": None, "possible_ratio": 0.25,
    }  # fmt: skip
    table = tree_table([row] * (MAX_ROWS + 1))
    assert table.rows[0] == ("7", "2", "1", "2", "3", "1", "5 s", "1,000", "–", "25.0 %")
    assert len(table.rows) == MAX_ROWS


def test_times_stand_beside_each_other_by_group():
    rows = [
        {"sessions": "all", "state": "tool", "time_s": 3.0, "time_ratio": 0.75},
        {"sessions": "all", "state": "wait", "time_s": 1.0, "time_ratio": 0.25},
        {"sessions": "main", "state": "tool", "time_s": 3.0, "time_ratio": 1.0},
    ]
    table = time_table(rows)
    assert table.columns == ("", "all sessions", "share", "main agents", "share")
    assert table.rows == (
        ("waiting for the first token", "1 s", "25.0 %", "–", "–"),
        ("tool gap", "3 s", "75.0 %", "3 s", "100.0 %"),
    )


def test_quantiles_that_few_values_cannot_carry_are_withheld():
    row = {"cause": "tool", "n": 5, "p50_s": 1.0, "p90_s": None, "p99_s": None, "max_s": 2.0, "total_s": 6.0}
    assert length_table([row], "cause", "").rows == (("tool", "5", "1 s", "n < 20", "n < 200", "2 s", "6 s"),)
    nothing = {
        "tool": "Agent",
        "calls": 1,
        "n": 0,
        **dict.fromkeys(("p50_s", "p90_s", "p99_s", "max_s", "total_s")),
    }
    assert length_table([nothing], "tool", "", has_calls=True).rows == (
        ("Agent", "1", "0", "–", "–", "–", "–", "–"),
    )


def test_a_source_that_names_no_tool_tells_none():
    assert not tells_tools([{"tool": "tool not named"}, {"tool": "sub-agent's end"}])
    assert tells_tools([{"tool": "Bash"}])


def broken_report(unit="tokens"):
    builder = TraceBuilder(block_size=10, unit=unit)
    main = builder.session(harness="codex")
    builder.call(
        main, [builder.segment(100), builder.segment(20), builder.segment(10, "tool", "tool_result")]
    )
    builder.call(main, [builder.segment(40)], keep=1)
    builder.call(main, keep=1)
    return report_from_trace(builder.trace(), "t")


def test_breaks_name_the_segment_that_differs():
    tables = broken_report().answers.tables
    table = break_table(tables["prefix_breaks"], "tokens")
    assert [row[4:7] for row in table.rows] == [("1", "end of the prompt", "–"), ("1", "user text", "40")]
    many = break_table(tables["prefix_breaks"] * MAX_BREAKS, "tokens")
    assert (len(many.rows), many.caption[:13]) == (MAX_BREAKS, "25 of 50 brea")


def test_classes_are_told_in_words():
    assert [row[:3] for row in class_table(broken_report().answers.tables["prefix_by_class"]).rows] == [
        ("end rewritten", "codex", "2")
    ]


@pytest.mark.parametrize(("unit", "note"), [("tokens", "Sizes are tokens"), ("bytes", "Sizes are bytes")])
def test_growth_says_what_its_sizes_are(unit, note):
    table = growth_table(broken_report(unit))
    assert note in table.caption
    assert [row[-1] for row in table.rows] == ["n < 20"] * 4


def test_growth_of_first_prompts_alone_has_no_quantiles():
    builder = TraceBuilder()
    builder.call(builder.session(), [builder.segment(5)])
    assert {row[-1] for row in growth_table(report_from_trace(builder.trace(), "t")).rows} == {"–"}


def test_reuse_is_told_with_what_it_is_a_share_of():
    table = reuse_table(broken_report())
    assert table.rows[1] == ("unlimited cache", "200", "370", "54.1 %")
    assert table.rows[0] == ("reported by the API", "–", "370", "–")


def test_reuse_by_gap_and_depth_have_the_same_columns():
    tables = broken_report().answers.tables
    by_gap, by_depth = (
        reuse_by_gap_table(tables["cache_by_gap"]),
        reuse_by_depth_table(tables["cache_by_depth"]),
    )
    assert by_gap.columns[2:] == by_depth.columns[1:]
    assert by_gap.rows[-1][:3] == ("first call of a tree", "–", "1")
    assert by_depth.rows[0][:3] == ("0", "3", "370")


def test_losses_models_and_outcomes_are_told_in_words():
    loss = {"reason": "gap_over_1h", "calls": 1, "lost_tokens": 5, "lost_ratio": 0.1}
    assert loss_table([loss]).rows[0][1:] == ("1", "5", "10.0 %")
    tables = broken_report().answers.tables
    assert model_table([{**tables["tokens_by_model"][0], "model": None}]).rows[0][0] == "–"
    assert outcome_table(tables["outcomes"]).rows == (("complete", "–", "3", "1", "0", "0", "–"),)


def test_codes_of_outcomes_classes_and_causes_are_told_in_words():
    builder = TraceBuilder()
    refused = Outcome(error="http_error", status=500)
    builder.call(builder.session(), call_class="count_tokens", outcome=refused)
    tables = report_from_trace(builder.trace(), "t").answers.tables
    assert model_table(tables["tokens_by_model"]).rows[0][1] == "counting of tokens"
    assert outcome_table(tables["outcomes"]).rows[0][:2] == ("HTTP error", "500")
    gap = {"cause": "unknown", "n": 0, **dict.fromkeys(("p50_s", "p90_s", "p99_s", "max_s", "total_s"))}
    assert length_table([gap], "cause", "").rows[0][0] == "not known"
    # A tool may have any name.
    assert length_table([{"tool": "user"} | gap], "tool", "").rows[0][0] == "user"
