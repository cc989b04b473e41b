"""A trace of many calls, for benchmarks: sessions of 50 calls that share a system prompt, 7 s apart.

python bench/long_trace.py FILE CALLS
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

from aitrace.schema import Call, CallTimes, Line, Trace
from aitrace.store import TraceWriter
from aitrace.testing import TraceBuilder

SESSION_CALLS = 50
STEP_NS = 7 * 10**9


def one_session() -> Trace:
    builder = TraceBuilder()
    session = builder.session(harness="claude-code")
    prompt = [builder.segment(15_000, role="system", type="system"), builder.segment(300)]
    for _ in range(SESSION_CALLS):
        builder.call(session, prompt, cause="tool")
        prompt = [builder.segment(700, "assistant", "tool_use"), builder.segment(1500, "tool", "tool_result")]
    return builder.trace()


def copied(trace: Trace, number: int) -> Iterator[Line]:
    """The lines of copy `number` of a session, with ids and times moved on; the system prompt stays as it is."""
    system, *others = trace.segments
    own_blocks = trace.footer.blocks - system.blocks[0][1]
    yield replace(trace.sessions[0], id=number, root=number)
    for segment in others:
        blocks = tuple((first + number * own_blocks, count) for first, count in segment.blocks)
        yield replace(segment, id=segment.id + number * len(others), blocks=blocks)
    for call in trace.calls:
        yield moved(call, number, number * len(others))


def moved(call: Call, number: int, segments: int) -> Call:
    calls, at_ns = number * SESSION_CALLS, number * STEP_NS
    base, added = call.prompt.base, call.prompt.add
    prompt = replace(
        call.prompt,
        base=None if base is None else base + calls,
        add=tuple(segment + segments if segment else 0 for segment in added),
    )
    times = {name: getattr(call.times, name) for name in CallTimes.__slots__}
    return replace(
        call,
        id=call.id + calls,
        session=number,
        prompt=prompt,
        times=CallTimes(**{name: None if ns is None else ns + at_ns for name, ns in times.items()}),
        after=tuple(replace(wait, call=wait.call + calls) for wait in call.after),
    )


def main() -> None:
    path, calls = sys.argv[1], int(sys.argv[2])
    trace = one_session()
    with TraceWriter(path) as writer:
        for line in (trace.header, trace.segments[0]):
            writer.write(line)
        for number in range(calls // SESSION_CALLS):
            for line in copied(trace, number):
                writer.write(line)


if __name__ == "__main__":
    main()
