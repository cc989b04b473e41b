import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.cache.gap_text import gap_finding, gap_scale
from reports.summary import report_from_facts

S = 10**9


def calls_after(gap_s, count, *, cached, sessions=5, start=0):
    return [
        make_call_result(
            start + i,
            at_ns=(start + i) * S,
            session=i % sessions,
            turn_index=1,
            gap_ns=round(gap_s * S),
            gap_cause="tool",
            usage=Usage(input_tokens=1000, cache_read_tokens=cached),
        )
        for i in range(count)
    ]


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_the_finding_is_on_the_longest_gaps_that_enough_calls_follow(report_of):
    calls = [
        *calls_after(2, 60, cached=900),
        *calls_after(70, 20, cached=500, start=60),
        *calls_after(400, 19, cached=0, start=80),
    ]
    # 20 * 500 of 39,000 tokens after a minute and more; 60 * 900 + 20 * 500 of 99,000 in all.
    assert gap_finding(report_of(calls)) == (
        "After gaps of 1 min and more, 25.6 % of prompt tokens came from the cache (n = 39 calls of 5 sessions); "
        "after all gaps 64.6 %."
    )


def test_what_was_possible_is_told_where_the_trace_is_there(report_of):
    builder = TraceBuilder(block_size=100)
    segment = builder.segment(1000)
    for _ in range(6):
        builder.call(builder.session(), [segment])
    calls = [
        make_call_result(
            i,
            call=i % 5,
            session=i % 5,
            root=i % 5,
            at_ns=i * S,
            turn_index=1,
            gap_ns=0,
            gap_cause="user",
            usage=Usage(input_tokens=1000, cache_read_tokens=400),
        )
        for i in range(20)
    ]
    # Of 20 prompts alike only the first could not be had.
    assert gap_finding(report_of(calls, trace=builder.trace())) == (
        "After gaps of any length, 40.0 % of prompt tokens came from the cache, of a possible 95.0 % "
        "(n = 20 calls of 5 sessions)."
    )


def test_a_cache_that_kept_nothing_is_a_finding_too(report_of):
    assert "0.0 % of prompt tokens came" in gap_finding(report_of(calls_after(2, 20, cached=0)))


@pytest.mark.parametrize(
    "calls",
    [
        [],
        calls_after(2, 19, cached=500),
        calls_after(2, 50, cached=500, sessions=4),
        calls_after(2, 50, cached=None),
    ],
)
def test_too_few_calls_or_sessions_and_unreported_tokens_give_no_finding(report_of, calls):
    assert gap_finding(report_of(calls)) is None


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ({}, None),
        ({"options": {"gap_caps_ns": {"user": S}}}, "Gaps are shown as played; caps cut longer ones short."),
        (
            {"time_scale": 0.01},
            "Gaps are shown as played, × 0.01: 3 s here stands for 5 min in the recording.",
        ),
        (
            {"time_scale": 2.0, "options": {"gap_caps_ns": {"user": S}}},
            (
                "Gaps are shown as played, × 2: 10 min here stands for 5 min in the recording, or for more where a "
                "cap cut the gap short."
            ),
        ),
        (
            {"time_scale": 0.0},
            "The time scale was 0: no gap took any time, so this run cannot tell what one costs.",
        ),
    ],
)
def test_gaps_as_played_are_set_against_the_recording(report_of, header, sentence):
    assert gap_scale(report_of([], **header)) == sentence
