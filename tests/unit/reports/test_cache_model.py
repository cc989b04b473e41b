from aitrace.identity import BlockIdentity
from aitrace.testing import TraceBuilder
from reports.cache_model import CachePrompt, Hits, PromptRuns, sized_runs, unlimited_cache


def prompt(runs, session=0, root=0, instance=1, *, is_stored=True):
    return CachePrompt(instance=instance, root=root, session=session, runs=tuple(runs), is_stored=is_stored)


def hits(session=0, tree=0, other=0):
    return Hits(session_size=session, tree_size=tree, other_size=other)


def test_the_first_prompt_finds_nothing():
    assert unlimited_cache([prompt([(0, 4, 16)])]) == [hits()]


def test_a_longer_prompt_finds_what_an_earlier_one_of_its_session_had():
    assert unlimited_cache([prompt([(0, 4, 16)]), prompt([(0, 9, 16)])])[1] == hits(session=64)


def test_a_prompt_that_parts_within_a_run_finds_the_blocks_before():
    first, second = prompt([(0, 10, 16)]), prompt([(0, 3, 16), (90, 5, 16)])
    assert unlimited_cache([first, second])[1] == hits(session=48)


def test_the_same_blocks_after_another_start_are_no_prefix():
    assert unlimited_cache([prompt([(0, 1, 16), (5, 8, 16)]), prompt([(1, 1, 16), (5, 8, 16)])])[1] == hits()


def test_how_runs_are_cut_does_not_matter():
    first = prompt([(0, 2, 16), (2, 2, 16), (4, 6, 16)])
    second = prompt([(0, 3, 16), (3, 5, 16), (50, 1, 16)])
    assert unlimited_cache([first, second])[1] == hits(session=8 * 16)


def test_hits_are_split_by_who_had_the_prefix():
    """Another tree had 6 blocks, another session of the tree 4, the session itself 2."""
    prompts = [
        prompt([(0, 6, 10)], session=9, root=9),
        prompt([(0, 4, 10), (70, 1, 10)], session=1),
        prompt([(0, 2, 10), (80, 1, 10)], session=0),
        prompt([(0, 7, 10)], session=0),
    ]
    assert unlimited_cache(prompts)[3] == hits(session=20, tree=20, other=20)


def test_another_playing_of_the_same_tree_is_another_tree():
    assert unlimited_cache([prompt([(0, 4, 16)]), prompt([(0, 4, 16)], instance=2)])[1] == hits(other=64)


def test_a_prompt_that_was_turned_away_is_not_reused():
    assert unlimited_cache([prompt([(0, 4, 16)], is_stored=False), prompt([(0, 4, 16)])])[1] == hits()


def test_blocks_of_other_sizes_are_not_the_same():
    assert unlimited_cache([prompt([(0, 1, 16)]), prompt([(0, 1, 9)])])[1] == hits()


def test_an_empty_prompt_finds_and_stores_nothing():
    assert unlimited_cache([prompt([]), prompt([(0, 1, 16)])]) == [hits(), hits()]


def test_the_last_block_of_a_segment_has_what_remains():
    assert sized_runs(((5, 3),), 40, 16) == ((5, 2, 16), (7, 1, 8))
    assert sized_runs(((5, 2), (99, 1)), 40, 16) == ((5, 2, 16), (99, 1, 8))
    assert sized_runs(((5, 2),), 32, 16) == ((5, 2, 16),)
    assert sized_runs((), 0, 16) == ()


def test_prompts_have_the_keys_of_the_instance():
    builder = TraceBuilder(block_size=64)
    segment = builder.segment(100)
    builder.call(builder.session(), [segment])
    trace = builder.trace()
    identity = BlockIdentity(trace)
    runs = PromptRuns(trace.segments, identity, 64)
    ((first, count),) = identity.runs(segment, 2)
    assert runs.of_prompt([segment, segment], 2) == ((first, count - 1, 64), (first + 1, 1, 36)) * 2
