import polars as pl
import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.cache.losses import CAUSES, losses, reported_block_tokens, tokens_by_cause
from reports.metrics import METRICS

S = 10**9


class Script:
    """A run written down call by call; prompts are in blocks of 64, tokens are the trace's units."""

    def __init__(self):
        self.builder = TraceBuilder(block_size=64)
        self.calls = []
        self.sizes = {}
        self.turns = {}

    def session(self, parent=None):
        return self.builder.session(parent=parent)

    def call(
        self, session, added, cached, *, base=None, keep=None, worker=None, at_s=None, window=0, **fields
    ):
        index = len(self.calls)
        options = {} if base is None else {"base": base, "keep": keep}
        segments = [self.builder.segment(size) for size in added]
        self.builder.call(session, segments, window=window, **options)
        trace = self.builder.trace()
        size = sum(trace.segments[one].size for one in self.prompt(trace, index))
        turn = self.turns[session] = self.turns.get(session, -1) + 1
        at_ns = round((10 * index if at_s is None else at_s) * S)
        made = make_call_result(
            index,
            at_ns=at_ns,
            session=session,
            root=trace.sessions[session].root,
            turn_index=turn,
            prompt_tokens=size,
            usage=Usage(input_tokens=size, cache_read_tokens=cached, output_tokens=10),
            signals={} if worker is None else {"x-smg-routed-worker-id": worker},
            **fields,
        )
        self.calls.append(made)
        return index

    def prompt(self, trace, call):
        prompt = trace.calls[call].prompt
        kept = [] if prompt.base is None else self.prompt(trace, prompt.base)[: prompt.keep]
        return [*kept, *prompt.add]


def by_cause(facts):
    tokens = tokens_by_cause(facts)
    uncached = METRICS["cache_uncached_tokens"].compute(facts)
    assert sum(tokens.values()) == uncached
    assert uncached == METRICS["cache_input_tokens"].compute(facts) - METRICS[
        "cache_reported_tokens"
    ].compute(facts)
    return {cause: count for cause, count in tokens.items() if count}


def test_a_first_prompt_is_first_contact_and_what_is_appended_is_new(facts_of):
    script = Script()
    main = script.session()
    script.call(main, [640], 0)
    script.call(main, [320], 640)
    assert by_cause(facts_of(script.calls, trace=script.builder.trace())) == {
        "first_contact": 640,
        "new_content": 320,
    }


def test_content_in_place_of_other_content_is_a_changed_prefix_as_far_as_the_other_went(facts_of):
    """640 + 320, of which the 320 become 512: 320 of them are changed, 192 are new."""
    script = Script()
    main = script.session()
    first = script.call(main, [640, 320], 0)
    script.call(main, [512], 640, base=first, keep=1)
    assert by_cause(facts_of(script.calls, trace=script.builder.trace())) == {
        "first_contact": 960,
        "prefix_changed": 320,
        "new_content": 192,
    }


def test_in_another_window_it_is_compaction(facts_of):
    script = Script()
    main = script.session()
    first = script.call(main, [640, 960], 0)
    script.call(main, [320], 640, base=first, keep=1, window=1)
    assert by_cause(facts_of(script.calls, trace=script.builder.trace())) == {
        "first_contact": 1600,
        "compaction": 320,
    }


def test_a_block_that_goes_on_is_no_changed_prefix(facts_of):
    """The first prompt ends 20 into a block; in the second one that block is whole, and other to the trace."""
    script = Script()
    main = script.session()
    first = script.call(main, [640, 20], 0)
    script.call(main, [320], 640, base=first, keep=1)
    assert by_cause(facts_of(script.calls, trace=script.builder.trace())) == {
        "first_contact": 660,
        "new_content": 320,
    }


def test_what_only_another_worker_had_is_lost_to_it(facts_of):
    script = Script()
    main = script.session()
    script.call(main, [640], 0, worker="a")
    script.call(main, [320], 0, worker="b")
    assert by_cause(facts_of(script.calls, trace=script.builder.trace())) == {
        "first_contact": 640,
        "new_content": 320,
        "other_worker": 640,
    }


def test_what_was_still_being_computed_is_told_apart(facts_of):
    script = Script()
    main = script.session()
    script.call(main, [640], 0, at_s=0, first_token_ns=5 * S, end_ns=9 * S)
    # As fast as the first: it did not wait.
    script.call(main, [320], 0, at_s=3, first_token_ns=round(10.5 * S), end_ns=12 * S)
    assert by_cause(facts_of(script.calls, trace=script.builder.trace())) == {
        "first_contact": 640,
        "new_content": 320,
        "not_computed": 640,
    }


@pytest.mark.parametrize(("cached", "cause"), [(640 - 64, "rounding"), (640 - 70, "expiry_or_eviction")])
def test_up_to_a_block_is_rounding(facts_of, cached, cause):
    script = Script()
    main = script.session()
    script.call(main, [640], 0)
    script.call(main, [320], cached)
    lost = by_cause(facts_of(script.calls, trace=script.builder.trace()))
    assert lost == {"first_contact": 640, "new_content": 320, cause: 640 - cached}


def test_more_cached_than_was_sent_before_is_told_and_has_no_cause(facts_of):
    script = Script()
    main = script.session()
    script.call(main, [640], 600)
    script.call(main, [320], 700)
    facts = facts_of(script.calls, trace=script.builder.trace())
    assert by_cause(facts) == {"first_contact": 40, "new_content": 260}
    assert METRICS["cache_surplus_tokens"].compute(facts) == 600 + 60
    assert METRICS["cache_lost_by_cause_tokens"].compute(facts) == 0


def forgetful(is_kept):
    """Twelve sessions that come back five times after gaps that grow, while others are busy in some of them."""
    script = Script()
    sessions = [script.session() for _ in range(12)]
    at_s = 0.0
    for number, session in enumerate(sessions):
        script.call(session, [640], 0, at_s=at_s)
        for turn in range(5):
            gap_s = 3 * (turn + 1)
            others = (number + turn) % 3
            at_s += 2
            for place in range(others):
                script.call(script.session(), [6400 + 64 * number], 0, at_s=at_s + 0.1 * place)
            at_s += gap_s
            size = 640 + 64 * turn
            cached = size if is_kept(gap_s, others) else 0
            script.call(session, [64], cached, at_s=at_s)
        at_s += 2
    return script


def test_what_was_lost_by_age_is_expired(facts_of):
    script = forgetful(lambda gap_s, others: gap_s <= 9)
    facts = facts_of(script.calls, trace=script.builder.trace())
    lost = by_cause(facts)
    assert lost["gap_expiry"] == 12 * (640 + 64 * 3 + 640 + 64 * 4)
    assert set(lost) == {"first_contact", "new_content", "gap_expiry"}
    assert 10 < METRICS["cache_forgets_after_s"].compute(facts) < 13
    assert METRICS["cache_forgets_after_tokens"].compute(facts) is None


def test_what_was_lost_behind_others_is_evicted(facts_of):
    script = forgetful(lambda gap_s, others: others < 2)
    facts = facts_of(script.calls, trace=script.builder.trace())
    lost = by_cause(facts)
    assert lost["eviction"] > 10_000
    assert set(lost) == {"first_contact", "new_content", "eviction"}
    assert METRICS["cache_forgets_after_s"].compute(facts) is None
    assert 6400 <= METRICS["cache_forgets_after_tokens"].compute(facts) <= 2 * 6400 + 64


def test_what_follows_neither_is_unexplained(facts_of):
    calls = iter(range(1000))
    script = forgetful(lambda gap_s, others: next(calls) * 7 % 10 < 5)
    lost = by_cause(facts_of(script.calls, trace=script.builder.trace()))
    assert lost["unexplained"] > 10_000
    assert set(lost) == {"first_contact", "new_content", "unexplained"}


def test_the_tables_have_every_cause_and_both_borders(facts_of):
    script = forgetful(lambda gap_s, others: gap_s <= 9)
    facts = facts_of(script.calls, trace=script.builder.trace())
    rows = METRICS["cache_losses"].compute(facts)
    assert [row["cause"] for row in rows] == list(CAUSES)
    assert sum(row["uncached_ratio"] for row in rows) == pytest.approx(1)
    assert {row["cause"]: row["calls"] for row in rows}["gap_expiry"] == 24
    rules = METRICS["cache_loss_rules"].compute(facts)
    assert [(row["border_on"], row["is_chosen"]) for row in rules] == [("age_s", 1), ("amount_tokens", 0)]
    assert rules[0]["kept_below"] <= 10 < rules[0]["lost_above"]
    assert rules[0]["balanced_accuracy_ratio"] == 1


def test_without_reports_or_trace_there_is_nothing_to_tell(facts_of):
    script = Script()
    main = script.session()
    script.call(main, [640], 0)
    trace = script.builder.trace()
    silent = [make_call_result(0, prompt_tokens=640, usage=Usage(input_tokens=640))]
    for facts in (facts_of(silent, trace=trace), facts_of(script.calls)):
        assert losses(facts) is None
        assert METRICS["cache_losses"].compute(facts) == METRICS["cache_loss_rules"].compute(facts) == []
        assert METRICS["cache_uncached_tokens"].compute(facts) is None
        assert METRICS["cache_surplus_tokens"].compute(facts) is None
        assert METRICS["cache_block_tokens"].compute(facts) is None


@pytest.mark.parametrize(
    ("reports", "block"),
    [
        (range(48, 480, 48), 64),
        (range(48, 528, 48), 48),
        ([*range(48, 528, 48), 7], 64),
        (range(0, 4096 * 12, 4096), 64),
        ([], 64),
    ],
)
def test_the_block_is_what_all_reports_are_multiples_of_if_enough_differ(reports, block):
    assert reported_block_tokens(pl.Series(list(reports), dtype=pl.Int64)) == block


def test_a_cache_that_forgets_by_time_and_by_size_has_both_causes(facts_of):
    script = forgetful(lambda gap_s, others: gap_s <= 9 and others < 2)
    facts = facts_of(script.calls, trace=script.builder.trace())
    lost = by_cause(facts)
    assert losses(facts).rule.kind == "either"
    assert set(lost) == {"first_contact", "new_content", "gap_expiry", "eviction", "expiry_or_eviction"}
    assert METRICS["cache_forgets_after_s"].compute(facts) is None


def test_what_is_kept_in_use_is_no_case_and_what_is_lost_in_use_is(facts_of):
    """The first call goes on; of two others beside it one finds its prompt, the other one does not."""
    script = Script()
    main = script.session()
    script.call(main, [640], 0, at_s=0, first_token_ns=S, end_ns=100 * S)
    for at_s, cached in ((10, 640), (20, 0)):
        script.call(script.session(parent=main), [64], cached, base=0, keep=1, at_s=at_s)
    rule = losses(facts_of(script.calls, trace=script.builder.trace())).rule
    assert (rule.kept_cases, rule.lost_cases) == (0, 1)


def test_what_age_and_amount_explain_alike_is_left_open(facts_of):
    """All others send 640 every two seconds; each session comes back when one to eight of them have."""
    script = Script()
    at_s = 0
    for number in range(24):
        busy = number % 8 + 1
        session = script.session()
        script.call(session, [640], 0, at_s=at_s)
        for _ in range(busy):
            at_s += 2
            script.call(script.session(), [640], 0, at_s=at_s)
        at_s += 2
        script.call(session, [64], 640 if busy <= 4 else 0, at_s=at_s)
        at_s += 2
    facts = facts_of(script.calls, trace=script.builder.trace())
    assert losses(facts).rule.kind == "undecided"
    lost = by_cause(facts)
    assert lost["expiry_or_eviction"] == 12 * 640
