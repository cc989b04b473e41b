"""Gaps and tool times as rows."""

from aitrace.schema import Dependency, ToolCall
from aitrace.testing import TraceBuilder
from reports.recorded.facts import recorded_from_trace
from reports.recorded.gaps import gap_values_s, gaps_by_cause, gaps_by_tool, length_row, tool_times

S = 10**9


def gapped(*gaps):
    """A session whose calls come after these gaps: cause, s, names of the tools that the answer before called."""
    builder = TraceBuilder()
    main = builder.session()
    tools = [names for _, _, names in gaps]
    builder.call(main, tool_calls=tuple(ToolCall(name=name) for name in tools[0]))
    for place, (cause, gap_s, _) in enumerate(gaps):
        names = tools[place + 1] if place + 1 < len(tools) else ()
        wait = Dependency(call=place, relation="sequence", gap_ns=round(gap_s * S), cause=cause)
        builder.call(main, after=[wait], tool_calls=tuple(ToolCall(name=name) for name in names))
    return recorded_from_trace(builder.trace())


def test_gaps_are_summed_by_cause_the_most_time_first():
    recorded = gapped(("tool", 1, ()), ("user", 60, ()), ("tool", 3, ()))
    assert gaps_by_cause(recorded) == [
        {
            "cause": "user",
            "n": 1,
            "total_s": 60.0,
            "p50_s": 60.0,
            "p90_s": None,
            "p99_s": None,
            "max_s": 60.0,
        },
        {"cause": "tool", "n": 2, "total_s": 4.0, "p50_s": 1.0, "p90_s": None, "p99_s": None, "max_s": 3.0},
    ]
    assert {cause: values.tolist() for cause, values in gap_values_s(recorded).items()} == {
        "user": [60.0],
        "tool": [1.0, 3.0],
    }


def test_quantiles_need_their_number_of_values():
    (row,) = gaps_by_cause(gapped(*(("tool", gap, ()) for gap in range(1, 21))))
    assert (row["n"], row["p50_s"], row["p90_s"], row["p99_s"]) == (20, 10.0, 18.0, None)


def test_tool_gaps_are_told_by_the_tools_of_the_answer_before():
    recorded = gapped(
        ("tool", 1, ("Bash", "Bash")),
        ("tool", 2, ("Bash", "Read")),
        ("tool", 4, (None,)),
        ("tool", 8, ()),
        ("user", 16, ("Bash",)),
    )
    assert {row["tool"]: row["total_s"] for row in gaps_by_tool(recorded)} == {
        "tool not named": 12.0,
        "several tools": 2.0,
        "Bash": 1.0,
    }


def test_a_gap_after_a_sub_agent_is_no_tool_of_that_sub_agent():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, tool_calls=(ToolCall(name="Agent"),))
    builder.call(builder.session(parent=main), tool_calls=(ToolCall(name="Bash"),))
    builder.call(main, after=[Dependency(call=1, relation="join", gap_ns=S, cause="tool")])
    (row,) = gaps_by_tool(recorded_from_trace(builder.trace()))
    assert (row["tool"], row["n"]) == ("sub-agent's end", 1)


def test_tool_times_count_the_calls_that_tell_none():
    builder = TraceBuilder()
    tools = (
        ToolCall(name="Bash", duration_ns=2 * S),
        ToolCall(name="Bash"),
        ToolCall(name="Agent"),
        ToolCall(),
    )
    builder.call(builder.session(), tool_calls=tools)
    rows = tool_times(recorded_from_trace(builder.trace()))
    assert [(row["tool"], row["calls"], row["n"], row["total_s"], row["max_s"]) for row in rows] == [
        ("Bash", 2, 1, 2.0, 2.0),
        ("Agent", 1, 0, None, None),
        ("tool not named", 1, 0, None, None),
    ]


def test_a_length_of_nothing_has_no_quantiles():
    import numpy as np

    assert length_row(np.zeros(0))["max_s"] is None
