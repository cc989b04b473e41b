import math

import polars as pl

from reports.comparison.matched import Lacking, lacking_of, match
from reports.comparison.measures import BASES
from reports.comparison.testing import matched_calls
from reports.comparison.values import RunValues

KEYS = {"instance": pl.Int64, "root": pl.Int64, "session": pl.Int64, "call": pl.Int64}


def run(*calls, sessions=()):
    """Calls are (instance, root, session, call, due_ns, ttft)."""
    schema = KEYS | {"due_ns": pl.Int64, "ttft_value": pl.Float64}
    return RunValues(
        calls=pl.DataFrame(list(calls), schema=schema, orient="row"),
        sessions=pl.DataFrame(
            list(sessions),
            schema={"instance": pl.Int64, "root": pl.Int64, "session": pl.Int64, "session_value": pl.Float64},
            orient="row",
        ),
        trees=pl.DataFrame([], schema={"instance": pl.Int64, "root": pl.Int64}),
    )


def test_calls_are_matched_by_instance_session_and_call_whatever_their_order():
    first = run((1, 0, 0, 0, 0, 10.0), (1, 0, 0, 1, 2_000_000_000, 20.0))
    second = run((1, 0, 0, 1, 9, 21.0), (2, 0, 0, 0, 9, 99.0), (1, 0, 0, 0, 9, 11.0))
    matched = match([first, second])
    calls = matched.levels["call"]
    assert calls.columns["ttft_value"][:, :2].tolist() == [[10.0, 20.0], [11.0, 21.0]]
    assert math.isnan(calls.columns["ttft_value"][0, 2])
    assert calls.columns["ttft_value"][1, 2] == 99.0
    assert calls.trees.tolist() == [0, 0, 1]
    assert matched.trees == 2


def test_a_call_is_due_when_the_first_run_that_tells_says():
    matched = match(
        [run((1, 0, 0, 0, 3_000_000_000, 1.0)), run((1, 0, 0, 0, 5, 1.0), (1, 0, 0, 1, 4_000_000_000, 1.0))]
    )
    assert matched.levels["call"].due_s.tolist() == [3.0, 4.0]


def test_what_a_run_does_not_have_is_not_known_and_no_zero():
    matched = match([run(sessions=[(1, 0, 0, 5.0)]), run((1, 0, 0, 0, 0, 1.0))])
    assert matched.levels["session"].columns["session_value"][0].tolist() == [5.0]
    assert math.isnan(matched.levels["session"].columns["session_value"][1][0])
    assert matched.levels["session"].trees.tolist() == [0]


def test_what_a_run_lacks_is_what_any_other_of_them_has():
    nan = math.nan
    matched = matched_calls(
        {"ttft_value": [[1, 2, nan, nan, 5], [1, nan, 3, nan, 5], [1, 2, 3, 4, nan]]}, range(5)
    )
    ttft = BASES["ttft"]
    assert lacking_of(matched, ttft, [0, 1]) == Lacking(rows=2, of=4, by_run=(1, 1))
    assert lacking_of(matched, ttft, [0, 1, 2]) == Lacking(rows=4, of=5, by_run=(2, 2, 1))
    assert lacking_of(matched, BASES["itl"], [0, 1]) == Lacking(rows=0, of=0, by_run=(0, 0))
