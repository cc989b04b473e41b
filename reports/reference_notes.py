"""Pure: what the run that the speed of an idle endpoint is taken from (`--unloaded`) cannot show."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from aitrace.doubts import Doubt
from aitrace.units import counted
from reports.measures.unloaded import MIN_CALLS, unloaded_calls
from reports.tables import Facts, kept

_FROM_WHERE = ("url", "protocol", "model")
"""Fields of a run's header by which two endpoints are the same."""
_NEVER_NS = np.iinfo(np.int64).max
_IS_COMPLETE = pl.col("is_last") & (pl.col("outcome") == "complete") & pl.col("sent_ns").is_not_null()
_ACTION = "play some trees of the trace at this endpoint with --concurrency 1 and name that run"


def reference_notes(facts: Facts) -> Iterator[Doubt]:
    """Notes on the run given by --unloaded; nothing if none was."""
    reference = facts.unloaded
    if reference is None:
        return
    usable = unloaded_calls(facts).height
    if usable < MIN_CALLS:
        yield Doubt(
            name="unloaded_too_short",
            what=f"the run given by --unloaded has {counted(usable, 'usable call')}, {MIN_CALLS} needed",
            cause="a usable call is complete and reports prompt, cached and at least 2 output tokens; nothing is set "
            "against an idle endpoint",
            action=_ACTION,
            weighs=False,
        )
    other = {
        name: (getattr(reference.header, name), getattr(facts.header, name))
        for name in _FROM_WHERE
        if getattr(reference.header, name) != getattr(facts.header, name)
    }
    if other:
        told = ", ".join(f"{name} {theirs!r} and not {ours!r}" for name, (theirs, ours) in other.items())
        yield Doubt(
            name="unloaded_elsewhere",
            what=f"the run given by --unloaded was played at another endpoint: {told}",
            cause="what sessions would take without load is told from the speed of that one",
            action=_ACTION,
            weighs=False,
        )
    loaded = _loaded_calls(reference)
    if loaded:
        complete = int(kept(reference.tries, _IS_COMPLETE, pl.len()).item())
        yield Doubt(
            name="unloaded_under_load",
            what=f"{loaded:,} of {counted(complete, 'complete call')} of the run given by --unloaded overlapped calls of "
            "other trees",
            cause="it had load of its own, so an idle endpoint is faster than it shows, and slowdowns against it are too low",
            action=_ACTION,
            weighs=False,
        )


def _loaded_calls(reference: Facts) -> int:
    """Complete calls during which a try of another tree was in flight; agents of one tree work beside each other."""
    sent = kept(
        reference.tries,
        pl.col("sent_ns").is_not_null(),
        "instance", "root", "sent_ns", pl.col("end_ns").fill_null(_NEVER_NS), _IS_COMPLETE.alias("is_complete"),
    )  # fmt: skip
    rows = sent.with_columns(pl.Series("in_flight", _in_flight(sent, sent), pl.Int64))
    loaded = 0
    for _, tree in rows.group_by("instance", "root"):
        complete = tree.filter("is_complete")
        loaded += int((complete["in_flight"].to_numpy() > _in_flight(complete, tree)).sum())
    return loaded


def _in_flight(of: pl.DataFrame, among: pl.DataFrame) -> npt.NDArray[np.int64]:
    """During each of the tries, how many among others were in flight, itself counted."""
    starts, ends = (np.sort(among[name].to_numpy()) for name in ("sent_ns", "end_ns"))
    begun = np.searchsorted(starts, of["end_ns"].to_numpy(), "left")
    return begun - np.searchsorted(ends, of["sent_ns"].to_numpy(), "right")
