"""Pure: buckets of calls: their borders, and which calls are inside."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeVar

import polars as pl

Border = TypeVar("Border", int, float)

TURN_EDGES = (0, 1, 2, 5, 10, 20, 50)
"""First place within a session, from 0, of each bucket of calls; the last one is open."""


def buckets_of(edges: Sequence[Border]) -> tuple[tuple[Border, Border | None], ...]:
    """Of each bucket its first value and the one behind its last; None for the last bucket, which is open."""
    return tuple(zip_longest(edges, edges[1:]))


def is_inside(value: pl.Expr, low: float, high: float | None) -> pl.Expr:
    """Whether a value lies in a bucket."""
    return value >= low if high is None else (value >= low) & (value < high)
