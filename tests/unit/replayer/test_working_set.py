from dataclasses import replace
from itertools import pairwise
from random import Random

from aitrace.identity import BlockIdentity
from aitrace.prompts import PromptResolver, block_sizes
from aitrace.schema import CallTimes
from aitrace.testing import TraceBuilder, make_trace
from replayer.planning.options import LoadOptions
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import build_plan
from replayer.planning.plan_summary import summarise_plan
from replayer.planning.working_set import merged

S = 1_000_000_000


def found(trace, *, share_system=False, **options):
    plan = build_plan(trace, LoadOptions(share_system=share_system, **options))
    return summarise_plan(trace, plan, share_system=share_system).working_set


def by_blocks(trace, *, share_system=False, **options):
    """(distinct, peak) block by block, asked at the middle of every stretch between two events."""
    plan = build_plan(trace, LoadOptions(share_system=share_system, **options))
    identity, prompts = BlockIdentity(trace, share_system=share_system), PromptResolver(trace.calls)
    size_of, alive = {}, {}
    end_of = {}
    calls = [*plan.every_call()]
    for call in calls:
        session = (call.instance, call.session)
        end_of[session] = max(end_of.get(session, 0), call.planned_end_ns)
    for call in calls:
        session = (call.instance, call.session)
        for segment in prompts.segment_ids(call.call):
            sizes = block_sizes(trace.segments[segment], trace.header.block_size)
            keys = [f + n for f, count in identity.runs(segment, call.instance) for n in range(count)]
            for key, size in zip(keys, sizes, strict=True):
                size_of[key] = size
                alive.setdefault(key, []).append((call.planned_ns, end_of[session]))
    moments = sorted({t for spans in alive.values() for span in spans for t in span})
    middles = [(a + b) / 2 for a, b in pairwise(moments)]
    levels = [
        sum(size_of[key] for key, spans in alive.items() if any(a <= at < b for a, b in spans))
        for at in middles
    ]
    return sum(size_of.values()), max(levels)


def random_trace(seed):
    random = Random(seed)
    builder = TraceBuilder()
    system = builder.segment(random.randint(1, 500), "system", "system")
    for number in range(4):
        session = builder.session(harness="codex")
        start = builder.segment(
            random.randint(1, 500), "system", "system", like=random.choice([None, system])
        )
        builder.call(
            session, [start, builder.segment(random.randint(0, 300))], at_ns=number * random.randint(0, 9) * S
        )
        for _ in range(random.randint(0, 3)):
            owner = builder.session(parent=session) if random.random() < 0.4 else session
            add = [builder.segment(random.randint(1, 300), like=random.choice([None, start]))]
            builder.call(owner, add, duration_ns=random.randint(1, 20) * S)
    return builder.trace()


def test_runs_give_what_single_blocks_give():
    for seed in range(60):
        trace = random_trace(seed)
        for options in ({}, {"trees": 9}, {"concurrency": 2, "trees": 7}):
            result = found(trace, **options)
            assert by_blocks(trace, **options) == (result.distinct_tokens, result.peak_tokens), (
                seed,
                options,
            )


def test_shared_system_prompts_count_once():
    trace = make_trace(3, 1, block_scope="tree")
    assert found(trace, share_system=True).distinct_tokens == (1000 + 3 * 200)


def test_playing_a_tree_again_adds_what_only_it_contains():
    trace = make_trace(2, 1)
    assert (found(trace).distinct_tokens, found(trace, trees=6).distinct_tokens) == (
        1000 + 2 * 200,
        1000 + 6 * 200,
    )


def test_trees_in_one_lane_hold_no_more_than_the_largest():
    """A shared system prompt of 1000 and a question of 200 at a time."""
    assert found(make_trace(3, 1), concurrency=1).peak_tokens == 1200


def test_trees_together_hold_all():
    trace = make_trace(3, 1)
    assert found(trace, arrival=arrival_from_spec("together")).peak_tokens == 1600


def test_sizes_in_bytes_come_out_in_tokens():
    builder = TraceBuilder(unit="bytes", block_size=256)
    builder.call(builder.session(), [builder.segment(1000)])
    assert found(builder.trace()).distinct_tokens == 250


def test_without_planned_times_there_is_no_peak():
    trace = make_trace(1, 1)
    call = replace(trace.calls[0], times=CallTimes(request_ns=0))
    result = found(replace(trace, calls=(call,)))
    assert (result.distinct_tokens, result.peak_tokens) == (1200, None)


def test_spans_that_touch_are_merged():
    assert merged([(7, 9), (2, 5), (0, 2), (1, 3)]) == [(0, 5), (7, 9)]
