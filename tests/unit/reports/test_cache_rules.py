import numpy as np
import pytest

from reports.cache.rules import MIN_CASES, Cases, best_border, loss_rule


def cases(lost, ages, amounts, tokens=None, session=None):
    count = len(lost)
    return Cases(
        is_lost=np.array(lost, np.bool_),
        tokens=np.full(count, 10.0) if tokens is None else np.array(tokens, np.float64),
        age_s=np.array(ages, np.float64),
        amount_tokens=np.array(amounts, np.float64),
        session=np.arange(count) % 10 if session is None else np.array(session, np.int64),
    )


def drawn(count=200, seed=0):
    """Ages and amounts that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    return rng.uniform(1, 100, count), rng.uniform(1000, 100_000, count)


def test_a_border_parts_kept_from_lost_by_tokens():
    """Of 40 kept tokens 30 lie below 2.5, of 60 lost ones 50 above."""
    made = cases(
        [False, False, True, True, False, True], [1, 2, 2, 3, 4, 5], [0] * 6, [20, 10, 10, 25, 10, 25]
    )
    border = best_border(made, made.age_s)
    assert (border.kept, border.lost) == (2, 3)
    assert border.at == pytest.approx(6**0.5)
    assert border.score == pytest.approx((30 / 40 + 50 / 60) / 2)


def test_losses_by_age_are_told_from_losses_by_amount():
    ages, amounts = drawn()
    by_age, by_amount = (
        loss_rule(cases(ages > 50, ages, amounts)),
        loss_rule(cases(amounts > 30_000, ages, amounts)),
    )
    assert (by_age.kind, by_amount.kind) == ("age", "amount")
    assert by_age.age_s.kept <= 50 < by_age.age_s.lost
    assert by_amount.amount_tokens.kept <= 30_000 < by_amount.amount_tokens.lost
    assert by_age.age_s.score == by_amount.amount_tokens.score == 1


def test_where_both_say_the_same_they_cannot_be_told_apart():
    ages, _ = drawn()
    assert loss_rule(cases(ages > 50, ages, ages * 1000)).kind == "undecided"


def test_where_both_explain_and_one_explains_better_in_most_sessions_it_is_the_one():
    ages, _ = drawn(2000)
    noisy = ages * 1000 * np.random.default_rng(1).lognormal(0, 0.1, ages.size)
    rule = loss_rule(cases(ages > 50, ages, noisy, session=np.arange(2000) % 100))
    assert rule.amount_tokens.score > 0.9
    assert rule.kind == "age"
    assert loss_rule(cases(ages > 50, noisy, ages, session=np.arange(2000) % 100)).kind == "amount"


def test_a_cache_that_forgets_by_time_and_by_size_takes_both_borders():
    ages, amounts = drawn(1000)
    rule = loss_rule(cases((ages > 60) | (amounts > 50_000), ages, amounts))
    assert rule.kind == "either"
    assert rule.pair == (pytest.approx(60, rel=0.1), pytest.approx(50_000, rel=0.1))
    assert rule.pair_score > 0.95


def test_losses_at_random_are_explained_by_nothing():
    ages, amounts = drawn(1000)
    assert loss_rule(cases(np.arange(1000) % 2 == 0, ages, amounts)).kind == "none"


@pytest.mark.parametrize(
    ("lost", "sessions"), [(MIN_CASES - 1, 10), (200 - MIN_CASES + 1, 10), (100, 4), (0, 10)]
)
def test_too_few_cases_or_sessions_tell_nothing(lost, sessions):
    ages, amounts = drawn()
    is_lost = np.arange(200) < lost
    rule = loss_rule(cases(is_lost, ages, amounts, session=np.arange(200) % sessions))
    assert (rule.kind, rule.age_s, rule.amount_tokens, rule.pair) == ("few", None, None, None)
    assert (rule.lost_cases, rule.kept_cases, rule.sessions) == (lost, 200 - lost, sessions)
