from dataclasses import replace

from aitrace.testing import make_trace
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan
from replayer.planning.plan_summary import PlanSummary, summarise_plan
from replayer.planning.plan_text import text_from_summary
from replayer.planning.working_set import WorkingSet


def summary_of(*shape, **options) -> PlanSummary:
    trace = make_trace(*shape)
    return summarise_plan(trace, build_plan(trace, LoadOptions(**options)), share_system=False)


def line_of(text, label):
    return next(line for line in text.splitlines() if line.startswith(label))


def test_totals_are_shown():
    text = text_from_summary(summary_of(2, 2))
    assert line_of(text, "Trees").endswith("2, 2 sessions, 4 calls")
    assert line_of(text, "Prompts").endswith("5,600 tokens")


def test_the_start_of_trees_is_shown():
    assert "by the clock" in line_of(text_from_summary(summary_of(2, 2)), "Start")
    assert "in 2 lanes" in line_of(text_from_summary(summary_of(2, 2, concurrency=2)), "Start")


def test_the_largest_window_has_the_longest_bar():
    text = text_from_summary(summary_of(1, 1))
    rows = [line for line in text.splitlines() if line.rstrip().endswith("█")]
    assert [row.count("█") for row in rows] == [40]


def test_windows_tell_when_they_begin():
    """The last of 30 calls 2 s apart, in a tree that starts at 1 s, is due at 59 s: 20 windows of 2.95 s."""
    rows = text_from_summary(summary_of(2, 30)).splitlines()
    header = next(number for number, row in enumerate(rows) if row.lstrip().startswith("from"))
    assert [row[:12].strip() for row in rows[header + 1 : header + 4]] == ["0 s", "2.95 s", "5.9 s"]


def test_what_is_not_known_is_said():
    summary = replace(
        summary_of(1, 1),
        sending_ns=None,
        duration_ns=None,
        untimed_calls=3,
        undated_calls=2,
        peak_calls=None,
        peak_sessions=None,
        peak_trees=None,
        windows=(),
        working_set=WorkingSet(distinct_tokens=5, peak_tokens=None),
    )
    text = text_from_summary(summary)
    assert "not known" in line_of(text, "Duration")
    assert line_of(text, "Sending").split() == ["Sending", "not", "known"]
    assert line_of(text, "Peaks").split() == ["Peaks", "not", "known"]
    assert "not known at a time, 5 distinct" in line_of(text, "Working set")
    assert line_of(text, "Untimed").endswith(
        "3 calls of which the plan does not know when they end, 2 of them not even when they are due"
    )
    assert "from" not in text.split("Working set")[1].split("\n")[-1]


def test_calls_that_only_lack_an_end_are_not_said_to_lack_a_start():
    summary = replace(summary_of(2, 1), untimed_calls=2)
    assert line_of(text_from_summary(summary), "Untimed").endswith("when they end")


def test_the_length_of_the_sending_is_shown():
    assert "1 s from the first to the last call due" in line_of(
        text_from_summary(summary_of(2, 1)), "Sending"
    )
    assert "0 s from" in line_of(text_from_summary(summary_of(1, 1)), "Sending")


def test_the_largest_prompt_is_shown_with_its_session():
    """The second prompt: system 1000, question 200, answer 100, result 300."""
    summary = summary_of(1, 2)
    assert line_of(text_from_summary(summary), "Largest").endswith(
        "1,600 tokens, then an answer of 100: call 1, turn 2 of session 0"
    )
    named = replace(summary, largest_prompt=replace(summary.largest_prompt, label="trace_0007"))
    assert line_of(text_from_summary(named), "Largest").endswith("of session 0 (trace_0007)")


def test_caps_are_shown_where_they_bite():
    assert "Gap caps" not in text_from_summary(summary_of(1, 2))
    capped = text_from_summary(summary_of(1, 2, gap_caps_ns={"tool": 0}))
    assert line_of(capped, "Gap caps").endswith("1 calls, 1 s taken off")


def test_calls_that_wait_for_nothing_have_no_gap_causes():
    assert "Gap causes" not in text_from_summary(summary_of(2, 1))


def test_notes_come_last():
    text = text_from_summary(replace(summary_of(1, 1), notes=("something was assumed: 3",)))
    assert text.endswith("Notes\n- something was assumed: 3")


def test_windows_without_prompts_have_no_bar():
    summary = summary_of(1, 1)
    bare = tuple(replace(window, prompt_tokens=0) for window in summary.windows)
    assert "█" not in text_from_summary(replace(summary, windows=bare))
