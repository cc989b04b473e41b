"""The cache model against a slow twin: the longest common prefix with any earlier prompt, block by block."""

from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from reports.cache_model import CachePrompt, Hits, unlimited_cache

runs = st.lists(
    # Few keys, counts and sizes, so that prompts share, part within runs, and meet again.
    st.tuples(st.integers(0, 6), st.integers(1, 4), st.sampled_from([1, 16])),
    max_size=5,
)
prompts = st.lists(
    st.builds(
        CachePrompt,
        instance=st.integers(1, 2),
        root=st.sampled_from([0, 4]),
        session=st.sampled_from([0, 1, 2]),
        runs=runs.map(tuple),
        is_stored=st.sampled_from([True, True, True, False]),
    ),
    max_size=14,
)


def blocks(prompt):
    return [(first + i, size) for first, count, size in prompt.runs for i in range(count)]


def longest(prompt, others):
    mine = blocks(prompt)
    return max(
        (
            sum(
                a[1]
                for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(mine, blocks(other), strict=False))
            )
            for other in others
        ),
        default=0,
    )


def slow_twin(history):
    hits = []
    for place, prompt in enumerate(history):
        stored = [other for other in history[:place] if other.is_stored]
        tree = [other for other in stored if (other.instance, other.root) == (prompt.instance, prompt.root)]
        own = longest(
            prompt, [o for o in stored if (o.instance, o.session) == (prompt.instance, prompt.session)]
        )
        of_tree = max(own, longest(prompt, tree))
        of_all = longest(prompt, stored)
        hits.append(
            Hits(session_size=own, tree_size=of_tree - own, other_size=max(of_all, of_tree) - of_tree)
        )
    return hits


@settings(max_examples=400, deadline=None)
@given(prompts)
def test_the_tree_of_runs_agrees_with_the_longest_common_prefix(history):
    assert unlimited_cache(history) == slow_twin(history)


@settings(max_examples=100, deadline=None)
@given(prompts)
def test_a_prompt_never_hits_more_than_its_size(history):
    for prompt, hit in zip(history, unlimited_cache(history), strict=True):
        size = sum(count * size for _, count, size in prompt.runs)
        assert 0 <= hit.session_size + hit.tree_size + hit.other_size <= size


@settings(max_examples=100, deadline=None)
@given(prompts)
def test_cutting_runs_into_single_blocks_changes_nothing(history):
    cut = [
        CachePrompt(
            instance=prompt.instance,
            root=prompt.root,
            session=prompt.session,
            runs=tuple((key, 1, size) for key, size in blocks(prompt)),
            is_stored=prompt.is_stored,
        )
        for prompt in history
    ]
    assert unlimited_cache(cut) == unlimited_cache(history)
