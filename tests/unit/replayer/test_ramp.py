from random import Random

import pytest

from aitrace.errors import UsageError
from replayer.planning.ramp import RampPoint, ramp_from_text, ramp_starts

S = 1_000_000_000


def counts_in(text, windows_s, *, seeds):
    """Mean number of starts in each window over so many seeds."""
    points = ramp_from_text(text)
    sums = [0] * len(windows_s)
    for seed in range(seeds):
        for start_ns in ramp_starts(points, Random(seed)):
            for place, (low, high) in enumerate(windows_s):
                sums[place] += low * S <= start_ns < high * S
    return [total / seeds for total in sums]


def test_points_are_rates_at_times():
    assert ramp_from_text("0/s@0,2/s@5m,120/min@20m") == (
        RampPoint(at_ns=0, rate_per_s=0.0),
        RampPoint(at_ns=300 * S, rate_per_s=2.0),
        RampPoint(at_ns=1200 * S, rate_per_s=2.0),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2/s@0", "one point"),
        ("0/s@0,2/s", "is not RATE@TIME"),
        ("0/s@0,2@5m", "is not a rate"),
        ("0/s@0,2/s@soon", "is not a duration"),
        ("0/s@5m,2/s@0", "goes back in time"),
        ("0/s@5m,2/s@5m", "goes back in time"),
        ("0/s@0,0/s@5m", "no rate above 0"),
        ("0/s@0," + "9" * 400 + "/s@5m", "not finite"),
        ("", "is not RATE@TIME"),
    ],
)
def test_a_ramp_that_makes_no_sense_is_refused_with_a_hint(text, said):
    with pytest.raises(UsageError, match=said) as caught:
        ramp_from_text(text)
    assert "ramp:0/s@0,2/s@5m" in caught.value.hint


def test_starts_are_as_many_as_the_area_under_the_rates():
    """Up from 0 to 2 within 20 s: 5 starts in the first half, 15 in the second; then 2 a second for 10 s."""
    means = counts_in("0/s@0,2/s@20s,2/s@30s", [(0, 10), (10, 20), (20, 30)], seeds=400)
    assert means == [pytest.approx(5, rel=0.06), pytest.approx(15, rel=0.06), pytest.approx(20, rel=0.06)]


def test_rates_may_fall():
    means = counts_in("4/s@0,0/s@10s", [(0, 5), (5, 10)], seeds=400)
    assert means == [pytest.approx(15, rel=0.06), pytest.approx(5, rel=0.06)]


def test_nothing_starts_before_the_first_point_or_after_the_last():
    starts = list(ramp_starts(ramp_from_text("5/s@10s,5/s@40s"), Random(1)))
    assert starts == sorted(starts)
    assert starts[0] >= 10 * S
    assert starts[-1] < 40 * S
    assert len(starts) > 100


def test_a_stretch_without_a_rate_has_no_starts():
    starts = list(ramp_starts(ramp_from_text("3/s@0,0/s@10s,0/s@20s,3/s@30s"), Random(2)))
    assert [start for start in starts if 10 * S < start < 20 * S] == []
    assert any(start > 20 * S for start in starts)
