from replayer.planning.gaps import PlannedDependency
from replayer.planning.lanes import LaneBound, lane_starts, shortest_ns

S = 1_000_000_000


def wait(index, gap_ns, trigger="completion"):
    return PlannedDependency(index=index, relation="sequence", trigger=trigger, gap_ns=gap_ns, cause="tool")


def test_a_lane_takes_the_next_tree_when_it_is_free():
    assert lane_starts([5 * S, S, S, S], 2) == [0, 0, S, 2 * S]


def test_starts_after_the_first_ones_are_not_known_where_a_duration_is_not():
    assert lane_starts([S, None, S], 2) == [0, 0, None]


def test_lanes_take_trees_until_none_is_free_in_time():
    """Two lanes, trees of 4 s, 10 s of time: three each, of which the last ends late."""
    bound, trees = LaneBound(2, 10 * S), 0
    while not bound.is_full:
        bound.add(4 * S)
        trees += 1
    assert trees == 6


def test_trees_that_take_no_time_fill_lanes_all_the_same():
    bound = LaneBound(1, 3)
    for _ in range(3):
        bound.add(0)
    assert bound.is_full


def test_the_shortest_time_has_all_gaps_and_a_fiftieth_of_each_answer():
    """0 to 1 s, 3 s gap, 4 to 5 s."""
    assert shortest_ns([(0, (), 50 * S), (0, (wait(0, 3 * S),), 50 * S)]) == 5 * S


def test_an_answer_takes_10_ms_at_least():
    assert shortest_ns([(0, (), None), (0, (wait(0, 0),), 0)]) == S // 50


def test_what_waits_for_a_dispatch_or_its_offset_does_not_wait_for_an_end():
    assert (
        shortest_ns([(0, (), 500 * S), (0, (wait(0, S, "dispatch"),), 50 * S), (4 * S, (), 50 * S)]) == 10 * S
    )


def test_a_tree_without_calls_takes_no_time():
    assert shortest_ns([]) == 0
