import numpy as np
import pytest

from aitrace.schema import Usage
from aitrace.testing import TraceBuilder, make_call_result
from reports.cache.curve import Curve, by_capacity, by_lifetime
from reports.metrics import METRICS

S = 10**9


def curve(*points):
    at, ratios = zip(*points, strict=True)
    return Curve(at=np.array(at, np.float64), hit_ratio=np.array(ratios, np.float64))


def test_a_curve_is_straight_between_its_points():
    made = curve((0, 0.0), (100, 0.4), (300, 0.8))
    assert [made.ratio_at(at) for at in (0, 50, 200, 1000)] == pytest.approx([0, 0.2, 0.6, 0.8])
    assert [made.reaches(share) for share in (0, 0.2, 0.4, 0.6, 0.8)] == pytest.approx([0, 50, 100, 200, 300])
    assert made.reaches(0.81) is None


def test_where_it_is_flat_the_smallest_size_counts():
    assert curve((0, 0.0), (100, 0.4), (300, 0.4), (400, 0.8)).reaches(0.4) == 100


def interleaved():
    """Two sessions with prompts of 640, then 704: each comes back when the other's 640 has been used since."""
    builder = TraceBuilder(block_size=64)
    one, other = builder.session(), builder.session()
    for session in (one, other):
        builder.call(session, [builder.segment(640)])
    for session in (one, other):
        builder.call(session, [builder.segment(64)])
    return builder.trace()


def played(*cached, error=None):
    sizes = (640, 640, 704, 704)
    return [
        make_call_result(
            index,
            at_ns=index * 10 * S,
            session=index % 2,
            root=index % 2,
            turn_index=index // 2,
            prompt_tokens=sizes[index],
            usage=Usage(input_tokens=sizes[index], cache_read_tokens=count, output_tokens=0),
        )
        for index, count in enumerate(cached)
    ]


def test_the_curve_of_sizes_is_that_of_a_least_recently_used_cache(facts_of):
    """The first session's 640 lie below the other's 640; the other's then below 704: blocks of 64, head last to go."""
    made = by_capacity(facts_of(played(0, 0, 0, 0), trace=interleaved()))
    total = 640 + 640 + 704 + 704
    assert made.ratio_at(640) == 0
    assert made.ratio_at(640 + 64) == pytest.approx(64 / total)
    assert made.ratio_at(640 + 320) == pytest.approx((320 + 256) / total)
    assert made.ratio_at(640 + 640) == pytest.approx((640 + 576) / total)
    assert made.ratio_at(10_000) == made.highest == pytest.approx(1280 / total)


def test_the_curve_of_lifetimes_steps_at_the_ages(facts_of):
    """Both come back 19 s after their first call ended."""
    made = by_lifetime(facts_of(played(0, 0, 0, 0), trace=interleaved()))
    assert made.ratio_at(18.9) < made.ratio_at(19) == pytest.approx(1280 / 2688)


def test_todays_place_is_where_the_model_loses_as_much(facts_of):
    """Of 1280 possible tokens 640 are lost, as at 640 + 352: 352 of the first prompt and 288 of the second fit."""
    facts = facts_of(played(0, 0, 352, 288), trace=interleaved())
    assert METRICS["cache_equivalent_tokens"].compute(facts) == pytest.approx(640 + 352, rel=0.001)
    assert METRICS["cache_equivalent_s"].compute(facts) is not None


def test_parts_of_blocks_are_no_matter_of_size(facts_of):
    facts = facts_of(played(0, 0, 640 - 20, 640 - 20), trace=interleaved())
    assert METRICS["cache_equivalent_tokens"].compute(facts) is None


def test_enough_is_where_99_percent_of_the_end_is_reached(facts_of):
    facts = facts_of(played(0, 0, 0, 0), trace=interleaved())
    made = by_capacity(facts)
    enough = METRICS["cache_enough_tokens"].compute(facts)
    assert made.ratio_at(enough) == pytest.approx(0.99 * made.highest)
    assert METRICS["cache_enough_s"].compute(facts) == pytest.approx(19, rel=0.02)
    assert METRICS["cache_model_highest_ratio"].compute(facts) == pytest.approx(
        METRICS["cache_bound_ratio"].compute(facts)
    )
    assert METRICS["cache_model_ratio"].compute(facts) == 1


def test_tables_have_points_of_the_curves_in_order(facts_of):
    facts = facts_of(played(0, 0, 0, 0), trace=interleaved())
    for name, column, made in (
        ("cache_by_capacity", "capacity_tokens", by_capacity(facts)),
        ("cache_by_lifetime", "lifetime_s", by_lifetime(facts)),
    ):
        rows = METRICS[name].compute(facts)
        ats = [row[column] for row in rows]
        assert ats == sorted(ats)
        assert [row["hit_ratio"] for row in rows] == pytest.approx(
            [made.ratio_at(at) for at in ats], rel=0.01
        )
        assert rows[-1]["hit_ratio"] == pytest.approx(made.highest)


def test_without_a_trace_or_reuse_there_is_no_curve(facts_of):
    builder = TraceBuilder(block_size=64)
    builder.call(builder.session(), [builder.segment(640)])
    alone = facts_of([make_call_result(0, prompt_tokens=640)], trace=builder.trace())
    for facts in (alone, facts_of(played(0, 0, 0, 0))):
        assert by_capacity(facts) is by_lifetime(facts) is None
        assert (
            METRICS["cache_by_capacity"].compute(facts) == METRICS["cache_by_lifetime"].compute(facts) == []
        )
        assert METRICS["cache_equivalent_tokens"].compute(facts) is None
        assert METRICS["cache_enough_tokens"].compute(facts) is None
        assert METRICS["cache_model_highest_ratio"].compute(facts) is None
    assert METRICS["cache_model_ratio"].compute(alone) == 1
