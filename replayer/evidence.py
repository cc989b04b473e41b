"""Pure: what a replay is judged by, counted while it goes on: the numbers that the rules of `aitrace.doubts` ask for.

Names and populations are those of docs/metrics.md. Not among them is what needs the trace and all calls at once: what an
unlimited cache could have served, and whether calls were held.
"""

from array import array
from collections import Counter

from aitrace.doubts import Number
from aitrace.outcomes import outcome_of
from aitrace.quantiles import quantile
from aitrace.results import ENGINE_COUNTERS, Attempt, CallResult, RunEnd, Scrape
from aitrace.units import NS_PER_MS, NS_PER_S


def client_lateness_ns(result: CallResult) -> int | None:
    """Time from due to sent of the last try that was the client's own: opening a connection is the network's.

    None for a call of which nothing was sent.
    """
    due_ns = result.due_ns if result.retry_due_ns is None else result.retry_due_ns
    if result.sent_ns is None or due_ns is None:
        return None
    lateness_ns = result.sent_ns - due_ns
    if result.new_connection and result.connected_ns is not None and result.dispatched_ns is not None:
        lateness_ns -= result.connected_ns - result.dispatched_ns
    return lateness_ns


class CallEvidence:
    """Counts over the calls so far."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        """By name of the number."""
        self._lateness_ns = array("q")
        """Of measured calls."""
        self._size_errors = array("d")
        """How far each reported prompt was off plan, as a share of the plan."""
        self._warm_up_sessions: set[tuple[int, int]] = set()
        """(instance, session) of sessions with a call in the warm-up, which are in no number."""
        self._lost_sessions: set[tuple[int, int]] = set()
        self._cut_sessions: set[tuple[int, int]] = set()

    @property
    def lateness_ns(self) -> "array[int]":
        """How late each measured call went out, without the opening of connections."""
        return self._lateness_ns

    def add(self, result: CallResult) -> None:
        """Count one result in."""
        if result.unsent is None:
            self._add_tries(result)
        if result.phase != "prime":
            self._add_session(result)
        if result.phase == "measured":
            self._add_measured(result)
        else:
            self._counts["unmeasured_calls"] += 1
            self._counts["prime_calls"] += result.phase == "prime"
            self._counts["failed_unmeasured_calls"] += _has_failed(result)
            self._counts["complete_warm_up_calls"] += result.phase == "warm_up" and _is_complete(result)

    def numbers(self, *, lateness_bound_ms: float) -> dict[str, Number]:
        """What is known of the calls so far."""
        counts = self._counts
        lost = self._lost_sessions - self._warm_up_sessions
        late = sum(late_ns > lateness_bound_ms * NS_PER_MS for late_ns in self._lateness_ns)
        complete, sized = counts["complete_calls"], counts["planned_output_tokens"]
        return {
            **{name: counts[name] for name in _COUNTS},
            "late_calls": late,
            "unmeasured_sessions": len(self._warm_up_sessions),
            "lost_sessions": len(lost),
            "censored_sessions": len(self._cut_sessions - self._warm_up_sessions - lost),
            "usage_ratio": counts["usage_calls"] / complete if complete else None,
            "cache_usage_ratio": counts["cache_usage_calls"] / complete if complete else None,
            "output_size_ratio": counts["output_tokens"] / sized if sized else None,
            "prompt_size_error_ratio": quantile(self._size_errors, 0.5) if self._size_errors else None,
        }

    def _add_tries(self, result: CallResult) -> None:
        tries: tuple[CallResult | Attempt, ...] = (*result.attempts, result)
        self._counts["tries"] += len(tries)
        self._counts["failed_tries"] += sum(_has_failed(each) for each in tries)
        self._counts["unreachable_tries"] += sum(each.error == "connect" for each in tries)

    def _add_session(self, result: CallResult) -> None:
        session = (result.instance, result.session)
        if result.phase == "warm_up":
            self._warm_up_sessions.add(session)
        if result.unsent == "session_lost" or (_has_failed(result) and result.call_class != "auxiliary"):
            self._lost_sessions.add(session)
        elif result.unsent is not None or result.error == "client_abort":
            self._cut_sessions.add(session)

    def _add_measured(self, result: CallResult) -> None:
        counts = self._counts
        counts["stopped_calls"] += result.error == "client_abort"
        counts["refused_calls"] += result.error == "refused"
        counts["overload_calls"] += outcome_of(result) in ("refused", "refused_in_stream")
        counts["malformed_calls"] += result.error == "malformed"
        counts["failed_calls"] += _has_failed(result) and result.error != "refused"
        if result.sent_ns is None:
            return
        counts["sent_calls"] += 1
        counts["first_token_calls"] += result.first_token_ns is not None
        counts["unparsed_events"] += result.unparsed_events
        lateness_ns = client_lateness_ns(result)
        if lateness_ns is not None:
            self._lateness_ns.append(lateness_ns)
        if _is_complete(result):
            self._add_complete(result)

    def _add_complete(self, result: CallResult) -> None:
        counts, usage = self._counts, result.usage
        counts["complete_calls"] += 1
        counts["usage_calls"] += usage.input_tokens is not None
        counts["cache_usage_calls"] += usage.cache_read_tokens is not None
        counts["contradicting_usage_calls"] += _exceeds(
            usage.cache_read_tokens, usage.input_tokens
        ) or _exceeds(usage.reasoning_tokens, usage.output_tokens)
        if usage.input_tokens is not None and result.prompt_tokens > 0:
            self._size_errors.append(abs(usage.input_tokens / result.prompt_tokens - 1))
        if usage.output_tokens is not None:
            counts["output_tokens"] += usage.output_tokens
            counts["planned_output_tokens"] += result.output_tokens


class ScrapeEvidence:
    """Counts over the readings of engines' metrics so far."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}
        """By url."""

    def add(self, scrape: Scrape) -> None:
        """Count one reading in; those of one page come in order of time."""
        self._pages.setdefault(scrape.url, _Page(scrape.at_ns)).add(scrape)

    def numbers(self, end: RunEnd) -> dict[str, Number]:
        """What is known of the readings of a run that has ended."""
        pages = self._pages.values()
        holes_ns = [page.longest_hole_ns(end.ended_ns) for page in pages]
        gaps_ns = [gap_ns for page in pages for gap_ns in page.gaps_ns]
        return {
            "scrapes": sum(page.readings for page in pages),
            "failed_scrapes": sum(page.failed for page in pages),
            "engine_restarts": sum(page.restarts for page in pages),
            "longest_scrape_gap_s": max(holes_ns) / NS_PER_S if any(holes_ns) else None,
            "median_scrape_gap_s": quantile(gaps_ns, 0.5) / NS_PER_S if gaps_ns else None,
        }


class _Page:
    """Readings of one page; times in ns."""

    def __init__(self, first_ns: int) -> None:
        self.readings = self.failed = self.restarts = 0
        self.gaps_ns = array("q")
        """From each reading to the next, failed or not."""
        self._tried_ns = self._read_ns = first_ns
        """When it was last tried, and last read."""
        self._longest_ns = 0
        self._values: dict[str, float] | None = None
        """As they were last read; None before that."""

    def add(self, scrape: Scrape) -> None:
        if self.readings:
            self.gaps_ns.append(scrape.at_ns - self._tried_ns)
        self.readings += 1
        self._tried_ns = scrape.at_ns
        if scrape.error is not None:
            self.failed += 1
            return
        self._longest_ns = max(self._longest_ns, scrape.at_ns - self._read_ns)
        self._read_ns = scrape.at_ns
        before, self._values = self._values or {}, scrape.values
        self.restarts += any(scrape.values.get(name, 0) < before.get(name, 0) for name in ENGINE_COUNTERS)

    def longest_hole_ns(self, ended_ns: int) -> int:
        """Longest time without a reading that succeeded, from the first one tried to the end."""
        return max(self._longest_ns, max(self._tried_ns, ended_ns) - self._read_ns)


_COUNTS = (
    "unmeasured_calls",
    "prime_calls",
    "failed_unmeasured_calls",
    "complete_warm_up_calls",
    "tries",
    "failed_tries",
    "unreachable_tries",
    "sent_calls",
    "complete_calls",
    "refused_calls",
    "overload_calls",
    "malformed_calls",
    "failed_calls",
    "stopped_calls",
    "first_token_calls",
    "unparsed_events",
    "contradicting_usage_calls",
)
"""Numbers that are counts of what was added."""


def _is_complete(result: CallResult) -> bool:
    return result.sent_ns is not None and result.error is None and result.end_ns is not None


def _has_failed(result: CallResult | Attempt) -> bool:
    return result.error not in (None, "client_abort")


def _exceeds(part: int | None, whole: int | None) -> bool:
    return part is not None and whole is not None and part > whole
