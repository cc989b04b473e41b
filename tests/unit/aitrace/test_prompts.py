import pytest

from aitrace.prompts import PromptResolver, block_sizes, prompt_size
from aitrace.schema import Prompt
from aitrace.testing import TraceBuilder, make_call, make_segment, make_trace

CALLS = (
    make_call(0, prompt=Prompt(add=(0, 1))),
    make_call(1, prompt=Prompt(base=0, keep=2, add=(2, 3))),
    make_call(2, prompt=Prompt(base=1, keep=3, add=(4,))),
    make_call(3, prompt=Prompt(base=0, keep=0, add=(5,))),
    make_call(4, prompt=Prompt()),
)


def test_a_prompt_is_what_is_kept_and_what_is_added():
    prompts = PromptResolver(CALLS)
    assert [prompts.segment_ids(i) for i in range(5)] == [(0, 1), (0, 1, 2, 3), (0, 1, 2, 4), (5,), ()]


def test_a_later_prompt_can_be_asked_for_first():
    prompts = PromptResolver(CALLS)
    assert prompts.segment_ids(2) == (0, 1, 2, 4)
    assert prompts.segment_ids(0) == (0, 1)


def test_prompts_that_are_not_kept_any_more_are_resolved_again():
    prompts = PromptResolver(CALLS, kept_ids=3)
    expected = [(0, 1), (0, 1, 2, 3), (0, 1, 2, 4), (5,), ()]
    for call in (2, 0, 4, 3, 1, 2, 2, 1, 0):
        assert prompts.segment_ids(call) == expected[call]


def test_a_sequence_may_tell_prompts_without_decoding_calls():
    class Parts:
        def prompt_parts(self, call_id):
            return [(None, 0, [7, 8]), (0, 1, [9])][call_id]

    prompts = PromptResolver(Parts())
    assert (prompts.segment_ids(1), prompts.segment_ids(0)) == ((7, 9), (7, 8))


def test_the_size_of_a_prompt_is_the_sum_of_its_segments():
    trace = make_trace(1, 3)
    assert prompt_size(trace, PromptResolver(trace.calls).segment_ids(2)) == 1000 + 200 + 2 * (100 + 300)
    assert prompt_size(trace, ()) == 0


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(0, []), (1, [1]), (64, [64]), (65, [64, 1]), (192, [64, 64, 64]), (200, [64, 64, 64, 8])],
)
def test_all_blocks_are_full_but_the_last(size, sizes):
    assert sizes == block_sizes(make_segment(0, size, 0, blocks=((0, len(sizes)),)), 64)


def test_blocks_of_several_runs_are_counted_together():
    builder = TraceBuilder()
    first = builder.segment(256)
    builder.segment(130)
    builder.segment(330, like=first)
    assert builder.trace().segments[2].blocks == ((0, 4), (7, 2))
    assert block_sizes(builder.trace().segments[2], 64) == [64, 64, 64, 64, 64, 10]
