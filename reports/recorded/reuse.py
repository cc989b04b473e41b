"""Pure: prompt tokens that the provider reported as cached, against what a cache without limits could have had.

The population is complete calls that report both input and cached tokens, and whose whole prompt was seen; if no call
reports cached tokens, complete calls whose prompt tokens are known, and then only what was possible is told. What was
possible is the share of the prompt that an earlier one to the same model had, times the call's tokens.
"""

import polars as pl

from aitrace.units import NS_PER_S
from reports.buckets import TURN_EDGES, buckets_of, is_inside
from reports.cache.metrics import KINDS
from reports.cache.survival import SURVIVED_RATIO, survival_interval
from reports.metric import Row, known_sum, ratio
from reports.recorded.facts import Recorded, is_complete
from reports.recorded.prefixes import possible_sizes

GAP_EDGES_S = (0.0, 1.0, 10.0, 60.0, 300.0, 3600.0)
"""Shortest gap of each bucket; Anthropic's caches keep a prefix for 5 min, or for 1 h if they are asked to."""
MIN_POSSIBLE_TOKENS = 1024
"""Calls with less within their session do not ask: no provider's cache takes shorter prompts."""
STEP_TOKENS = 128
"""What may be missing of a prefix that survived: OpenAI tells cached tokens in steps of so many."""

_ORIGINS = ("session", "tree", "other")
_GAP_S = pl.col("gap_s").clip(lower_bound=0)
"""One below 0 is in the first bucket."""


def with_possible(recorded: Recorded) -> pl.DataFrame:
    """Calls with `possible_<origin>_tokens`, `possible_tokens`, `lost_tokens` (possible and not reported, at least 0),
    `kind` and `gap_s`.
    """
    possible = recorded.calls.join(possible_sizes(recorded), on="call", how="left", maintain_order="left")
    starts = pl.when(pl.col("session") == pl.col("root")).then(pl.lit("tree_start"))
    causes = pl.when(pl.col("gap_cause").is_in(["tool", "user"])).then(pl.col("gap_cause"))
    return (
        possible.with_columns(
            (pl.col(f"possible_{origin}_size") * pl.col("tokens_per_unit")).alias(f"possible_{origin}_tokens")
            for origin in _ORIGINS
        )
        .with_columns(
            possible_tokens=pl.sum_horizontal(
                *(f"possible_{origin}_tokens" for origin in _ORIGINS), ignore_nulls=False
            ),
            gap_s=pl.col("gap_ns") / NS_PER_S,
            kind=pl.when(pl.col("place") == 0)
            .then(starts.otherwise(pl.lit("agent_start")))
            .otherwise(causes.otherwise(pl.lit("other"))),
        )
        .with_columns(
            lost_tokens=(pl.col("possible_tokens") - pl.col("cache_read_tokens")).clip(lower_bound=0)
        )
    )


def population(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that are compared, see above."""
    known = calls.filter(
        is_complete() & (pl.col("prompt_tokens") > 0) & pl.col("possible_tokens").is_not_null()
    )
    reporting = known.filter(pl.col("cache_read_tokens").is_not_null() & pl.col("input_tokens").is_not_null())
    return known if reporting.is_empty() else reporting


def rates(calls: pl.DataFrame) -> Row:
    """Tokens of calls of the population: all, reported as cached, possible; and the shares."""
    total = int(calls["prompt_tokens"].sum())
    reported, possible, lost = (
        known_sum(calls[name]) for name in ("cache_read_tokens", "possible_tokens", "lost_tokens")
    )
    return {
        "calls": calls.height,
        "prompt_tokens": total,
        "reported_tokens": reported,
        "possible_tokens": possible,
        "lost_tokens": lost,
        "reported_ratio": ratio(reported, total),
        "possible_ratio": ratio(possible, total),
    }


def by_gap(calls: pl.DataFrame) -> list[Row]:
    """Calls of the population by kind and bucket of the gap before; a gap of unknown length in a bucket of its own."""
    rows: list[Row] = []
    for kind in KINDS:
        of_kind = calls.filter(pl.col("kind") == kind)
        if kind.endswith("_start"):
            rows.append({"kind": kind, "gap_from_s": None, "gap_to_s": None, **rates(of_kind)})
            continue
        for low, high in buckets_of(GAP_EDGES_S):
            inside = of_kind.filter(is_inside(_GAP_S, low, high))
            rows.append({"kind": kind, "gap_from_s": low, "gap_to_s": high, **rates(inside)})
        unknown = of_kind.filter(pl.col("gap_s").is_null())
        rows.append({"kind": kind, "gap_from_s": None, "gap_to_s": None, **rates(unknown)})
    return [row for row in rows if row["calls"]]


def survival(calls: pl.DataFrame) -> list[Row]:
    """By bucket of the gap before: calls that had a prefix of their session to find, of how many it survived, and the
    95 % interval of the share, as in the report of a run.
    """
    own, kept = pl.col("possible_session_tokens"), pl.col("cache_read_tokens")
    asking = calls.filter(
        (pl.col("place") > 0) & (own >= MIN_POSSIBLE_TOKENS) & kept.is_not_null()
    ).with_columns(instance=pl.lit(1), survived=(kept >= SURVIVED_RATIO * own) | (own - kept <= STEP_TOKENS))
    rows: list[Row] = []
    for low, high in buckets_of(GAP_EDGES_S):
        inside = asking.filter(is_inside(_GAP_S, low, high))
        if inside.is_empty():
            continue
        survived, interval = int(inside["survived"].sum()), survival_interval(inside)
        rows.append(
            {
                "gap_from_s": low,
                "gap_to_s": high,
                "sessions": inside["session"].n_unique(),
                "calls": inside.height,
                "survived_calls": survived,
                "survived_ratio": survived / inside.height,
                "survived_low_ratio": None if interval is None else interval.low,
                "survived_high_ratio": None if interval is None else interval.high,
            }
        )
    return rows


def by_turn(calls: pl.DataFrame) -> list[Row]:
    """Calls of the population by their place within the session, counted from 0."""
    rows: list[Row] = []
    for low, high in buckets_of(TURN_EDGES):
        inside = calls.filter(is_inside(pl.col("place"), low, high))
        rows.append({"turn_from": low, "turn_to": None if high is None else high - 1, **rates(inside)})
    return [row for row in rows if row["calls"]]


def by_depth(calls: pl.DataFrame) -> list[Row]:
    """Calls of the population by the depth of their agent."""
    depths = sorted(calls["depth"].unique().to_list())
    return [{"depth": depth, **rates(calls.filter(pl.col("depth") == depth))} for depth in depths]


def losses(calls: pl.DataFrame, steps: pl.DataFrame) -> list[Row]:
    """Tokens that were possible and not reported, by the likeliest reason, the first that holds; the most first."""
    known = calls.filter(pl.col("lost_tokens") > 0).join(
        steps.select("call", "class"), on="call", how="left", maintain_order="left"
    )
    reasons = (
        pl.when(pl.col("place") == 0)
        .then(pl.lit("first_call"))
        .when(pl.col("gap_s") >= GAP_EDGES_S[-1])
        .then(pl.lit("gap_over_1h"))
        .when(pl.col("gap_s") >= GAP_EDGES_S[-2])
        .then(pl.lit("gap_over_5min"))
        .when(pl.col("class").is_not_null() & (pl.col("class") != "appended"))
        .then(pl.lit("prompt_changed"))
        .otherwise(pl.lit("gap_shorter"))
    )
    total = int(calls["prompt_tokens"].sum())
    rows: list[Row] = []
    for (reason,), inside in known.group_by(reasons.alias("reason"), maintain_order=True):
        lost = round(inside["lost_tokens"].sum())
        rows.append(
            {
                "reason": str(reason),
                "calls": inside.height,
                "lost_tokens": lost,
                "lost_ratio": ratio(lost, total),
            }
        )
    return sorted(rows, key=lambda row: -int(row["lost_tokens"] or 0))


REASONS = {
    "first_call": "first call of a session: another session had the prefix",
    "gap_over_1h": "gap of 1 h and more: longer than any lifetime that Anthropic offers",
    "gap_over_5min": "gap of 5 min to 1 h: longer than Anthropic's usual lifetime",
    "prompt_changed": "the prompt does not go on from the one before it",
    "gap_shorter": "gap under 5 min: evicted, sent elsewhere, not marked for the cache, or the end of a block",
}
"""Reasons of `losses`, in words."""
