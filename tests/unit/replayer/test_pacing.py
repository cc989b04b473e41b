from itertools import pairwise
from random import Random

import pytest

from aitrace.errors import UsageError
from replayer.planning.pacing import AUTO, Arrival, arrival_from_spec, goes_on, resolve_arrival, tree_starts
from replayer.planning.ramp import RampPoint

S = 1_000_000_000
EVERY_FORM = {
    "auto", "recorded", "together", "scaled:0.5", "poisson:0.2/s", "gamma:0.2/s:2", "fixed:12/min",
    "ramp:0/s@0,2/s@5m",
}  # fmt: skip


def starts(spec, recorded_ns, count, *, time_scale=1.0, seed=0):
    return tree_starts(
        arrival_from_spec(spec), recorded_ns, count, time_scale=time_scale, random=Random(seed), until_ns=None
    )


@pytest.mark.parametrize("text", ["auto", "recorded", "together"])
def test_plain_specs_name_their_kind(text):
    assert Arrival(kind=text, text=text) == arrival_from_spec(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scaled:0.5", Arrival(kind="scaled", text="scaled:0.5", factor=0.5)),
        ("scaled:0", Arrival(kind="scaled", text="scaled:0", factor=0.0)),
        ("poisson:.2/s", Arrival(kind="poisson", text="poisson:.2/s", rate_per_s=0.2)),
        ("fixed:12/min", Arrival(kind="fixed", text="fixed:12/min", rate_per_s=0.2)),
        ("gamma:0.2/s:2", Arrival(kind="gamma", text="gamma:0.2/s:2", rate_per_s=0.2, cv=2.0)),
        (
            "ramp:0/s@0,1/s@2s",
            Arrival(
                kind="ramp",
                text="ramp:0/s@0,1/s@2s",
                ramp=(RampPoint(at_ns=0, rate_per_s=0.0), RampPoint(at_ns=2 * S, rate_per_s=1.0)),
            ),
        ),
    ],
)
def test_specs_with_a_number_carry_it(text, expected):
    assert expected == arrival_from_spec(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "poisson", "poisson:0.2", "poisson:/s", "poisson:-1/s", "fixed:1/parsec", "Poisson:1/s"),
        *("scaled", "scaled:", "scaled:-1", "scaled:x", "scaled:" + "9" * 400, "recorded:1", "auto:"),
        *(
            "gamma:1/s",
            "gamma:1/s:0",
            "gamma:1/s:-1",
            "gamma:1/s:x",
            "gamma:1:1",
            "gamma",
            "ramp:",
            "ramp:1/s",
        ),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError, match="cannot be read"):
        arrival_from_spec(text)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("scaled:abc", {"scaled:0.5"}),
        ("scaled:-1", {"scaled:0.5"}),
        ("poisson:5", {"poisson:0.2/s"}),
        ("fixed:5", {"fixed:0.2/s"}),
        ("poison:5/s", EVERY_FORM),
        ("recorded:1", EVERY_FORM),
        ("gamma:5", {"gamma:0.2/s:2"}),
        ("gamma:5/s:0", {"gamma:0.2/s:2"}),
    ],
)
def test_the_hint_offers_what_was_meant(text, offered):
    with pytest.raises(UsageError) as caught:
        arrival_from_spec(text)
    words = {word.strip(".,") for word in caught.value.hint.split()}
    forms = EVERY_FORM | {"fixed:0.2/s"}
    assert {word for word in words & forms if ":" in word or len(offered) > 1} == offered
    assert all(arrival_from_spec(form).text == form for form in offered)


@pytest.mark.parametrize("text", ["poisson:0/s", "fixed:0.0/h", "fixed:" + "9" * 400 + "/s"])
def test_rates_of_zero_and_infinity_are_refused(text):
    with pytest.raises(UsageError, match="expected a finite one"):
        arrival_from_spec(text)


def test_auto_is_recorded_on_one_clock():
    assert (arrival_from_spec("recorded"), None) == resolve_arrival(AUTO, "trace")


def test_auto_is_together_where_trees_have_their_own_clocks_and_says_so():
    arrival, note = resolve_arrival(AUTO, "tree")
    assert arrival.kind == "together"
    assert "all start together" in note


@pytest.mark.parametrize("spec", ["recorded", "scaled:2"])
def test_recorded_starts_are_refused_where_trees_have_their_own_clocks(spec):
    with pytest.raises(UsageError, match="counts from its own start") as caught:
        resolve_arrival(arrival_from_spec(spec), "tree")
    assert "poisson" in caught.value.hint


def test_other_arrivals_stay_as_asked():
    assert (arrival_from_spec("fixed:1/s"), None) == resolve_arrival(arrival_from_spec("fixed:1/s"), "tree")


def test_recorded_starts_count_from_the_first_and_are_scaled():
    assert starts("recorded", [10 * S, 14 * S, 20 * S], 3, time_scale=0.5) == [0, 2 * S, 5 * S]


def test_a_factor_of_its_own_replaces_the_time_scale():
    assert starts("scaled:2", [10 * S, 14 * S], 2, time_scale=0.5) == [0, 8 * S]


def test_a_recording_played_again_follows_after_one_mean_distance():
    assert starts("recorded", [0, 4 * S, 10 * S], 5) == [0, 4 * S, 10 * S, 15 * S, 19 * S]


def test_a_single_tree_played_again_starts_with_itself():
    assert starts("recorded", [7 * S], 2) == [0, 0]


def test_fixed_starts_are_evenly_spaced_from_zero():
    assert starts("fixed:0.2/s", [0], 3, time_scale=9.0) == [0, 5 * S, 10 * S]


def test_together_is_all_at_zero():
    assert starts("together", [0, S], 2) == [0, 0]


def test_poisson_starts_are_those_of_the_seed():
    assert starts("poisson:1/s", [0], 50, seed=3) == starts("poisson:1/s", [0], 50, seed=3)
    assert starts("poisson:1/s", [0], 50, seed=3) != starts("poisson:1/s", [0], 50, seed=4)


def test_poisson_gaps_have_the_mean_and_spread_of_an_exponential():
    at_ns = starts("poisson:0.5/s", [0], 20_001)
    gaps_s = [(b - a) / S for a, b in pairwise(at_ns)]
    mean = sum(gaps_s) / len(gaps_s)
    deviation = (sum((gap - mean) ** 2 for gap in gaps_s) / len(gaps_s)) ** 0.5
    assert pytest.approx(2.0, rel=0.04) == mean
    assert pytest.approx(2.0, rel=0.06) == deviation


def test_gamma_with_a_cv_above_1_comes_in_bursts():
    """More starts within 1 s of the one before than of a Poisson process (63 %)."""
    at_ns = starts("gamma:1/s:3", [0], 5001)
    assert sum(b - a < S for a, b in pairwise(at_ns)) > 0.75 * 5000
    assert starts("gamma:1/s:3", [0], 50, seed=3) == starts("gamma:1/s:3", [0], 50, seed=3)


def test_a_ramp_starts_what_it_has_up_to_the_count():
    whole = starts("ramp:5/s@0,5/s@20s", [0], None)
    assert len(whole) > 50
    assert starts("ramp:5/s@0,5/s@20s", [0], 7) == whole[:7]


def test_nothing_starts_from_the_time_limit_on():
    limited = tree_starts(
        arrival_from_spec("fixed:1/s"), [0], None, time_scale=1.0, random=Random(0), until_ns=3 * S
    )
    assert limited == [0, S, 2 * S]


@pytest.mark.parametrize(
    ("spec", "recorded_ns", "expected"),
    [
        ("recorded", [0, S], True),
        ("recorded", [0], False),
        ("recorded", [S, S], False),
        ("scaled:0.5", [0, S], True),
        ("scaled:0", [0, S], False),
        ("poisson:1/s", [0], True),
        ("gamma:1/s:2", [0], True),
        ("fixed:1/s", [0], True),
        ("ramp:0/s@0,1/s@9s", [0], True),
        ("together", [0, S], False),
    ],
)
def test_trees_can_be_played_again_for_a_time_only_where_time_passes_between_them(
    spec, recorded_ns, expected
):
    assert goes_on(arrival_from_spec(spec), recorded_ns, time_scale=1.0) == expected


def test_recorded_starts_without_a_time_scale_do_not_go_on():
    assert not goes_on(arrival_from_spec("recorded"), [0, S], time_scale=0.0)
