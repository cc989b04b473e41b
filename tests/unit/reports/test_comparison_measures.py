import pytest

from aitrace.errors import UsageError
from reports.comparison.measures import (
    BASES,
    DEFAULT_NAMES,
    all_names,
    measure_from_name,
    measures_from_names,
)


def test_a_name_is_a_value_and_a_statistic_or_a_share():
    measure = measure_from_name("user_ttft_p95")
    assert (measure.basis.name, measure.statistic, measure.title) == (
        "user_ttft",
        "p95",
        "TTFT from due, p95",
    )
    assert measure_from_name("hit_ratio").statistic == "share"
    assert (
        measure_from_name("session_paired").title == "Duration of a session, median of the paired differences"
    )


def test_every_name_names_a_measure_and_the_usual_ones_are_among_them():
    assert [measure_from_name(name).name for name in all_names()] == all_names()
    assert set(DEFAULT_NAMES) <= set(all_names())


def test_a_measure_named_twice_is_compared_once():
    assert [each.name for each in measures_from_names(["ttft_p50", "itl_p50", "ttft_p50"])] == [
        "ttft_p50",
        "itl_p50",
    ]


@pytest.mark.parametrize("name", ["ttft_p42", "hit_ratio_p95", "", "_p95", "ttft_share"])
def test_what_is_no_measure_is_refused_with_those_that_there_are(name):
    with pytest.raises(UsageError, match="measure") as caught:
        measure_from_name(name)
    assert "backoff" in caught.value.hint


def test_a_value_without_a_statistic_is_answered_with_its_statistics():
    with pytest.raises(UsageError, match="'ttft' is without a statistic") as caught:
        measure_from_name("ttft")
    assert caught.value.hint == "Give one of ttft_p50, ttft_p90, ttft_p95, ttft_p99, ttft_mean, ttft_paired."


def test_a_misspelt_measure_is_answered_with_the_one_that_was_meant():
    with pytest.raises(UsageError) as caught:
        measure_from_name("tftt_p95")
    assert "Did you mean ttft_p95" in caught.value.hint


def test_the_column_of_a_share_is_that_of_its_wholes():
    assert (BASES["ttft"].column, BASES["hit_ratio"].column) == ("ttft_value", "hit_ratio_whole")
