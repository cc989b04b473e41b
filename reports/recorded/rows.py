"""Pure: sessions, trees, models, classes and outcomes of a trace, as rows of tables."""

import polars as pl

from aitrace.units import NS_PER_S
from reports.metric import Row
from reports.recorded.facts import Recorded, tells_no_tools
from reports.recorded.spans import most_at_once

_MODEL_STATES = ("wait", "decode", "answer")


def session_rows(
    recorded: Recorded, calls: pl.DataFrame, spans: pl.DataFrame, steps: pl.DataFrame
) -> list[Row]:
    """One row per session that made a call, trees together, parents and earlier sessions first.

    Args:
        calls: Calls with `possible_tokens`, see `reports.recorded.reuse`.
    """
    sums = calls.group_by("session").agg(*_sums(), *_extent())
    model_s = spans.filter(pl.col("state").is_in(_MODEL_STATES)).group_by("session").agg(model_s=_length_s())
    all_s = spans.group_by("session").agg(all_s=_length_s())
    broken = steps.filter(pl.col("class") != "appended").join(calls.select("call", "session"), on="call")
    breaks = broken.group_by("session").agg(prefix_breaks=pl.len())
    # A session is compared with its own earlier prompts only where its calls could be.
    joined = sums
    for part in (model_s, all_s, breaks):
        joined = joined.join(part, on="session", how="left")
    about = recorded.sessions.join(joined, on="session", how="inner")
    tree_start_ns = pl.col("start_ns").min().over("root")
    ordered = about.sort(tree_start_ns, "root", "depth", "start_ns", "session")
    ordered = ordered.with_columns(
        pl.col("prefix_breaks").fill_null(0),
        model_ratio=pl.when(pl.col("all_s") > 0).then(pl.col("model_s").fill_null(0) / pl.col("all_s")),
        duration_s=_duration_s(),
    )
    names = (
        "session", "root", "parent", "depth", "harness", "agent", "label", "calls", "turns", "tools", "duration_s",
        "model_ratio", "prompt_tokens", "largest_prompt_tokens", "output_tokens", "reported_tokens", "reported_ratio",
        "possible_ratio", "prefix_breaks",
    )  # fmt: skip
    return ordered.select(names).to_dicts()


def tree_rows(recorded: Recorded, calls: pl.DataFrame) -> list[Row]:
    """One row per tree that made a call, in order of their first request."""
    sums = calls.group_by("root").agg(
        *_sums(), *_extent(), sessions=pl.col("session").n_unique(), depth=pl.col("depth").max()
    )
    ordered = sums.join(most_at_once(recorded), on="root", how="left").sort("start_ns", "root")
    names = (
        "root", "sessions", "depth", "most_at_once", "calls", "turns", "tools", "duration_s", "prompt_tokens",
        "output_tokens", "reported_tokens", "reported_ratio", "possible_ratio",
    )  # fmt: skip
    return ordered.with_columns(duration_s=_duration_s()).select(names).to_dicts()


def model_rows(calls: pl.DataFrame) -> list[Row]:
    """Calls and tokens by model and class of call, the most prompt tokens first."""
    sums = calls.group_by("model", "call_class").agg(*_sums()).drop("turns", "tools", "possible_ratio")
    return sums.sort(
        ["prompt_tokens", "model", "call_class"], descending=[True, False, False], nulls_last=True
    ).to_dicts()


def outcome_rows(recorded: Recorded) -> list[Row]:
    """Calls by how they ended, and how many of these were tried again; the most first."""
    calls = recorded.calls.with_columns(outcome=pl.col("error").fill_null("complete"))
    repeated = calls.filter(pl.col("retry_of").is_not_null())["retry_of"].implode()
    ended = calls.group_by("outcome", "status").agg(
        calls=pl.len(),
        sessions=pl.col("session").n_unique(),
        repeated_calls=pl.col("call").is_in(repeated).sum(),
        retries=pl.col("retry_of").is_not_null().sum(),
        retry_after_s=(pl.col("retry_after_ns") / NS_PER_S).max(),
    )
    return ended.sort(
        ["calls", "outcome", "status"], descending=[True, False, False], nulls_last=True
    ).to_dicts()


def _sums() -> tuple[pl.Expr, ...]:
    """Sums over calls; None where no call tells, and cached shares over the calls that report them."""
    is_reported = pl.col("cache_read_tokens").is_not_null() & (pl.col("input_tokens") > 0)
    is_compared = pl.col("possible_tokens").is_not_null() & (pl.col("prompt_tokens") > 0)
    return (
        pl.len().alias("calls"),
        _whole(pl.col("turn").drop_nulls().n_unique(), "turn").alias("turns"),
        pl.when(~tells_no_tools().any()).then(pl.col("tools").sum()).alias("tools"),
        _whole(pl.col("prompt_tokens").sum(), "prompt_tokens").alias("prompt_tokens"),
        pl.col("prompt_tokens").max().alias("largest_prompt_tokens"),
        _whole(pl.col("output_tokens").sum(), "output_tokens").alias("output_tokens"),
        _whole(pl.col("cache_read_tokens").sum(), "cache_read_tokens").alias("reported_tokens"),
        _share("cache_read_tokens", "input_tokens", is_reported).alias("reported_ratio"),
        _share("possible_tokens", "prompt_tokens", is_compared).alias("possible_ratio"),
    )


def _whole(value: pl.Expr, column: str) -> pl.Expr:
    """The value, None where no row has the column."""
    return pl.when(pl.col(column).is_not_null().any()).then(value)


def _share(part: str, whole: str, condition: pl.Expr) -> pl.Expr:
    total = pl.col(whole).filter(condition).sum()
    return pl.when(total > 0).then(pl.col(part).filter(condition).sum() / total)


def _extent() -> tuple[pl.Expr, ...]:
    return (
        pl.col("request_ns").min().alias("start_ns"),
        pl.coalesce("end_ns", "request_ns").max().alias("last_ns"),
    )


def _duration_s() -> pl.Expr:
    """From the first request to the last known point; None if no second point is known."""
    length_ns = pl.col("last_ns") - pl.col("start_ns")
    return pl.when(length_ns > 0).then(length_ns / NS_PER_S)


def _length_s() -> pl.Expr:
    return (pl.col("end_ns") - pl.col("start_ns")).sum() / NS_PER_S
