"""The whole road: a session with known times is recorded, and what is replayed of it has the same tree and gaps.

Client, proxy, writer, replayer and engine are processes of their own, as they would be for a user.
"""

import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import orjson
import pytest

from aitrace.runstore import read_run
from aitrace.store import read_trace
from aitrace.units import NS_PER_MS

HERE = Path(__file__).parent
AITRACE = [sys.executable, "-m", "aitrace"]
ROUNDS = 8
ENGINE = ["engine", "--port", "0", "--prefill-rate", "unlimited", "--decode-rate", "unlimited"]


@contextmanager
def first_line_of(*command):
    """The first line that a program says; it is ended with the context."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The trace of one session, and what the client says it did."""
    return record(tmp_path_factory.mktemp("recorded"))


def record(folder):
    trace, log = folder / "session.aitrace", folder / "client.jsonl"
    with first_line_of(sys.executable, str(HERE / "scripted_upstream.py"), str(folder)) as line:
        place = f"api.example.test:443=127.0.0.1:{orjson.loads(line)['tls']}"
        options = ["--connect-to", place, "--upstream-ca", str(folder / "ca.pem"), "--client", "claude"]
        client = [sys.executable, str(HERE / "fake_client.py"), "session", str(ROUNDS)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "FAKE_LOG": str(log)}
        environment["PYTHONPATH"] = str(HERE.parent.parent)
        subprocess.run(
            [*AITRACE, "record", "-o", str(trace), *options, "--", *client],
            env=environment,
            check=True,
            cwd=HERE.parent.parent,
        )
    return trace, [orjson.loads(line) for line in log.read_bytes().splitlines()]


def calls_by_session(trace):
    return [[call for call in trace.calls if call.session == session.id] for session in trace.sessions]


@pytest.mark.alone
def test_the_tree_is_that_of_the_client(recorded):
    path, log = recorded
    trace = read_trace(path)
    assert [(session.parent, session.agent) for session in trace.sessions] == [
        (None, None),
        (0, "general-purpose"),
    ]
    main, child = calls_by_session(trace)
    assert len(main) == sum(line["agent"] is None for line in log) == 3 * ROUNDS + 1
    assert len(child) == sum(line["agent"] is not None for line in log) == 3
    assert [call.turn for call in main] == sorted([*range(ROUNDS)] * 3 + [1])
    spawner = main[5]
    assert [(dep.relation, dep.call) for dep in child[0].after] == [("spawn", spawner.id)]
    assert {(dep.relation, dep.call) for dep in main[6].after} >= {("join", child[2].id)}


@pytest.mark.alone
def test_gaps_and_their_causes_are_those_of_the_client(recorded, tmp_path):
    """A gap as recorded lies around the client's own by what the way through the proxy takes. Whatever else the machine
    does can only add to that, so one of three recordings has to show it."""
    seen = [gap_error_ms(*recorded)]
    for further in range(2):
        if abs(seen[-1]) < 10:
            return
        folder = tmp_path / str(further)
        folder.mkdir()
        seen.append(gap_error_ms(*record(folder)))
    assert abs(seen[-1]) < 10, f"median of three recordings, ms: {seen}"


def gap_error_ms(path, log):
    """The median of recorded gaps less the client's own; causes must be right in each recording."""
    main = calls_by_session(read_trace(path))[0]
    lines = [line for line in log if line["agent"] is None]
    theirs_ns = np.array([after["asked_ns"] - before["ended_ns"] for before, after in pairwise(lines)])
    ours = [next(dep for dep in call.after if dep.relation == "sequence") for call in main[1:]]
    errors_ms = (np.array([dep.gap_ns for dep in ours]) - theirs_ns) / NS_PER_MS
    is_new_prompt = [after.turn != before.turn for before, after in pairwise(main)]
    assert [dep.cause == "user" for dep in ours] == is_new_prompt
    assert {dep.cause for dep, is_new in zip(ours, is_new_prompt, strict=True) if not is_new} == {"tool"}
    return float(np.median(errors_ms))


def moment_ns(call, trace, played):
    """When a call ought to be sent, from the trace's gaps and the run's times, and by how much tools may move it.

    The shortest gap is that after what ended last. A tool starts while its answer streams, so that an endpoint whose
    answers take another time moves what follows, by no more than the longer of the two streams.
    """
    ends_ns = [
        played[dep.call].end_ns if dep.trigger == "completion" else played[dep.call].sent_ns
        for dep in call.after
    ]
    at_ns = max(ends_ns) + min(dep.gap_ns for dep in call.after)
    if len(call.after) > 1 or call.after[0].cause != "tool":
        return at_ns, 0
    before = call.after[0].call
    streams_ns = [
        times.end_ns - times.first_token_ns for times in (trace.calls[before].times, played[before])
    ]
    return at_ns, max(streams_ns) + NS_PER_MS


@pytest.mark.alone
def test_a_recording_is_replayed_with_the_same_tree_and_its_gaps(recorded, tmp_path):
    """Calls are due exactly where the gaps put them, and sent within what a slow machine's wake-ups take; bench/replay.py
    measures what a quiet one shows.

    Whatever else the machine does can only make calls later, so one of three runs has to show it.
    """
    path, _ = recorded
    trace = read_trace(path)
    seen = []
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        with first_line_of(*AITRACE, *ENGINE) as line:
            url = line.removeprefix("listening on ")
            target = ["--url", url, "--protocol", "anthropic", "-o", str(folder)]
            subprocess.run([*AITRACE, "replay", str(path), *target], check=False, capture_output=True)
        run = read_run(folder)
        assert {call.error for call in run.calls} == {None}
        in_order = sorted(run.calls, key=lambda call: call.sent_ns)
        for session, calls in enumerate(calls_by_session(trace)):
            assert [call.call for call in in_order if call.session == session] == [call.id for call in calls]
        played = {call.call: call for call in run.calls}
        for call in (call for call in trace.calls if call.after):
            at_ns, room_ns = moment_ns(call, trace, played)
            assert abs(played[call.id].due_ns - at_ns) <= room_ns
        late_ms = [(call.sent_ns - call.due_ns) / NS_PER_MS for call in run.calls]
        assert min(late_ms) >= 0
        seen.append((np.quantile(late_ms, 0.5), np.quantile(late_ms, 0.99)))
        if seen[-1][0] < 10 and seen[-1][1] < 50:
            return
    pytest.fail(f"p50 and p99 of three runs, ms: {seen}")
