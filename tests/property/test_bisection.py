from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from replayer.search.bisection import Bisection, Levels

STEPS = 60
levels = st.one_of(
    st.tuples(st.integers(1, 20), st.integers(0, 500)).map(
        lambda ends: Levels(low=ends[0], high=sum(ends), whole=True, precision=0.05)
    ),
    st.tuples(st.floats(0.01, 2), st.floats(1, 100)).map(
        lambda ends: Levels(low=ends[0], high=ends[0] * ends[1], whole=False, precision=0.05)
    ),
)


def searched(of_levels, outcome):
    search, played = Bisection(of_levels), []
    while (level := search.next_level()) is not None:
        played.append(level)
        assert len(played) <= STEPS
        search.note(level, outcome(level))
    return search, played


@settings(max_examples=300, deadline=None)
@given(levels, st.floats(0.01, 1000))
def test_a_known_threshold_is_enclosed_within_the_precision(of_levels, threshold):
    search, played = searched(of_levels, lambda level: "held" if level < threshold else "not_held")
    held, not_held = search.bracket.held, search.bracket.not_held
    assert search.state == "answered"
    assert held is None or held < threshold
    assert not_held is None or threshold <= not_held
    assert (held is None) == (of_levels.low >= threshold)
    assert (not_held is None) == (of_levels.high < threshold)
    assert None in (held, not_held) or not_held - held <= max(of_levels.whole, 0.05 * held) + 1e-9
    assert all(of_levels.low <= level <= of_levels.high for level in played)
    assert held is None or played[-2:].count(held) >= 1 <= played.count(held) - 1


@settings(max_examples=300, deadline=None)
@given(levels, st.floats(0.01, 1000), st.floats(0, 0.5), st.integers(0, 10**6))
def test_with_noise_a_search_ends_and_its_bracket_contradicts_no_run(of_levels, threshold, noise, seed):
    random, runs = Random(seed), {}

    def outcome(level):
        kind = random.choices(["true", "false", "unclear"], [1 - noise, noise / 2, noise / 2])[0]
        result = (
            "unclear"
            if kind == "unclear"
            else "held"
            if (level < threshold) == (kind == "true")
            else "not_held"
        )
        runs.setdefault(level, []).append(result)
        return result

    search, _ = searched(of_levels, outcome)
    held, not_held = search.bracket.held, search.bracket.not_held
    assert not_held == min((level for level, results in runs.items() if "not_held" in results), default=None)
    assert held is None or ("held" in runs[held] and "not_held" not in runs[held])
    assert None in (held, not_held) or held < not_held
    if search.state == "answered" and held is not None:
        assert runs[held].count("held") == 2
