"""Pure: hit rates by where a call stands: by its turn within the session, and by how deep its agent is in the tree."""

import polars as pl

from reports.buckets import buckets_of, is_inside
from reports.cache.metrics import OF_RATES, cache_population, rates
from reports.metric import Metric, Row, defined
from reports.tables import Facts

_TURN_EDGES = (0, 1, 2, 4, 8, 16, 32, 64, 128)


def _by_turn(facts: Facts) -> list[Row]:
    """Calls by their place within the session, each bucket twice as wide as the one before."""
    calls = cache_population(facts).select(*OF_RATES, "turn_index")
    rows: list[Row] = []
    for low, high in buckets_of(_TURN_EDGES):
        inside = calls.filter(is_inside(pl.col("turn_index"), low, high))
        if inside.height:
            rows.append({"turn_from": low, "turn_to": None if high is None else high - 1, **rates(inside)})
    return rows


def _by_depth(facts: Facts) -> list[Row]:
    """Calls by the number of agents above theirs."""
    if facts.trace is None:
        return []
    depths: list[int] = []
    for session in facts.trace.sessions:
        depths.append(0 if session.parent is None else depths[session.parent] + 1)
    depth_of = pl.DataFrame(
        {"session": range(len(depths)), "depth": depths}, schema={"session": pl.Int64, "depth": pl.Int64}
    )
    calls = (
        cache_population(facts)
        .select(OF_RATES)
        .join(depth_of, on="session", how="left", maintain_order="left")
    )
    rows: list[Row] = []
    for depth in sorted(calls["depth"].drop_nulls().unique().to_list()):
        inside = calls.filter(pl.col("depth") == depth)
        sessions = inside.select("instance", "session").n_unique()
        rows.append({"depth": depth, "sessions": sessions, **rates(inside)})
    return rows


PLACE_TABLES: tuple[Metric[list[Row]], ...] = defined(
    (
        "cache_by_turn",
        "Hit rate by the call's place in its session",
        "tokens",
        "reported and bound tokens over input tokens, per place of the call within its session, from 0",
        "as cache_calls",
        _by_turn,
    ),
    (
        "cache_by_depth",
        "Hit rate by the depth of the agent",
        "tokens",
        "reported and bound tokens over input tokens, per number of agents above the call's in the trace; 0 = main agent",
        "as cache_calls, of a run with its trace",
        _by_depth,
    ),
)
