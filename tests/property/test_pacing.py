from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from replayer.planning.pacing import arrival_from_spec, tree_starts
from replayer.planning.ramp import ramp_from_text

recordings = st.lists(st.integers(0, 10**13), min_size=1, max_size=12).map(sorted)
specs = st.sampled_from(
    [
        "recorded",
        "scaled:0",
        "scaled:0.3",
        "poisson:0.2/s",
        "gamma:0.2/s:2",
        "gamma:1/s:.3",
        "fixed:3/s",
        "together",
    ]
)


@settings(max_examples=200, deadline=None)
@given(specs, recordings, st.integers(1, 40), st.floats(0, 4), st.integers(0, 99))
def test_starts_begin_at_zero_and_never_fall(spec, recorded_ns, count, time_scale, seed):
    starts = tree_starts(
        arrival_from_spec(spec), recorded_ns, count, time_scale=time_scale, random=Random(seed), until_ns=None
    )
    assert count == len(starts)
    assert starts[0] == 0
    assert sorted(starts) == starts


@settings(max_examples=100, deadline=None)
@given(recordings, st.integers(0, 3))
def test_every_playing_of_a_recording_has_its_distances(recorded_ns, playing):
    trees = len(recorded_ns)
    starts = tree_starts(
        arrival_from_spec("recorded"),
        recorded_ns,
        trees * (playing + 1),
        time_scale=1.0,
        random=Random(0),
        until_ns=None,
    )
    last = starts[-trees:]
    for place, start_ns in enumerate(last):
        assert abs((start_ns - last[0]) - (recorded_ns[place] - recorded_ns[0])) <= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.sampled_from([0.5, 1.0, 1.5, 2.0]), st.integers(0, 99))
def test_gamma_distances_have_the_rate_and_the_cv_that_were_asked_for(per_min, cv, seed):
    """Within 6 standard errors of the mean, and 15 % of the CV, of 20,000 distances."""
    spec = arrival_from_spec(f"gamma:{per_min}/min:{cv}")
    starts = tree_starts(spec, [0], 20_001, time_scale=1.0, random=Random(seed), until_ns=None)
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert abs(mean * per_min / 60e9 - 1) < 6 * cv / 20_000**0.5
    assert abs(deviation / mean / cv - 1) < 0.15


ramps = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), min_size=2, max_size=6).filter(
    lambda points: sum(rate for rate, _ in points) > 0
)


@settings(max_examples=60, deadline=None)
@given(ramps, st.integers(0, 99))
def test_a_ramp_starts_as_many_trees_as_its_rates_sum_up_to(steps, seed):
    """Within 6 standard deviations of a Poisson number; each step is a rate and the seconds to the next one."""
    at_s, points = 0, []
    for rate, length_s in steps:
        points.append((rate, at_s))
        at_s += length_s
    text = ",".join(f"{rate}/s@{at}s" for rate, at in points)
    assert len(ramp_from_text(text)) == len(points)
    starts = tree_starts(
        arrival_from_spec(f"ramp:{text}"), [0], None, time_scale=1.0, random=Random(seed), until_ns=None
    )
    area = sum((b[0] + a[0]) / 2 * (b[1] - a[1]) for a, b in pairwise(points))
    assert abs(len(starts) - area) <= 6 * area**0.5 + 6
    assert sorted(starts) == starts
    assert all(points[0][1] * 10**9 <= start <= points[-1][1] * 10**9 for start in starts)


@settings(max_examples=100, deadline=None)
@given(specs, recordings, st.integers(1, 40), st.integers(0, 10**12), st.integers(0, 99))
def test_a_time_limit_takes_the_starts_before_it(spec, recorded_ns, count, until_ns, seed):
    def starts(limit_ns):
        return tree_starts(
            arrival_from_spec(spec),
            recorded_ns,
            count,
            time_scale=1.0,
            random=Random(seed),
            until_ns=limit_ns,
        )

    assert starts(until_ns) == [start_ns for start_ns in starts(None) if start_ns < until_ns]
