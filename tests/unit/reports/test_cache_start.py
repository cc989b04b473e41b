import numpy as np
import polars as pl
import pytest

from reports.cache.start import least_times, with_start

SCHEMA = dict.fromkeys(
    ("sent_ns", "first_token_ns", "usage_input_tokens", "usage_cache_read_tokens"), pl.Int64
)


def starts(*rows):
    return with_start(pl.DataFrame(rows, schema=SCHEMA, orient="row"))["started_ns"].to_list()


def test_a_call_that_waited_was_begun_when_its_computation_takes_from_there_to_the_first_token():
    """100 ns and 1 ns per token; the last call waited for 700 ns."""
    assert starts((0, 200, 100, 0), (0, 1100, 1000, 0), (5000, 6300, 500, 0)) == [0, 0, 5700]


def test_cached_tokens_are_not_computed():
    assert starts((0, 200, 100, 0), (0, 1100, 1000, 0), (5000, 6300, 900, 400)) == [0, 0, 5700]


def test_a_call_without_usage_or_without_a_token_was_begun_when_it_was_sent():
    assert starts((0, 200, 100, 0), (7, 900, None, None), (9, None, 100, 0)) == [0, 7, 9]


def test_calls_that_tell_nothing_were_begun_when_they_were_sent():
    assert starts((3, None, None, None)) == [3]


@pytest.mark.parametrize("seed", range(5))
def test_the_line_lies_above_no_call_and_neither_part_is_below_0(seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 5000, 200).astype(float)
    times = 30 + tokens * rng.uniform(0.5, 4, 200) - 25 * (seed == 4)
    base, slope = least_times(tokens, times)
    assert min(base, slope) >= 0
    assert (base + slope * tokens <= times + 1e-6).all()


@pytest.mark.parametrize(("base", "slope"), [(50.0, 2.0), (0.0, 3.0), (10.0, 0.0)])
def test_the_line_is_that_of_the_calls_which_did_not_wait(base, slope):
    tokens = np.arange(1.0, 101)
    waited = np.where(np.arange(100) % 3 == 1, 40.0, 0.0)
    assert least_times(tokens, base + slope * tokens + waited) == pytest.approx((base, slope))


def test_one_size_of_prompt_gives_the_least_time_and_no_rate():
    assert least_times(np.array([5.0, 5.0]), np.array([9.0, 7.0])) == (7.0, 0.0)
