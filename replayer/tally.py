"""Pure: running counts over the results of a run; the live view reads them while it goes on, the verdict at its end."""

from array import array
from collections import Counter

from aitrace.results import CallResult, waits_ns
from replayer.evidence import CallEvidence

_LATEST_CALLS = 200
"""Of so many calls a mean is taken: an endpoint whose cache is warm takes less time than at the start of a run."""


class Tally:
    """Counts over the results so far."""

    def __init__(self) -> None:
        self.complete_calls = 0
        self.failed_calls: Counter[str] = Counter()
        """By error kind."""
        self.stopped_calls = 0
        """Calls in flight when the run was stopped."""
        self.stale_connections = 0
        """Kept connections that turned out to have been closed by the server."""
        self.retried_calls = 0
        """Calls that were tried more than once."""
        self.earlier_tries: Counter[str] = Counter()
        """Tries that another one followed, by error kind."""
        self.backoff_ns = 0
        """Sum of the waits between tries."""
        self.unmeasured_calls: Counter[str] = Counter()
        """Calls that were sent and are in no figure of the endpoint, by phase."""
        self.unsent_calls: Counter[str] = Counter()
        """By reason."""
        self.service_ttft_ns = array("q")
        """From sent to first token."""
        self.user_ttft_ns = array("q")
        """From due to first token."""
        self.lateness_ns = array("q")
        """From due to sent."""
        self.evidence = CallEvidence()
        """What the run is judged by."""
        self.prompt_tokens = 0
        """Prompt tokens of calls whose answer told how many of them were cached."""
        self.cached_tokens = 0
        """How many of them were."""
        self.cache_reports = 0
        """Calls whose answer told it."""
        self._call_ns = array("q")
        """From due to end, of complete calls."""

    @property
    def sent_calls(self) -> int:
        """Results of calls that were sent."""
        return self.complete_calls + self.failed_calls.total() + self.stopped_calls

    @property
    def mean_call_ns(self) -> float | None:
        """Mean time from due to end of the latest complete calls; None if there are none."""
        latest_ns = self._call_ns[-_LATEST_CALLS:]
        return sum(latest_ns) / len(latest_ns) if latest_ns else None

    def add(self, result: CallResult) -> None:
        """Count one result in."""
        self.evidence.add(result)
        if result.unsent is not None:
            self.unsent_calls[result.unsent] += 1
            return
        self.stale_connections += result.stale_connections
        self.retried_calls += bool(result.attempts)
        self.earlier_tries.update(attempt.error for attempt in result.attempts)
        self.backoff_ns += sum(waits_ns(result))
        if result.error is None:
            self.complete_calls += 1
            self._call_ns.append((result.end_ns or 0) - (result.due_ns or 0))
        elif result.error == "client_abort":
            self.stopped_calls += 1
        else:
            self.failed_calls[result.error] += 1
        self._add_times(result)
        if result.phase == "measured":
            self._add_usage(result)
        else:
            self.unmeasured_calls[result.phase] += 1

    def _add_times(self, result: CallResult) -> None:
        if result.sent_ns is None or result.due_ns is None:
            return
        self.lateness_ns.append(result.sent_ns - (result.retry_due_ns or result.due_ns))
        if result.first_token_ns is not None and result.phase == "measured":
            self.service_ttft_ns.append(result.first_token_ns - result.sent_ns)
            self.user_ttft_ns.append(result.first_token_ns - result.due_ns)

    def _add_usage(self, result: CallResult) -> None:
        usage = result.usage
        if usage.input_tokens is not None and usage.cache_read_tokens is not None:
            self.prompt_tokens += usage.input_tokens
            self.cached_tokens += usage.cache_read_tokens
            self.cache_reports += 1
