"""I/O: the report of a recorded trace on a terminal, with rich."""

from rich.console import Console

from reports.recorded.document import about_trace, survival_sentence
from reports.recorded.money_words import money_table, usd_text
from reports.recorded.summary import TraceReport
from reports.recorded.tables import (
    break_table,
    class_table,
    length_table,
    loss_table,
    outcome_table,
    reuse_table,
    short_session_table,
    tells_tools,
    time_table,
)
from reports.text import print_table, print_text, print_verdict

_SESSIONS = 20
_BREAKS = 5
_LINES = (("source", "sessions of"), ("sizes", "clock begins"), ("data",))
_BREAK_COLUMNS = ("call", "session", "agent", "how", "segment", "what it is", "lost, tokens", "again, tokens")


def print_trace_report(report: TraceReport, console: Console) -> None:
    """Verdict first, then what the page says in its tables, without what does not fit."""
    tables, numbers = report.answers.tables, report.answers.numbers
    print_verdict(console, report.verdict, report.doubts, is_fine=report.is_fine)
    about = dict(about_trace(report))
    for names in _LINES:
        print_text(console, " · ".join(f"{name} {about[name]}" for name in names))
    console.print()
    shown = short_session_table(tables["sessions"], limit=_SESSIONS)
    print_table(
        console,
        f"Sessions, {min(_SESSIONS, len(tables['sessions'])):,} of {len(tables['sessions']):,}",
        shown,
    )
    print_table(console, "Where the time goes", time_table(tables["time_by_state"]))
    for title, name, key in (
        ("Gaps by cause", "gap_lengths_by_cause", "cause"),
        ("Tool gaps", "gap_lengths_by_tool", "tool"),
        ("How long tools ran", "tool_times", "tool"),
    ):
        if tables[name] and (key != "tool" or tells_tools(tables[name])):
            print_table(console, title, length_table(tables[name], key, "", has_calls=name == "tool_times"))
    if tables["prefix_by_class"]:
        print_table(console, "Where prompts part", class_table(tables["prefix_by_class"]))
    if tables["prefix_breaks"]:
        worst = break_table(tables["prefix_breaks"][:_BREAKS], report.trace.header.unit)
        print_table(console, "The breaks that lost most", worst.of_columns(*_BREAK_COLUMNS))
    print_table(console, "Prefix cache", reuse_table(report))
    sentence = survival_sentence(report)
    if sentence is not None:
        print_text(console, sentence)
        console.print()
    if tables["cache_lost_by_reason"]:
        print_table(console, "Lost reuse", loss_table(tables["cache_lost_by_reason"]))
    if len(tables["outcomes"]) > 1:
        print_table(console, "Outcomes", outcome_table(tables["outcomes"]))
    if report.answers.money is not None:
        print_table(console, "Money", money_table(report.answers.money.by_model))
        print_text(
            console,
            f"cost {usd_text(numbers['cost_usd'])}, saved by caching {usd_text(numbers['saved_usd'])}",
        )
