"""The most that is alive at a time, told tree by tree."""

from itertools import pairwise
from random import Random

from replayer.planning.sweep import Sweep


def test_what_overlaps_adds_up_and_what_touches_does_not():
    sweep = Sweep()
    for start_ns, end_ns, amount in ((0, 5, 1), (5, 9, 2), (6, 9, 1)):
        sweep.add(start_ns, end_ns, amount)
    assert sweep.peak() == 3


def test_a_peak_of_nothing_is_zero():
    assert Sweep().peak() == 0


def test_what_is_shared_counts_once():
    sweep = Sweep()
    sweep.add(0, 10, 5, shared=0)
    sweep.add(3, 20, 5, shared=0)
    sweep.add(4, 5, 2, shared=1)
    assert sweep.peak() == 7


def test_what_is_shared_and_over_can_be_alive_again():
    sweep = Sweep()
    sweep.add(0, 10, 5, shared=0)
    sweep.add(20, 30, 5, shared=0)
    sweep.add(12, 18, 7)
    assert sweep.peak() == 7


def test_it_does_not_matter_when_what_is_over_is_let_go():
    """Against the level in the middle of each stretch between two moments."""
    random = Random(7)
    for _ in range(200):
        spans = sorted(
            (start, start + random.randint(1, 9), random.randint(1, 5))
            for start in (random.randint(0, 30) for _ in range(random.randint(1, 12)))
        )
        sweep = Sweep()
        for start_ns, end_ns, amount in spans:
            sweep.pass_to(start_ns)
            sweep.add(start_ns, end_ns, amount)
        moments = sorted({moment for start, end, _ in spans for moment in (start, end)})
        levels = [
            sum(amount for start, end, amount in spans if start <= (a + b) / 2 < end)
            for a, b in pairwise(moments)
        ]
        assert sweep.peak() == max(levels)
