from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from replayer.pacing import arrival_from_spec, tree_starts

recordings = st.lists(st.integers(0, 10**13), min_size=1, max_size=12).map(sorted)
specs = st.sampled_from(["recorded", "scaled:0", "scaled:0.3", "poisson:0.2/s", "fixed:3/s", "together"])


@settings(max_examples=200, deadline=None)
@given(specs, recordings, st.integers(1, 40), st.floats(0, 4), st.integers(0, 99))
def test_starts_begin_at_zero_and_never_fall(spec, recorded_ns, count, time_scale, seed):
    starts = tree_starts(
        arrival_from_spec(spec), recorded_ns, count, time_scale=time_scale, random=Random(seed)
    )
    assert count == len(starts)
    assert starts[0] == 0
    assert sorted(starts) == starts


@settings(max_examples=100, deadline=None)
@given(recordings, st.integers(0, 3))
def test_every_playing_of_a_recording_has_its_distances(recorded_ns, playing):
    trees = len(recorded_ns)
    starts = tree_starts(
        arrival_from_spec("recorded"), recorded_ns, trees * (playing + 1), time_scale=1.0, random=Random(0)
    )
    last = starts[-trees:]
    for place, start_ns in enumerate(last):
        assert abs((start_ns - last[0]) - (recorded_ns[place] - recorded_ns[0])) <= 1
