import pytest

from replayer.search.bisection import Bisection, Bracket, Levels

LANES = Levels(low=1, high=64, whole=True, precision=0.05)


def test_a_search_ends_where_more_load_gives_no_more_calls_to_tell_from():
    search = Bisection(Levels(low=1, high=1024, whole=True, precision=0.05))
    for level, sample in ((1, 3), (2, 9)):
        search.note(level, "unclear", sample=sample)
        assert search.state == "searching"
    search.note(4, "unclear", sample=9)
    assert search.doubt == "more load gave no more calls to tell from: a longer --duration does"


def play(outcomes, levels=LANES):
    """The levels that a search plays if a level's runs come to these outcomes in turn; a level that is absent holds."""
    search, played = Bisection(levels), []
    left = {level: list(of_level) for level, of_level in outcomes.items()}
    while (level := search.next_level()) is not None:
        played.append(level)
        of_level = left.get(level)
        search.note(level, of_level.pop(0) if of_level else "held")
    return search, played


def fails_from(threshold):
    return {level: ["not_held"] for level in range(threshold, 65)}


def test_levels_double_until_one_breaks_then_halve_the_bracket_and_repeat_the_answer():
    search, played = play(fails_from(6))
    assert played == [1, 2, 4, 8, 6, 5, 5]
    assert (search.state, search.bracket) == ("answered", Bracket(held=5, not_held=6))


def test_a_load_that_holds_at_the_highest_level_is_answered_without_an_upper_end():
    search, played = play({})
    assert played == [1, 2, 4, 8, 16, 32, 64, 64]
    assert (search.state, search.bracket) == ("answered", Bracket(held=64, not_held=None))


def test_the_last_doubling_stops_at_the_highest_level():
    _, played = play({}, Levels(low=3, high=10, whole=True, precision=0.05))
    assert played == [3, 6, 10, 10]


def test_a_lowest_level_that_breaks_is_the_answer():
    search, played = play(fails_from(1))
    assert played == [1]
    assert (search.state, search.bracket) == ("answered", Bracket(held=None, not_held=1))


def test_a_repeat_that_breaks_leaves_the_answer_in_doubt_and_the_bracket_wider():
    search, played = play({**fails_from(6), 5: ["held", "not_held"]})
    assert played[-2:] == [5, 5]
    assert (search.state, search.bracket) == ("in_doubt", Bracket(held=4, not_held=5))
    assert "contradicts" in search.doubt


def test_levels_that_cannot_tell_are_passed_over_on_the_way_up():
    search, played = play({1: ["unclear"], 2: ["unclear"], **fails_from(6)})
    assert played == [1, 2, 4, 8, 6, 5, 5]
    assert search.state == "answered"


@pytest.mark.parametrize(
    ("outcomes", "doubt"),
    [
        ({8: ["not_held"], 6: ["unclear"]}, "a run could not tell"),
        ({64: ["unclear"]}, "a run could not tell"),
        ({4: ["client_limited"]}, "the client limited the load"),
        ({**fails_from(6), 5: ["held", "unclear"]}, "the repeat could not tell"),
        ({1: ["unclear"], 2: ["not_held"]}, "no run of a lower load could tell"),
    ],
)
def test_a_search_that_cannot_go_on_says_why(outcomes, doubt):
    search, _ = play(outcomes)
    assert (search.state, search.doubt) == ("in_doubt", doubt)


def test_a_search_says_whether_it_repeats():
    search = Bisection(Levels(low=1, high=1, whole=True, precision=0.05))
    assert not search.is_repeat
    search.note(1, "held")
    assert (search.state, search.is_repeat) == ("searching", True)


def test_rates_are_halved_to_the_precision():
    rates = Levels(low=0.1, high=10, whole=False, precision=0.1)
    search = Bisection(rates)
    while (level := search.next_level()) is not None:
        search.note(level, "held" if level < 0.5 else "not_held")
    bracket = search.bracket
    assert bracket.held < 0.5 <= bracket.not_held <= 1.1 * bracket.held
