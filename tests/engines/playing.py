"""I/O: plays small traces, and gives back the run that was written."""

from pathlib import Path

from click.testing import CliRunner

from aitrace.cli import main
from aitrace.results import CallResult
from aitrace.runstore import Run, read_run
from aitrace.schema import Trace
from aitrace.store import write_trace
from aitrace.testing import TraceBuilder


def play(trace: Trace, directory: Path, url: str, *options: str, may_fail: bool = False) -> Run:
    """The run of a trace against an endpoint, of which every call must be complete unless some may fail."""
    path = directory / "trace.aitrace"
    write_trace(path, trace)
    # Whether this machine keeps up is no question here.
    given = ["--url", url, "-o", str(directory / "run"), "--retries", "none", "--max-lateness", "60000"]
    arguments = ["replay", str(path), *given, *options]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    # Runs as short as these are in doubt for it.
    assert result.exit_code in ((1,) if may_fail else (0, 1)), result.output
    run = read_run(directory / "run")
    assert may_fail or {(call.error, call.unsent) for call in run.calls} == {(None, None)}, result.output
    return run


def by_index(run: Run) -> list[CallResult]:
    return sorted(run.calls, key=lambda call: call.index)


def growth(run: Run, name: str) -> float:
    """Of one of the engine's counters over the run; those of refusals are not told before there was one."""
    return run.scrapes[-1].values[name] - run.scrapes[0].values.get(name, 0.0)


def conversations(
    sessions: int, calls: int, *, prompt_tokens: int = 500, output_tokens: int = 20, **first: int
) -> Trace:
    """Sessions that start together, each of calls that go on from one another."""
    builder = TraceBuilder()
    for _ in range(sessions):
        session = builder.session()
        builder.call(session, [builder.segment(prompt_tokens)], output_tokens=output_tokens, at_ns=0, **first)
        for _ in range(calls - 1):
            answer = builder.segment(output_tokens, role="assistant")
            builder.call(session, [answer, builder.segment(100)], output_tokens=output_tokens)
    return builder.trace()


def agents() -> Trace:
    """A main agent with two sub-agents that share the start of its prompt, and its return to what they found."""
    builder = TraceBuilder()
    main_agent = builder.session(harness="claude-code")
    system = builder.segment(640, role="system", type="system")
    first = builder.call(main_agent, [system, builder.segment(200)], output_tokens=40)
    last = [first]
    for output_tokens in (10, 30):
        child = builder.session(parent=main_agent, agent="Explore")
        begin = builder.segment(640, role="system", type="system", like=system)
        builder.call(child, [begin, builder.segment(300)], after=[first], output_tokens=output_tokens)
        answer = builder.segment(output_tokens, role="assistant")
        last.append(builder.call(child, [answer, builder.segment(128)], output_tokens=5))
    answer = builder.segment(40, role="assistant", type="tool_use")
    result = builder.segment(150, role="tool", type="tool_result")
    builder.call(main_agent, [answer, result], after=last, output_tokens=20)
    return builder.trace()
