"""Whatever prompts follow each other, the segments give back their blocks and sizes exactly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.formats.blocks import BlockNumbers, Cut, PromptWriter
from aitrace.prompts import block_sizes

BLOCK = 8
STEPS = st.lists(
    st.tuples(
        st.integers(0, 6),  # blocks kept of an earlier prompt
        st.integers(0, 9),  # which one
        st.integers(0, 5),  # new blocks
        st.integers(-BLOCK + 1, 3 * BLOCK),  # tokens beyond the blocks, or short of the last one
        st.lists(st.integers(0, 12), max_size=3),  # where it is cut
    ),
    max_size=10,
)


def cuts_at(places):
    inner = [Cut(upto_block=at, role="system", type="system") for at in sorted(places)]
    return [*inner, Cut(upto_block=0, role="user", type="text")]


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_segments_give_back_blocks_and_sizes(steps):
    writer = PromptWriter(block_size=BLOCK, numbers=BlockNumbers(), block_of_source_id={})
    prompts, sources, sizes = [], [], {}
    identity = {}
    held, fresh = None, 0
    for call, (keep, which, new, beyond, places) in enumerate(steps):
        old = sources[which % len(sources)][:keep] if sources else ()
        ids = (*old, *range(fresh, fresh + new))
        fresh += new
        size = max(0, len(ids) * BLOCK + (beyond if ids else max(0, beyond)))
        base = writer.best_base(ids, size, held)
        written = writer.write(call, ids, size, base, cuts_at(places))
        held = written.held
        sources.append(ids)
        sizes.update({s.id: s for s in written.segments})
        prompts.append(
            prompts[written.prompt.base][: written.prompt.keep] if written.prompt.base is not None else ()
        )
        prompts[-1] += written.prompt.add
        segments = [sizes[i] for i in prompts[-1]]
        blocks = [b for s in segments for first, n in s.blocks for b in range(first, first + n)]
        assert sum(s.size for s in segments) == size
        assert all(0 < b <= BLOCK for s in segments for b in block_sizes(s, BLOCK))
        assert [identity.setdefault(i, b) for i, b in zip(ids, blocks, strict=False)] == blocks[: len(ids)]
    assert len(set(identity.values())) == len(identity)
