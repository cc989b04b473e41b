"""I/O: made-up ways to compare, for tests of anything that is made of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aitrace.doubts import Doubt
from aitrace.results import CallResult
from reports.comparison.comparison import Way, WayRun
from reports.comparison.matched import LevelRows, Matched
from reports.comparison.plan_check import PlayedPlan
from reports.comparison.values import values_of_run
from reports.tables import Facts, facts_from_run
from reports.testing import MadeUpRun, make_up_run


def made_up_facts(run: MadeUpRun, **header: Any) -> Facts:
    """The facts of a made-up run; any field of its header may be given."""
    return facts_from_run(replace(run.header, **header), run.end, run.calls, run.scrapes, run.trace)


def made_up_run_of_way(
    name: str, run: MadeUpRun, *, doubts: tuple[Doubt, ...] = (), digest: str = "d", **header: Any
) -> WayRun:
    """A run of a way."""
    facts = made_up_facts(run, **header)
    plan = PlayedPlan(name=name, header=facts.header, end=facts.end, trace_digest=digest)
    return WayRun(name=name, plan=plan, values=values_of_run(facts), doubts=doubts)


def made_up_way(name: str, *runs: WayRun) -> Way:
    """A way of these runs."""
    return Way(name=name, label=name, runs=runs)


def two_made_up_ways(factor: float = 1.1, **header: Any) -> tuple[Way, Way]:
    """One run each of `before` and `after`, whose first tokens take `factor` times as long; the header is that of after."""
    run = make_up_run(trees=8, calls=10)
    return (
        made_up_way("before", made_up_run_of_way("runs/before", run, text_seed=1)),
        made_up_way(
            "after", made_up_run_of_way("runs/after", slower(run, factor), **({"text_seed": 2} | header))
        ),
    )


def slower(run: MadeUpRun, factor: float) -> MadeUpRun:
    """The same run with first tokens that took `factor` times as long, and nothing else changed."""
    return replace(run, calls=tuple(_slower(call, factor) for call in run.calls))


def matched_calls(columns: Mapping[str, Sequence[Sequence[float]]], trees: Sequence[int]) -> Matched:
    """Calls with these columns, each a row per run, and no sessions or trees."""
    empty = LevelRows(trees=np.zeros(0, dtype=np.int64), due_s=np.zeros(0), columns={})
    rows = LevelRows(
        trees=np.asarray(trees, dtype=np.int64),
        due_s=np.arange(len(trees), dtype=np.float64),
        columns={name: np.asarray(values, dtype=np.float64) for name, values in columns.items()},
    )
    return Matched(
        trees=max(trees, default=-1) + 1,
        levels={"call": rows, "session": empty, "tree": empty},
    )


def _slower(call: CallResult, factor: float) -> CallResult:
    if call.first_token_ns is None or call.sent_ns is None:
        return call
    return replace(call, first_token_ns=call.sent_ns + round((call.first_token_ns - call.sent_ns) * factor))
