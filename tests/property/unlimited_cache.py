"""What an unlimited cache has of each prompt, by looking for the longest common start with every earlier one; and traces
to try it on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from hypothesis import strategies as st

from aitrace.prompts import PromptResolver
from aitrace.testing import TraceBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePrompt:
    """One prompt, in the order of dispatch."""

    instance: int
    """Which playing of its tree."""
    root: int
    """With the instance, a tree of the run."""
    session: int
    """With the instance, a session of the run."""
    blocks: tuple[tuple[object, int], ...]
    """Content and size of each block, in order."""
    is_stored: bool = True
    """Whether later prompts may reuse it."""


def unlimited_cache(prompts: Iterable[CachePrompt]) -> list[tuple[int, int, int]]:
    """Of each prompt what an earlier one of its session had, what another one of its tree had beyond that, and what any
    other had beyond both; only prompts that are stored.
    """
    hits = []
    stored: list[CachePrompt] = []
    for prompt in prompts:
        of_tree = [
            other for other in stored if (other.instance, other.root) == (prompt.instance, prompt.root)
        ]
        own = _longest(prompt, [other for other in of_tree if other.session == prompt.session])
        tree, every = _longest(prompt, of_tree), _longest(prompt, stored)
        hits.append((own, tree - own, every - tree))
        if prompt.is_stored:
            stored.append(prompt)
    return hits


def _longest(prompt: CachePrompt, others: Iterable[CachePrompt]) -> int:
    return max((_shared(prompt, other) for other in others), default=0)


def _shared(prompt: CachePrompt, other: CachePrompt) -> int:
    pairs = zip(prompt.blocks, other.blocks, strict=False)
    return sum(size for (_, size), _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def blocks_of(runs: Iterable[tuple[int, int]], size: int, block_size: int) -> list[tuple[int, int]]:
    """Key and size of each block of a segment: all full but the last."""
    keys = [first + place for first, count in runs for place in range(count)]
    return [(key, min(block_size, size - place * block_size)) for place, key in enumerate(keys)]


SIZES = (5, 16, 40, 64)
"""With blocks of 16: less than one, one, some with a part of one, and four."""


NOTHING_ELSE = st.just({})


@st.composite
def traces(draw, options=NOTHING_ELSE, **header):
    """Trees with sub-agents, shared system prompts, forks, prompts that drop their end, and repeated ones.

    Args:
        options: What else to tell of each call.
    """
    builder = TraceBuilder(block_size=16, **header)
    shared = [builder.segment(size, role="system", type="system") for size in (40, 64)]
    sessions, calls = [], []
    for _ in range(draw(st.integers(1, 5))):
        parent = draw(st.sampled_from([None, *sessions]))
        sessions.append(builder.session(parent=parent, harness=draw(st.sampled_from(["claude-code", None]))))
    made = list(shared)
    for _ in range(draw(st.integers(1, 12))):
        session = draw(st.sampled_from(sessions))
        ids = draw(st.lists(st.sampled_from(made), max_size=2))
        for kind in draw(st.lists(st.sampled_from(["system", "text"]), max_size=2)):
            like = draw(st.sampled_from([None, *made]))
            made.append(builder.segment(draw(st.sampled_from(SIZES)), "system", kind, like=like))
            ids.append(made[-1])
        base = draw(st.sampled_from([None, *calls]))
        if base is None:
            calls.append(builder.call(session, ids, base=None, **draw(options)))
        else:
            length = len(PromptResolver(builder.trace().calls).segment_ids(base))
            keep = draw(st.integers(0, length))
            calls.append(builder.call(session, ids, base=base, keep=keep, **draw(options)))
    return builder.trace()
