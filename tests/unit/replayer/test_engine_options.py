"""Options and faults as they are written."""

import pytest

from aitrace.errors import UsageError
from replayer.engine.options import EngineOptions, Fault, check_options, parse_fault, text_from_s


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cut=12", Fault(kind="cut", after_tokens=12)),
        ("error=0", Fault(kind="error", after_tokens=0)),
        ("stall=5:2.5", Fault(kind="stall", after_tokens=5, duration_ns=2_500_000_000)),
        ("refuse=429:3", Fault(kind="refuse", status=429, retry_after_s=3.0)),
        ("stall=5:1.23456789", Fault(kind="stall", after_tokens=5, duration_ns=1_234_567_890)),
        ("slow-headers=0", Fault(kind="slow-headers", duration_ns=0)),
        ("refuse=503", Fault(kind="refuse", status=503)),
        ("slow-headers=0.5", Fault(kind="slow-headers", duration_ns=500_000_000)),
    ],
)
def test_a_fault_is_read_and_written_back_as_it_came(text, expected):
    assert expected == parse_fault(text)
    assert text == expected.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cut",
        "cut=",
        "cut=-1",
        "cut=1:2",
        "cut=²",
        "stall=5",
        "stall=5:",
        "stall=5:-1",
        "stall=5:inf",
        "refuse=200",
        "refuse=600",
        "refuse=429:x",
        "slow-headers=1:2",
        "slow-headers=nan",
        "slow-headers=86401",
        "stall=1:1e300",
        "refuse=429:1e300",
        "explode=1",
    ],
)
def test_a_fault_that_says_too_little_or_too_much_is_wrong_use(text):
    with pytest.raises(UsageError, match="stall=TOKENS:SECONDS"):
        parse_fault(text)


def test_seconds_are_written_without_an_exponent():
    assert [text_from_s(value) for value in (0.0, 2.5, 1_000_000.0, 1e-9)] == [
        "0",
        "2.5",
        "1000000",
        "0.000000001",
    ]


def test_the_defaults_can_run():
    check_options(EngineOptions())


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"block_size": 0}, "--block-size is 0, expected 1 or more"),
        ({"batch": 0}, "--batch is 0, expected 1 or more"),
        ({"queue": -1}, "--queue is -1, expected 0 or more"),
        ({"cache_blocks": 0}, "--cache-blocks is 0, expected 1 or more"),
        ({"port": -1}, "--port is -1, expected 0 to 65535"),
        ({"port": 65536}, "--port is 65536, expected 0 to 65535"),
        ({"retry_after_s": float("nan")}, "--retry-after is nan, expected a number of 0 or more"),
        ({"retry_after_s": -1.0}, "--retry-after is -1.0, expected a number of 0 or more"),
        (
            {"reasoning_tokens": 200_000, "answer_tokens": (1, 60_000)},
            "add up to 260000, expected at most 250000",
        ),
        ({"max_body_bytes": 0}, "--max-body is 0, expected 1 or more"),
        ({"reasoning_tokens": -1}, "--reasoning is -1, expected 0 or more"),
        ({"prefill_tokens_per_s": 0.0}, "--prefill-rate is 0.0, expected 0.001 or more"),
        ({"prefill_tokens_per_s": 1e-300}, "--prefill-rate is 1e-300, expected 0.001 or more"),
        ({"decode_tokens_per_s": float("inf")}, "--decode-rate is inf, expected 0.001 or more"),
        ({"decode_tokens_per_s": float("nan")}, "--decode-rate is nan, expected 0.001 or more"),
        ({"answer_tokens": (5, 4)}, "--answer-tokens is 5:4"),
        ({"answer_tokens": (0, 4)}, "--answer-tokens is 0:4"),
        ({"hold_s": 1.0}, "--hold without --queue"),
        ({"hold_s": -1.0, "queue": 1}, "--hold is -1.0, expected 0 or more seconds, or `until-free`"),
        ({"hold_s": float("nan"), "queue": 1}, "--hold is nan"),
        ({"protect_returning": True}, "--protect-returning without --queue"),
        ({"fault_ratio": 1.5}, "--fault-rate is 1.5"),
        ({"fault_ratio": 0.5}, "--fault-rate without --fault"),
        ({"fault": Fault(kind="cut")}, "--fault without --fault-rate"),
    ],
)
def test_an_impossible_option_is_named_with_what_was_expected(options, place):
    with pytest.raises(UsageError, match=place):
        check_options(EngineOptions(**options))


def test_unlimited_rates_queue_and_cache_can_run():
    check_options(
        EngineOptions(prefill_tokens_per_s=None, decode_tokens_per_s=None, queue=None, cache_blocks=None)
    )
