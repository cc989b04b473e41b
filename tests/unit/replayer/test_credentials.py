import pytest

from aitrace.errors import UsageError
from aitrace.results import Attempt, CallResult
from replayer.credentials import (
    SHOWN_KEY,
    is_secret_in_query,
    key_from_text,
    result_without_key,
    shown_url,
    without_key,
)

KEY = "sk-planted-0123456789"


def test_a_key_is_read_without_the_white_space_around_it():
    assert key_from_text(f" {KEY}\r\n", place="key.txt") == KEY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "key.txt holds no key"),
        (" \n", "key.txt holds no key"),
        (f"{KEY}\nsecond", "key.txt holds 2 lines, expected a key in one"),
        (f"Bearer {KEY}", "no key, expected at most 8,192 characters of ASCII without blanks"),
        ("sk-schlüssel", "is no key"),
        ("sk-\x00nul", "is no key"),
        ("k" * 8193, "is no key"),
    ],
)
def test_what_no_header_can_carry_is_refused_and_not_repeated(text, message):
    with pytest.raises(UsageError) as caught:
        key_from_text(text, place="key.txt")
    assert message in str(caught.value)
    assert not any(piece in str(caught.value) for piece in ("sk-", "second", "kkk"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host/metrics", "http://host/metrics"),
        ("http://me:pw@host/v1", "http://…"),
        ("http://me:p?w@x@host:99999999", "http://…"),
        ("http://host?key=p@w", "http://…"),
        ("me:pw@host", "…"),
        ("me:pw://@host", "…"),
        ("http://host/v1?key=pw", "http://host/v1?…"),
        ("http://host/v1#pw", "http://host/v1#…"),
        ("http://host/v1#a?pw", "http://host/v1#…"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_what_may_be_a_secret(text, shown):
    assert shown_url(text) == shown


@pytest.mark.parametrize(
    "query", ["api_key=1", "a=1&access_token=2", "Password=", "sig=1", "X-Amz-Signature=1"]
)
def test_a_parameter_that_is_named_like_a_credential_is_found(query):
    assert is_secret_in_query(query)


@pytest.mark.parametrize("query", ["", "name[]=vllm:num_requests_running", "format=prometheus&design=1"])
def test_other_parameters_are_no_credentials(query):
    assert not is_secret_in_query(query)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("no key here", "no key here"),
        (f"bad key {KEY}, or {KEY}", f"bad key {SHOWN_KEY}, or {SHOWN_KEY}"),
        (f"bad key {KEY[:-1]}", f"bad key {SHOWN_KEY}"),
        (f"bad key {KEY[:8]}", f"bad key {SHOWN_KEY}"),
        (f"bad key {KEY[:7]}", f"bad key {KEY[:7]}"),
        (KEY[:10], SHOWN_KEY),
        ("", ""),
    ],
)
def test_a_key_is_taken_out_of_a_text_even_if_the_text_was_cut_in_it(text, clean):
    assert without_key(text, KEY) == clean


def test_a_word_that_stands_for_no_key_stays():
    assert without_key("none of them", "none") == "none of them"
    assert without_key("anything", None) == "anything"


def result(**changes) -> CallResult:
    fixed = {"index": 0, "call": 0, "session": 0, "instance": 1, "root": 0, "call_class": "main"}
    planned = {"turn_index": 0, "request_id": "r-0", "gap_ns": None, "gap_cause": None}
    sizes = {"prompt_tokens": 1, "output_tokens": 1, "planned_ns": None}
    return CallResult(**fixed, **planned, **sizes, **changes)


def test_a_result_is_kept_without_the_key_in_all_that_the_endpoint_said():
    said = f"bad key {KEY}"
    attempt = Attempt(end_ns=1, error="refused", error_text=said, wait_ns=1, signals={"x-a": KEY, "x-b": 1})
    silent = Attempt(end_ns=1, error="refused", wait_ns=1)
    whole = result(
        error="http_error", error_text=said, finish=KEY, signals={"x-a": KEY}, attempts=(attempt, silent)
    )
    clean = result_without_key(whole, KEY)
    assert KEY not in repr(clean)
    assert clean.attempts[0].signals == {"x-a": SHOWN_KEY, "x-b": 1}
    assert clean.attempts[1] == silent


def test_a_result_that_can_hold_no_key_is_kept_as_it_is():
    whole = result(finish="stop")
    assert result_without_key(whole, KEY) is whole
    assert result_without_key(whole, None) is whole
    assert result_without_key(result(finish="content_filter"), KEY) == result(finish="content_filter")
