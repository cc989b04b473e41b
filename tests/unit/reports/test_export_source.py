"""What leaves a run, and what never does."""

import pytest

from aitrace.results import Attempt, Scrape
from aitrace.testing import make_call_result, make_run_end, make_run_header
from reports.export.source import id_of, public_header, public_source, run_id
from reports.export.testing import make_source

KEY = "sk-ant-REDACTED"
REFUSED = make_call_result(
    status=401,
    error="http_error",
    error_text=f"invalid key {KEY}",
    signals={"x-session-token": "secret", "x-router": "secret", "nvext.timing.ttft_ms": 3.5},
    attempts=(
        Attempt(end_ns=1, error="refused", wait_ns=1, error_text="you said: hello", signals={"x-a": "b"}),
    ),
)


def public_call(call, **options):
    return next(public_source(make_source([call]), **options).calls())


def test_error_texts_are_left_out_unless_they_are_asked_for():
    call = public_call(REFUSED, error_texts=False)
    assert (call.error_text, call.attempts[0].error_text) == (None, None)
    assert (call.error, call.status) == ("http_error", 401)


def test_keys_in_error_texts_are_masked():
    call = public_call(REFUSED, error_texts=True)
    assert call.error_text == "invalid key [an API key]"
    assert call.attempts[0].error_text == "you said: hello"


def test_tokens_and_headers_that_are_not_known_never_leave():
    call = public_call(REFUSED, error_texts=True)
    assert call.signals == {"nvext.timing.ttft_ms": 3.5}
    assert call.attempts[0].signals == {}


def test_secrets_in_texts_of_signals_are_masked():
    signals = {"x-smg-routed-worker-id": "http://user:pass@worker:80"}
    call = public_call(make_call_result(signals=signals), error_texts=False)
    assert call.signals == {"x-smg-routed-worker-id": "http[an address with a password]worker:80"}


def test_a_call_that_went_well_is_unchanged():
    assert make_call_result() == public_call(make_call_result(), error_texts=False)


def test_values_of_own_headers_and_hints_are_no_options_of_an_export():
    options = {
        "headers": ["X-Key: a"],
        "hints": [{"body": 1}],
        "metrics": ["http://a:b@c/"],
        "seed": 3,
        "m": {"a": KEY},
    }
    header = public_header(make_run_header(options=options))
    assert header.options == {
        "metrics": ["http[an address with a password]c/"],
        "seed": 3,
        "m": {"a": "[an API key]"},
    }


@pytest.mark.parametrize(
    ("wanted", "error"), [(False, "failed"), (True, "no route to [an address with a password]x")]
)
def test_readings_show_addresses_without_credentials_and_why_they_failed_only_if_asked(wanted, error):
    scrape = Scrape(at_ns=1, url="http://a:b@c/metrics", error="no route to ://a:b@x")
    source = public_source(make_source(scrapes=[scrape]), error_texts=wanted)
    (seen,) = source.scrapes()
    assert (seen.url, seen.error) == ("http[an address with a password]c/metrics", error)


def test_a_reading_that_did_not_fail_has_no_error():
    (seen,) = public_source(
        make_source(scrapes=[Scrape(at_ns=1, url="http://c/")]), error_texts=False
    ).scrapes()
    assert seen.error is None


def test_ids_are_the_same_for_one_run_and_differ_between_runs():
    assert run_id(make_run_header()) == run_id(make_run_header())
    assert run_id(make_run_header(started_unix_ns=1)) != run_id(make_run_header(started_unix_ns=2))
    assert len(run_id(make_run_header())) == 32


def test_parts_of_an_id_do_not_run_together():
    assert id_of("a", "bc", digits=16) != id_of("ab", "c", digits=16)
    assert len(id_of("a", digits=16)) == 16


def test_trees_that_no_lane_took_leave_no_line():
    header = make_run_header(planned_calls=10)
    assert make_source(header=header, end=make_run_end(unstarted_calls=3)).planned_calls == 7
    assert make_source(header=header, end=None).planned_calls == 10
