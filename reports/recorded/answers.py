"""Pure: everything a report says of a trace, as numbers and rows of tables."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from aitrace.units import NS_PER_S
from reports.metric import Number, Row, known_sum, ratio
from reports.recorded.breaks import breaks_by_class, with_tokens, worst_breaks
from reports.recorded.facts import Recorded, is_complete, tells_no_tools
from reports.recorded.gaps import gaps_by_cause, gaps_by_tool, tool_times
from reports.recorded.growth import by_kind, new_tokens
from reports.recorded.growth import by_turn as growth_by_turn
from reports.recorded.money import Money, money_of
from reports.recorded.prefixes import CHAINED_SOURCES, first_sizes, prefix_steps
from reports.recorded.prices import Prices
from reports.recorded.reuse import (
    by_depth,
    by_gap,
    by_turn,
    losses,
    population,
    rates,
    survival,
    with_possible,
)
from reports.recorded.rows import model_rows, outcome_rows, session_rows, tree_rows
from reports.recorded.spans import shares_of, spans_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What was computed of a trace."""

    recorded: Recorded
    """What from."""
    calls: pl.DataFrame
    """Its calls with `possible_tokens`, `lost_tokens`, `kind` and `gap_s`."""
    compared: pl.DataFrame
    """Those of them whose reuse is compared."""
    steps: pl.DataFrame
    """How prompts go on from the ones before them, in tokens too."""
    spans: pl.DataFrame
    """What each session did when."""
    new: pl.DataFrame
    """New tokens of each call by kind."""
    money: Money | None
    """Costs; None without prices."""
    numbers: dict[str, Number]
    """By the names of docs/report-trace.md."""
    tables: dict[str, list[Row]]
    """By the names of docs/report-trace.md."""


def answers_from_recorded(recorded: Recorded, prices: Prices | None = None) -> Answers:
    """Compute everything."""
    calls, steps = with_possible(recorded), prefix_steps(recorded)
    spans, new = spans_frame(recorded), new_tokens(recorded, first_sizes(recorded), steps)
    compared, known = population(calls), with_tokens(recorded, steps)
    money = None if prices is None else money_of(calls, steps, prices)
    tables: dict[str, list[Row]] = {
        "sessions": session_rows(recorded, calls, spans, steps),
        "trees": tree_rows(recorded, calls),
        "time_by_state": shares_of(spans, recorded.sessions),
        "gap_lengths_by_cause": gaps_by_cause(recorded),
        "gap_lengths_by_tool": gaps_by_tool(recorded),
        "tool_times": tool_times(recorded),
        "new_tokens_by_kind": by_kind(new),
        "new_tokens_by_turn": growth_by_turn(new),
        "prefix_by_class": breaks_by_class(known),
        "prefix_breaks": worst_breaks(known, None),
        "cache_by_gap": by_gap(compared),
        "cache_survival": survival(compared),
        "cache_by_turn": by_turn(compared),
        "cache_by_depth": by_depth(compared),
        "cache_lost_by_reason": losses(compared, steps),
        "tokens_by_model": model_rows(calls),
        "outcomes": outcome_rows(recorded),
        "money_by_model": [] if money is None else money.by_model,
        "money_by_session": [] if money is None else money.by_session,
    }
    numbers = {name: compute(recorded) for name, compute in _NUMBERS.items()}
    numbers |= _prefix_numbers(recorded, known) | _cache_numbers(compared) | _time_numbers(tables)
    numbers |= {} if money is None else money.numbers
    return Answers(
        recorded=recorded,
        calls=calls,
        compared=compared,
        steps=known,
        spans=spans,
        new=new,
        money=money,
        numbers=numbers,
        tables=tables,
    )


def _sum_of(column: str) -> Callable[[Recorded], int | None]:
    """Sum over all calls that tell; None if none does."""

    def compute(recorded: Recorded) -> int | None:
        known = recorded.calls[column].drop_nulls()
        return None if known.is_empty() else int(known.sum())

    return compute


def _count_of(condition: pl.Expr) -> Callable[[Recorded], int]:
    """Calls of which a condition holds."""
    return lambda recorded: recorded.calls.filter(condition).height


def _largest_prompt(recorded: Recorded) -> int | None:
    largest: int | None = recorded.calls.select(pl.col("prompt_tokens").max()).item()
    return largest


def _tool_run_s(recorded: Recorded) -> float | None:
    known = recorded.tools["duration_ns"].drop_nulls()
    return None if known.is_empty() else int(known.sum()) / NS_PER_S


_NUMBERS: dict[str, Callable[[Recorded], Number]] = {
    "trees": lambda recorded: recorded.sessions["root"].n_unique(),
    "sessions": lambda recorded: recorded.sessions.height,
    "sessions_with_calls": lambda recorded: recorded.calls["session"].n_unique(),
    "calls": lambda recorded: recorded.calls.height,
    "complete_calls": _count_of(is_complete()),
    "refused_calls": _count_of(pl.col("error") == "refused"),
    "unrecorded_calls": _count_of(pl.col("error") == "unrecorded"),
    "failed_calls": _count_of(
        pl.col("error").is_not_null() & ~pl.col("error").is_in(["refused", "unrecorded"])
    ),
    "retry_calls": _count_of(pl.col("retry_of").is_not_null()),
    "no_end_calls": _count_of(is_complete() & pl.col("end_ns").is_null()),
    "no_first_token_calls": _count_of(is_complete() & pl.col("first_token_ns").is_null()),
    "no_usage_calls": _count_of(is_complete() & pl.col("input_tokens").is_null()),
    "no_cache_usage_calls": _count_of(is_complete() & pl.col("cache_read_tokens").is_null()),
    "contradicting_calls": _count_of(pl.col("cache_read_tokens") > pl.col("input_tokens")),
    "unseen_start_calls": _count_of(pl.col("unseen_start")),
    "negative_gap_calls": _count_of(pl.col("gap_ns") < 0),
    "disordered_calls": _count_of(
        (pl.col("end_ns") < pl.col("request_ns")) | (pl.col("first_token_ns") < pl.col("request_ns"))
    ),
    "prompt_tokens": _sum_of("prompt_tokens"),
    "output_tokens": _sum_of("output_tokens"),
    "reasoning_tokens": _sum_of("reasoning_tokens"),
    "cache_write_5m_tokens": _sum_of("cache_write_5m_tokens"),
    "cache_write_1h_tokens": _sum_of("cache_write_1h_tokens"),
    "largest_prompt_tokens": _largest_prompt,
    "tool_calls": lambda recorded: recorded.tools.height if _tells_tools(recorded) else None,
    "tool_run_s": _tool_run_s,
}


def _tells_tools(recorded: Recorded) -> bool:
    return recorded.calls.height > 0 and recorded.calls.filter(tells_no_tools()).is_empty()


def _prefix_numbers(recorded: Recorded, steps: pl.DataFrame) -> dict[str, Number]:
    broken = steps.filter(pl.col("class") != "appended")
    is_chained = recorded.trace.header.source in CHAINED_SOURCES
    # Where nothing broke nothing is lost; of breaks it may be unknown how much.
    lost, again = (known_sum(broken[f"{name}_tokens"]) if broken.height else 0 for name in ("lost", "again"))
    return {
        "compared_prompts": steps.height,
        "prefix_breaks": broken.height,
        "prefix_lost_tokens": lost,
        "prefix_again_tokens": None if is_chained else again,
    }


def _cache_numbers(compared: pl.DataFrame) -> dict[str, Number]:
    known = rates(compared)
    names = ("calls", "prompt_tokens", "reported_tokens", "possible_tokens", "lost_tokens")
    numbers: dict[str, Number] = {
        f"cache_{name}": value for name in names if not isinstance(value := known[name], str)
    }
    for origin in ("session", "tree", "other"):
        part = compared[f"possible_{origin}_tokens"]
        numbers[f"cache_possible_{origin}_tokens"] = None if part.is_empty() else round(part.sum())
    total = numbers["cache_prompt_tokens"]
    excess = (compared["cache_read_tokens"] - compared["possible_tokens"]).drop_nulls().clip(lower_bound=0)
    return numbers | {
        "cache_reported_ratio": ratio(numbers["cache_reported_tokens"], total),
        "cache_possible_ratio": ratio(numbers["cache_possible_tokens"], total),
        "cache_above_possible_tokens": None if excess.is_empty() else round(excess.sum()),
    }


def _time_numbers(tables: dict[str, list[Row]]) -> dict[str, Number]:
    times = {str(row["state"]): row["time_s"] for row in tables["time_by_state"] if row["sessions"] == "all"}
    total_s = sum(float(value or 0) for value in times.values())
    tool_s = sum(float(times.get(state) or 0) for state in ("tool", "agents"))
    return {
        "session_time_s": total_s,
        "tool_gap_s": tool_s if total_s else None,
        "tool_gap_ratio": ratio(tool_s, total_s),
    }
