from dataclasses import replace

import polars as pl
import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.cache.pieces import run_reuse, sampled_trees

S = 10**9


def two_sessions():
    """Prompts of 640 and 960 of one session, between them 320 of another tree; then the same history replaced, 1280."""
    builder = TraceBuilder(block_size=64)
    main = builder.session()
    first = builder.call(main, [builder.segment(640)])
    builder.call(builder.session(), [builder.segment(320)])
    builder.call(main, [builder.segment(320)], base=first)
    builder.call(main, [builder.segment(640)], base=first, keep=1, window=1)
    return builder.trace()


SIZES = (640, 320, 960, 1280)


def played(factor=1, output=100, workers=None, **changes):
    """Calls of one second each, ten seconds apart."""
    calls = []
    for index, size in enumerate(SIZES):
        other = index == 1
        calls.append(
            make_call_result(
                index,
                at_ns=index * 10 * S,
                session=int(other),
                root=int(other),
                turn_index=(0, 0, 1, 2)[index],
                prompt_tokens=size,
                usage=Usage(input_tokens=size * factor, cache_read_tokens=0, output_tokens=output),
                signals={} if workers is None else {"x-smg-routed-worker-id": workers[index]},
                **changes,
            )
        )
    return calls


def rows(frame, *columns):
    return frame.select(columns).rows()


def test_pieces_are_in_tokens_of_the_call_and_amounts_in_tokens_of_the_run(facts_of):
    """Before the first 640 lie the other prompt's 320 and its answer: twice that in tokens, but for the answer."""
    reuse = run_reuse(facts_of(played(factor=2), trace=two_sessions()))
    assert rows(reuse.pieces, "row", "start_tokens", "end_tokens", "before_tokens", "age_ns") == [
        (2, 0, 1280, 640 + 100, 19 * S),
        (3, 0, 1280, 0, 9 * S),
    ]
    assert reuse.calls["known_tokens"].to_list() == [0, 0, 1280, 1280]
    assert reuse.sample_ratio == 1


def test_what_is_known_is_the_bound(facts_of):
    calls = run_reuse(facts_of(played(), trace=two_sessions())).calls
    assert calls["known_tokens"].to_list() == calls["bound_tokens"].to_list() == [0, 0, 640, 640]


def test_with_a_live_history_answers_take_no_room_of_their_own(facts_of):
    reuse = run_reuse(facts_of(played(), trace=two_sessions(), history="live"))
    assert reuse.pieces["before_tokens"].to_list() == [320, 0]


def test_the_prompt_that_a_call_continues_and_whether_the_history_was_replaced(facts_of):
    calls = run_reuse(facts_of(played(), trace=two_sessions())).calls
    assert rows(calls, "earlier_tokens", "is_compacted") == [
        (None, False),
        (None, False),
        (640, False),
        # It has as much in common with both; the later one counts.
        (960, True),
    ]


def test_a_compaction_call_before_it_replaces_the_history_too(facts_of):
    calls = played()
    calls[2] = make_call_result(
        2, at_ns=20 * S, turn_index=1, call_class="compaction", usage=calls[2].usage, prompt_tokens=960
    )
    builder = TraceBuilder(block_size=64)
    main = builder.session()
    first = builder.call(main, [builder.segment(640)])
    builder.call(builder.session(), [builder.segment(320)])
    builder.call(main, [builder.segment(320)], base=first, call_class="compaction")
    builder.call(main, [builder.segment(640)], base=first, keep=1)
    reuse = run_reuse(facts_of(calls, trace=builder.trace()))
    assert reuse.calls["is_compacted"].to_list() == [False, False, False, True]


def test_what_was_turned_away_is_continued_by_nothing(facts_of):
    calls = played()
    calls[2] = make_call_result(
        2, at_ns=20 * S, turn_index=1, prompt_tokens=960, error="refused", status=429, usage=Usage()
    )
    reuse = run_reuse(facts_of(calls, trace=two_sessions()))
    assert reuse.calls["earlier_tokens"].to_list() == [None, None, 640]


def test_a_prompt_that_was_continued_long_ago_is_not_looked_for(facts_of):
    """Behind 32 prompts of other content, the latest of them counts as the one that is continued."""
    builder = TraceBuilder(block_size=64)
    session = builder.session()
    sizes = [640, *[320] * 33, 704]
    first = builder.call(session, [builder.segment(640)])
    for _ in range(33):
        builder.call(session, [builder.segment(320)], base=None)
    builder.call(session, [builder.segment(64)], base=first)
    calls = [
        make_call_result(
            index,
            at_ns=index * 10 * S,
            prompt_tokens=size,
            usage=Usage(input_tokens=size, cache_read_tokens=0),
        )
        for index, size in enumerate(sizes)
    ]
    reuse = run_reuse(facts_of(calls, trace=builder.trace()))
    assert reuse.calls["known_tokens"][-1] == 640
    assert reuse.calls["earlier_tokens"][-1] == 320


def test_a_worker_knows_what_it_computed(facts_of):
    reuse = run_reuse(facts_of(played(workers="abba"), trace=two_sessions()))
    assert rows(reuse.calls, "known_tokens", "worker_known_tokens") == [(0, 0), (0, 0), (640, 0), (640, 640)]
    # The worker itself had computed nothing since.
    assert rows(reuse.worker_pieces, "row", "end_tokens", "before_tokens", "age_ns") == [(3, 640, 0, 29 * S)]
    assert rows(reuse.pieces, "row", "before_tokens") == [(2, 420), (3, 0)]


def test_calls_that_name_no_worker_are_told_by_the_whole_run(facts_of):
    calls = played(workers="abab")
    calls[2] = make_call_result(2, at_ns=20 * S, turn_index=1, usage=calls[2].usage, prompt_tokens=960)
    reuse = run_reuse(facts_of(calls, trace=two_sessions()))
    assert rows(reuse.calls, "worker_known_tokens") == [(0,), (0,), (640,), (0,)]
    assert reuse.worker_pieces["row"].to_list() == [2]


def test_what_was_in_flight_is_known_but_not_ready(facts_of):
    """At the speed of the first, which takes 25 s, no call waited."""
    calls = [
        replace(call, first_token_ns=first_ns, end_ns=first_ns + S)
        for call in played()
        for first_ns in [call.sent_ns + call.prompt_tokens * 25 * S // 640]
    ]
    reuse = run_reuse(facts_of(calls, trace=two_sessions()))
    assert reuse.calls["worker_ready_tokens"].to_list() == [0, 0, 0, 640]


@pytest.mark.parametrize("calls", [[], [make_call_result(0, error="refused", status=429)]])
def test_a_run_without_complete_calls_has_none(facts_of, calls):
    assert run_reuse(facts_of(calls, trace=two_sessions())) is None


def test_a_run_without_its_trace_has_none(facts_of):
    assert run_reuse(facts_of(played())) is None


def trees(*calls):
    return pl.DataFrame(
        [(1, root, place) for root, count in enumerate(calls) for place in range(count)],
        schema=["instance", "root", "place"],
        orient="row",
    )


def test_whole_trees_are_drawn_as_long_as_they_fit():
    sent = trees(*[10] * 20)
    sample, ratio = sampled_trees(sent, most=55)
    assert (sample.height, ratio) == (50, 0.25)
    assert sample.group_by("root").len()["len"].to_list() == [10] * 5
    assert sample["root"].is_sorted()
    assert sampled_trees(sent, most=55)[0].equals(sample)


def test_a_tree_too_large_is_drawn_alone_and_a_small_run_is_taken_whole():
    assert sampled_trees(trees(100, 100), most=10)[1] == 0.5
    assert sampled_trees(trees(5, 5), most=10)[1] == 1
