"""Pure: the calls whose prompt does not simply go on from the one before, as rows of tables."""

import polars as pl

from reports.metric import Row, known_sum
from reports.recorded.facts import Recorded
from reports.recorded.prefixes import CLASSES


def with_tokens(recorded: Recorded, steps: pl.DataFrame) -> pl.DataFrame:
    """Steps with their call's fields and sizes in tokens (None where the call's tokens are not known)."""
    about = recorded.calls.select(
        "call",
        "session",
        "root",
        "place",
        "turn",
        "harness",
        "agent",
        "depth",
        "model",
        "gap_ns",
        "tokens_per_unit",
    )
    return steps.join(about, on="call", how="left", maintain_order="left").with_columns(
        (pl.col(f"{name}_size") * pl.col("tokens_per_unit")).round().cast(pl.Int64).alias(f"{name}_tokens")
        for name in ("kept", "lost", "again")
    )


def breaks_by_class(known: pl.DataFrame) -> list[Row]:
    """Steps by how they go on, in all and by harness; each class that occurs.

    Args:
        known: Steps with tokens.
    """
    rows: list[Row] = []
    for (harness,), of_harness in known.group_by("harness", maintain_order=True):
        for name in CLASSES:
            inside = of_harness.filter(pl.col("class") == name)
            if inside.height:
                rows.append(
                    {
                        "harness": None if harness is None else str(harness),
                        "class": name,
                        "calls": inside.height,
                        "calls_ratio": inside.height / of_harness.height,
                        "sessions": inside["session"].n_unique(),
                        "lost_tokens": known_sum(inside["lost_tokens"]),
                        "again_tokens": known_sum(inside["again_tokens"]),
                    }
                )
    return rows


def worst_breaks(known: pl.DataFrame, count: int | None) -> list[Row]:
    """Breaks by what they lost, the most first.

    Args:
        count: How many; None for all.
    """
    broken = known.filter(pl.col("class") != "appended").sort(
        ["lost_tokens", "lost_size", "call"], descending=[True, True, False], nulls_last=True
    )
    names = (
        "call", "before", "session", "root", "turn", "harness", "agent", "class", "segment", "segment_role",
        "segment_type", "segment_size", "kept_tokens", "lost_tokens", "again_tokens", "kept_size", "lost_size",
        "again_size",
    )  # fmt: skip
    return broken.head(broken.height if count is None else count).select(names).to_dicts()
