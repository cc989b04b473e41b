"""Waits of the profiles against those measured with the real clients."""

import random

import pytest

from replayer.retry import PROFILES, RETRY_NAMES, Failed, Retry, next_try

S = 1_000_000_000


def failed(**changes) -> Failed:
    return Failed(
        **{"error": "refused", "status": 503, "retry_after_ns": None, "error_text": None, **changes}
    )


def waits_s(name, failure, tries=100, seed=1) -> list[float]:
    generator = random.Random(seed)
    waits = []
    for number in range(1, tries):
        retry = next_try(PROFILES[name], number, failure, generator)
        if retry is None:
            break
        waits.append(retry.wait_ns / S)
    return waits


def is_near(waits, measured, low=0.75, high=1.3) -> bool:
    return all(low * m <= w <= high * m for w, m in zip(waits, measured, strict=True))


def test_every_name_has_a_profile():
    assert set(PROFILES) == set(RETRY_NAMES)
    assert PROFILES["none"] is None


def test_claude_code_waits_as_measured_and_gives_up_after_ten_retries():
    waits = waits_s("claude-code", failed(status=529))
    assert is_near(waits, [0.65, 1.1, 2.4, 4.6, 9.2, 19.9, 38.7, 36, 36, 36])


def test_codex_makes_thirty_requests_in_about_25_seconds():
    waits = waits_s("codex", failed())
    assert len(waits) == 29
    assert is_near(waits[:4], [0.22, 0.40, 0.76, 1.75])
    assert is_near(waits[4::5], [0.24, 0.4, 0.8, 1.8, 3.3])
    assert 20 < sum(waits) < 30


def test_opencode_waits_as_measured_and_gives_up_after_five_retries():
    assert is_near(waits_s("opencode", failed()), [2.5, 5, 9, 17, 37])


@pytest.mark.parametrize(("name", "seconds"), [("claude-code", 3.35), ("codex", 3.03), ("opencode", 3.05)])
def test_a_retry_after_takes_the_place_of_the_wait(name, seconds):
    failure = failed(status=429, retry_after_ns=3 * S)
    assert waits_s(name, failure, tries=3) == [pytest.approx(seconds, abs=0.06)] * 2


def test_a_429_without_a_wait_ends_only_codex():
    failure = failed(status=429)
    assert waits_s("codex", failure) == []
    assert len(waits_s("claude-code", failure)) == 10
    assert len(waits_s("opencode", failure)) == 5


def test_an_error_event_makes_claude_code_ask_for_the_answer_in_one_piece():
    failure = failed(error="error_event", status=200, error_text="Overloaded (overloaded_error)")
    assert next_try(PROFILES["claude-code"], 1, failure, random.Random(1)) == Retry(
        wait_ns=20_000_000, stream=False
    )


def test_an_answer_in_one_piece_that_is_an_error_is_not_asked_for_for_ever():
    assert len(waits_s("claude-code", failed(error="error_event", status=200))) == 10


def test_an_overload_event_ends_codex_and_another_does_not():
    overloaded = failed(error="error_event", status=200, error_text="busy (server_is_overloaded)")
    other = failed(error="error_event", status=200, error_text="oops (server_error)")
    assert waits_s("codex", overloaded) == []
    assert len(waits_s("codex", other)) == 29


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode"])
def test_a_wrong_request_is_not_sent_again_and_a_broken_server_is_asked_again(name):
    assert waits_s(name, failed(error="http_error", status=400)) == []
    assert waits_s(name, failed(error="http_error", status=500)) != []
    assert waits_s(name, failed(error="client_abort", status=None)) == []


def test_codex_never_gives_up_on_an_endpoint_that_takes_no_connection():
    failure = failed(error="connect", status=None)
    assert len(waits_s("codex", failure)) == 99
    assert max(waits_s("codex", failure)) < 4
    assert len(waits_s("claude-code", failure)) == 10


def test_the_random_part_is_seeded():
    assert waits_s("opencode", failed(), seed=3) == waits_s("opencode", failed(), seed=3)
    assert waits_s("opencode", failed(), seed=3) != waits_s("opencode", failed(), seed=4)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_claude_code_gives_up_if_it_is_asked_to_wait_for_more_than_a_minute(status):
    error = "http_error" if status == 500 else "refused"
    longest, more = (failed(error=error, status=status, retry_after_ns=after * S) for after in (60, 61))
    assert waits_s("claude-code", longest, tries=2) == [pytest.approx(60.35)]
    assert waits_s("claude-code", more) == []
    assert waits_s("codex", more, tries=2) == [pytest.approx(61.03)]
