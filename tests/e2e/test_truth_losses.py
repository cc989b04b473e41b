"""Why prompt tokens were not cached, against endpoints whose caches forget in a known way.

The load has a part in which many sessions compete and gaps are short, so that much is computed between two uses but little
time passes; and a part in which few do and gaps are long. So a cache that forgets by time and one that forgets by size
lose different calls.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.schema import Trace
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.engine.options import EngineOptions
from tests.e2e.http_server import Quiet, served

BLOCK = 16
BUSY_SESSIONS = 12
QUIET_SESSIONS = 8
ENGINE = EngineOptions(
    port=0, block_size=BLOCK, prefill_tokens_per_s=1_000_000.0, decode_tokens_per_s=2000.0, step_ns=0
)


def trace_of_two_halves() -> Trace:
    """Sessions with gaps of up to 150 ms, all at once; then sessions with gaps of 600 ms, two or three at a time."""
    rng = random.Random(1)
    builder = TraceBuilder(block_size=BLOCK)
    system = builder.segment(208, role="system", type="system")

    def play(at_ms: float, turns: int, longest_ms: float, shortest_ms: float) -> None:
        session = builder.session()
        add = [system, builder.segment(400)]
        for turn in range(turns):
            builder.call(
                session,
                add,
                at_ns=round(at_ms * NS_PER_MS),
                duration_ns=10 * NS_PER_MS,
                output_tokens=8,
                cause="unknown" if turn == 0 else "tool",
            )
            at_ms += 10 + rng.uniform(shortest_ms, longest_ms)
            add = [builder.segment(20, "assistant", "text"), builder.segment(100, "tool", "tool_result")]

    for _ in range(BUSY_SESSIONS):
        play(rng.uniform(0, 50), 9, 150, 5)
    for number in range(QUIET_SESSIONS):
        play(2000 + 500 * number, 3, 600, 550)
    return builder.trace()


class Upstream:
    """Chat completions from workers that each cache blocks of 16 words, without a limit, for as long as `lifetime_s`."""

    def __init__(self, lifetime_s: float, workers: int = 1) -> None:
        self.lost: Counter[str] = Counter()
        """Tokens of prompts that a cache had had, by what became of them."""
        self._lifetime_s = lifetime_s
        self._last_use: list[dict[int, float]] = [{} for _ in range(workers)]
        self._lock = threading.Lock()
        self._rng = random.Random(0)

    def serve(self, request: dict) -> tuple[int, list[int], int, int]:
        """Worker, blocks of the prompt, its tokens, and those of them that were cached."""
        words = " ".join(f"{message['role']} {message['content']}" for message in request["messages"]).split()
        keys: list[int] = []
        for start in range(0, len(words) - BLOCK, BLOCK):
            keys.append(hash((keys[-1] if keys else 0, *words[start : start + BLOCK])))
        with self._lock:
            worker = self._rng.randrange(len(self._last_use))
            hits = self._hits(worker, keys)
            for key in keys[hits:]:
                self.lost[self._fate(worker, key)] += BLOCK
        self.use(worker, keys)
        return worker, keys, len(words), hits * BLOCK

    def use(self, worker: int, keys: list[int]) -> None:
        """These blocks are used now: when they are served, and again when the answer is out."""
        with self._lock:
            self._last_use[worker] |= dict.fromkeys(keys, time.monotonic())

    def _hits(self, worker: int, keys: list[int]) -> int:
        cache, now = self._last_use[worker], time.monotonic()
        for place, key in enumerate(keys):
            if now - cache.get(key, float("-inf")) > self._lifetime_s:
                return place
        return len(keys)

    def _fate(self, worker: int, key: int) -> str:
        if key in self._last_use[worker]:
            return "gap_expiry"
        return "other_worker" if any(key in cache for cache in self._last_use) else "never"


@contextmanager
def serving(upstream: Upstream) -> Iterator[str]:
    class Handler(Quiet, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
            worker, keys, prompt, cached = upstream.serve(request)
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "length"}
            events = ({"choices": [choice]}, {"choices": [], "usage": usage})
            body = (
                b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("x-smg-routed-worker-id", f"http://worker-{worker}")
            self.end_headers()
            self.wfile.write(body)
            upstream.use(worker, keys)

    with served(Handler) as url:
        yield url


def reported_by(upstream: Upstream, directory) -> dict:
    """The report of a run against an upstream of this file."""
    write_trace(directory / "trace.aitrace", trace_of_two_halves())
    run = directory / "run"
    with serving(upstream) as url:
        options = ["--protocol", "chat", "--tokens-per-word", "1", "--arrival", "recorded", "--workers", "1"]
        arguments = ["replay", str(directory / "trace.aitrace"), "--url", url, "-o", str(run), *options]
        result = CliRunner().invoke(main, [*arguments, "--max-lateness", "5000"], catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    reported = CliRunner().invoke(main, ["report", str(run), "--json", "--no-html"], catch_exceptions=False)
    return orjson.loads(reported.stdout)


def by_cause(report: dict) -> dict[str, int]:
    """Tokens by cause, which add up to what was not cached."""
    tokens = {row["cause"]: row["tokens"] for row in report["tables"]["cache_losses"]}
    numbers = report["numbers"]
    assert sum(tokens.values()) == numbers["cache_input_tokens"] - numbers["cache_reported_tokens"]
    return tokens


def test_of_a_cache_without_limits_nothing_is_lost_but_parts_of_blocks(play):
    played = play(trace_of_two_halves(), ENGINE, "--arrival", "recorded")
    tokens = by_cause(played.report)
    assert tokens["first_contact"] > 0 < tokens["new_content"]
    lost = {cause: count for cause, count in tokens.items() if count} | {"rounding": 0}
    assert set(lost) <= {"first_contact", "new_content", "rounding", "not_computed"}
    # 12 calls may have been sent before the first one's system prompt was computed.
    assert tokens["not_computed"] <= 12 * 250


@pytest.mark.parametrize("blocks", [200, 320])
def test_what_a_small_cache_evicted_is_called_evicted_and_its_size_is_found(play, blocks):
    """The engine's size is in blocks that hold prompts and answers, those of running requests included."""
    played = play(trace_of_two_halves(), replace(ENGINE, cache_blocks=blocks), "--arrival", "recorded")
    tokens = by_cause(played.report)
    lost = sum(tokens[cause] for cause in ("gap_expiry", "eviction", "expiry_or_eviction", "unexplained"))
    assert lost > 5000
    assert tokens["eviction"] >= 0.85 * lost
    assert tokens["gap_expiry"] == 0
    capacity = blocks * BLOCK
    assert 0.7 * capacity <= played.numbers["cache_forgets_after_tokens"] <= 1.4 * capacity
    assert 0.7 * capacity <= played.numbers["cache_equivalent_tokens"] <= 1.4 * capacity


def test_what_was_evicted_while_calls_waited_in_the_engine_is_called_evicted(play):
    """Two places for twelve sessions: a call's prefix is lost while it waits, long after it was sent."""
    slow = replace(
        ENGINE, cache_blocks=320, batch=2, prefill_tokens_per_s=20_000.0, decode_tokens_per_s=250.0
    )
    played = play(trace_of_two_halves(), slow, "--arrival", "recorded")
    tokens = by_cause(played.report)
    lost = sum(tokens[cause] for cause in ("gap_expiry", "eviction", "expiry_or_eviction", "unexplained"))
    assert tokens["eviction"] >= 0.75 * lost > 5000
    capacity = 320 * BLOCK
    assert 0.6 * capacity <= played.numbers["cache_forgets_after_tokens"] <= 1.5 * capacity


def test_what_a_cache_forgot_by_time_is_called_expired_and_its_lifetime_is_found(tmp_path):
    upstream = Upstream(lifetime_s=0.3)
    report = reported_by(upstream, tmp_path)
    tokens = by_cause(report)
    assert upstream.lost["gap_expiry"] > 5000
    assert tokens["gap_expiry"] == pytest.approx(upstream.lost["gap_expiry"], rel=0.1)
    assert tokens["eviction"] == tokens["expiry_or_eviction"] == 0
    assert 0.15 <= report["numbers"]["cache_forgets_after_s"] <= 0.6
    assert 0.15 <= report["numbers"]["cache_half_lost_s"] <= 0.6


def test_what_another_worker_had_is_told_from_what_nobody_had(tmp_path):
    upstream = Upstream(lifetime_s=NS_PER_S, workers=2)
    tokens = by_cause(reported_by(upstream, tmp_path))
    assert upstream.lost["other_worker"] > 5000
    assert upstream.lost["gap_expiry"] == 0
    assert tokens["other_worker"] == pytest.approx(upstream.lost["other_worker"], rel=0.1)
    assert tokens["gap_expiry"] == tokens["eviction"] == tokens["expiry_or_eviction"] == 0
