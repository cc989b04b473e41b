from random import Random

from aitrace.results import Scrape
from aitrace.testing import make_call_result
from aitrace.units import NS_PER_S
from replayer.search.backlog import find_backlog, grows

MINUTE = 60


def points(value, seconds=MINUTE, per_s=4):
    return [(tick * NS_PER_S // per_s, round(value(tick / per_s))) for tick in range(seconds * per_s)]


def test_a_steady_rise_is_a_backlog():
    assert grows(points(lambda s: 100 + 10 * s), per_part=8)


def test_a_level_is_none_however_high_and_noisy():
    random = Random(1)
    assert not grows(points(lambda _: random.uniform(900, 1100)), per_part=8)
    assert not grows(points(lambda _: 5000), per_part=8)


def test_a_rise_to_less_than_twice_what_was_before_is_none():
    assert not grows(points(lambda s: 1000 + s), per_part=8)


def test_a_burst_at_the_start_that_drains_is_none():
    assert not grows(points(lambda s: max(0, 5000 - 100 * s)), per_part=8)


def test_a_rise_that_has_ended_is_none():
    assert not grows(points(lambda s: 100 if s < 30 else 1000), per_part=8)


def test_little_time_or_few_values_tell_nothing():
    assert not grows([], per_part=8)
    assert not grows(points(lambda s: 100 + 10 * s, seconds=14), per_part=2)
    assert not grows(points(lambda s: 100 + 10 * s, per_s=1), per_part=8)


def test_calls_pile_up_by_the_time_they_were_due():
    calls = [
        make_call_result(index, at_ns, first_token_ns=at_ns + wait_ns)
        for index, (at_ns, wait_ns) in enumerate(points(lambda s: (1 + s) * NS_PER_S))
    ]
    assert find_backlog(calls[::-1], ()) == "the time from due to first token grows"
    assert find_backlog([make_call_result(0), make_call_result(1, first_token_ns=None)], ()) is None


def test_waiting_calls_at_the_engine_pile_up_too():
    scrapes = [
        Scrape(at_ns=at_ns, url="a", values={"waiting": float(value)})
        for at_ns, value in points(lambda s: s, per_s=1)
    ]
    failed = Scrape(at_ns=0, url="a", error="no")
    assert find_backlog((), [failed, *scrapes]) == "the calls waiting at the engine grow"
    few = [
        Scrape(at_ns=at_ns, url="a", values={"waiting": value / 30})
        for at_ns, value in points(lambda s: s, per_s=1)
    ]
    assert find_backlog((), few) is None
