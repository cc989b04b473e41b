"""`aitrace replay` through SMG, a gateway in front of two llama-servers: whom it refuses, and where it sends a session."""

from collections import Counter, defaultdict

import pytest
from playing import by_index, conversations, growth, play
from starting import counter, smg
from tap import tapped

REFUSED = {"full": 429, "timeout": 503}
"""Reasons of SMG, and the status that it answers with."""


def test_refusals_are_those_that_the_gateway_counted(engines, model, tmp_path):
    # Two are served, two wait for less time than an answer takes, the others find the queue full.
    limits = ("--max-concurrent-requests", "2", "--queue-size", "2", "--queue-timeout-secs", "1")
    with smg(engines, model, tmp_path, "--policy", "round_robin", *limits) as gateway:
        series = "smg_admission_queue_rejected_total"
        before = {reason: counter(gateway.metrics_url, series, reason=reason) for reason in REFUSED}
        with tapped(gateway.url) as tap:
            run = play(
                conversations(8, 2, output_tokens=6000),
                tmp_path,
                tap.url,
                *("--protocol", "chat", "--metrics", gateway.metrics_url, "--tokens-per-word", "1"),
                may_fail=True,
            )
        counted = {reason: counter(gateway.metrics_url, series, reason=reason) for reason in REFUSED}
    statuses = Counter(call.status for call in run.calls if call.error == "refused")
    assert statuses == {REFUSED[reason]: counted[reason] - before[reason] for reason in REFUSED}
    assert statuses == {429: 4, 503: 2}
    assert growth(run, "rejections") == statuses.total()
    codes = {
        (call.status, call.signals.get("x-smg-error-code")) for call in run.calls if call.error == "refused"
    }
    assert codes == {(429, "admission_queue_full"), (503, "admission_queue_timeout")}
    # Each refused session ends there, and each that was served goes on.
    assert Counter(call.unsent for call in run.calls) == {None: 10, "session_lost": 6}


@pytest.mark.parametrize(("identity", "workers_of_a_session"), [("affinity", 1), ("native", 1), ("none", 2)])
def test_a_session_stays_at_its_worker_if_and_only_if_its_ids_are_sent(
    engines, model, tmp_path, identity, workers_of_a_session
):
    with smg(engines, model, tmp_path, "--policy", "round_robin", "--sticky-sessions") as gateway:
        options = ("--identity", identity, "--concurrency", "1", "--time-scale", "0")
        run = play(conversations(6, 4), tmp_path, gateway.url, "--protocol", "chat", *options)
    workers = defaultdict(set)
    for call in by_index(run):
        workers[call.session].add(call.signals["x-smg-routed-worker-id"])
    assert {len(names) for names in workers.values()} == {workers_of_a_session}
    assert set.union(*workers.values()) == set(gateway.worker_urls)
