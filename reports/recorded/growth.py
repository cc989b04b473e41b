"""Pure: how prompts grow: their size over a session, and the new tokens of each call by who brought them in."""

import polars as pl

from reports.buckets import TURN_EDGES, buckets_of, is_inside
from reports.metric import Row
from reports.recorded.facts import Recorded, is_of_chain
from reports.recorded.prefixes import KINDS
from reports.stats import shown_quantile


def new_tokens(recorded: Recorded, first: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per call of a conversation: `place` and `new_<kind>_tokens`; calls whose tokens are not known are left
    out.

    Args:
        first: Sizes of first prompts, see `reports.recorded.prefixes`.
        steps: Sizes of the others, from there too.
    """
    columns = ["call", *(f"new_{kind}_size" for kind in KINDS)]
    sizes = pl.concat([first.select(columns), steps.select(columns)])
    # A prompt may be of no size, so that it has no ratio; it has no new tokens either.
    known = recorded.calls.filter(
        pl.col("tokens_per_unit").is_not_null() | ((pl.col("prompt_size") == 0) & ~pl.col("unseen_start"))
    )
    return known.join(sizes, on="call", how="inner", maintain_order="left").select(
        "call",
        "session",
        "place",
        *(
            (pl.col(f"new_{kind}_size") * pl.col("tokens_per_unit").fill_null(0)).alias(f"new_{kind}_tokens")
            for kind in KINDS
        ),
    )


def by_kind(new: pl.DataFrame) -> list[Row]:
    """New tokens by kind: of first prompts, of the calls after them, and how much such a call adds."""
    first, later = new.filter(pl.col("place") == 0), new.filter(pl.col("place") > 0)
    rows: list[Row] = []
    for kind in KINDS:
        values = later[f"new_{kind}_tokens"]
        rows.append(
            {
                "kind": kind,
                "first_tokens": round(first[f"new_{kind}_tokens"].sum()),
                "later_tokens": round(values.sum()),
                "later_calls": values.len(),
                "per_call_tokens": None if values.is_empty() else float(values.sum()) / values.len(),
                "p50_tokens": shown_quantile(values.to_numpy(), 0.5),
                "p90_tokens": shown_quantile(values.to_numpy(), 0.9),
            }
        )
    return rows


def by_turn(new: pl.DataFrame) -> list[Row]:
    """New tokens of a call by its place within the session, counted from 0: the mean by kind."""
    rows: list[Row] = []
    for low, high in buckets_of(TURN_EDGES):
        inside = new.filter(is_inside(pl.col("place"), low, high))
        if inside.height:
            means = {
                f"{kind}_tokens": float(inside[f"new_{kind}_tokens"].sum()) / inside.height for kind in KINDS
            }
            last = None if high is None else high - 1
            rows.append({"turn_from": low, "turn_to": last, "calls": inside.height, **means})
    return rows


def prompt_sizes(recorded: Recorded) -> pl.DataFrame:
    """Prompt tokens of the calls of conversations, in order: `session`, `place`, `call`, `prompt_tokens`."""
    known = recorded.calls.filter(is_of_chain() & pl.col("prompt_tokens").is_not_null())
    return known.sort("session", "place").select("session", "place", "call", "prompt_tokens")
