"""What is measured of a program: each function starts it once or twice on a piece of work and gives its figures."""

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from beside.processes import Running, Served, Server, serve
from beside.programs import Command, Said, Work

Figures = dict[str, float]
LIMIT_S = 240
BEAT_S = 0.1
HELD_TOKENS = 3
NOT_A_NUMBER = float("nan")


@dataclass(frozen=True)
class Client:
    """A program to be measured."""

    name: str
    start: Callable[[str, Work, Path], Command]
    measures: tuple[str, ...]
    """What it can do at all."""
    is_slow: bool = False
    """Whether it is given fewer calls, where only a difference counts."""
    has_probes: bool = False
    """Whether it sends requests without an id before its calls, which are left out."""
    peak_streams: int = 10_000
    """How many streams it is asked to hold open."""


@dataclass
class Bench:
    """Where and how much."""

    folder: Path
    scale: float = 1.0
    """Share of the calls that are made."""
    is_pinned: bool = False
    """Whether the server has the first core for itself."""
    running: Running | None = None
    """The program that was started last."""

    @property
    def settle_s(self) -> float:
        """How long memory is left to settle."""
        return 2 * min(1, self.scale)

    def tokens(self, tokens: int) -> int:
        """Sizes stay as they are, except where nobody looks at the figures."""
        return tokens if self.scale >= 0.1 else max(2, round(tokens * self.scale * 10))

    def many(self, calls: int) -> int:
        return max(2, round(calls * self.scale))

    @contextmanager
    def served(self, **pace: float) -> Iterator[tuple[Server, Path]]:
        folder = self.folder / "one"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        core = 0 if self.is_pinned else None
        with serve(folder, core=core, **pace) as server:
            try:
                yield server, folder
            finally:
                if self.running and not self.running.has_ended():
                    self.running.kill()  # as when this bench is ended

    def run(self, command: Command, folder: Path) -> Running:
        pin = ["taskset", "-c", f"1-{os.cpu_count() - 1}"] if self.is_pinned else []
        self.running = Running(pin + command.arguments, command.environment, folder)
        return self.running


@dataclass
class Played:
    """A piece of work, done."""

    cpu_s: float
    calls: list[Served]
    said: Said | None

    def error_ms(self) -> tuple[float, float]:
        """The client's TTFT less the true one, p50 and p99: of each call where it tells ids, else of the quantiles."""
        true_ms = {
            one.request_id: (one.first_ns - one.received_ns) / 1e6 for one in self.calls if one.first_ns
        }
        if self.said is None or not true_ms:
            return NOT_A_NUMBER, NOT_A_NUMBER
        joined = [ms - true_ms[name] for name, ms in self.said.by_id.items() if name in true_ms]
        if joined:
            return quantiles(joined)
        every = [(one.first_ns - one.received_ns) / 1e6 for one in self.calls if one.first_ns]
        client = self.said.quantiles_ms or quantiles(self.said.all_ms)
        return tuple(said - true for said, true in zip(client, quantiles(every), strict=True))


def quantiles(values: list[float]) -> tuple[float, float]:
    if not len(values):
        return NOT_A_NUMBER, NOT_A_NUMBER
    return float(np.quantile(values, 0.5)), float(np.quantile(values, 0.99))


def calls_of(client: Client, server: Server) -> list[Served]:
    return [one for one in server.served() if one.request_id or not client.has_probes]


def play(bench: Bench, client: Client, work: Work, *, ttft_ms: float, itl_ms: float = 20) -> Played:
    with bench.served(tokens=work.tokens, ttft_ms=ttft_ms, itl_ms=itl_ms) as (server, folder):
        command = client.start(server.url, work, folder)
        running = bench.run(command, folder)
        cpu_s = running.wait(LIMIT_S)
    calls = calls_of(client, server)
    try:
        said = command.read()
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        said = None
    complain(client, work, running, cpu_s, len(calls))
    return Played(NOT_A_NUMBER if cpu_s is None else cpu_s, calls, said)


def complain(client: Client, work: Work, running: Running, cpu_s: float | None, served: int) -> None:
    if cpu_s is None:
        print(f"{client.name}: ended after {LIMIT_S} s with {served} of {work.calls} calls", file=sys.stderr)
    elif served < work.calls:
        print(f"{client.name}: {served} of {work.calls} calls; {running.last_words()}", file=sys.stderr)


def slope(bench: Bench, client: Client, few: int, many: int, work: dict[str, int]) -> float:
    """CPU s of one more call."""
    short, long = (
        play(bench, client, Work(calls=bench.many(calls), **work), ttft_ms=1) for calls in (few, many)
    )
    return (long.cpu_s - short.cpu_s) / max(1, len(long.calls) - len(short.calls))


def cpu(bench: Bench, client: Client) -> Figures:
    """1-token calls in 20 lanes, and 101-token calls in 40 lanes with 20 ms between tokens."""
    sizes = ((200, 1200), (60, 260)) if client.is_slow else ((1000, 6000), (100, 500))
    call_s = slope(bench, client, *sizes[0], {"tokens": 1, "lanes": 20})
    long_s = slope(bench, client, *sizes[1], {"tokens": 1 + bench.tokens(100), "lanes": 40})
    return {"event_us": (long_s - call_s) / bench.tokens(100) * 1e6, "call_us": call_s * 1e6}


def burst(bench: Bench, client: Client) -> Figures:
    """1,000 streams at once, 150 tokens each, 50 tokens/s."""
    calls = bench.many(1000)
    played = play(
        bench, client, Work(calls=calls, tokens=bench.tokens(150), lanes=calls, at_once=True), ttft_ms=100
    )
    late = [one.late_ns / 1e6 for one in played.calls if one.late_ns is not None]
    return {
        **named("error_ms", played.error_ms()),
        **named("server_late_ms", quantiles(late)),
        "cpu_s": played.cpu_s,
    }


def low(bench: Bench, client: Client) -> Figures:
    """20 calls a second, 20 tokens each."""
    work = Work(calls=bench.many(200), tokens=bench.tokens(20), rate=20)
    return named("error_ms", play(bench, client, work, ttft_ms=30).error_ms())


def late(bench: Bench, client: Client) -> Figures:
    """1,000 calls a second for 5 s, from a trace where the program reads one, else at a constant rate."""
    rate, calls = 1000, bench.many(5000)
    work = Work(calls=calls, tokens=4, rate=rate, is_trace=True)
    played = play(bench, client, work, ttft_ms=5, itl_ms=2)
    return named("late_ms", lateness(played.calls, rate))


def lateness(calls: list[Served], rate: int) -> tuple[float, float]:
    """Arrival at the server, in ms, against an even schedule that begins so that the earliest call is on it."""
    times = np.sort([one.received_ns / 1e6 for one in calls])
    behind = times - np.arange(len(times)) * 1000 / rate
    return quantiles(behind - behind.min() if len(behind) else behind)


def first(bench: Bench, client: Client) -> Figures:
    """Start of the program to the first call at the server, 100,000 calls of 64 tokens in a trace at 100 a second."""
    work = Work(calls=bench.many(100_000), tokens=4, prompt_tokens=64, rate=100, is_trace=True)
    with bench.served(tokens=4, ttft_ms=1, itl_ms=1) as (server, folder):
        running = bench.run(client.start(server.url, work, folder), folder)
        peak_kb, until = 0, running.started_ns + LIMIT_S * 10**9
        cpu_s = None
        while time.monotonic_ns() < until and not running.has_ended():
            peak_kb = max(peak_kb, running.memory_kb())
            if cpu_s is None and has_called(client, server):
                cpu_s, until = running.cpu_s(), time.monotonic_ns() + int(bench.settle_s * 1e9)
            time.sleep(BEAT_S)
        running.kill()
    begin_s = first_s(client, server, running, work)
    return {"first_s": begin_s, "cpu_s": NOT_A_NUMBER if cpu_s is None else cpu_s, "peak_mb": peak_kb / 1000}


def has_called(client: Client, server: Server) -> bool:
    return server.state()["named" if client.has_probes else "calls"] > 0


def first_s(client: Client, server: Server, running: Running, work: Work) -> float:
    calls = calls_of(client, server)
    if not calls:
        complain(client, work, running, 0, 0)
        return NOT_A_NUMBER
    return (calls[0].received_ns - running.started_ns) / 1e9


def prompts(bench: Bench, client: Client) -> Figures:
    """Start to the first of 100 calls of 50,000 tokens in 2 lanes."""
    work = Work(calls=bench.many(100), tokens=4, prompt_tokens=bench.tokens(50_000), lanes=2)
    with bench.served(tokens=4, ttft_ms=1, itl_ms=1) as (server, folder):
        running = bench.run(client.start(server.url, work, folder), folder)
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and not running.has_ended() and not has_called(client, server):
            time.sleep(BEAT_S)
        cpu_s = running.cpu_s()
        total_s = running.wait(LIMIT_S)
    begin_s = first_s(client, server, running, work)
    return {"first_s": begin_s, "cpu_s": cpu_s, "total_cpu_s": NOT_A_NUMBER if total_s is None else total_s}


def memory(bench: Bench, client: Client) -> Figures:
    """Memory of all processes with 10,000 streams open, less that with 1,000; the same work is planned both times."""
    many = bench.many(client.peak_streams)
    few = max(1, many // 10)
    held_kb = [held(bench, client, lanes, many) for lanes in (few, many)]
    return {"stream_kb": (held_kb[1] - held_kb[0]) / (many - few), "peak_mb": held_kb[1] / 1000}


def held(bench: Bench, client: Client, lanes: int, calls: int) -> float:
    """Memory in kB with as many streams open as there are lanes, each between its second token and its third."""
    with bench.served(tokens=HELD_TOKENS, ttft_ms=1, itl_ms=1, hold_after=HELD_TOKENS - 1) as (
        server,
        folder,
    ):
        running = bench.run(
            client.start(server.url, Work(calls=calls, tokens=HELD_TOKENS, lanes=lanes), folder), folder
        )
        until, opened = time.monotonic() + LIMIT_S, 0
        while time.monotonic() < until and not running.has_ended() and opened < lanes:
            time.sleep(BEAT_S)
            opened = server.state()["open"]
        seen = []
        for _ in range(5):
            time.sleep(bench.settle_s / 5)
            seen.append(running.memory_kb())
        running.kill()
    if opened < lanes:
        print(f"{client.name}: {opened} of {lanes} streams open; {running.last_words()}", file=sys.stderr)
        return NOT_A_NUMBER
    return statistics.median(seen)


def named(name: str, pair: tuple[float, float]) -> Figures:
    return {f"{name}_p50": pair[0], f"{name}_p99": pair[1]}


MEASURES: dict[str, Callable[[Bench, Client], Figures]] = {
    "cpu": cpu,
    "burst": burst,
    "low": low,
    "late": late,
    "first": first,
    "memory": memory,
    "prompts": prompts,
}
