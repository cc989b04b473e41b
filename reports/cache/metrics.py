"""Pure: the prefix cache three ways on one population: reported by the API, counted by the engine, and the bound."""

from collections.abc import Callable

import polars as pl

from aitrace.results import ENGINE_COUNTERS
from reports.buckets import buckets_of, is_inside
from reports.gaps import PLAYED_GAP, with_gaps
from reports.metric import Metric, Number, Row, defined, known_sum, ratio
from reports.sessions import IS_COMPLETE
from reports.tables import Facts, kept, measured_from_ns, once_per_run

GAP_EDGES_S = (1, 10, 60, 300)
"""Borders between the gap buckets at time scale 1; they are scaled like the gaps themselves."""

CONTINUING = ("tool", "user", "other")
"""Kinds of calls that go on with a session, by what filled the gap before; they ask whether the prefix survived."""
KINDS = (*CONTINUING, "agent_start", "tree_start")
"""All kinds of calls, in the order of the table."""

KIND_OF_CALL = (
    pl.when(pl.col("turn_index") > 0)
    .then(
        pl.when(pl.col("gap_cause").is_in(["tool", "user"]))
        .then(pl.col("gap_cause"))
        .otherwise(pl.lit("other"))
    )
    .otherwise(
        pl.when(pl.col("session") == pl.col("root"))
        .then(pl.lit("tree_start"))
        .otherwise(pl.lit("agent_start"))
    )
)
"""Which of `KINDS` a call is."""
_INPUT = pl.coalesce("usage_input_tokens", "prompt_tokens")
_CACHE_READ = pl.col("usage_cache_read_tokens")
OF_RATES = ("instance", "session", "input_tokens", "usage_cache_read_tokens", "bound_tokens")
"""Columns of the population that `rates` and a count of sessions need."""
_NOT_OF_PROMPTS = (
    "request_id", "unsent", "planned_ns", "retry_due_ns", "dispatched_ns", "connected_ns", "uploaded_ns", "headers_ns",
    "first_visible_ns", "last_token_ns", "longest_stall_ns", "new_connection", "events", "unparsed_events", "error_text",
    "retry_after_ns", "backoff_ns", "phase", "status", "error", "due_ns", "usage_cache_write_5m_tokens",
    "usage_cache_write_1h_tokens", "usage_reasoning_tokens", "recorded_start_ns", "recorded_end_ns", "expected_start_ns",
)  # fmt: skip


@once_per_run
def cache_population(facts: Facts) -> pl.DataFrame:
    """Complete calls that report their cached tokens; all complete calls if none does.

    Adds `input_tokens` (reported, else by plan) and per origin `bound_<origin>_tokens`: the share of the prompt that
    an unlimited cache had, times `input_tokens`, so that reported and bound have one denominator. Columns that tell
    nothing of prompts are left out.
    """
    columns = pl.exclude(_NOT_OF_PROMPTS)
    is_reporting = IS_COMPLETE & _CACHE_READ.is_not_null() & pl.col("usage_input_tokens").is_not_null()
    reporting = kept(facts.calls, is_reporting, columns)
    calls = kept(facts.calls, IS_COMPLETE, columns) if reporting.is_empty() else reporting
    size = pl.when(pl.col("prompt_size") > 0).then(pl.col("prompt_size"))
    return calls.with_columns(
        _INPUT.alias("input_tokens"),
        *(
            (pl.col(f"bound_{origin}_size") / size * _INPUT).alias(f"bound_{origin}_tokens")
            for origin in ("session", "tree", "other")
        ),
    ).with_columns(
        (pl.col("bound_session_tokens") + pl.col("bound_tree_tokens") + pl.col("bound_other_tokens")).alias(
            "bound_tokens"
        )
    )


def _tokens(column: str) -> Callable[[Facts], int | None]:
    """Sum of a column of the population; None if no call has a value."""

    def compute(facts: Facts) -> int | None:
        return known_sum(cache_population(facts)[column])

    return compute


_input_tokens = _tokens("input_tokens")
_reported_tokens = _tokens("usage_cache_read_tokens")
_bound_tokens = _tokens("bound_tokens")


def _lost_tokens(facts: Facts) -> int | None:
    """Bound less reported; below 0 if the endpoint's cache knew prompts from before the run."""
    bound, reported = _bound_tokens(facts), _reported_tokens(facts)
    return None if bound is None or reported is None else bound - reported


def _growth(counter: str) -> Callable[[Facts], int | None]:
    """Growth of an engine's counter from the first to the last reading."""

    def compute(facts: Facts) -> int | None:
        return _counter_delta(_from_measured(facts.scrapes, counter, measured_from_ns(facts)), counter)

    return compute


def _engine_restarts(facts: Facts) -> int:
    """Readings in which a counter was lower than in the one before, or gone."""
    restarts = 0
    for _, readings in facts.scrapes.filter(pl.col("error").is_null()).group_by("url", maintain_order=True):
        fell = (pl.col(name).fill_null(0).diff() < 0 for name in ENGINE_COUNTERS)
        restarts += readings.filter(pl.any_horizontal(fell)).height
    return restarts


_engine_query_tokens = _growth("prefix_query_tokens")
_engine_hit_tokens = _growth("prefix_hit_tokens")


def _by_gap(facts: Facts) -> list[Row]:
    """Calls that go on with a session by kind and bucket of the gap before; first calls apart, whatever their gap."""
    calls = with_gaps(cache_population(facts).select("index", *OF_RATES, KIND_OF_CALL.alias("kind")), facts)
    buckets = gap_buckets_s(facts.header.time_scale)
    rows: list[Row] = []
    for kind in KINDS:
        of_kind = calls.filter(pl.col("kind") == kind)
        for low, high in buckets if kind in CONTINUING else ((None, None),):
            inside = of_kind.filter(has_gap(low, high))
            rows.append({"kind": kind, "gap_from_s": low, "gap_to_s": high, **rates(inside)})
    return [row for row in rows if row["calls"]]


def _after_gap(facts: Facts) -> list[Row]:
    """The same calls cumulated: after gaps of at least each border, the shortest first."""
    later = kept(cache_population(facts), KIND_OF_CALL.is_in(CONTINUING), "index", *OF_RATES)
    calls = with_gaps(later, facts)
    rows: list[Row] = []
    for low, _ in gap_buckets_s(facts.header.time_scale):
        after = calls.filter(has_gap(low, None))
        sessions = after.select("instance", "session").n_unique()
        rows.append({"gap_from_s": low, "sessions": sessions, **rates(after)})
    return [row for row in rows if row["calls"]]


def has_gap(low_s: float | None, high_s: float | None) -> pl.Expr:
    """Whether the gap as played lies in a bucket; a call that has none lies in no one."""
    return pl.lit(value=True) if low_s is None else is_inside(pl.col("played_gap_s"), low_s, high_s)


def gap_buckets_s(time_scale: float) -> tuple[tuple[float, float | None], ...]:
    """Borders of the gap buckets as played, the last one open; one bucket at time scale 0, where no gap is planned."""
    edges = (edge * time_scale for edge in GAP_EDGES_S) if time_scale > 0 else ()
    return buckets_of((0.0, *edges))


def reported_ratio(calls: pl.DataFrame) -> float | None:
    """Reported cached tokens of calls of the population over their input tokens; None if none reports them."""
    return ratio(known_sum(calls["usage_cache_read_tokens"]), int(calls["input_tokens"].sum()))


def rates(calls: pl.DataFrame) -> Row:
    """Cached tokens of calls of the population, as reported and as the bound has them, over their input tokens."""
    total = int(calls["input_tokens"].sum())
    reported, bound = known_sum(calls["usage_cache_read_tokens"]), known_sum(calls["bound_tokens"])
    return {
        "calls": calls.height,
        "input_tokens": total,
        "reported_tokens": reported,
        "bound_tokens": bound,
        "reported_ratio": reported_ratio(calls),
        "bound_ratio": ratio(bound, total),
    }


def _from_measured(scrapes: pl.DataFrame, name: str, from_ns: int | None) -> pl.DataFrame:
    """Readings from the last one on that has a value and came before the first measured call was due, by url."""
    if from_ns is None:
        return scrapes
    is_before = pl.col(name).is_not_null() & (pl.col("at_ns") <= from_ns)
    last_before_ns = pl.when(is_before).then(pl.col("at_ns")).max().over("url")
    return scrapes.filter(pl.col("at_ns") >= last_before_ns.fill_null(0))


def _counter_delta(scrapes: pl.DataFrame, name: str) -> int | None:
    """Growth of a counter from its first to its last reading, summed over urls.

    None with fewer than two readings of any url, and if a counter fell: its engine was restarted. Counters of refusals
    are not on a page before there was one, so a counter that is not there yet counts as 0.
    """
    total = 0.0
    has_it = pl.col(name).is_not_null().any().over("url")
    readings = scrapes.filter(pl.col("error").is_null() & has_it)
    for _, values in readings.group_by("url", maintain_order=True):
        counter = values[name]
        if counter[0] is None:
            counter = counter.scatter(0, 0.0)
        counter = counter.drop_nulls()
        if counter.len() < 2 or counter.diff().drop_nulls().min() < 0:  # type: ignore[operator] # a number: two readings
            return None
        total += counter[-1] - counter[0]
    return None if readings.is_empty() else round(total)


_GROWTH = (
    "growth of the engine's counter from the first to the last reading, from the last one before the first measured "
    "call if there was a warm-up, summed over engines"
)
_SERVED = "all requests the engine served between these readings"

# fmt: off
CACHE_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("cache_calls", "Calls compared", "calls", "count",
     "complete calls that report cached tokens; all complete calls if none does",
     lambda facts: cache_population(facts).height),
    ("cache_input_tokens", "Prompt tokens of these calls", "tokens",
     "sum of reported input tokens, of planned prompt tokens where none are reported", "as cache_calls",
     _input_tokens),
    ("cache_reported_tokens", "Cached tokens, reported", "tokens", "sum of reported cached tokens",
     "as cache_calls", _reported_tokens),
    ("cache_reported_ratio", "Hit rate, reported", "", "cache_reported_tokens / cache_input_tokens",
     "as cache_calls", lambda facts: ratio(_reported_tokens(facts), _input_tokens(facts))),
    ("cache_bound_tokens", "Cached tokens, unlimited cache", "tokens",
     "sum of (size of the longest prefix that an earlier sent prompt had / prompt size) × input tokens",
     "as cache_calls; prefixes are looked for among all calls sent before and not turned away",
     _bound_tokens),
    ("cache_bound_session_tokens", "… within the session", "tokens",
     "the part of cache_bound_tokens that an earlier prompt of the same session had", "as cache_bound_tokens",
     _tokens("bound_session_tokens")),
    ("cache_bound_tree_tokens", "… between agents of a tree", "tokens",
     "the part beyond it that another session of the same tree had", "as cache_bound_tokens",
     _tokens("bound_tree_tokens")),
    ("cache_bound_other_tokens", "… between trees", "tokens",
     "the part beyond both that another tree had", "as cache_bound_tokens", _tokens("bound_other_tokens")),
    ("cache_bound_ratio", "Hit rate, unlimited cache", "", "cache_bound_tokens / cache_input_tokens",
     "as cache_calls", lambda facts: ratio(_bound_tokens(facts), _input_tokens(facts))),
    ("cache_lost_tokens", "Possible tokens, not served from cache", "tokens", "cache_bound_tokens − cache_reported_tokens",
     "as cache_calls", _lost_tokens),
    ("engine_query_tokens", "Prompt tokens looked up, engine", "tokens", _GROWTH, _SERVED,
     _engine_query_tokens),
    ("engine_hit_tokens", "Cached tokens, engine", "tokens", _GROWTH, _SERVED, _engine_hit_tokens),
    ("engine_hit_ratio", "Hit rate, engine", "", "engine_hit_tokens / engine_query_tokens", _SERVED,
     lambda facts: ratio(_engine_hit_tokens(facts), _engine_query_tokens(facts))),
    ("engine_preemptions", "Preemptions, engine", "requests", _GROWTH, _SERVED, _growth("preemptions")),
    ("engine_rejections", "Rejections, engine", "requests", _GROWTH, _SERVED, _growth("rejections")),
    ("engine_restarts", "Restarts of engines", "readings",
     "count of readings in which a counter is lower than in the one before", "successful readings", _engine_restarts),
)

CACHE_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("cache_by_gap", "Hit rate by the gap before the call", "tokens",
     f"reported and bound tokens over input tokens, per kind of call and bucket of {PLAYED_GAP}",
     "as cache_calls, those that waited for something; first calls of sub-agents and of trees are kinds of their own",
     _by_gap),
    ("cache_after_gap", "Hit rate after gaps of at least so long", "tokens",
     f"reported and bound tokens over input tokens, per border of {PLAYED_GAP}",
     "as cache_calls, those that waited for something, without the first call of each session", _after_gap),
)
# fmt: on
