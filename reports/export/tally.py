"""Pure: the sessions of a run, counted while its calls pass by, so that the calls need not be kept."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from aitrace.results import CallResult
from reports.export.links import TraceLinks
from reports.export.phases import span_ns

_CUT = ("interrupted", "duration", "worker_lost")


@dataclass(slots=True, kw_only=True)
class SessionTally:
    """One session of a run, so far."""

    instance: int
    """Which playing of its tree, from 1."""
    session: int
    """Session of the trace."""
    root: int
    """Root session of its tree."""
    calls: int = 0
    """Calls that left a line, those that primed prompts excepted."""
    sent_calls: int = 0
    """Of these, sent."""
    complete_calls: int = 0
    """Of these, answered completely."""
    unsent_calls: int = 0
    """Calls that were not sent, for whatever reason."""
    fatal_calls: int = 0
    """Calls that failed and that the session cannot do without, or that were not sent because of one."""
    warm_up_calls: int = 0
    """Calls of the warm-up."""
    input_tokens: int = 0
    """Reported, sum over complete calls."""
    output_tokens: int = 0
    """Reported, sum over complete calls."""
    due_ns: int | None = None
    """When its first call was due; None if none was."""
    start_ns: int | None = None
    """When its first call began; None if none did."""
    end_ns: int | None = None
    """When its last call ended; None if none began."""

    def add(self, call: CallResult) -> None:
        """Count one call."""
        self._span(call)
        if call.phase == "prime":
            return
        self.calls += 1
        self.sent_calls += call.sent_ns is not None
        self.unsent_calls += call.unsent is not None
        self.warm_up_calls += call.phase == "warm_up"
        if call.due_ns is not None:
            self.due_ns = call.due_ns if self.due_ns is None else min(self.due_ns, call.due_ns)
        is_failure = call.error not in (None, "client_abort") and call.call_class != "auxiliary"
        self.fatal_calls += is_failure or call.unsent == "session_lost"
        if is_complete(call):
            self.complete_calls += 1
            self.input_tokens += call.usage.input_tokens or 0
            self.output_tokens += call.usage.output_tokens or 0

    def _span(self, call: CallResult) -> None:
        span = span_ns(call)
        if span is not None:
            self.start_ns = span[0] if self.start_ns is None else min(self.start_ns, span[0])
            self.end_ns = span[1] if self.end_ns is None else max(self.end_ns, span[1])


def is_complete(call: CallResult) -> bool:
    """Whether a call was sent, ended, and had no error."""
    return call.sent_ns is not None and call.error is None and call.end_ns is not None and call.unsent is None


@dataclass(slots=True, kw_only=True)
class RunTally:
    """All sessions of a run, so far."""

    sessions: dict[tuple[int, int], SessionTally] = field(default_factory=dict)
    """By instance and session, in order of appearance."""
    calls: int = 0
    """Calls that left a line."""
    last_ns: int = 0
    """Latest end of a call."""

    def add(self, call: CallResult) -> SessionTally:
        """Count one call; gives its session."""
        self.calls += 1
        key = (call.instance, call.session)
        tally = self.sessions.get(key)
        if tally is None:
            tally = SessionTally(instance=call.instance, session=call.session, root=call.root)
            self.sessions[key] = tally
        tally.add(call)
        self.last_ns = max(self.last_ns, tally.end_ns or 0)
        return tally

    def passing(self, calls: Iterable[CallResult]) -> Iterator[CallResult]:
        """The calls as they are, each counted."""
        for call in calls:
            self.add(call)
            yield call

    def whole(self, planned_calls: int, links: TraceLinks | None) -> Iterator[SessionTally]:
        """Sessions of trees of which every planned call left a line: all of them, unless the run was cut."""
        if self.calls >= planned_calls:
            yield from self.sessions.values()
            return
        lines = Counter[tuple[int, int]]()
        for tally in self.sessions.values():
            lines[tally.instance, tally.root] += tally.calls
        wanted = {} if links is None else links.planned_calls
        for tally in self.sessions.values():
            if lines[tally.instance, tally.root] >= wanted.get(tally.root, self.calls + 1):
                yield tally
