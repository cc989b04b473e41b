from dataclasses import replace
from random import Random

import numpy as np
import pytest

from aitrace.columns import call_columns
from aitrace.schema import CallTimes, Dependency, Outcome, ToolCall, Usage
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.brief import BriefTrees
from replayer.planning.mid_start import MidStart
from replayer.planning.options import LoadOptions
from replayer.planning.outline import counts_of, counts_of_brief, facts_of, outline_of
from replayer.planning.planned import PlannedTree
from replayer.planning.selection import select_calls
from replayer.planning.tree_calls import Recording, plan_calls

S = 1_000_000_000
OPTIONS = {
    "recorded": {},
    "capped": {"time_scale": 0.3, "gap_caps_ns": {"user": S, "tool": S // 3}},
    "absolute": {"schedule": "absolute", "time_scale": 2.0},
}


def brief_of(trace, **options):
    usual_ns = Recording(trace).usual_duration_ns
    return BriefTrees(call_columns(trace), usual_ns, LoadOptions(**options)).tree(np.arange(len(trace.calls)))


def told_by_calls(trace, **options):
    """Outline and facts of the one tree of a trace, from its calls."""
    start = MidStart(calls=select_calls(trace.calls).calls, before=())
    tree = PlannedTree(
        number=0, instance=1, root=0, start_ns=0, planned_ns=0, first=0, count=len(trace.calls), sessions=1
    )
    planned = plan_calls(Recording(trace), tree, start, LoadOptions(**options))
    counts = counts_of(trace.calls, planned.waits)
    return outline_of(planned.calls), facts_of(planned.calls, counts, 5 * S)


def random_tree(seed):
    """One tree whose calls wait for some of those before, with gaps and ends that are not all known."""
    random = Random(seed)
    builder = TraceBuilder()
    sessions = [builder.session()]
    calls, ended = [], []
    for number in range(random.randint(1, 12)):
        if random.random() < 0.3:
            sessions.append(builder.session(parent=sessions[0]))
        after = [
            Dependency(
                call=base,
                relation=random.choice(["sequence", "spawn", "join"]),
                trigger=random.choice(["completion", "dispatch"]) if base in ended else "completion",
                gap_ns=random.choice([None, -S, 0, S, 2 * S, 3 * S]),
                cause=random.choice(["tool", "user", "harness"]),
            )
            for base in random.sample(range(number), min(number, random.randint(0, 3)))
        ]
        builder.call(random.choice(sessions), after=after, at_ns=random.randint(0, 50 * S))
        ended.extend([number] if random.random() < 0.8 else [])
    for call in builder.trace().calls:
        end_ns = call.times.request_ns + random.randint(0, 9 * S) if call.id in ended else None
        error = random.choice([None, None, "cut", "unrecorded"])
        usage = Usage(output_tokens=random.choice([None, 5]))
        times = CallTimes(request_ns=call.times.request_ns, end_ns=end_ns)
        calls.append(replace(call, times=times, outcome=Outcome(error=error), usage=usage))
    return replace(builder.trace(), calls=tuple(calls))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_plain_tree_is_told_as_its_calls_tell_it(name):
    options = OPTIONS[name]
    for seed in range(150):
        trace = random_tree(seed)
        brief = brief_of(trace, **options)
        outline, facts = told_by_calls(trace, **options)
        assert outline_of(brief.calls) == outline, seed
        assert facts_of(brief.calls, counts_of_brief(brief), 5 * S) == facts, seed
        assert brief.recorded_start_ns == min(call.times.request_ns for call in trace.calls)


def test_where_no_end_is_known_no_end_is_planned():
    trace = make_trace(1, 2)
    calls = [replace(call, times=CallTimes(request_ns=call.times.request_ns)) for call in trace.calls]
    brief = brief_of(replace(trace, calls=tuple(calls)))
    assert [(call.planned_ns, call.planned_end_ns) for call in brief.calls] == [(0, None), (None, None)]
    assert brief.unknown_end == 2


def changed(trace, number, **change):
    calls = [replace(call, **change) if call.id == number else call for call in trace.calls]
    return replace(trace, calls=tuple(calls))


SECOND = Dependency(call=0, relation="sequence", gap_ns=S, cause="tool")


@pytest.mark.parametrize(
    ("change", "is_plain"),
    [
        ({0: {}}, True),
        ({1: {"retry_of": 0}}, False),
        ({1: {"call_class": "count_tokens"}}, False),
        ({0: {"tool_calls": (ToolCall(duration_ns=S),)}, 1: {"after": (SECOND,)}}, False),
        ({0: {"tool_calls": (ToolCall(),)}, 1: {"after": (SECOND,)}}, True),
        ({0: {"tool_calls": ()}, 1: {"after": (SECOND,)}}, True),
        (
            {0: {"tool_calls": (ToolCall(duration_ns=S),)}, 1: {"after": (replace(SECOND, cause="user"),)}},
            True,
        ),
        ({1: {"after": (replace(SECOND, trigger="dispatch"),)}}, True),
        (
            {0: {"times": CallTimes(request_ns=0)}, 1: {"after": (replace(SECOND, trigger="dispatch"),)}},
            False,
        ),
        ({1: {"after": (SECOND, replace(SECOND, gap_ns=5))}}, False),
        ({1: {"after": (SECOND, replace(SECOND, trigger="dispatch"))}}, True),
    ],
)
def test_what_only_the_calls_can_tell_is_not_plain(change, is_plain):
    trace = make_trace(1, 3)
    for number, fields in change.items():
        trace = changed(trace, number, **fields)
    assert (brief_of(trace) is not None) == is_plain
