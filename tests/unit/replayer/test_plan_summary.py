from dataclasses import replace

import orjson

from aitrace.schema import CallTimes, ToolCall, Usage
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.options import LoadOptions
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import build_plan
from replayer.planning.plan_summary import WINDOWS, LargestPrompt, json_from_summary, summarise_plan
from replayer.planning.planned import PlannedTrees, TreeTable

S = 1_000_000_000


def summary_of(trace, **options):
    load = LoadOptions(**options)
    return summarise_plan(trace, build_plan(trace, load), share_system=load.share_system)


def test_totals_are_those_of_all_calls():
    """Two trees of prompts of 1200 and 1600 tokens, answers of 100."""
    summary = summary_of(make_trace(2, 2))
    assert (summary.trees, summary.sessions, summary.calls) == (2, 2, 4)
    assert (summary.prompt_tokens, summary.output_tokens) == (5600, 400)


def test_the_duration_ends_with_the_last_answer():
    """The second tree starts at 1 s; two answers of 1 s with 1 s between."""
    assert summary_of(make_trace(2, 2)).duration_ns == 4 * S


def test_peaks_count_what_runs_at_a_time():
    """Trees start 1 s apart and take 3 s; their calls are 1 s long and 1 s apart: at 2.5 s the first and the third
    run a call."""
    summary = summary_of(make_trace(5, 2))
    assert (summary.peak_trees, summary.peak_sessions, summary.peak_calls) == (3, 3, 2)


def test_sub_agents_are_sessions_of_their_tree():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    inner = [builder.call(builder.session(parent=main), after=[first]) for _ in range(3)]
    builder.call(main, after=[first, *inner])
    summary = summary_of(builder.trace())
    assert (summary.peak_trees, summary.peak_sessions, summary.peak_calls) == (1, 4, 3)


def test_lanes_bound_the_trees():
    assert summary_of(make_trace(5, 2), concurrency=2).peak_trees == 2


def test_windows_hold_every_call_once():
    summary = summary_of(make_trace(7, 5))
    assert (len(summary.windows), sum(window.calls for window in summary.windows)) == (WINDOWS, 35)
    assert summary.prompt_tokens == sum(window.prompt_tokens for window in summary.windows)
    assert summary.output_tokens == sum(window.output_tokens for window in summary.windows)


def test_windows_cut_the_planned_time_in_equal_parts():
    """Calls are due at 0 and 19 s; 20 windows of 0.95 s and a bit, so the last call is in the last window."""
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, [builder.segment(50)])
    builder.call(main, at_ns=19 * S)
    summary = summary_of(builder.trace())
    assert [50, *[0] * 18, 50] == [window.prompt_tokens for window in summary.windows]
    assert [n * summary.window_ns for n in range(WINDOWS)] == [w.start_ns for w in summary.windows]


def test_calls_that_are_all_due_at_once_are_in_the_first_window():
    summary = summary_of(make_trace(3, 1), arrival=arrival_from_spec("together"))
    assert summary.windows[0].calls == 3


def test_calls_are_counted_by_what_makes_them_due():
    builder = TraceBuilder()
    main = builder.session()
    builder.call(main, tool_calls=(ToolCall(end_ns=S, duration_ns=S // 2),))
    builder.call(main, cause="tool")
    builder.call(main, cause="user")
    summary = summary_of(builder.trace())
    assert summary.waits == {"start": 1, "tools": 1, "gap": 1}
    assert summary.gap_causes == {"tool": 1, "user": 1}


def test_caps_and_notes_are_those_of_the_plan():
    summary = summary_of(make_trace(2, 2, block_scope="tree"), gap_caps_ns={"tool": 0})
    assert (summary.capped_calls, summary.capped_ns, len(summary.notes)) == (2, 2 * S, 1)


def test_calls_without_planned_times_are_counted_apart():
    trace = make_trace(1, 2)
    calls = [replace(call, times=CallTimes(request_ns=call.times.request_ns)) for call in trace.calls]
    summary = summary_of(replace(trace, calls=tuple(calls)))
    assert (summary.untimed_calls, summary.undated_calls) == (2, 1)
    assert (summary.sending_ns, summary.duration_ns) == (None, None)
    assert (summary.peak_calls, summary.peak_sessions, summary.peak_trees) == (None, None, None)
    assert sum(window.calls for window in summary.windows) == 1


def test_where_only_starts_are_known_the_length_of_the_sending_is_known():
    """Single calls that start 1 s apart."""
    trace = make_trace(4, 1)
    calls = [replace(call, times=CallTimes(request_ns=call.times.request_ns)) for call in trace.calls]
    summary = summary_of(replace(trace, calls=tuple(calls)))
    assert (summary.sending_ns, summary.undated_calls, summary.untimed_calls) == (3 * S, 0, 4)
    assert (summary.duration_ns, summary.peak_calls, summary.working_set.peak_tokens) == (None, None, None)


def test_the_sending_ends_with_the_last_call_due():
    """The second tree starts at 1 s, its second call is due 2 s later."""
    assert summary_of(make_trace(2, 2)).sending_ns == 3 * S


def test_the_largest_prompt_is_named_with_its_place_in_the_trace():
    """Prompts of 40, 90, and 90 again: the first of the largest."""
    builder = TraceBuilder()
    builder.call(builder.session(), [builder.segment(40)])
    long = builder.session(label="trace_0007")
    builder.call(long, [builder.segment(30)])
    builder.call(long, [builder.segment(60)], usage=Usage(output_tokens=5))
    builder.call(builder.session(), [builder.segment(90)])
    assert summary_of(builder.trace(), trees=5).largest_prompt == LargestPrompt(
        tokens=90, output_tokens=5, call=2, session=1, label="trace_0007", turn_index=1
    )


def test_a_plan_without_timed_calls_has_no_windows():
    trace = make_trace(2, 1)
    plan = build_plan(trace, LoadOptions())
    untimed = TreeTable(plan.playings.roots, is_open_loop=False, warm_up_trees=0)
    untimed.add(None, count=1, sessions=1)
    summary = summarise_plan(trace, replace(plan, trees=PlannedTrees(untimed)), share_system=False)
    assert (summary.windows, summary.window_ns) == ((), 0)


def test_json_has_every_field_by_name():
    """Alive at 2 s: the system prompt (1000), both questions (200 each), what the first tree added (400)."""
    summary = summary_of(make_trace(2, 2))
    shown = orjson.loads(orjson.dumps(json_from_summary(summary)))
    assert set(shown) == set(type(summary).__dataclass_fields__)
    assert shown["working_set"] == {"distinct_tokens": 2200, "peak_tokens": 1800}
