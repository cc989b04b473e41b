"""Pure: the reuse of a run's prompts in reported tokens, call by call and piece by piece, see `reports/cache/reuse.py`.

Sizes of the trace become tokens as for the bound: within a prompt by its own reported tokens, between prompts by all of
them. Of a run of more than `MAX_CALLS` sent calls whole trees are drawn at random, seeded; see `SHARDS` in
docs/cache.md.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from aitrace.schema import Trace
from reports.cache.metrics import cache_population
from reports.cache.paths import PromptTree, TracePaths
from reports.cache.reuse import Reuse, Use, reuse_of
from reports.cache.start import with_start
from reports.tables import TURNED_AWAY, Facts, kept, once_per_run

MAX_CALLS = 30_000
"""Sent calls that the pass takes at most."""
_SAMPLE_SEED = 0
_OF_USES = (
    "index", "call", "session", "instance", "root", "call_class", "sent_ns", "first_token_ns", "end_ns", "error", "worker",
    "output_tokens", "usage_output_tokens", "usage_input_tokens", "usage_cache_read_tokens",
)  # fmt: skip
_EARLIER_PROMPTS = 32
"""Prompts of a session that are looked through for the one that a prompt continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReuse:
    """The calls of the cache population that the pass took, and their pieces."""

    calls: pl.DataFrame
    """One row per call: the columns of `cache_population`; `row`, its place; the prefix that an earlier prompt had, as
    `known_tokens`; that had one which the same worker computed, as `worker_known_tokens`, and the part of it that had been
    computed when the call was sent, as `worker_ready_tokens`; the size of the prompt of its session that it continues, as
    `earlier_tokens`, null for the first; and as `is_compacted` whether the session's history was replaced between the two."""
    pieces: pl.DataFrame
    """One row per piece that an earlier prompt of the run had: `row` of the call, `start_tokens` and `end_tokens` in its
    prompt, `before_tokens` and `age_ns` as in `Reuse`."""
    worker_pieces: pl.DataFrame
    """The same of what the worker that computed the call had; equal to `pieces` where fewer than two are named."""
    block_size: int
    """Blocks of the trace, in its unit."""
    sample_ratio: float
    """Sent calls that the pass took / sent calls of the run."""


@once_per_run
def run_reuse(facts: Facts) -> RunReuse | None:
    """The pass over a run; None without a trace or without complete calls."""
    population = cache_population(facts).filter(pl.col("prompt_size") > 0)
    if facts.trace is None or population.is_empty():
        return None
    sent = kept(facts.every_call, pl.col("sent_ns").is_not_null(), *_OF_USES)
    sent = with_start(sent).sort("started_ns", "index")
    sample, ratio = sampled_trees(sent, most=MAX_CALLS)
    tokens_per_unit = float(population["input_tokens"].sum()) / float(population["prompt_size"].sum())
    has_answers = facts.header.history == "recorded"
    paths = TracePaths(facts.trace, share_system=facts.header.share_system)
    uses = [
        _use(row, paths, tokens_per_unit if has_answers else None) for row in sample.iter_rows(named=True)
    ]
    whole = reuse_of(paths.tree, uses, rate=ratio)
    at_worker = _by_worker(paths.tree, uses, sample["worker"].to_list(), whole, ratio)
    calls = _calls(population, sample, whole, at_worker)
    calls = calls.hstack(_earlier(calls, sample, uses, paths.tree, facts.trace))
    return RunReuse(
        calls=calls.drop("use"),
        pieces=_pieces(whole, calls, tokens_per_unit),
        worker_pieces=_pieces(at_worker, calls, tokens_per_unit),
        block_size=facts.trace.header.block_size,
        sample_ratio=ratio,
    )


def sampled_trees(sent: pl.DataFrame, *, most: int) -> tuple[pl.DataFrame, float]:
    """All calls, or those of so many trees that they are at most `most` (one tree at least), and the share that this is."""
    if sent.height <= most:
        return sent, 1.0
    trees = sent.group_by("instance", "root").len().sort("instance", "root")
    shuffled = trees[np.random.default_rng(_SAMPLE_SEED).permutation(trees.height)]
    fitting = shuffled.filter(pl.col("len").cum_sum() <= most)
    chosen = (shuffled[:1] if fitting.is_empty() else fitting).select("instance", "root")
    sample = sent.join(chosen, on=["instance", "root"], how="semi", maintain_order="left")
    return sample, sample.height / sent.height


def _use(row: dict[str, Any], paths: TracePaths, tokens_per_unit: float | None) -> Use:
    """The use of a call; without `tokens_per_unit` its answer takes no room of its own."""
    answer_tokens = 0
    if tokens_per_unit is not None and row["first_token_ns"] is not None:
        reported = row["usage_output_tokens"]
        answer_tokens = row["output_tokens"] if reported is None else reported
    first_ns = row["first_token_ns"]
    return Use(
        node=paths.end_of(row["call"]),
        tree=row["root"],
        instance=row["instance"],
        sent_ns=row["sent_ns"],
        started_ns=row["started_ns"],
        first_token_ns=row["end_ns"] if first_ns is None else first_ns,
        end_ns=row["end_ns"],
        answer_size=round(answer_tokens / (tokens_per_unit or 1)),
        is_stored=row["error"] not in TURNED_AWAY,
    )


def _by_worker(
    tree: PromptTree, uses: Sequence[Use], workers: Sequence[str | None], whole: Reuse, rate: float
) -> Reuse:
    """The reuse of each call among those of its worker; as in the whole run for calls that name none."""
    members: dict[str, list[int]] = defaultdict(list)
    for place, worker in enumerate(workers):
        if worker is not None:
            members[worker].append(place)
    if len(members) < 2:
        return whole
    unnamed = [place for place, worker in enumerate(workers) if worker is None]
    known, ready = whole.known_size.copy(), whole.ready_size.copy()
    is_kept = np.isin(whole.use, unnamed)
    columns = {name: [getattr(whole, name)[is_kept]] for name in ("use", "start", "end", "before", "age_ns")}
    for places in members.values():
        mine = reuse_of(tree, [uses[place] for place in places], rate=rate)
        known[places], ready[places] = mine.known_size, mine.ready_size
        columns["use"].append(np.array(places, np.int64)[mine.use])
        for name in ("start", "end", "before", "age_ns"):
            columns[name].append(getattr(mine, name))
    return Reuse(
        **{name: np.concatenate(parts) for name, parts in columns.items()}, known_size=known, ready_size=ready
    )


def _calls(population: pl.DataFrame, sample: pl.DataFrame, whole: Reuse, at_worker: Reuse) -> pl.DataFrame:
    scale = pl.col("input_tokens") / pl.col("prompt_size")
    sizes = pl.DataFrame(
        {
            "index": sample["index"],
            "use": np.arange(sample.height),
            "known_tokens": whole.known_size,
            "worker_known_tokens": at_worker.known_size,
            "worker_ready_tokens": at_worker.ready_size,
        }
    )
    return (
        population.join(sizes, on="index", how="inner", maintain_order="left")
        .with_row_index("row")
        .with_columns(
            pl.col("row").cast(pl.Int64),
            *(pl.col(f"{name}_tokens") * scale for name in ("known", "worker_known", "worker_ready")),
        )
    )


def _pieces(reuse: Reuse, calls: pl.DataFrame, tokens_per_unit: float) -> pl.DataFrame:
    pieces = pl.DataFrame(
        {
            "use": reuse.use,
            "start_tokens": reuse.start,
            "end_tokens": reuse.end,
            "before_tokens": reuse.before,
            "age_ns": reuse.age_ns,
        }
    )
    owners = calls.select("use", "row", scale=pl.col("input_tokens") / pl.col("prompt_size"))
    return (
        pieces.join(owners, on="use", how="inner", maintain_order="left")
        .with_columns(
            pl.col("start_tokens") * pl.col("scale"),
            pl.col("end_tokens") * pl.col("scale"),
            pl.col("before_tokens") * tokens_per_unit,
        )
        .drop("use", "scale")
        .sort("row", "start_tokens")
    )


def _earlier(
    calls: pl.DataFrame, sample: pl.DataFrame, uses: Sequence[Use], tree: PromptTree, trace: Trace
) -> pl.DataFrame:
    """Of each call the prompt of its session that it continues, and whether the history was replaced in between."""
    sizes: list[float | None] = [None] * calls.height
    compacted = [False] * calls.height
    row_of = dict(zip(calls["use"].to_list(), calls["row"].to_list(), strict=True))
    scales = (calls["input_tokens"] / calls["prompt_size"]).to_list()
    bounds = calls["bound_session_size"].to_list()
    classes, played = sample["call_class"].to_list(), sample["call"].to_list()
    # A trace on disk decodes a call each time it is asked for one.
    window_of = cache(lambda call: trace.calls[call].window)
    for places in _sessions(sample):
        stored: list[int] = []
        for place in places:
            row = row_of.get(place)
            if row is not None and stored:
                earlier = _continued(place, stored, bounds[row], uses, tree)
                sizes[row] = tree.end(uses[earlier].node) * scales[row]
                since = (one for one in stored[-_EARLIER_PROMPTS:] if one >= earlier)
                compacted[row] = any(classes[one] == "compaction" for one in since) or (
                    tree.common(uses[earlier].node, uses[place].node) < tree.end(uses[earlier].node)
                    and window_of(played[place]) != window_of(played[earlier])
                )
            if uses[place].is_stored:
                stored.append(place)
    return pl.DataFrame(
        {"earlier_tokens": sizes, "is_compacted": compacted},
        schema={"earlier_tokens": pl.Float64, "is_compacted": pl.Boolean},
    )


def _sessions(sample: pl.DataFrame) -> Iterator[list[int]]:
    """Places of the calls of each session, in the order of sending."""
    grouped = sample.select("instance", "session").with_row_index("place").group_by("instance", "session")
    for places in grouped.agg("place")["place"]:
        yield places.to_list()


def _continued(place: int, stored: Sequence[int], bound: int, uses: Sequence[Use], tree: PromptTree) -> int:
    """The latest of the session's prompts that has most in common with this one."""
    best, best_size = stored[-1], -1
    for earlier in reversed(stored[-_EARLIER_PROMPTS:]):
        size = tree.common(uses[earlier].node, uses[place].node)
        if size > best_size:
            best, best_size = earlier, size
        if size >= bound:
            break
    return best
