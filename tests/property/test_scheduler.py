"""Random trees of sessions are played by a model of an endpoint; the rules are checked on what was seen."""

import heapq
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.schema import Dependency
from aitrace.testing import TraceBuilder
from replayer.planning.options import LoadOptions
from replayer.planning.pacing import arrival_from_spec
from replayer.planning.plan import build_plan
from replayer.scheduler import Scheduler

S = 1_000_000_000


@st.composite
def traces(draw):
    """Trees of up to 12 calls in up to 4 sessions, with spawns, joins, dispatch triggers and overlaps."""
    builder = TraceBuilder()
    for _ in range(draw(st.integers(1, 4))):
        sessions = [builder.session()]
        calls = [(builder.call(sessions[0], at_ns=0), 0)]
        last = {0: calls[0][0]}
        for number in range(draw(st.integers(0, 11))):
            if len(sessions) < 4 and draw(st.booleans()):
                parent = draw(st.integers(0, len(sessions) - 1))
                sessions.append(builder.session(parent=sessions[parent]))
                place = len(sessions) - 1
                trigger = draw(st.sampled_from(["completion", "dispatch"]))
                waits = [_wait(draw, last[parent], "spawn", trigger)]
            else:
                place = draw(st.integers(0, len(sessions) - 1))
                waits = [_wait(draw, last[place], "sequence", "completion")]
                others = [session for session in last if session != place]
                if others and draw(st.booleans()):
                    waits.append(_wait(draw, last[draw(st.sampled_from(others))], "join", "completion"))
            last[place] = builder.call(sessions[place], after=waits, at_ns=(number + 1) * S)
    return builder.trace()


def _wait(draw, call, relation, trigger):
    gap_ns = draw(st.one_of(st.none(), st.integers(-S, 5 * S)))
    return Dependency(call=call, relation=relation, trigger=trigger, gap_ns=gap_ns)


@dataclass
class Seen:
    """What a play showed."""

    due_ns: dict = field(default_factory=dict)
    sent_ns: dict = field(default_factory=dict)
    end_ns: dict = field(default_factory=dict)
    ok: dict = field(default_factory=dict)
    lost_ns: dict = field(default_factory=dict)
    sends: int = 0
    losses: int = 0
    most_trees: int = 0


def play(plan, durations_ns, failing, *, lateness_ns=0):
    """Play a plan against an endpoint whose calls take the given times, and of which some fail."""
    scheduler, seen, now_ns = Scheduler(plan), Seen(), 0
    tree_of = {i: n for n, tree in enumerate(plan.trees) for i in range(tree.first, tree.first + tree.count)}
    left = [tree.count for tree in plan.trees]
    running: list[tuple[int, int]] = []
    begun: set[int] = set()
    scheduler.start(0)
    while not scheduler.is_done:
        due_ns = scheduler.next_due_ns()
        if running and (due_ns is None or running[0][0] <= due_ns):
            now_ns, index = heapq.heappop(running)
            seen.end_ns[index], seen.ok[index] = now_ns, index not in failing
            scheduler.on_end(index, now_ns, ok=seen.ok[index])
            left[tree_of[index]] -= 1
        else:
            assert due_ns is not None, "neither running nor due, but not done"
            now_ns = max(now_ns, due_ns + lateness_ns)
            for send in scheduler.take_due(now_ns):
                seen.sends += 1
                seen.due_ns[send.index], seen.sent_ns[send.index] = send.due_ns, now_ns
                begun.add(tree_of[send.index])
                scheduler.on_sent(send.index, now_ns)
                heapq.heappush(running, (now_ns + durations_ns[send.index % len(durations_ns)], send.index))
        for index, reason in scheduler.unsent():
            assert reason == "session_lost"
            seen.losses += 1
            seen.lost_ns[index] = now_ns
            left[tree_of[index]] -= 1
        seen.most_trees = max(seen.most_trees, sum(left[tree] > 0 for tree in begun))
    return seen


durations = st.lists(st.integers(0, 10 * S), min_size=1, max_size=7)
options = st.builds(
    LoadOptions,
    time_scale=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    trees=st.one_of(st.none(), st.integers(1, 9)),
    concurrency=st.one_of(st.none(), st.integers(1, 3)),
    gap_caps_ns=st.sampled_from([{}, {"unknown": S}]),
)


@settings(max_examples=150, deadline=None)
@given(traces(), options, durations, st.sets(st.integers(0, 100), max_size=8), st.integers(0, S))
def test_every_call_is_sent_once_or_given_up_once(trace, load, durations_ns, failing, lateness_ns):
    plan = build_plan(trace, load)
    seen = play(plan, durations_ns, failing, lateness_ns=lateness_ns)
    assert plan.call_count == seen.sends + seen.losses
    assert set(range(plan.call_count)) == seen.due_ns.keys() | seen.lost_ns.keys()


@settings(max_examples=150, deadline=None)
@given(traces(), options, durations, st.integers(0, S))
def test_a_call_is_due_at_the_latest_trigger_plus_gap(trace, load, durations_ns, lateness_ns):
    plan = build_plan(trace, load)
    seen = play(plan, durations_ns, set(), lateness_ns=lateness_ns)
    for call in plan.every_call():
        triggers = [
            (seen.sent_ns if wait.trigger == "dispatch" else seen.end_ns)[wait.index] + wait.gap_ns
            for wait in call.after
        ]
        if triggers:
            assert max(triggers) == seen.due_ns[call.index]
        assert seen.due_ns[call.index] <= seen.sent_ns[call.index]


@settings(max_examples=150, deadline=None)
@given(traces(), st.integers(1, 3), durations, st.sets(st.integers(0, 100), max_size=8))
def test_never_more_trees_run_than_there_are_lanes(trace, lanes, durations_ns, failing):
    plan = build_plan(trace, LoadOptions(concurrency=lanes, trees=6))
    seen = play(plan, durations_ns, failing)
    assert min(lanes, 6) >= seen.most_trees >= 1


@settings(max_examples=150, deadline=None)
@given(traces(), durations, st.sets(st.integers(0, 30), min_size=1, max_size=8))
def test_only_what_rests_on_a_failed_call_is_lost(trace, durations_ns, failing):
    """An independent rule: a call is lost if its session lost an earlier call, or the call that spawns it did not
    reach the trigger; nothing else is."""
    plan = build_plan(trace, LoadOptions(arrival=arrival_from_spec("together")))
    seen = play(plan, durations_ns, failing)
    for call in plan.every_call():
        earlier = [
            c
            for c in plan.every_call()
            if c.index < call.index and (c.root, c.session) == (call.root, call.session)
        ]
        session_lost = any(c.index in seen.lost_ns or not seen.ok[c.index] for c in earlier)
        unspawned = any(
            wait.index in seen.lost_ns or (wait.trigger == "completion" and not seen.ok[wait.index])
            for wait in call.after
            if wait.relation == "spawn"
        )
        assert (call.index in seen.lost_ns) == (session_lost or unspawned)


@settings(max_examples=100, deadline=None)
@given(traces(), durations, st.sets(st.integers(0, 30), max_size=8))
def test_a_call_that_joins_lost_agents_is_due_after_their_loss(trace, durations_ns, failing):
    plan = build_plan(trace, LoadOptions(arrival=arrival_from_spec("together")))
    seen = play(plan, durations_ns, failing)
    for call in plan.every_call():
        if call.index in seen.due_ns and call.after:
            moments = []
            for wait in call.after:
                happened = seen.sent_ns if wait.trigger == "dispatch" else seen.end_ns
                at_ns = seen.lost_ns[wait.index] if wait.index in seen.lost_ns else happened[wait.index]
                moments.append(at_ns + wait.gap_ns)
            assert max(moments) == seen.due_ns[call.index]


@settings(max_examples=100, deadline=None)
@given(traces(), st.floats(0, 3), st.integers(0, 4 * S))
def test_gaps_are_scaled_then_capped(trace, scale, cap_ns):
    raw = build_plan(trace, LoadOptions())
    scaled = build_plan(trace, LoadOptions(time_scale=scale, gap_caps_ns={"unknown": cap_ns}))
    for one, other in zip(raw.every_call(), scaled.every_call(), strict=True):
        expected = [min(round(wait.gap_ns * scale), cap_ns) for wait in one.after]
        assert expected == [wait.gap_ns for wait in other.after]


@settings(max_examples=60, deadline=None)
@given(traces(), durations, st.integers(0, 30))
def test_a_stop_at_any_time_leaves_every_call_sent_or_given_up(trace, durations_ns, steps):
    plan = build_plan(trace, LoadOptions())
    scheduler, in_flight, sent, lost, now_ns = Scheduler(plan), [], set(), set(), 0
    scheduler.start(0)
    for step in range(steps):
        now_ns += durations_ns[step % len(durations_ns)]
        if in_flight:
            scheduler.on_end(in_flight.pop(), now_ns, ok=step % 5 != 0)
        due = [send.index for send in scheduler.take_due(now_ns)]
        in_flight += due
        sent.update(due)
    scheduler.stop()
    for index in in_flight:
        scheduler.on_end(index, now_ns, ok=True)
    lost.update(index for index, _ in scheduler.unsent())
    assert scheduler.is_done
    assert (set(range(plan.call_count)), set()) == (sent | lost, sent & lost)
