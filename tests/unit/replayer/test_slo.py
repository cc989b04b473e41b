import pytest

from aitrace.errors import UsageError
from aitrace.results import Attempt
from aitrace.testing import make_call_result
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.search.slo import conditions_from_text, findings, verdict_of

NO_TOKEN = {"first_token_ns": None, "headers_ns": None, "first_byte_ns": None}


def took(index, ms, **fields):
    """A call with its first token `ms` after it was sent."""
    return make_call_result(index, first_token_ns=round(ms * NS_PER_MS), **fields)


def find(text, calls):
    (finding,) = findings(conditions_from_text(text), calls)
    return finding


def refused_try():
    return Attempt(sent_ns=0, headers_ns=1, end_ns=2, status=429, error="refused", wait_ns=NS_PER_S)


def test_conditions_say_metric_percentile_and_bound():
    first, second, third = conditions_from_text("ttft_p95<2s, user_ttft_p99 < 800ms,refused<1%")
    assert (first.metric, first.ratio, first.bound) == ("ttft", 0.95, 2e9)
    assert (second.metric, second.ratio, second.bound) == ("user_ttft", 0.99, 8e8)
    assert (third.metric, third.ratio, third.bound) == ("refused", None, 0.01)


@pytest.mark.parametrize(
    "text",
    ["", "ttft<2s", "ttft_p95>2s", "ttft_p95<2", "ttft_p95<2%", "ttft_p95<2h", "ttft_p95<0s", "ttft_p90<2s", "refused<1",
     "refused<1s", "refused<0%", "refused<101%", "refused_p95<1%", "speed<1s", "refused<1%,", "failed<1%,failed<2%"],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UsageError, match="SLO"):
        conditions_from_text(text)


def test_a_percentile_is_kept_below_its_bound_and_broken_at_it():
    calls = [took(index, 100 if index < 95 else 500) for index in range(100)]
    assert find("ttft_p95<101ms", calls).verdict == "kept"
    assert find("ttft_p95<100ms", calls).verdict == "broken"
    assert find("ttft_p95<101ms", calls).value == 100 * NS_PER_MS


@pytest.mark.parametrize(("count", "verdict"), [(39, "unclear"), (40, "kept")])
def test_a_sample_that_cannot_carry_a_percentile_is_no_pass(count, verdict):
    finding = find("ttft_p95<1s", [took(index, 100) for index in range(count)])
    assert (finding.verdict, finding.count, finding.needed) == (verdict, count, 40)


@pytest.mark.parametrize(("slow", "verdict"), [(4, "unclear"), (5, "broken")])
def test_a_small_sample_breaks_a_bound_by_five_values_beyond_it(slow, verdict):
    calls = [took(index, 5000 if index < slow else 100) for index in range(10)]
    assert find("ttft_p95<1s", calls).verdict == verdict


def test_nothing_measured_is_unclear():
    assert find("ttft_p95<1s", []).verdict == "unclear"
    assert find("failed<1%", []).verdict == "unclear"
    assert find("ttft_p95<1s", []).text == "ttft_p95 not known (n = 0, needs 40)"
    assert verdict_of([]) == "unclear"


def test_user_ttft_counts_from_due_and_headers_end_at_headers():
    calls = [took(index, 3000, sent_ns=2 * NS_PER_S, headers_ns=round(2.1 * NS_PER_S)) for index in range(40)]
    assert find("ttft_p95<9s", calls).value == NS_PER_S
    assert find("user_ttft_p95<9s", calls).value == 3 * NS_PER_S
    assert find("headers_p95<9s", calls).value == NS_PER_S // 10


def test_a_cut_call_counts_if_it_had_waited_longer_than_the_bound():
    fast = [took(index, 100) for index in range(36)]
    waiting = [
        make_call_result(index, error="client_abort", end_ns=5 * NS_PER_S, **NO_TOKEN) for index in range(4)
    ]
    finding = find("ttft_p95<2s", fast + waiting)
    assert (finding.verdict, finding.value, finding.count) == ("broken", None, 40)
    assert finding.text == "ttft_p95 above the bound (n = 40)"
    assert find("ttft_p95<6s", fast + waiting).count == 36


def test_refused_and_unsent_calls_have_no_time():
    calls = [
        make_call_result(0, error="refused", end_ns=9 * NS_PER_S, **NO_TOKEN),
        make_call_result(1, unsent="duration"),
    ]
    assert find("ttft_p95<2s", calls).count == 0


def test_calls_of_the_warm_up_count_only_if_they_are_asked_for():
    calls = [
        make_call_result(0, error="cut", phase="warm_up"),
        make_call_result(1, error="cut", phase="prime"),
    ]
    assert find("failed<1%", calls).count == 0
    (finding,) = findings(conditions_from_text("failed<1%"), calls, with_warm_up=True)
    assert (finding.value, finding.count) == (1.0, 1)


def test_a_call_is_refused_if_one_of_its_tries_was():
    calls = [make_call_result(index, attempts=(refused_try(),) if index < 2 else ()) for index in range(100)]
    assert find("refused<2%", calls).verdict == "broken"
    assert find("refused<3%", calls).verdict == "kept"
    assert find("failed<1%", calls).verdict == "kept"
    assert find("refused<3%", calls).text == "refused 2 % (n = 100)"


def test_a_share_needs_as_many_calls_as_one_of_them_is_its_bound():
    assert find("refused<1%", [make_call_result(index) for index in range(99)]).verdict == "unclear"


def test_failed_counts_calls_that_gave_up_and_not_those_that_were_cut():
    calls = [make_call_result(0, error="cut"), make_call_result(1, error="client_abort"), make_call_result(2)]
    finding = find("failed<60%", calls)
    assert (finding.value, finding.count) == (0.5, 2)


def test_sessions_are_lost_by_failed_calls_but_for_auxiliary_ones():
    calls = [
        make_call_result(0, error="cut"),
        make_call_result(1, session=1, error="cut", call_class="auxiliary"),
        make_call_result(2, instance=2),
    ]
    finding = find("lost_sessions<50%", calls)
    assert (finding.value, finding.count) == (1 / 3, 3)


def test_a_run_breaks_if_one_condition_does_and_cannot_tell_if_one_cannot():
    calls = [took(index, 100) for index in range(50)]
    for text, verdict in (
        ("ttft_p95<1s,refused<2%", "kept"),
        ("ttft_p95<1s,refused<1%", "unclear"),
        ("ttft_p95<1ms,refused<1%", "broken"),
    ):
        assert verdict_of(findings(conditions_from_text(text), calls)) == verdict
