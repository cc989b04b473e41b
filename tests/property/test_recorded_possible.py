"""What earlier prompts of a recording had, against looking each whole prompt up in turn."""

from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.prompts import PromptResolver
from aitrace.schema import Outcome
from aitrace.units import NS_PER_S
from reports.recorded.facts import recorded_from_trace
from reports.recorded.prefixes import possible_sizes
from tests.property.unlimited_cache import CachePrompt, blocks_of, traces, unlimited_cache

ERRORS = (None, None, None, "refused", "connect", "http_error", "cut")
UNKNOWN_TO_ALL = ("refused", "connect", "http_error")
options = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["a", "b", None]),
        "outcome": st.sampled_from(ERRORS).map(lambda error: Outcome(error=error)),
    },
    optional={
        "at_ns": st.integers(0, 9).map(lambda at_s: at_s * NS_PER_S),
        "unseen_start": st.just(True),
    },
)


def one_by_one(trace):
    """By call."""
    prompts, block_size = PromptResolver(trace.calls), trace.header.block_size
    asked = [call for call in trace.calls if not call.prompt.unseen_start]
    root_of = {session.id: session.root for session in trace.sessions}

    def order(call):
        tree = root_of[call.session] if trace.header.clock_scope == "tree" else 0
        return tree, call.times.request_ns, call.id

    def prompt(call):
        segments = [trace.segments[i] for i in prompts.segment_ids(call.id)]
        blocks = [block for one in segments for block in blocks_of(one.blocks, one.size, block_size)]
        # A block of no size that names the model: caches of two models share nothing.
        return CachePrompt(
            instance=0,
            root=root_of[call.session],
            session=call.session,
            blocks=((call.model, 0), *blocks),
            is_stored=call.outcome.error not in UNKNOWN_TO_ALL,
        )

    asked.sort(key=order)
    hits = unlimited_cache(map(prompt, asked))
    return sorted((call.id, *hit) for call, hit in zip(asked, hits, strict=True))


@settings(max_examples=300, deadline=None)
@given(st.one_of(traces(options, clock_scope="trace"), traces(options, clock_scope="tree")))
def test_all_at_once_gives_the_hits_of_one_after_the_other(trace):
    assert possible_sizes(recorded_from_trace(trace)).sort("call").rows() == one_by_one(trace)
