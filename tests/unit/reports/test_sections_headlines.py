import pytest

from aitrace.results import Attempt, Scrape
from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.sections.headlines import headlines
from reports.summary import report_from_facts


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_the_headlines_say_how_fast_how_much_cached_who_was_refused_and_how_late(report_of):
    usage = Usage(input_tokens=1000, cache_read_tokens=250, output_tokens=101)
    calls = [make_call_result(i, at_ns=i, events=101, usage=usage) for i in range(39)]
    refused = make_call_result(39, session=1, error="refused", status=503, first_token_ns=None)
    found = headlines(report_of([*calls, refused], planned_sessions=2))
    assert {headline.name: (headline.value, headline.note) for headline in found} == {
        "TTFT, service (from sent)": ("p50 250 ms", "p90 250 ms · n = 39"),
        "ITL, mean of a call": ("p50 7.5 ms", "p90 7.5 ms · n = 39"),
        "prompt tokens cached": ("25.0 %", "possible: not known · engine –"),
        "possible, not served from cache": ("–", "– of the prompt tokens · preemptions by the engine: –"),
        "tries refused": ("1 of 40", "1 of 40 calls given up · 0 failed otherwise"),
        "lost sessions": ("1 of 2", "0 prefill tokens lost with them"),
        "time of a session, p50": ("–", "n = 0"),
        "Trees (jobs) per hour": ("0", "0 trees complete · 1,970 output tokens/s"),
        "lateness, client": ("p95 0 s", "0 of 40 calls more than 50 ms late"),
    }


def test_the_headline_tells_of_refusals_that_a_later_try_made_good(report_of):
    refused = Attempt(sent_ns=0, headers_ns=1, end_ns=1, status=429, error="refused", wait_ns=1)
    found = headlines(report_of([make_call_result(), make_call_result(1, attempts=(refused, refused))]))
    told = {headline.name: (headline.value, headline.note) for headline in found}
    assert told["tries refused"] == ("2 of 4", "0 of 2 calls given up · 0 failed otherwise · 2 ns in backoff")


def test_lost_sessions_are_set_against_those_without_a_call_in_the_warm_up(report_of):
    lost = {"error": "refused", "status": 503, "first_token_ns": None}
    calls = [
        make_call_result(0, phase="warm_up", **lost),
        make_call_result(1, session=1, root=1, **lost),
        make_call_result(2, session=2, root=2),
    ]
    report = report_of(calls, planned_sessions=3)
    assert {h.name: h.value for h in headlines(report)}["lost sessions"] == "1 of 2"
    (doubt,) = (doubt for doubt in report.doubts if doubt.name == "lost_sessions")
    assert doubt.what == "1 of 2 sessions lost"


def test_of_few_calls_the_headline_gives_the_largest_value(report_of):
    assert headlines(report_of([make_call_result()]))[0].note == "max 250 ms · n = 1"


def test_what_the_cache_could_have_served_and_did_not_is_told_with_the_preemptions(report_of):
    builder = TraceBuilder(block_size=10)
    session = builder.session()
    first = builder.segment(1000)
    builder.call(session, [first])
    builder.call(session, [])
    usage = Usage(input_tokens=1000, cache_read_tokens=100)
    scrapes = [Scrape(at_ns=i, url="u", values={"preemptions": 3.0 * i}) for i in range(2)]
    calls = [make_call_result(i, at_ns=i * 10**9, usage=usage) for i in range(2)]
    found = {
        h.name: (h.value, h.note) for h in headlines(report_of(calls, trace=builder.trace(), scrapes=scrapes))
    }
    assert found["prompt tokens cached"] == ("10.0 %", "of a possible 50.0 % · engine –")
    assert found["possible, not served from cache"] == (
        "800 tokens", "40.0 % of the prompt tokens · preemptions by the engine: 3",
    )  # fmt: skip


def test_a_session_that_took_less_than_expected_reads_as_faster(report_of):
    builder = TraceBuilder()
    builder.call(builder.session(), at_ns=0, duration_ns=2 * 10**9)
    found = {h.name: h for h in headlines(report_of([make_call_result(planned_ns=0)], trace=builder.trace()))}
    headline = found["time of a session, p50"]
    assert (headline.value, headline.note) == ("0.5 ×", "the expected time (faster) · n = 1")
