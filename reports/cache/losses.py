"""Pure: why prompt tokens were not served from the cache: each of them has one cause; docs/cache.md has the rules.

What nobody had sent could not be cached. What was possible and is missing was lost; whether by age or by what was
computed since is told from the run itself, see `reports/cache/rules.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from aitrace.units import NS_PER_S
from reports.cache.metrics import cache_population
from reports.cache.pieces import RunReuse, run_reuse
from reports.cache.rules import Cases, LossRule, RuleKind, loss_rule
from reports.metric import Metric, Number, Row, defined, ratio
from reports.tables import Facts, once_per_run

CAUSES = (
    "first_contact",
    "new_content",
    "prefix_changed",
    "compaction",
    "other_worker",
    "not_computed",
    "gap_expiry",
    "eviction",
    "expiry_or_eviction",
    "rounding",
    "unexplained",
)
"""All causes, in the order of the table."""
POSSIBLE = CAUSES[4:]
"""Causes of what an earlier prompt had: the losses."""
OF_THE_SIZE = ("gap_expiry", "eviction", "expiry_or_eviction", "unexplained")
"""Losses that another size or lifetime of the cache might mend."""

MAX_BLOCK_TOKENS = 2048
"""Largest block that an endpoint's cache is taken to have."""
DEFAULT_BLOCK_TOKENS = 64
"""Block where the reports do not tell it."""
SLACK_RATIO = 0.001
"""Share of a prompt by which places in it may be off: they are shares of the trace's sizes, not tokens that were counted."""
_MIN_REPORTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What became of the prompt tokens that were not served from the cache."""

    calls: pl.DataFrame
    """One row per call that the pass took: its columns there, and tokens by cause in columns of the causes' names."""
    rule: LossRule
    """What explains the losses."""
    block_tokens: int
    """Up to so many tokens of a call are lost to whole blocks."""


@once_per_run
def losses(facts: Facts) -> Losses | None:
    """Uncached tokens by cause; None without a trace, or where no call reports cached tokens."""
    reuse = run_reuse(facts)
    if reuse is None or reuse.calls["usage_cache_read_tokens"].null_count():
        return None
    block_tokens = reported_block_tokens(reuse.calls["usage_cache_read_tokens"])
    calls = _without_rule(reuse.calls, block_tokens, reuse.block_size)
    parts = _parts(reuse, calls, block_tokens)
    rule = loss_rule(_cases(parts))
    gone = parts.filter("is_lost").with_columns(cause=_cause(rule))
    by_call = gone.group_by("row").agg(
        pl.col("tokens").filter(pl.col("cause") == cause).sum().alias(cause) for cause in OF_THE_SIZE
    )
    calls = calls.join(by_call, on="row", how="left", maintain_order="left").with_columns(
        pl.col(OF_THE_SIZE).fill_null(0.0)
    )
    # Without a piece to say why: the sizes of the trace and the tokens of the endpoint are not quite in step.
    told = pl.sum_horizontal(OF_THE_SIZE)
    calls = calls.with_columns(unexplained=pl.col("unexplained") + (pl.col("gone_tokens") - told).clip(0))
    return Losses(calls=calls, rule=rule, block_tokens=block_tokens)


def reported_block_tokens(reported: pl.Series) -> int:
    """Size of the blocks in which the endpoint caches: what all its reports are multiples of.

    `DEFAULT_BLOCK_TOKENS` where they have no divisor in common, or are too few to tell.
    """
    values = reported.filter(reported > 0).unique().to_numpy()
    if values.size < _MIN_REPORTS:
        return DEFAULT_BLOCK_TOKENS
    divisor = int(np.gcd.reduce(values))
    return divisor if 1 < divisor <= MAX_BLOCK_TOKENS else DEFAULT_BLOCK_TOKENS


def _without_rule(calls: pl.DataFrame, block_tokens: int, block_size: int) -> pl.DataFrame:
    """Tokens by the causes that a call tells by itself; `gone_tokens` is what the rule has to explain.

    The prompt is cut from its start: what was cached; what the worker had computed; what it was computing; what another
    worker had; what the session's earlier prompt had there; and the rest.
    """
    # As floats: places in a prompt are cut at it, and are no whole tokens.
    cached = pl.min_horizontal("usage_cache_read_tokens", "input_tokens").cast(pl.Float64)
    known = pl.min_horizontal("known_tokens", "input_tokens")
    local = pl.min_horizontal("worker_known_tokens", known)
    ready = pl.min_horizontal("worker_ready_tokens", local)
    unknown = pl.col("input_tokens") - pl.max_horizontal(known, cached)
    rewritten = (pl.min_horizontal("earlier_tokens", "input_tokens") - pl.max_horizontal(known, cached)).clip(
        0
    )
    is_first = pl.col("earlier_tokens").is_null()
    missing = (ready - cached).clip(0)
    is_rounding = missing <= block_tokens + SLACK_RATIO * pl.col("input_tokens")
    # A block that an earlier prompt ended in, and that goes on in this one, is another block to the trace.
    in_a_block = rewritten <= block_size * pl.col("input_tokens") / pl.col("prompt_size")
    changed = pl.when(is_first | in_a_block).then(0.0).otherwise(rewritten)
    zero = pl.lit(0.0)
    return calls.with_columns(
        first_contact=pl.when(is_first).then(unknown).otherwise(zero),
        new_content=pl.when(is_first).then(zero).otherwise(unknown - changed),
        prefix_changed=pl.when(pl.col("is_compacted")).then(zero).otherwise(changed),
        compaction=pl.when(pl.col("is_compacted")).then(changed).otherwise(zero),
        other_worker=(known - pl.max_horizontal(local, cached)).clip(0),
        not_computed=(local - pl.max_horizontal(ready, cached)).clip(0),
        rounding=pl.when(is_rounding).then(missing).otherwise(zero),
        gone_tokens=pl.when(is_rounding).then(zero).otherwise(missing),
        ready_end=ready,
        cached_end=cached,
    )


def _parts(reuse: RunReuse, calls: pl.DataFrame, block_tokens: int) -> pl.DataFrame:
    """Pieces as far as they had been computed, cut where the cached prefix ends: each part was kept or lost."""
    owners = calls.select("row", "instance", "session", "ready_end", "cached_end", "gone_tokens")
    pieces = reuse.worker_pieces.join(owners, on="row", how="inner", maintain_order="left").with_columns(
        end_tokens=pl.min_horizontal("end_tokens", "ready_end"), age_s=pl.col("age_ns") / NS_PER_S
    )
    border = pl.col("cached_end").clip(pl.col("start_tokens"), pl.col("end_tokens"))
    kept = pieces.with_columns(
        is_lost=pl.lit(value=False),
        tokens=border - pl.col("start_tokens"),
        amount_tokens=pl.col("before_tokens") + border - pl.col("start_tokens"),
    )
    # The first block behind the border is what did not fit.
    first_end = pl.min_horizontal(border + block_tokens, "end_tokens")
    lost = pieces.filter(pl.col("gone_tokens") > 0).with_columns(
        is_lost=pl.lit(value=True),
        tokens=pl.col("end_tokens") - border,
        amount_tokens=pl.col("before_tokens") + first_end - pl.col("start_tokens"),
    )
    columns = ["row", "instance", "session", "is_lost", "tokens", "age_s", "amount_tokens"]
    return pl.concat([kept.select(columns), lost.select(columns)]).filter(pl.col("tokens") > 0)


def _cases(parts: pl.DataFrame) -> Cases:
    """What a rule is made of: all but what was kept while in use, which no cache gives up.

    What was lost while in use speaks against any rule.
    """
    free = parts.filter((pl.col("age_s") > 0) | pl.col("is_lost"))
    sessions = free.select(pl.struct("instance", "session").rank("dense").cast(pl.Int64)).to_series()
    return Cases(
        is_lost=free["is_lost"].to_numpy(),
        tokens=free["tokens"].to_numpy(),
        age_s=free["age_s"].to_numpy(),
        amount_tokens=free["amount_tokens"].to_numpy(),
        session=sessions.to_numpy(),
    )


def _cause(rule: LossRule) -> pl.Expr:
    """The cause of a lost part by the rule."""
    old, far = _beyond(rule)
    either, unexplained = pl.lit("expiry_or_eviction"), pl.lit("unexplained")
    expired, evicted = pl.lit("gap_expiry"), pl.lit("eviction")
    match rule.kind:
        case "few":
            return either
        case "none":
            return unexplained
        case "age":
            return pl.when(old).then(expired).otherwise(unexplained)
        case "amount":
            return pl.when(far).then(evicted).otherwise(unexplained)
        case "undecided":
            return pl.when(old | far).then(either).otherwise(unexplained)
        case "either":
            return (
                pl.when(old & far)
                .then(either)
                .when(old)
                .then(expired)
                .when(far)
                .then(evicted)
                .otherwise(unexplained)
            )


def _beyond(rule: LossRule) -> tuple[pl.Expr, pl.Expr]:
    """Whether a part lies beyond the border on its age, and beyond that on its amount."""
    if rule.age_s is None or rule.amount_tokens is None or rule.pair is None:
        return pl.lit(value=False), pl.lit(value=False)
    age, amount = rule.pair if rule.kind == "either" else (rule.age_s.at, rule.amount_tokens.at)
    return pl.col("age_s") > age, pl.col("amount_tokens") > amount


def _uncached(calls: pl.DataFrame) -> pl.Series:
    """Prompt tokens of each call that were not served from the cache."""
    return calls.select(
        (pl.col("input_tokens") - pl.col("usage_cache_read_tokens")).clip(0).alias("uncached")
    ).to_series()


@once_per_run
def tokens_by_cause(facts: Facts) -> dict[str, int] | None:
    """Uncached tokens of the cache population by cause, which add up; where a sample was taken it stands for all."""
    found = losses(facts)
    if found is None:
        return None
    total, taken = int(_uncached(cache_population(facts)).sum()), int(_uncached(found.calls).sum())
    exact = {cause: float(found.calls[cause].sum()) * (total / taken if taken else 1.0) for cause in CAUSES}
    whole = {cause: int(tokens) for cause, tokens in exact.items()}
    # What rounding down has left over goes to those that lost most by it.
    by_rest = sorted(CAUSES, key=lambda cause: whole[cause] - exact[cause])
    for cause in by_rest[: total - sum(whole.values())]:
        whole[cause] += 1
    return whole


def tokens_of(causes: tuple[str, ...]) -> Callable[[Facts], Number]:
    """Tokens of some causes together."""

    def compute(facts: Facts) -> Number:
        tokens = tokens_by_cause(facts)
        return None if tokens is None else sum(tokens[cause] for cause in causes)

    return compute


def _surplus_tokens(facts: Facts) -> int | None:
    """Reported tokens beyond the bound, call by call."""
    found = losses(facts)
    if found is None:
        return None
    return round((found.calls["cached_end"] - found.calls["known_tokens"]).clip(0).sum())


def _losses_table(facts: Facts) -> list[Row]:
    found, tokens = losses(facts), tokens_by_cause(facts)
    if found is None or tokens is None:
        return []
    total = sum(tokens.values())
    return [
        {
            "cause": cause,
            "is_lost": int(cause in POSSIBLE),
            "calls": int((found.calls[cause] >= 0.5).sum()),
            "tokens": tokens[cause],
            "uncached_ratio": ratio(tokens[cause], total),
        }
        for cause in CAUSES
    ]


def _rules_table(facts: Facts) -> list[Row]:
    """Both borders with what speaks for them; the one that explains the losses is chosen."""
    found = losses(facts)
    if found is None:
        return []
    rule = found.rule
    rows: list[Row] = []
    for name, border, chosen in (
        ("age_s", rule.age_s, ("age", "undecided", "either")),
        ("amount_tokens", rule.amount_tokens, ("amount", "undecided", "either")),
    ):
        rows.append(
            {
                "border_on": name,
                "border": None if border is None else border.at,
                "kept_below": None if border is None else border.kept,
                "lost_above": None if border is None else border.lost,
                "balanced_accuracy_ratio": None if border is None else border.score,
                "is_chosen": int(rule.kind in chosen),
                "kept_cases": rule.kept_cases,
                "lost_cases": rule.lost_cases,
                "sessions": rule.sessions,
            }
        )
    return rows


def _border(
    variable: Literal["age_s", "amount_tokens"], kinds: tuple[RuleKind, ...]
) -> Callable[[Facts], Number]:
    """The border on a variable, where it explains the losses."""

    def compute(facts: Facts) -> Number:
        found = losses(facts)
        border = None if found is None or found.rule.kind not in kinds else getattr(found.rule, variable)
        return None if border is None else float(border.at)

    return compute


_POPULATION = "as cache_calls, of a run with its trace whose calls report cached tokens"

# fmt: off
LOSS_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("cache_uncached_tokens", "Prompt tokens not served from cache", "tokens",
     "sum of input tokens less reported cached tokens; the tokens of cache_losses add up to it", _POPULATION,
     tokens_of(CAUSES)),
    ("cache_lost_by_cause_tokens", "… of them lost", "tokens",
     "what an earlier prompt of the run had: the causes other_worker to unexplained of cache_losses", _POPULATION,
     tokens_of(POSSIBLE)),
    ("cache_surplus_tokens", "Cached tokens beyond the bound", "tokens",
     "sum over calls of reported cached tokens above the longest prefix that an earlier prompt had", _POPULATION,
     _surplus_tokens),
    ("cache_forgets_after_s", "Nothing older is cached", "s",
     "time since the last use that parts kept from lost prompt tokens best; none unless it explains the losses",
     _POPULATION, _border("age_s", ("age",))),
    ("cache_forgets_after_tokens", "Nothing is cached behind so much else", "tokens",
     "distinct tokens used since that part kept from lost prompt tokens best; none unless they explain the losses",
     _POPULATION, _border("amount_tokens", ("amount",))),
    ("cache_block_tokens", "Blocks of the endpoint's cache", "tokens",
     "greatest common divisor of the reported cached tokens, 64 if there is none from 2 to 2048 or fewer than 10 differ",
     _POPULATION, lambda facts: None if (found := losses(facts)) is None else found.block_tokens),
)

LOSS_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("cache_losses", "Why prompt tokens were not cached", "tokens",
     "input tokens less reported cached tokens by cause, each token in one; the rules are in docs/cache.md",
     _POPULATION, _losses_table),
    ("cache_loss_rules", "What kept and lost prefixes tell", "",
     "border on the age and on the distinct tokens since the last use with the highest balanced accuracy, by tokens",
     "as cache_losses, parts of prompts that had been computed, without those kept while a call used them", _rules_table),
)
# fmt: on
