"""Every number of `aitrace report --json` against plain Python over the lines of the run's files.

Three runs: a made-up one with everything that can become of a call, one of a single tree, whose calls have the endpoint for
themselves, and one that was played against the engine.
"""

from dataclasses import replace

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.results import Attempt, Scrape, WorkerEnd
from aitrace.runstore import RunWriter
from aitrace.schema import Trace
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder
from replayer.engine.options import EngineOptions
from replayer.engine.testing import engine_on_thread
from reports.testing import make_up_run
from tests.e2e.plain_numbers import PlainNumbers
from tests.e2e.plain_report import spread

NS_PER_MS, NS_PER_S = 10**6, 10**9
NOT_COVERED = {
    # What the cache forgets by, and the modelled caches: tests/unit/reports/test_cache_*.py compute these in other ways.
    "cache_survival", "cache_losses", "cache_loss_rules", "cache_by_capacity", "cache_by_lifetime",
    "cache_survived_ratio", "cache_half_lost_s", "cache_uncached_tokens", "cache_lost_by_cause_tokens", "cache_surplus_tokens",
    "cache_forgets_after_s", "cache_forgets_after_tokens", "cache_block_tokens", "cache_model_ratio",
    "cache_model_highest_ratio", "cache_equivalent_tokens", "cache_equivalent_s", "cache_enough_tokens", "cache_enough_s",
}  # fmt: skip
"""Numbers and tables that are not compared here; intervals (`p50_interval`, `p95_interval`) are not either: they come from a
seeded drawing of sessions, see tests/unit/reports/test_stats.py."""


def report_of(directory):
    result = CliRunner().invoke(
        main, ["report", str(directory), "--json", "--no-html"], catch_exceptions=False
    )
    assert result.exit_code in (0, 1), result.output
    return orjson.loads(result.stdout)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Refusals with and without another try, losses, timeouts, side calls, workers, faults, a warm-up, a second engine."""
    directory = tmp_path_factory.mktemp("made-up")
    run = make_up_run(trees=14, calls=16, refused_ratio=0.02, seed=5)
    calls = [with_variety(call) for call in run.calls]
    ends = (
        WorkerEnd(sent_calls=100, cpu_ns=7 * NS_PER_S, loop_lag_p99_ns=3 * NS_PER_MS, late_bodies=2),
        WorkerEnd(sent_calls=9, cpu_ns=None, loop_lag_p99_ns=None, lost=True),
    )
    write_trace(directory / "made-up.aitrace", run.trace)
    return write(directory / "run", run, calls, with_counters(run.scrapes), workers=ends)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """One tree, most calls of which have the endpoint for themselves."""
    directory = tmp_path_factory.mktemp("alone")
    run = make_up_run(trees=1, calls=60, seed=3)
    write_trace(directory / "made-up.aitrace", run.trace)
    return write(directory / "run", run, run.calls, run.scrapes)


def write(directory, run, calls, scrapes, **end):
    with RunWriter(directory, run.header, directory.parent / "made-up.aitrace") as writer:
        for call in calls:
            writer.write_call(call)
        for scrape in scrapes:
            writer.write_scrape(scrape)
        writer.finish(replace(run.end, **end))
    return directory


def with_variety(call):
    """The call of a made-up run, changed by its number."""
    number = call.index
    # The first two trees are the warm-up, and some calls of sessions that go on after it.
    call = replace(call, phase="warm_up" if call.root < 40 or number % 29 == 3 else "measured")
    call = replace(call, identity_fault="churn" if call.session % 11 == 4 else None)
    if number % 3 and call.sent_ns is not None:
        call = replace(call, signals={"x-smg-routed-worker-id": f"worker-{call.session % 3}"})
    if call.unsent is not None or call.error is not None:
        return call
    if number % 17 == 3:
        call = replace(
            call, new_connection=True, connected_ns=call.sent_ns - 1, dispatched_ns=call.sent_ns - NS_PER_MS
        )
    if number % 13 == 5:
        return tried_before(call)
    if number % 97 == 50:
        return replace(call, error="timeout", last_token_ns=None)
    if number % 89 == 20:
        return replace(call, error="error_event", error_text="engine overloaded", call_class="auxiliary")
    if number % 83 == 10:
        return replace(call, usage=replace(call.usage, cache_read_tokens=None))
    return call


def tried_before(call):
    """As if it had been refused and cut off before, in the time between due and sent, which it then was later."""
    due_ns = call.due_ns - 3 * NS_PER_S
    refused = Attempt(
        sent_ns=due_ns + NS_PER_MS, headers_ns=due_ns + 2 * NS_PER_MS, end_ns=due_ns + 3 * NS_PER_MS, status=429,
        error="refused", wait_ns=NS_PER_S,
    )  # fmt: skip
    cut = Attempt(
        sent_ns=due_ns + 2 * NS_PER_S, headers_ns=due_ns + 2 * NS_PER_S, end_ns=due_ns + 2 * NS_PER_S + NS_PER_MS,
        status=200, error="cut", wait_ns=NS_PER_S // 2,
    )  # fmt: skip
    return replace(call, due_ns=due_ns, retry_due_ns=call.due_ns, attempts=(refused, cut))


def with_counters(scrapes):
    for number, scrape in enumerate(scrapes):
        if number % 40 == 7:
            yield Scrape(at_ns=scrape.at_ns, url=scrape.url, error="timeout")
            continue
        yield replace(
            scrape, values=scrape.values | {"preemptions": float(number // 10), "rejections": 2.0 * number}
        )
        if number % 2:
            yield Scrape(
                at_ns=scrape.at_ns + 1,
                url="http://127.0.0.1:8001/metrics",
                values={"waiting": float(number % 5)},
            )


def trace_of() -> Trace:
    """Sessions of twelve calls with a sub-agent each, whose gaps are in several buckets."""
    builder = TraceBuilder()
    system = builder.segment(2000, role="system", type="system")
    for number in range(6):
        session = builder.session(harness="claude-code")
        at_ns, add = number * NS_PER_S, [system, builder.segment(400)]
        for turn in range(12):
            at_ns += (0, 2, 20, 90)[(number + turn) % 4] * NS_PER_S if turn else 0
            cause = "user" if turn % 4 == 3 else "tool"
            call = builder.call(
                session,
                add,
                at_ns=at_ns,
                cause=cause,
                output_tokens=12,
                duration_ns=NS_PER_S,
                call_class="main",
            )
            at_ns += NS_PER_S
            add = [
                builder.segment(30, role="assistant"),
                builder.segment(200 + 300 * (turn % 3), role="tool"),
            ]
            if turn == 5:
                child = builder.session(parent=session, harness="claude-code")
                builder.call(
                    child, [system, builder.segment(300)], after=[call], output_tokens=6, call_class="subagent",
                    duration_ns=NS_PER_S // 2,
                )  # fmt: skip
    return builder.trace()


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run against the engine, which turns calls away that find no room; harnesses try again."""
    directory = tmp_path_factory.mktemp("played")
    write_trace(directory / "trace.aitrace", trace_of())
    options = EngineOptions(
        port=0, cache_blocks=400, prefill_tokens_per_s=40_000.0, decode_tokens_per_s=400.0, batch=2, queue=1, refuse=429,
        retry_after_s=0.05,
    )  # fmt: skip
    with engine_on_thread(options) as target:
        result = CliRunner().invoke(
            main,
            [
                "replay", str(directory / "trace.aitrace"), "--url", target.url, "--protocol", "anthropic",
                "-o", str(directory / "run"), "--arrival", "together", "--time-scale", "0.01", "--gap-cap", "user=300ms",
                "--workers", "1", "--max-lateness", "5000", "--json",
            ],
            catch_exceptions=False,
        )  # fmt: skip
    assert result.exit_code in (0, 1), result.output
    return directory / "run"


@pytest.fixture(scope="module", params=["made_up", "alone", "played"])
def compared(request):
    """What the report says, and what plain Python says."""
    directory = request.getfixturevalue(request.param)
    return report_of(directory), PlainNumbers(directory)


def near(value):
    """Sums of floats differ in their last digits with the order of adding."""
    if isinstance(value, dict):
        return {name: near(one) for name, one in value.items()}
    return pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value


def by_name(rows):
    """Rows in an order of their own: what the report sorts by may leave several orders."""
    return sorted(
        rows, key=lambda row: [str(value) for value in row.values() if not isinstance(value, float)]
    )


def test_every_number_is_that_of_plain_python(compared):
    report, plain = compared
    told, expected = report["numbers"], plain.numbers()
    assert set(told) - set(expected) == NOT_COVERED & set(told)
    # Queues on a line between two readings are equal or not by their last digit, and ranks depend on that.
    correlation = expected.pop("headers_queue_correlation")
    assert told["headers_queue_correlation"] == (
        None if correlation is None else pytest.approx(correlation, abs=0.01)
    )
    assert {name: told[name] for name in expected} == near(expected)


def test_every_distribution_is_that_of_plain_python(compared):
    report, plain = compared
    told, values = report["distributions"], plain.distributions()
    assert set(told) == set(values)
    names = ("n", "p50", "p90", "p95", "p99", "max")
    assert {of: {name: told[of][name] for name in names} for of in told} == {
        of: near(spread(values[of])) for of in values
    }


def test_every_row_of_every_table_is_that_of_plain_python(compared):
    report, plain = compared
    told, expected = report["tables"], plain.tables()
    assert set(told) - set(expected) == NOT_COVERED & set(told)
    for name, rows in expected.items():
        assert by_name(told[name]) == [near(row) for row in by_name(rows)], name


def test_the_runs_have_something_of_each_kind(made_up, alone, played):
    """An empty table would be compared with an empty table."""
    tables = [report_of(directory)["tables"] for directory in (made_up, alone, played)]
    assert {name for name in tables[0] if not any(table[name] for table in tables)} <= NOT_COVERED
    numbers = [report_of(directory)["numbers"] for directory in (made_up, alone, played)]
    for name in (
        "refused_tries",
        "retried_calls",
        "lost_sessions",
        "unmeasured_calls",
        "capped_gaps",
        "unloaded_base_ms",
    ):
        assert any(of[name] for of in numbers), name
