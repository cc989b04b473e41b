"""Real clients through `aitrace record`: what the trace says is compared with what the endpoint saw.

Times are held to 500 ms, gaps in the median to 100 ms: the endpoint and the recorder read their clocks in two
processes of one machine, which may be busy.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median

import pytest
import zstandard
from click.testing import CliRunner, Result
from clients import OPENAI_KEY, ClientName, Finished, Mode, Setting, run
from scenarios import SCENARIOS, Read, Shell, Tool
from truth import (
    ERRORS,
    Pair,
    chains,
    expected_class,
    paired,
    script_agent,
    sessions_by_agent,
    spawner,
    waits,
)

from aitrace.cli import main
from aitrace.leaks import find_leaks
from aitrace.prompts import PromptResolver
from aitrace.runstore import read_run
from aitrace.schema import Dependency, Trace
from aitrace.store import read_trace, write_trace
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.engine.options import EngineOptions
from replayer.engine.testing import engine_on_thread

AT_ONCE = 4
"""Clients running at one time."""
CLOSE_NS = 100 * NS_PER_MS
TOLERANCE_NS = 500 * NS_PER_MS
CLIENTS: tuple[ClientName, ...] = ("claude", "codex", "codex-ws", "opencode")
MODES: tuple[Mode, ...] = ("reverse", "forward")
HARNESSES = {"claude": "claude-code", "codex": "codex", "codex-ws": "codex", "opencode": "opencode"}
FATAL = {("codex", "refused_bare"): 1, ("codex-ws", "refused_bare"): 1}
"""Exit status where a client gives up: Codex does at a 429 that names no time."""
TRANSPORTS = {
    ("codex", "forward"): "h2",
    ("codex-ws", "forward"): "websocket",
    ("codex-ws", "reverse"): "websocket",
}
QUICK = EngineOptions(port=0, prefill_tokens_per_s=None, decode_tokens_per_s=None)
TELLS_TOOL_TIMES = ("claude", "codex", "codex-ws")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One client's way through one scenario, as recorded."""

    client: ClientName
    mode: Mode
    name: str
    """The scenario."""
    run: Finished
    trace: Trace
    pairs: list[Pair]


def runs_of(*names: str, modes: tuple[Mode, ...] = MODES) -> pytest.MarkDecorator:
    """All clients and modes through these scenarios."""
    chosen = [pytest.param(one, id="-".join(one)) for one in product(CLIENTS, modes, names)]
    return pytest.mark.parametrize("recording", chosen, indirect=True)


every_run = runs_of(*SCENARIOS)


@pytest.fixture(scope="session")
def runs(request, tmp_path_factory) -> Iterator[dict[tuple[ClientName, Mode, str], Future[Finished]]]:
    """All runs that the chosen tests need, some at once. Tests wait for theirs and share it."""
    wanted = dict.fromkeys(item.callspec.params["recording"] for item in request.session.items)
    pool = ThreadPoolExecutor(AT_ONCE)
    started = {}
    for client, mode, name in wanted:
        setting = Setting(
            client=client,
            mode=mode,
            scenario=SCENARIOS[name],
            folder=tmp_path_factory.mktemp(f"{client}-{mode}-{name}"),
            binaries=Path(os.environ["AITRACE_CLIENTS"]),
        )
        started[client, mode, name] = pool.submit(run, setting)
    yield started
    pool.shutdown(cancel_futures=True)


@pytest.fixture
def recording(request, runs) -> Recording:
    client, mode, name = request.param
    done = runs[request.param].result()
    assert done.problems == ()
    assert done.setting.trace.exists(), done.stderr[-3000:]
    trace = read_trace(done.setting.trace)
    return Recording(
        client=client, mode=mode, name=name, run=done, trace=trace, pairs=paired(trace.calls, done.seen)
    )


def least_duration_ns(tool: Tool) -> float:
    """How long this tool sleeps."""
    slept = re.match(r"sleep ([\d.]+)", tool.command) if isinstance(tool, Shell) else None
    return float(slept[1]) * NS_PER_S if slept else 0


def waits_in_chain(recording: Recording, pair: Pair) -> list[Dependency]:
    """What a call waited for of its own agent's calls, auxiliary ones such as a prewarm left out."""
    chain = {call.id for call in recording.trace.calls if call.call_class != "auxiliary"}
    return [one for one in pair.call.after if one.relation in ("sequence", "retry") and one.call in chain]


def text_of(path: Path) -> bytes:
    with path.open("rb") as stream:
        return zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True).read()


def command(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


@every_run
def test_the_client_ends_as_without_a_recorder(recording):
    assert recording.run.status == FATAL.get((recording.client, recording.name), 0), recording.run.stderr


@every_run
def test_nothing_is_lost(recording):
    footer = recording.trace.footer
    assert footer is not None
    assert footer.dropped_calls == 0
    assert [call.id for call in recording.trace.calls if call.outcome.error == "unrecorded"] == []


@every_run
def test_every_request_is_one_call_of_its_class(recording):
    assert len(recording.pairs) >= 2
    found = [(pair.call.model, pair.call.protocol, pair.call.call_class) for pair in recording.pairs]
    truth = [(pair.seen.model, pair.seen.protocol, expected_class(pair.seen)) for pair in recording.pairs]
    assert found == truth


@every_run
def test_header_says_how_it_was_recorded(recording):
    header = recording.trace.header
    assert (header.capture, header.privacy, header.unit) == (recording.mode, "hash", "bytes")
    transports = {call.wire.transport for call in recording.trace.calls if call.wire is not None}
    assert transports == {TRANSPORTS.get((recording.client, recording.mode), "http/1.1")}


@every_run
def test_every_agent_is_one_session_below_the_one_that_spawned_it(recording):
    sessions = sessions_by_agent(recording.pairs)
    assert all(len(found) == 1 for found in sessions.values())
    ids = {agent: found.pop() for agent, found in sessions.items()}
    main = ids.pop("main")
    expected = {main: (None, main)} | dict.fromkeys(ids.values(), (main, main))
    assert {one.id: (one.parent, one.root) for one in recording.trace.sessions} == expected
    assert {one.harness for one in recording.trace.sessions} == {HARNESSES[recording.client]}
    assert not any("inferred" in rule for one in recording.trace.sessions for rule in one.evidence)


@runs_of("session", "fanout")
def test_sub_agents_are_there_and_wait_for_the_call_that_spawned_them(recording):
    children = {agent: chain for agent, chain in chains(recording.pairs).items() if agent != "main"}
    assert len(children) == (1 if recording.name == "session" else 2)
    for agent, chain in children.items():
        first = [wait for wait in chain[0].call.after if wait.relation == "spawn"]
        assert [wait.call for wait in first] == [spawner(recording.pairs, agent).call.id]


@runs_of("session", "fanout")
def test_the_parent_goes_on_after_the_last_calls_of_its_sub_agents(recording):
    by_agent = chains(recording.pairs)
    last = {chain[-1].call.id for agent, chain in by_agent.items() if agent != "main"}
    joined = [wait.call for pair in by_agent["main"] for wait in pair.call.after if wait.relation == "join"]
    assert sorted(joined) == sorted(last)


@every_run
def test_gaps_have_their_causes(recording):
    expected, found = [], []
    for wait in waits(recording.pairs):
        own = waits_in_chain(recording, wait.after)
        place = (wait.before.seen.number, wait.after.seen.number)
        expected.append((place, wait.before.call.id, wait.relation, "completion", wait.cause))
        found += [(place, one.call, one.relation, one.trigger, one.cause) for one in own]
    assert found == expected


@every_run
def test_gaps_are_as_long_as_the_endpoint_saw_them(recording):
    """Most of them closely; each within what a busy machine may hold up one of the two that read their clocks."""
    apart_ns = []
    for wait in waits(recording.pairs):
        if wait.before.seen.end != "client_abort":  # of that the endpoint learns late
            truth_ns = wait.after.seen.arrived_ns - wait.before.seen.ended_ns
            [own] = waits_in_chain(recording, wait.after)
            apart_ns.append(abs(own.gap_ns - truth_ns))
    assert apart_ns
    assert median(apart_ns) < CLOSE_NS
    assert max(apart_ns) < TOLERANCE_NS


@runs_of("eager")
def test_a_tool_that_runs_while_the_answer_streams_leaves_no_gap(recording):
    [wait] = [one for one in waits(recording.pairs) if len(one.before.seen.tools) == 2]
    first, second = wait.before.call.tool_calls
    end_ns = wait.before.call.times.end_ns
    [own] = waits_in_chain(recording, wait.after)
    assert end_ns - first.end_ns > 800 * NS_PER_MS
    assert abs(end_ns - second.end_ns) < CLOSE_NS
    if recording.client in TELLS_TOOL_TIMES:
        assert own.gap_ns < max(first.duration_ns, second.duration_ns)


@every_run
def test_tools_of_an_answer_and_their_results_are_counted(recording):
    for wait in waits(recording.pairs):
        if wait.before.seen.end == "complete":
            assert len(wait.before.call.tool_calls) == len(wait.before.seen.tools)
        if wait.cause == "tool" and wait.after.seen.purpose == "turn":
            assert wait.after.call.tool_results == len(wait.before.seen.tools)


@every_run
def test_tool_times_are_those_that_the_client_tells(recording):
    for wait in waits(recording.pairs):
        told_ns = [tool.duration_ns for tool in wait.before.call.tool_calls or ()]
        if recording.client not in TELLS_TOOL_TIMES:
            assert set(told_ns) <= {None}
        elif wait.cause == "tool" and all(isinstance(tool, Shell | Read) for tool in wait.before.seen.tools):
            least_ns = [least_duration_ns(tool) for tool in wait.before.seen.tools]
            # Codex counts the time for which a tool waited for the one before it.
            longest_ns = wait.after.call.times.request_ns - wait.before.call.times.request_ns
            # Claude Code lists tools of one name in no fixed order.
            assert all(
                told is not None and least - TOLERANCE_NS < told < longest_ns + TOLERANCE_NS
                for least, told in zip(sorted(least_ns), sorted(told_ns), strict=True)
            )


@every_run
def test_calls_end_as_the_endpoint_ended_them(recording):
    for pair in recording.pairs:
        outcome, seen = pair.call.outcome, pair.seen
        assert outcome.error == ERRORS[seen.end], (seen.number, outcome)
        # A client may hang up at the last event, before the end of the body.
        ended_by = {"complete": ("client", "server"), "client_abort": ("client",)}.get(seen.end, ("server",))
        assert outcome.ended_by in ended_by
        assert outcome.status == (
            seen.status if seen.end == "refused" or not seen.is_websocket else outcome.status
        )
        assert outcome.retry_after_ns == (
            None if seen.retry_after_s is None else seen.retry_after_s * NS_PER_S
        )


@every_run
def test_usage_is_what_the_endpoint_reported(recording):
    for pair in recording.pairs:
        if pair.seen.end == "complete":
            usage = pair.call.usage
            assert usage.input_tokens == pair.seen.input_tokens
            assert usage.cache_read_tokens == pair.seen.input_tokens // 2
            assert usage.output_tokens == pair.seen.output_tokens


@runs_of("refused", "refused_bare", "cut", "error_event")
def test_retries_name_the_attempt_that_they_repeat(recording):
    chain = chains(recording.pairs)["main"]
    attempts: dict[int, list[int]] = {}
    for pair in chain:
        before = attempts.setdefault(pair.seen.asked.step, [])
        assert pair.call.retry_of == (before[-1] if before else None)
        assert pair.call.attempt == len(before) + 1
        before.append(pair.call.id)
    fails_once_and_ends = (recording.client, recording.name) in FATAL
    assert fails_once_and_ends or max(map(len, attempts.values())) > 1


@every_run
def test_histories_are_replaced_by_a_compaction_and_nothing_else(recording):
    for chain in chains(recording.pairs).values():
        window = 0
        for pair in chain:
            assert pair.call.window == window
            window += pair.seen.purpose == "compaction"
    assert (recording.name == "compaction") == any(call.window for call in recording.trace.calls)


@every_run
def test_each_prompt_of_an_agent_extends_the_one_before(recording):
    resolver = PromptResolver(recording.trace.calls)
    for wait in waits(recording.pairs):
        before, after = wait.before, wait.after
        if "compaction" in (before.seen.purpose, after.seen.purpose):
            continue
        whole = resolver.segment_ids(before.call.id)
        kept = resolver.segment_ids(after.call.id)[: len(whole)]
        assert kept == whole, (before.seen.number, after.seen.number)


@every_run
def test_turns_count_the_prompts_of_the_user(recording):
    turn = 0
    for one in waits(recording.pairs):
        if script_agent(one.after.seen) == "main":
            turn += one.cause == "user"
            assert one.after.call.turn == turn


@every_run
def test_the_file_holds_no_text(recording):
    done = command("check", str(recording.run.setting.trace), "--no-text")
    assert done.exit_code == 0, done.output


@every_run
def test_the_file_holds_no_name_path_or_word_of_the_run(recording):
    setting = recording.run.setting
    names = {name for seen in recording.run.seen for name in seen.names}
    words = {"scripted job", "I list the folder", "notes.txt", "alpha", "sleep"}
    known = {*names, str(setting.home), str(setting.folder), OPENAI_KEY}
    text = text_of(setting.trace)
    assert len(names) > 1
    assert [name for name in known | words if name.encode() in text] == []
    assert find_leaks(text, known) == []


@runs_of("refused")
def test_a_planted_secret_is_found(recording, tmp_path):
    sessions = (replace(recording.trace.sessions[0], agent=OPENAI_KEY), *recording.trace.sessions[1:])
    path = tmp_path / "planted.aitrace"
    write_trace(path, replace(recording.trace, sessions=sessions))
    assert len(find_leaks(text_of(path))) == 1
    assert command("check", str(path), "--no-text").exit_code == 3


@runs_of("session", modes=("forward",))
def test_a_replay_plays_the_same_tree(recording, tmp_path):
    trace = recording.trace
    with engine_on_thread(QUICK) as running:
        words = ("--url", running.url, "--protocol", trace.calls[-1].protocol, "-o", str(tmp_path / "run"))
        done = command("replay", str(recording.run.setting.trace), *words, "--no-live")
    # 1: late on a busy machine; what was played is the same.
    assert done.exit_code in (0, 1), done.output
    played = read_run(tmp_path / "run").calls
    expected = {(call.id, call.session) for call in trace.calls if call.retry_of is None}
    assert {(call.call, call.session) for call in played} == expected
    assert {call.error for call in played} == {None}
    assert {call.root for call in played} == {one.root for one in trace.sessions}
