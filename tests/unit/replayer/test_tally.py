from aitrace.schema import Usage
from aitrace.testing import make_call_result
from aitrace.units import NS_PER_S
from replayer.tally import Tally


def test_a_call_takes_the_mean_of_the_complete_ones():
    tally = Tally()
    assert tally.mean_call_ns is None
    for index, end_ns in enumerate((100, 200)):
        tally.add(make_call_result(index=index, due_ns=0, end_ns=end_ns))
    tally.add(make_call_result(index=2, due_ns=0, end_ns=9000, error="cut"))
    assert tally.mean_call_ns == 150


def test_the_mean_is_that_of_the_latest_calls():
    tally = Tally()
    for index in range(1200):
        tally.add(make_call_result(index=index, due_ns=0, end_ns=9000 if index < 1000 else 50))
    assert tally.mean_call_ns == 50


def test_a_complete_call_counts_its_times_from_sent_and_from_due():
    tally = Tally()
    tally.add(make_call_result(due_ns=0, sent_ns=5, first_token_ns=105))
    assert list(tally.service_ttft_ns) == [100]
    assert list(tally.user_ttft_ns) == [105]
    assert list(tally.lateness_ns) == [5]
    assert (tally.complete_calls, tally.sent_calls) == (1, 1)


def test_a_failed_call_counts_by_kind():
    tally = Tally()
    tally.add(make_call_result(index=0, error="refused", first_token_ns=None))
    tally.add(make_call_result(index=1, error=None, unsent="session_lost", sent_ns=None))
    assert (tally.failed_calls, tally.unsent_calls) == ({"refused": 1}, {"session_lost": 1})
    assert (tally.complete_calls, tally.sent_calls) == (0, 1)


def test_a_failed_call_without_a_first_token_still_has_a_lateness():
    tally = Tally()
    tally.add(make_call_result(due_ns=0, sent_ns=NS_PER_S, error="cut", first_token_ns=None))
    assert list(tally.lateness_ns) == [NS_PER_S]
    assert list(tally.service_ttft_ns) == []


def test_a_call_that_did_not_connect_has_no_times():
    tally = Tally()
    tally.add(make_call_result(error="connect", sent_ns=None, first_token_ns=None))
    assert list(tally.lateness_ns) == []


def test_cached_tokens_count_only_where_they_were_reported():
    tally = Tally()
    tally.add(make_call_result(usage=Usage(input_tokens=100, cache_read_tokens=40)))
    tally.add(make_call_result(usage=Usage(input_tokens=900)))
    tally.add(make_call_result(usage=Usage(cache_read_tokens=900)))
    assert (tally.prompt_tokens, tally.cached_tokens, tally.cache_reports) == (100, 40, 1)


def test_calls_that_were_stopped_did_not_fail():
    tally = Tally()
    tally.add(make_call_result(error="client_abort"))
    assert (tally.stopped_calls, tally.failed_calls.total(), tally.sent_calls) == (1, 0, 1)


def test_stale_connections_are_added_up():
    tally = Tally()
    for count in (2, 0, 1):
        tally.add(make_call_result(stale_connections=count))
    assert tally.stale_connections == 3


def test_calls_that_are_not_measured_count_in_no_figure_of_the_target():
    tally = Tally()
    for phase in ("prime", "warm_up", "measured"):
        tally.add(make_call_result(phase=phase, usage=Usage(input_tokens=9, cache_read_tokens=3)))
    assert (len(tally.service_ttft_ns), len(tally.user_ttft_ns), tally.prompt_tokens) == (1, 1, 9)
    assert tally.unmeasured_calls == {"prime": 1, "warm_up": 1}
    assert (tally.complete_calls, len(tally.lateness_ns), len(tally.evidence.lateness_ns)) == (3, 3, 1)
