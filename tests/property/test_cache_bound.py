"""The bound of all calls at once against looking up each whole prompt in turn."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.columns import call_columns
from aitrace.identity import BlockIdentity
from aitrace.prompts import PromptResolver
from reports.cache.bound import SentCalls, bound_sizes
from reports.cache.paths import TracePaths
from tests.property.unlimited_cache import CachePrompt, blocks_of, traces, unlimited_cache


@st.composite
def runs(draw):
    trace = draw(traces())
    sent = draw(
        st.lists(
            st.tuples(
                st.integers(0, len(trace.calls) - 1),
                st.integers(1, 3),
                st.sampled_from([True, True, True, False]),
            ),
            max_size=30,
        )
    )
    return trace, sent


def one_by_one(trace, sent, *, share_system):
    prompts = PromptResolver(trace.calls)
    identity, block_size = BlockIdentity(trace, share_system=share_system), trace.header.block_size

    def blocks(call, instance):
        ids = prompts.segment_ids(call)
        parts = (blocks_of(identity.runs(i, instance), trace.segments[i].size, block_size) for i in ids)
        return tuple(block for part in parts for block in part)

    return unlimited_cache(
        CachePrompt(
            instance=instance,
            root=trace.sessions[trace.calls[call].session].root,
            session=trace.calls[call].session,
            blocks=blocks(call, instance),
            is_stored=is_stored,
        )
        for call, instance, is_stored in sent
    )


@settings(max_examples=300, deadline=None)
@given(runs(), st.booleans())
def test_all_at_once_gives_the_hits_of_one_after_the_other(run, share_system):
    trace, sent = run
    columns = np.array(sent, np.int64).reshape(-1, 3).T
    bound = bound_sizes(
        SentCalls(call=columns[0], instance=columns[1], is_stored=columns[2].astype(bool)),
        call_columns(trace),
        TracePaths(trace, share_system=share_system),
    )
    hits = one_by_one(trace, sent, share_system=share_system)
    found = zip(bound.session.tolist(), bound.tree.tolist(), bound.other.tolist(), strict=True)
    assert list(found) == hits
