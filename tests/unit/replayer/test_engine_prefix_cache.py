"""Rules of the prefix cache that the twin in tests/property does not name one by one."""

from replayer.engine.prefix_cache import PrefixCache


def run(cache: PrefixCache, blocks: list[int]) -> int:
    """One request from start to end; its hits."""
    lease = cache.admit(blocks, len(blocks))
    assert lease is not None
    hits = len(lease.pinned)
    cache.register(lease, blocks)
    cache.release(lease)
    return hits


def test_a_repeated_prompt_hits_all_its_blocks():
    cache = PrefixCache(None)
    assert (run(cache, [1, 2, 3]), run(cache, [1, 2, 3])) == (0, 3)


def test_a_hit_ends_at_the_first_block_that_is_missing():
    cache = PrefixCache(None)
    run(cache, [1, 2, 3])
    assert cache.match([1, 9, 3]) == 1


def test_blocks_are_for_nobody_else_before_they_are_registered():
    cache = PrefixCache(None)
    lease = cache.admit([1, 2], 2)
    assert lease is not None
    assert cache.match([1, 2]) == 0
    cache.register(lease, [1])
    assert cache.match([1, 2]) == 1


def test_what_is_registered_meanwhile_takes_the_place_of_private_blocks():
    cache = PrefixCache(10)
    first, second = cache.admit([1, 2], 3), cache.admit([1, 2], 3)
    assert first is not None
    assert second is not None
    cache.register(first, [1, 2])
    assert cache.used_blocks == 6
    cache.extend(second, [1, 2])
    assert (second.pinned, second.private, cache.used_blocks) == ([1, 2], 1, 4)


def test_the_least_recently_used_prompt_loses_its_last_block_first():
    cache = PrefixCache(5)
    run(cache, [1, 2, 3])
    run(cache, [7, 8])
    run(cache, [9])
    assert (cache.match([1, 2, 3]), cache.match([7, 8]), cache.match([9])) == (2, 2, 1)


def test_use_makes_recent():
    cache = PrefixCache(4)
    run(cache, [1, 2])
    run(cache, [7, 8])
    run(cache, [1, 2])
    run(cache, [9, 10])
    assert (cache.match([1, 2]), cache.match([7, 8])) == (2, 0)


def test_blocks_in_use_are_not_evicted_and_a_request_that_needs_them_waits():
    cache = PrefixCache(4)
    lease = cache.admit([1, 2], 3)
    assert lease is not None
    cache.register(lease, [1, 2])
    assert cache.admit([7], 2) is None
    assert cache.match([1, 2]) == 2
    assert cache.admit([7], 1) is not None


def test_shared_blocks_count_once_for_who_fits():
    cache = PrefixCache(4)
    first = cache.admit([1, 2, 3], 3)
    assert first is not None
    cache.register(first, [1, 2, 3])
    assert cache.admit([1, 2, 3], 4) is not None
    assert cache.used_blocks == 4
    assert cache.used_ratio == 1.0


def test_a_block_stays_in_use_until_its_last_user_is_gone():
    cache = PrefixCache(2)
    first = cache.admit([1, 2], 2)
    assert first is not None
    cache.register(first, [1, 2])
    second = cache.admit([1, 2], 2)
    assert second is not None
    cache.release(first)
    assert cache.admit([7], 1) is None
    cache.release(second)
    assert cache.admit([7], 1) is not None
    assert cache.cached_blocks == 1


def test_room_that_was_refused_leaves_the_cache_as_it_was():
    cache = PrefixCache(3)
    run(cache, [1, 2])
    held = cache.admit([7], 1)
    assert held is not None
    assert cache.admit([1, 2], 3) is None
    assert (cache.used_blocks, cache.match([1, 2])) == (1, 2)


def test_without_a_limit_nothing_is_evicted_and_the_ratio_is_0():
    cache = PrefixCache(None)
    for start in range(0, 1000, 10):
        run(cache, list(range(start, start + 10)))
    assert (cache.cached_blocks, cache.used_ratio) == (1000, 0.0)
    assert cache.fits(10**9)
