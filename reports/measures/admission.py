"""Pure: who was let in: refusals, tries and backoff, by kind of call, turn and gap; what was lost with lost sessions."""

from collections.abc import Callable, Iterable, Mapping

import polars as pl

from aitrace.outcomes import REFUSED
from aitrace.units import NS_PER_MS, NS_PER_S
from reports.buckets import TURN_EDGES, buckets_of, is_inside
from reports.cache.metrics import gap_buckets_s, has_gap
from reports.gaps import PLAYED_GAP, with_gaps
from reports.measures.call_metrics import sample
from reports.measures.run_metrics import IS_LOST
from reports.metric import Metric, Number, Row, Sample, defined, ratio
from reports.sessions import IS_COMPLETE
from reports.stats import quantile, wilson
from reports.tables import Facts, kept, once_per_run

_IS_REFUSED = pl.col("outcome").is_in(REFUSED)
_IS_STOPPED = pl.col("outcome") == "stopped"
_IS_MEASURED = pl.col("phase") == "measured"
_HAD_TRY = pl.col("sent_ns").is_not_null()
_SESSION = ("instance", "root", "session")
_OF_TRIES = (
    "index", "number", "is_last", "is_first_call", "turn_index", "sent_ns", "headers_ns", "status", "outcome",
)  # fmt: skip


@once_per_run
def measured_tries(facts: Facts) -> pl.DataFrame:
    """Tries that were sent, of calls that count."""
    return kept(facts.tries, _HAD_TRY & _IS_MEASURED)


def _count(where: pl.Expr) -> Callable[[Facts], int]:
    def compute(facts: Facts) -> int:
        return int(kept(measured_tries(facts), where, pl.len()).item())

    return compute


def _waits(facts: Facts) -> pl.LazyFrame:
    """Tries of calls that count, those without a connection among them: they are waited after too."""
    return facts.tries.lazy().filter(_IS_MEASURED)


def _retried_calls(facts: Facts) -> int:
    was_tried = _HAD_TRY | ~_IS_STOPPED
    retried = _waits(facts).filter((pl.col("number") > 1) & was_tried)
    return int(retried.select(pl.col("index").n_unique()).collect().item())


def _refused_once_calls(facts: Facts) -> int:
    return kept(measured_tries(facts), _IS_REFUSED, "index")["index"].n_unique()


def _refused_once_ratio(facts: Facts) -> float | None:
    return ratio(_refused_once_calls(facts), measured_tries(facts)["index"].n_unique())


def refused_tries_ratio(tries: pl.DataFrame) -> float | None:
    """Share of tries that were refused."""
    return ratio(tries.filter(_IS_REFUSED).height, tries.height)


def _backoff_s(facts: Facts) -> float:
    return int(_waits(facts).select(pl.col("wait_ns").sum()).collect().item()) / NS_PER_S


def _tries_per_call(facts: Facts) -> Sample:
    calls = measured_tries(facts).group_by("index", *_SESSION, maintain_order=True)
    return sample(calls.agg(pl.len().alias("tries")), pl.col("tries"))


def _session_backoff(facts: Facts) -> Sample:
    waits = _of_measured_sessions(facts, _waits(facts))
    sessions = waits.group_by(*_SESSION, maintain_order=True)
    return sample(sessions.agg(pl.col("wait_ns").sum()), pl.col("wait_ns") / NS_PER_S)


def _headers_to_token(facts: Facts) -> Sample:
    streamed = facts.calls.lazy().filter(_HAD_TRY & pl.col("events").is_not_null())
    return sample(streamed, (pl.col("first_token_ns") - pl.col("headers_ns")) / NS_PER_MS)


def _stalled(where: pl.Expr) -> Callable[[Facts], int]:
    """Sessions with a call that was stopped in this state."""

    def compute(facts: Facts) -> int:
        is_last = pl.col("is_last") & _IS_STOPPED & where & _IS_MEASURED
        last = _of_measured_sessions(facts, facts.tries.lazy().filter(is_last))
        return last.select("instance", "session").unique().collect().height

    return compute


def _of_measured_sessions(facts: Facts, tries: pl.LazyFrame) -> pl.LazyFrame:
    """Those of sessions without a call in the warm-up."""
    sessions = facts.sessions.lazy().select("instance", "session")
    return tries.join(sessions, on=["instance", "session"], how="semi", maintain_order="left")


def _lost_prefill_tokens(facts: Facts) -> int:
    lost = facts.sessions.filter(IS_LOST).select("instance", "session")
    calls = facts.calls.join(lost, on=["instance", "session"], how="semi").filter(IS_COMPLETE)
    computed = pl.coalesce("usage_input_tokens", "prompt_tokens") - pl.col(
        "usage_cache_read_tokens"
    ).fill_null(0)
    return int(calls.select(computed.clip(lower_bound=0).sum()).item() or 0)


def _by_outcome(facts: Facts) -> list[Row]:
    return (
        measured_tries(facts)
        .group_by("outcome", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("tries"),
            pl.col("index").n_unique().cast(pl.Int64).alias("calls"),
            pl.col("is_last").sum().cast(pl.Int64).alias("last_tries"),
        )
        .sort("tries", descending=True, maintain_order=True)
        .to_dicts()
    )


def _by_kind(facts: Facts) -> list[Row]:
    kinds = {"first": pl.col("is_first_call"), "returning": ~pl.col("is_first_call")}
    return _rows(facts, (({"kind": kind}, where) for kind, where in kinds.items()))


def _by_turn(facts: Facts) -> list[Row]:
    turn = pl.col("turn_index")
    buckets = (
        ({"turn_from": low, "turn_to": None if high is None else high - 1}, is_inside(turn, low, high))
        for low, high in buckets_of(TURN_EDGES)
    )
    return _rows(facts, buckets)


def _by_gap(facts: Facts) -> list[Row]:
    buckets = (
        ({"gap_from_s": low, "gap_to_s": high}, ~pl.col("is_first_call") & has_gap(low, high))
        for low, high in gap_buckets_s(facts.header.time_scale)
    )
    return _rows(facts, buckets)


def _rows(facts: Facts, groups: Iterable[tuple[Mapping[str, str | float | None], pl.Expr]]) -> list[Row]:
    tries = with_gaps(measured_tries(facts).select(_OF_TRIES), facts)
    rows = [{**names, **_admission(tries.filter(where))} for names, where in groups]
    return [row for row in rows if row["tries"]]


def _admission(tries: pl.DataFrame) -> Row:
    """How a group of calls fared; a first try that was stopped tells nothing of whether it was let in."""
    first = tries.filter((pl.col("number") == 1) & ~_IS_STOPPED)
    refused = first.filter(_IS_REFUSED).height
    interval = wilson(refused, first.height)
    let_in = tries.filter((pl.col("status") == 200) & pl.col("headers_ns").is_not_null())
    times_ms = ((let_in["headers_ns"] - let_in["sent_ns"]) / NS_PER_MS).cast(pl.Float64).to_numpy()
    return {
        "calls": first.height,
        "refused_calls": refused,
        "refused_ratio": None if interval is None else refused / first.height,
        "refused_low_ratio": None if interval is None else interval.low,
        "refused_high_ratio": None if interval is None else interval.high,
        "tries": tries.height,
        "refused_tries": tries.filter(_IS_REFUSED).height,
        "given_up_calls": tries.filter(_IS_REFUSED & pl.col("is_last")).height,
        "headers_p50_ms": quantile(times_ms, 0.5),
    }


_TRIES = "tries that were sent, of measured calls"
_WAITED = "tries of measured calls, those without a connection included"
_WAIT = "sum of the harness's waits after tries; of one that the end of the run cut, what had passed of it"
_TABLE = (
    "first tries, those of them refused with the share and its 95 % interval (Wilson), all tries, those refused, calls "
    "given up after a refusal, median of headers − sent of tries with status 200, per "
)
_REFUSED_TRIES = (
    "count of tries with status 429, 503 or 529, or whose stream ended in an error of such a code or with the word "
    "overload"
)
_STOPPED_RUN = "sessions of a run that was stopped or whose time was over"

# fmt: off
ADMISSION_DISTRIBUTIONS: tuple[Metric[Sample], ...] = defined(
    ("headers_to_token_ms", "First token after headers", "ms", "first_token − headers",
     "sent calls whose answer is a stream with a token", _headers_to_token),
    ("tries_per_call", "Tries of a call", "tries", "count of its tries", "measured calls with a try that was sent",
     _tries_per_call),
    ("session_backoff_s", "Session, time in backoff", "s", _WAIT, "sessions with a try, one without a connection included",
     _session_backoff),
)

ADMISSION_NUMBERS: tuple[Metric[Number], ...] = defined(
    ("tries", "Tries", "tries", "count", _TRIES, _count(pl.lit(value=True))),
    ("refused_tries", "Tries refused", "tries",
     _REFUSED_TRIES, _TRIES, _count(_IS_REFUSED)),
    ("refused_tries_ratio", "Share of tries refused", "", "refused_tries / tries", _TRIES,
     lambda facts: refused_tries_ratio(measured_tries(facts))),
    ("refused_once_calls", "Calls refused at least once", "calls", "count of calls with a refused try", _TRIES,
     _refused_once_calls),
    ("refused_once_ratio", "Share of calls refused at least once", "", "refused_once_calls / calls with a try", _TRIES,
     _refused_once_ratio),
    ("retried_calls", "Calls tried again", "calls", "count of calls with more than one try", _WAITED, _retried_calls),
    ("backoff_s", "Time in backoff", "s", _WAIT, _WAITED, _backoff_s),
    ("backoff_sessions", "Sessions stalled in backoff", "sessions",
     "count of sessions with a call that was waiting for its next try at the end", _STOPPED_RUN,
     _stalled(~_HAD_TRY & (pl.col("number") > 1))),
    ("waiting_sessions", "Sessions stalled without a token", "sessions",
     "count of sessions with a call that had been sent and had no token at the end", _STOPPED_RUN,
     _stalled(_HAD_TRY & pl.col("first_token_ns").is_null())),
    ("lost_prefill_tokens", "Prefill lost with lost sessions", "tokens",
     "sum of reported input tokens (planned, if none are reported) less reported cached tokens",
     "complete calls of lost sessions", _lost_prefill_tokens),
)

ADMISSION_TABLES: tuple[Metric[list[Row]], ...] = defined(
    ("tries_by_outcome", "Tries by outcome", "tries",
     "count, calls that had one, and how many were the call's last, per outcome", _TRIES, _by_outcome),
    ("admission_by_kind", "Admission of first and returning calls", "calls, tries",
     f"{_TABLE}kind: `first` if no call of the session had a token when it was first sent, else `returning`",
     _TRIES, _by_kind),
    ("admission_by_turn", "Admission by turn", "calls, tries", f"{_TABLE}bucket of the call's place in its session",
     _TRIES, _by_turn),
    ("admission_by_gap", "Admission of returning calls by the gap before", "calls, tries",
     f"{_TABLE}bucket of {PLAYED_GAP}", f"{_TRIES}, returning ones that waited for something", _by_gap),
)
# fmt: on
