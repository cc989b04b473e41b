"""A made-up run of many calls, for benchmarks: a trace played by as many instances as it takes, with plausible times.

python bench/long_run.py DIRECTORY CALLS TRACE

Every tree of the trace is played equally often and one playing begins every 0.2 s. Calls wait for what the trace says.
A try in twenty is refused and tried again, a call in five thousand is cut, and what waits for it is not sent. Half of the
calls say which of eight workers served them, and a metrics page is read once a second. The numbers are plausible, not
right. `calls.parquet` is left out: a report does not read it.
"""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from aitrace.codec import fields_from_record
from aitrace.columns import CALL_CLASSES, GAP_CAUSES, CallColumns
from aitrace.results import RunEnd, Scrape
from aitrace.runstore import RUN_FILE, RunWriter
from aitrace.stored_trace import stored_trace
from aitrace.testing import make_run_end, make_run_header
from aitrace.units import NS_PER_MS, NS_PER_S

TIME_SCALE = 0.1
REFUSED_RATIO = 0.05
CUT_RATIO = 0.0002
STEP_NS = NS_PER_S // 5
WORKERS = 8
CACHE_BLOCK = 16
WRITTEN_LINES = 10_000

Integers = npt.NDArray[np.int64]
Table = dict[str, npt.NDArray[Any]]


class Playing:
    """All playings of a trace at once: a column per instance."""

    def __init__(self, calls: CallColumns, instances: int) -> None:
        self._calls = calls
        self._rng = np.random.default_rng(0)
        shape = (len(calls.session), instances)
        self.times: Table = {
            name: np.zeros(shape, np.int64) for name in ("due", "retry_due", "first", "last", "end")
        }
        self.attempts = np.zeros(shape, np.int8)
        self.is_cut = np.zeros(shape, bool)
        self.is_lost = np.zeros(shape, bool)
        self.cached = np.zeros(shape, np.int64)
        self._starts_ns = self._rng.permutation(instances) * STEP_NS
        roots, place = np.unique(calls.root, return_inverse=True)
        self._start_of = np.arange(len(roots))[place] * STEP_NS * instances // len(roots)

    def play(self) -> None:
        for call in range(len(self._calls.session)):
            self._play(call)

    def _play(self, call: int) -> None:
        calls, times, instances = self._calls, self.times, len(self._starts_ns)
        waits = slice(calls.after_first[call], calls.after_first[call + 1])
        due_ns = self._starts_ns + self._start_of[call]
        for other, gap_ns in zip(calls.after_call[waits], calls.after_gap_ns[waits], strict=True):
            np.maximum(due_ns, times["end"][other] + round(max(gap_ns, 0) * TIME_SCALE), out=due_ns)
            self.is_lost[call] |= self.is_lost[other] | self.is_cut[other]
        refused = self._rng.random(instances) < REFUSED_RATIO
        retry_ns = due_ns + refused * (2 * NS_PER_S)
        prompt, base = int(calls.prompt_size[call]), int(calls.base[call])
        if base >= 0:
            kept = self._rng.random(instances) < 0.8
            known = min(prompt, int(calls.prompt_size[base]))
            self.cached[call] = kept * (known // CACHE_BLOCK * CACHE_BLOCK)
        prefill_ns = (prompt - self.cached[call]) * 40_000
        first_ns = (retry_ns + (prefill_ns + 60 * NS_PER_MS) * self._rng.uniform(0.8, 1.6, instances)).astype(
            np.int64
        )
        output = max(int(calls.output_tokens[call]), 1)
        last_ns = (first_ns + output * 15 * NS_PER_MS * self._rng.uniform(0.8, 1.3, instances)).astype(
            np.int64
        )
        self.is_cut[call] = self._rng.random(instances) < CUT_RATIO
        self.attempts[call] = refused
        times["due"][call], times["retry_due"][call], times["first"][call] = due_ns, retry_ns, first_ns
        times["last"][call], times["end"][call] = last_ns, last_ns + NS_PER_MS


def lines(calls: CallColumns, playing: Playing, count: int) -> Iterator[bytes]:
    """A line per call, in the order in which they ended."""
    instances = playing.is_cut.shape[1]
    turn = turns(calls.session)
    of_call = [plan(calls, call, int(turn[call])) for call in range(len(calls.session))]
    rng = np.random.default_rng(1)
    order = np.argsort(playing.times["end"], axis=None, kind="stable")[:count]
    late_us = rng.exponential(400, len(order)).astype(np.int64) + 20
    rows = zip(
        order.tolist(),
        late_us.tolist(),
        *(
            column.ravel()[order].tolist()
            for column in (
                *playing.times.values(),
                playing.cached,
                playing.attempts,
                playing.is_cut,
                playing.is_lost,
            )
        ),
        strict=True,
    )
    for place, late, due, retry_due, first, last, end, cached, attempts, is_cut, is_lost in rows:
        call, instance = divmod(place, instances)
        head, prompt, output = of_call[call]
        text = f'{{"index":{place},"instance":{instance + 1},"request_id":"0a1b2c3d4e5f-{place}",{head}'
        if is_lost:
            yield f'{text},"unsent":"session_lost"}}\n'.encode()
            continue
        if attempts:
            text += ',"attempts":[' + attempt(due) + f'],"due_ns":{due},"retry_due_ns":{retry_due}'
        else:
            text += f',"due_ns":{due}'
        sent = retry_due + late * 1000
        text += (
            f',"dispatched_ns":{sent - 15000},"connected_ns":{sent - 9000},"sent_ns":{sent},"uploaded_ns":{sent + 80000}'
            f',"headers_ns":{first - 300000},"first_byte_ns":{first},"first_event_ns":{first},"first_token_ns":{first}'
            f',"first_visible_ns":{first},"last_token_ns":{last},"end_ns":{end},"new_connection":false'
            f',"request_bytes":{prompt * 6},"response_bytes":{output * 220},"events":{output + 3}'
            f',"token_events":{output},"longest_stall_ns":{30000000 + late * 9000},"status":200'
        )
        if is_cut:
            yield f'{text},"error":"cut","error_text":"the stream ended early"}}\n'.encode()
            continue
        text += (
            f',"finish":"length","usage":{{"input_tokens":{prompt + 7},"cache_read_tokens":{cached}'
            f',"output_tokens":{output}}}'
        )
        if place % 2:
            text += f',"signals":{{"x-smg-routed-worker-id":"worker-{place % WORKERS}"}}'
        yield f"{text}}}\n".encode()


def attempt(due: int) -> str:
    return (
        f'{{"sent_ns":{due + 20000},"headers_ns":{due + 900000},"end_ns":{due + 1000000},"status":429,"error":"refused"'
        f',"error_text":"too many requests","retry_after_ns":{2 * NS_PER_S},"wait_ns":{2 * NS_PER_S - 1000000}}}'
    )


def turns(sessions: Integers) -> Integers:
    """The place of each call within its session."""
    order = np.argsort(sessions, kind="stable")
    ordered = sessions[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    place = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    result = np.empty_like(place)
    result[order] = place
    return result


def plan(calls: CallColumns, call: int, turn: int) -> tuple[str, int, int]:
    """The fields of a call that are the same in every playing, its prompt, and its answer."""
    prompt, output = int(calls.prompt_size[call]), max(int(calls.output_tokens[call]), 1)
    first, end = int(calls.after_first[call]), int(calls.after_first[call + 1])
    gap = cause = "null"
    if first < end:
        gap = str(round(max(int(calls.after_gap_ns[first]), 0) * TIME_SCALE))
        cause = f'"{GAP_CAUSES[calls.after_cause[first]]}"'
    head = (
        f'"call":{call},"session":{calls.session[call]},"root":{calls.root[call]}'
        f',"call_class":"{CALL_CLASSES[calls.call_class[call]]}","turn_index":{turn},"gap_ns":{gap},"gap_cause":{cause}'
        f',"prompt_tokens":{prompt},"output_tokens":{output},"planned_ns":{int(calls.request_ns[call] * TIME_SCALE)}'
    )
    return head, prompt, output


def scrapes(playing: Playing, ended_ns: int) -> Iterator[Scrape]:
    firsts, ends = np.sort(playing.times["first"], axis=None), np.sort(playing.times["end"], axis=None)
    at_ns = np.arange(0, ended_ns, NS_PER_S)
    begun, done = np.searchsorted(firsts, at_ns), np.searchsorted(ends, at_ns)
    for at, running, served in zip(at_ns.tolist(), (begun - done).tolist(), begun.tolist(), strict=True):
        values = {
            "running": float(running),
            "waiting": float(running % 7),
            "kv_usage_ratio": min(1.0, running / 500),
            "prefix_query_tokens": served * 80_000.0,
            "prefix_hit_tokens": served * 60_000.0,
        }
        yield Scrape(at_ns=at, url="http://127.0.0.1:8000/metrics", values=values)


def add_end(path: Path, end: RunEnd) -> None:
    """What `RunWriter.finish` does, without `calls.parquet`."""
    content = orjson.loads(path.read_bytes()) | {"end": fields_from_record(end)}
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def main() -> None:
    directory, count, path = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with stored_trace(path) as stored:
        calls = stored.trace.calls.columns
        instances = -(-count // len(calls.session))
        playing = Playing(calls, instances)
        playing.play()
        header = make_run_header(
            trace=Path(path).name,
            options={"arrival": "poisson:5/s"},
            time_scale=TIME_SCALE,
            planned_trees=len(np.unique(calls.root)) * instances,
            planned_sessions=len(stored.trace.sessions) * instances,
            planned_calls=count,
        )
        ended_ns = int(playing.times["end"].max())
        with RunWriter(directory, header, path) as writer:
            written = lines(calls, playing, count)
            while part := b"".join(islice(written, WRITTEN_LINES)):
                writer.write_call_line(part)
            for scrape in scrapes(playing, ended_ns):
                writer.write_scrape(scrape)
        unsent = int(playing.is_lost.sum())
        end = make_run_end(
            ended_ns=ended_ns, sent_calls=count - unsent, unsent_calls=unsent, cpu_ns=ended_ns // 10
        )
        add_end(directory / RUN_FILE, end)


if __name__ == "__main__":
    main()
