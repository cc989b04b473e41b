"""Pure: the busiest time of a plan, if every answer takes its recorded time, and how many processes it takes.

A process has room for `CALLS_PER_S` and `EVENTS_PER_S`: each takes less than half of a core in bench/peers.py, since an
endpoint may answer faster than the recorded one. What needs no more than that is played by one process.
"""

from collections import Counter
from dataclasses import dataclass
from math import ceil

from aitrace.units import NS_PER_S
from replayer.planning.plan import Plan
from replayer.planning.shards import most_parts

CALLS_PER_S = 1_500
EVENTS_PER_S = 20_000
_UNKNOWN_STREAM_TOKENS_PER_S = 100
"""Of a stream whose duration is not known: what a coding model serves to one session when it is not busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What a client has to do in the busiest second."""

    calls_per_s: float
    """Calls that become due in the second in which most do."""
    events_per_s: float
    """Tokens that arrive in the second in which most do."""
    streams: int
    """Answers that are open at once in that second, at least 1."""
    prompt_tokens: int
    """Median prompt of the plan, tokens."""
    output_tokens: int
    """Median answer of the plan, tokens."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of one stream."""
        return self.events_per_s / self.streams


def peak_of(plan: Plan) -> Peak:
    """The busiest time of a plan.

    Where the plan cannot tell when a call is due, all lanes are taken to stream at once.
    """
    recording = plan.playings.recording
    seconds = _Seconds()
    prompts: Counter[int] = Counter()
    answers: Counter[int] = Counter()
    undated = 0
    for tree in plan.trees:
        if tree.planned_ns is not None:
            seconds.pass_to(tree.planned_ns // NS_PER_S)
        for call in plan.outline_of(tree):
            tokens = 1 if call.is_prime else recording.output_tokens[call.call]
            prompts[recording.prompt_tokens[call.call]] += 1
            answers[tokens] += 1
            if tree.planned_ns is None or call.due_ns is None:
                undated += 1
            else:
                end_ns = None if call.end_ns is None else tree.planned_ns + call.end_ns
                seconds.add(tree.planned_ns + call.due_ns, end_ns, tokens)
    seconds.pass_to(None)
    streams, events, calls = max(1, seconds.streams), seconds.most_tokens, seconds.most_calls
    if undated or not plan.call_count:
        lanes = plan.lanes or len(plan.trees)
        streams = max(streams, lanes)
        events = max(events, lanes * _UNKNOWN_STREAM_TOKENS_PER_S)
        calls = max(calls, 1)
    return Peak(
        calls_per_s=float(calls),
        events_per_s=float(events),
        streams=streams,
        prompt_tokens=_median(prompts),
        output_tokens=_median(answers),
    )


def workers_for(plan: Plan, peak: Peak, cores: int) -> int:
    """How many processes play a plan unless the user says otherwise: what its peak needs, at most one for each core."""
    needed = peak.calls_per_s / CALLS_PER_S + peak.events_per_s / EVENTS_PER_S
    return max(1, min(cores, most_parts(plan), ceil(needed)))


class _Seconds:
    """What happens in each second, of those that are not over."""

    def __init__(self) -> None:
        self.most_calls = 0
        """Calls that become due in the second in which most do."""
        self.most_tokens = 0.0
        """Tokens that arrive in the second in which most do."""
        self.streams = 0
        """Answers that are open in that second."""
        self._calls: dict[int, int] = {}
        self._tokens: dict[int, float] = {}
        self._streams: dict[int, int] = {}

    def add(self, start_ns: int, end_ns: int | None, tokens: int) -> None:
        """Count in a call, its answer spread over the seconds of its recorded time, or over one."""
        end_ns = start_ns + NS_PER_S if end_ns is None else max(start_ns, end_ns)
        first, last = start_ns // NS_PER_S, end_ns // NS_PER_S
        share = tokens / (last - first + 1)
        self._calls[first] = self._calls.get(first, 0) + 1
        for second in range(first, last + 1):
            self._tokens[second] = self._tokens.get(second, 0.0) + share
            self._streams[second] = self._streams.get(second, 0) + 1

    def pass_to(self, second: int | None) -> None:
        """Nothing will be added before a second, or at all."""
        for over in sorted(one for one in self._tokens if second is None or one < second):
            self.most_calls = max(self.most_calls, self._calls.pop(over, 0))
            tokens, streams = self._tokens.pop(over), self._streams.pop(over)
            if tokens > self.most_tokens:
                self.most_tokens, self.streams = tokens, streams


def _median(counts: Counter[int]) -> int:
    """The median, the lower one of two, of values that come so often; at least 1."""
    before, middle = 0, (counts.total() - 1) // 2
    for value in sorted(counts):
        before += counts[value]
        if before > middle:
            return max(1, value)
    return 1
