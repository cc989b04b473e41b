"""Pure: the values of all runs side by side: a row per call, session or tree that any of them tells of."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from aitrace.units import NS_PER_S
from reports.comparison.measures import Basis, Level
from reports.comparison.values import KEYS, RunValues
from reports.stats import Floats, Ints

_LEVELS: tuple[Level, ...] = ("call", "session", "tree")
_NO_VALUES = frozenset({*KEYS["call"], "due_ns"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRows:
    """Rows of one level."""

    trees: Ints
    """Tree of each row, from 0."""
    due_s: Floats
    """When each was due in the first run that tells, s since the start of that run; NaN if none does."""
    columns: dict[str, Floats]
    """Values by column: a row per run; NaN where a run has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """All runs."""

    trees: int
    """Trees that any run tells of."""
    levels: dict[Level, LevelRows]
    """Their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What runs that are compared lack of a value."""

    rows: int
    """Rows that a run has no value of, though another one has."""
    of: int
    """Rows that any of the runs has a value of."""
    by_run: tuple[int, ...]
    """Of those rows, what each run lacks."""


def match(runs: Sequence[RunValues]) -> Matched:
    """Set the runs side by side."""
    keys = list(KEYS["tree"])
    trees = (
        pl.concat([frame.select(keys) for run in runs for frame in (run.calls, run.sessions, run.trees)])
        .unique()
        .sort(keys)
        .with_row_index("tree")
    )
    levels: dict[Level, LevelRows] = {}
    for level in _LEVELS:
        by = list(KEYS[level])
        frames = [run.of_level(level) for run in runs]
        rows = pl.concat([frame.select(by) for frame in frames]).unique().sort(by)
        joined = [rows.join(frame, on=by, how="left", maintain_order="left") for frame in frames]
        names = sorted({name for frame in frames for name in frame.columns} - _NO_VALUES)
        levels[level] = LevelRows(
            trees=rows.join(trees, on=keys, how="left", maintain_order="left")["tree"]
            .cast(pl.Int64)
            .to_numpy(),
            due_s=_first_known([_column(frame, "due_ns") for frame in joined]) / NS_PER_S,
            columns={name: np.stack([_column(frame, name) for frame in joined]) for name in names},
        )
    return Matched(trees=trees.height, levels=levels)


def lacking_of(matched: Matched, basis: Basis, runs: Sequence[int]) -> Lacking:
    """What each of these runs lacks of what any of them has."""
    values = matched.levels[basis.level].columns.get(basis.column)
    if values is None:
        return Lacking(rows=0, of=0, by_run=(0,) * len(runs))
    is_missing = np.isnan(values[list(runs)])
    is_missing = is_missing[:, ~is_missing.all(axis=0)]
    return Lacking(
        rows=int(is_missing.any(axis=0).sum()),
        of=is_missing.shape[1],
        by_run=tuple(is_missing.sum(axis=1).tolist()),
    )


def _column(frame: pl.DataFrame, name: str) -> Floats:
    if name not in frame.columns:
        return np.full(frame.height, np.nan)
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()


def _first_known(columns: Sequence[Floats]) -> Floats:
    found = columns[0].copy()
    for column in columns[1:]:
        found = np.where(np.isnan(found), column, found)
    return found
