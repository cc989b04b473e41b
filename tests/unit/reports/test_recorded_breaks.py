"""Breaks as rows."""

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder
from reports.recorded.breaks import breaks_by_class, with_tokens, worst_breaks
from reports.recorded.facts import recorded_from_trace
from reports.recorded.prefixes import prefix_steps


def known_of(builder):
    recorded = recorded_from_trace(builder.trace())
    return with_tokens(recorded, prefix_steps(recorded))


def broken(unit="tokens"):
    """One appended prompt, one that loses 20, and one that loses 200."""
    builder = TraceBuilder(block_size=10, unit=unit)
    main = builder.session(harness="codex")
    builder.call(main, [builder.segment(100), builder.segment(20)])
    builder.call(main, [builder.segment(200)])
    builder.call(main, [builder.segment(40)], keep=2)
    other = builder.session()
    builder.call(other, [builder.segment(100), builder.segment(20)])
    builder.call(other, [builder.segment(40)], keep=1)
    return builder


def test_classes_are_counted_by_harness():
    rows = breaks_by_class(known_of(broken()))
    assert [
        (row["harness"], row["class"], row["calls"], row["calls_ratio"], row["lost_tokens"]) for row in rows
    ] == [
        ("codex", "appended", 1, 0.5, 0),
        ("codex", "tail", 1, 0.5, 200),
        (None, "tail", 1, 1.0, 20),
    ]


def test_the_worst_come_first_and_appended_ones_not_at_all():
    rows = worst_breaks(known_of(broken()), None)
    assert [(row["call"], row["before"], row["lost_tokens"], row["kept_tokens"]) for row in rows] == [
        (2, 1, 200, 120),
        (4, 3, 20, 100),
    ]
    assert [row["call"] for row in worst_breaks(known_of(broken()), 1)] == [2]


def test_bytes_become_tokens_by_the_ratio_of_the_call():
    assert [row["lost_tokens"] for row in worst_breaks(known_of(broken("bytes")), None)] == [50, 5]


def test_a_break_whose_tokens_are_not_known_keeps_its_size():
    builder = TraceBuilder(block_size=10, unit="bytes")
    main = builder.session()
    builder.call(main, [builder.segment(100), builder.segment(20)])
    builder.call(main, [builder.segment(40)], keep=1, usage=Usage())
    known = known_of(builder)
    (row,) = worst_breaks(known, None)
    assert (row["lost_size"], row["lost_tokens"]) == (20, None)
    assert breaks_by_class(known)[0]["lost_tokens"] is None
