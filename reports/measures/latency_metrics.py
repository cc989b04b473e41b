"""Pure: latency by what a call was: its class, turn, prompt, what of it was not cached, and the gap before."""

from collections.abc import Callable, Sequence

import polars as pl

from reports.buckets import TURN_EDGES
from reports.cache.metrics import gap_buckets_s
from reports.gaps import PLAYED_GAP, gaps_as_played
from reports.measures.call_metrics import CALL_VALUES
from reports.metric import Metric, Row, defined
from reports.sessions import IS_SENT
from reports.stats import shown_quantiles
from reports.tables import Facts

PROMPT_EDGES = (0, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
"""First size of each bucket of prompt tokens, about three times the one before; the last one is open."""
STEMS = {
    "ttft_service": "ms",
    "ttft_user": "ms",
    "headers": "ms",
    "itl": "ms",
    "longest_stall": "ms",
    "output_speed": "tokens_per_s",
}
"""Measures told of each bucket, with their units."""

_QUANTILES = {"p50": 0.5, "p95": 0.95}
_START = (
    pl.when(pl.col("turn_index") > 0)
    .then(pl.lit("continuing"))
    .when(pl.col("session") == pl.col("root"))
    .then(pl.lit("tree_start"))
    .otherwise(pl.lit("agent_start"))
)
_STARTS = ("agent_start", "tree_start")
_INPUT = pl.coalesce("usage_input_tokens", "prompt_tokens")
UNCACHED = (pl.col("usage_input_tokens") - pl.col("usage_cache_read_tokens")).clip(lower_bound=0)
"""Prompt tokens that were not served from the cache, as reported; null where either is not reported."""


def _sent_calls(facts: Facts) -> pl.LazyFrame:
    """Sent calls with all that they are told by, and their measures."""
    sent = facts.calls.lazy().filter(IS_SENT)
    return sent.select(
        "index",
        "call_class",
        "turn_index",
        _START.alias("kind"),
        _INPUT.alias("input_tokens"),
        UNCACHED.alias("uncached_tokens"),
        *(value.alias(name) for name, value in CALL_VALUES.items()),
    )


def _rows(calls: pl.LazyFrame, bucket: pl.Expr, names: Callable[[int], Row]) -> list[Row]:
    """A row per bucket that has calls, in the order of the buckets; calls of no bucket are left out."""
    values = (f"{stem}_{unit}" for stem, unit in STEMS.items())
    by_bucket = calls.select(bucket.cast(pl.Int64).alias("bucket"), *values).drop_nulls("bucket").collect()
    rows: dict[int, Row] = {
        place: {**names(place), "calls": inside.height, **_spreads(inside)}
        for (place,), inside in by_bucket.group_by("bucket")
        if isinstance(place, int)
    }
    return [rows[place] for place in sorted(rows)]


def _spreads(calls: pl.DataFrame) -> Row:
    row: Row = {}
    for stem, unit in STEMS.items():
        values = calls[f"{stem}_{unit}"].drop_nulls().cast(pl.Float64).to_numpy()
        row[f"{stem}_n"] = int(values.size)
        found = zip(_QUANTILES, shown_quantiles(values, list(_QUANTILES.values())), strict=True)
        row |= {f"{stem}_{name}_{unit}": value for name, value in found}
    return row


def _place(column: str, edges: Sequence[float]) -> pl.Expr:
    """Which bucket a value is in: how many of the edges it reaches, less one; null for no value."""
    reached = pl.sum_horizontal(*((pl.col(column) >= edge).cast(pl.Int64) for edge in edges))
    return pl.when(pl.col(column).is_not_null()).then(reached - 1)


def _borders(name: str, edges: Sequence[int]) -> Callable[[int], Row]:
    """Names of the bucket that begins at an edge: its first and its last value, None for the last one."""

    def names(place: int) -> Row:
        is_last = place == len(edges) - 1
        return {f"{name}_from": edges[place], f"{name}_to": None if is_last else edges[place + 1] - 1}

    return names


def _by_class(facts: Facts) -> list[Row]:
    calls = _sent_calls(facts)
    classes = calls.select(pl.col("call_class").unique(maintain_order=True)).collect()["call_class"].to_list()
    places = {name: place for place, name in enumerate(classes)}
    bucket = pl.col("call_class").replace_strict(places, return_dtype=pl.Int64) if classes else pl.lit(0)
    rows = _rows(calls, bucket, lambda place: {"call_class": classes[place]})
    return sorted(rows, key=lambda row: -int(row["calls"] or 0))


def _by_turn(facts: Facts) -> list[Row]:
    return _rows(_sent_calls(facts), _place("turn_index", TURN_EDGES), _borders("turn", TURN_EDGES))


def _by_prompt(facts: Facts) -> list[Row]:
    return _rows(_sent_calls(facts), _place("input_tokens", PROMPT_EDGES), _borders("tokens", PROMPT_EDGES))


def _by_uncached(facts: Facts) -> list[Row]:
    return _rows(
        _sent_calls(facts), _place("uncached_tokens", PROMPT_EDGES), _borders("tokens", PROMPT_EDGES)
    )


def _by_gap(facts: Facts) -> list[Row]:
    """Calls that go on with their session by the gap before, then the first calls of sub-agents and of trees."""
    gaps = gaps_as_played(facts).lazy()
    calls = _sent_calls(facts).join(gaps, on="index", how="left", maintain_order="left")
    buckets = gap_buckets_s(facts.header.time_scale)
    continuing = _rows(
        calls.filter(pl.col("kind") == "continuing"),
        _place("played_gap_s", [low for low, _ in buckets]),
        lambda place: {"kind": "continuing", "gap_from_s": buckets[place][0], "gap_to_s": buckets[place][1]},
    )
    starts = _rows(
        calls.filter(pl.col("kind") != "continuing"),
        (pl.col("kind") == _STARTS[1]),
        lambda place: {"kind": _STARTS[place], "gap_from_s": None, "gap_to_s": None},
    )
    return [*continuing, *starts]


_FORMULA = (
    "calls, and n, p50 and p95 of ttft_service_ms, ttft_user_ms, headers_ms, itl_ms, longest_stall_ms and "
)
_SPEED = f"{_FORMULA}output_speed_tokens_per_s, per "
_SENT = "sent calls; each measure over its own population among them"

# fmt: off
LATENCY_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("latency_by_class", "Latency by class of call", "ms, tokens/s", f"{_SPEED}class", _SENT, _by_class),
    ("latency_by_turn", "Latency by turn", "ms, tokens/s", f"{_SPEED}bucket of the call's place in its session", _SENT,
     _by_turn),
    ("latency_by_prompt", "Latency by prompt size", "ms, tokens/s",
     f"{_SPEED}bucket of reported input tokens (planned, if none are reported)", _SENT, _by_prompt),
    ("latency_by_uncached", "Latency by prompt tokens not cached", "ms, tokens/s",
     f"{_SPEED}bucket of reported input tokens less reported cached tokens", "sent calls that report both", _by_uncached),
    ("latency_by_gap", "Latency by the gap before the call", "ms, tokens/s",
     f"{_SPEED}bucket of {PLAYED_GAP}; the first calls of sub-agents and of trees are kinds of their own",
     "sent calls that waited for something, and all first ones; each measure over its own population among them", _by_gap),
)
# fmt: on
