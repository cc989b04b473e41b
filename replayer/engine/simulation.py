"""Pure: what an engine does when. Requests and the time go in, what is due comes out.

A request waits until one of `batch` places and enough cache blocks are free, in order of arrival; then it waits for
the prefill unit, which computes one prompt after another at `prefill_tokens_per_s`, without the blocks that are
cached when its turn comes. The end of prefill is its first token; token i follows i / `decode_tokens_per_s` later.
Prefill does not slow decoding. Blocks for prompt and answer are reserved on admission, so nothing is preempted.

A request that finds the queue full is refused, or held outside it, in order of arrival, for as long as `hold_s` says.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from aitrace.units import NS_PER_S
from replayer.engine.options import EngineOptions
from replayer.engine.prefix_cache import Lease, PrefixCache

Refusal = Literal["queue_full", "too_long"]
Stage = Literal["held", "waiting", "prefill", "decode", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the engine is to compute for one request."""

    id: int
    """Distinct for each request."""
    prompt_tokens: int
    """Tokens of the prompt, at least 1."""
    output_tokens: int
    """Tokens to generate; 0 ends the request where the first would have come."""
    blocks: Sequence[int]
    """Keys of the full blocks of prompt and answer; the answer's last token is never computed on and not counted."""
    stall_after_tokens: int | None = None
    """Tokens after which all further ones are late by `stall_ns`; None = no stall."""
    stall_ns: int = 0
    """How late they are, ns."""


class TakenIn(NamedTuple):
    """A request that was held has a place in the queue."""

    id: int
    at_ns: int


class HoldEnded(NamedTuple):
    """A request was held for as long as it may be; it is forgotten."""

    id: int
    at_ns: int


class Admitted(NamedTuple):
    """A request has a place in the batch."""

    id: int
    at_ns: int


class PrefillStarted(NamedTuple):
    """A prompt's turn has come; its cache hits are known."""

    id: int
    at_ns: int
    cached_tokens: int


class TokensDue(NamedTuple):
    """Tokens `first` to before `end` are to be written now."""

    id: int
    first: int
    end: int
    is_last: bool


Event = TakenIn | HoldEnded | Admitted | PrefillStarted | TokensDue


class _Sequence:
    """A request inside the engine. Its times mean something from the stage on that sets them."""

    __slots__ = ("admitted_ns", "first_ns", "held_until_ns", "lease", "sent", "stage", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.lease = Lease([], 0)
        self.stage: Stage = "waiting"
        self.held_until_ns: int | None = None
        self.admitted_ns = 0
        self.first_ns = 0
        self.sent = 0


class Simulation:
    """The engine's state. Every method is handed the time, which must not go back."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._prefill_ns = _ns_per_token(options.prefill_tokens_per_s)
        self._decode_ns = _ns_per_token(options.decode_tokens_per_s)
        self._cache = PrefixCache(options.cache_blocks)
        self._sequences: dict[int, _Sequence] = {}
        self._held: deque[_Sequence] = deque()
        self._waiting: deque[_Sequence] = deque()
        self._running = 0
        self._to_prefill: deque[_Sequence] = deque()
        self._prefilling: _Sequence | None = None
        self._due: list[tuple[int, int, _Sequence]] = []
        self._pushes = 0
        self._events: list[Event] = []

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return self._running

    @property
    def waiting(self) -> int:
        """Requests without a place in the batch, held ones included."""
        return len(self._waiting) + len(self._held)

    @property
    def cache(self) -> PrefixCache:
        """The cache, to be read only."""
        return self._cache

    def submit(
        self, work: Work, now_ns: int, *, is_protected: bool = False
    ) -> Refusal | Literal["held"] | None:
        """Take in a request, hold it, or say why not. What it starts is told by the next `advance`.

        Args:
            is_protected: Take it in however full the queue is.
        """
        if not self._cache.fits(self._total_blocks(work)):
            return "too_long"
        self._run(now_ns)
        sequence = _Sequence(work)
        # Who comes later does not overtake those that are held.
        if (self._held and not is_protected) or not self._enqueue(
            sequence, now_ns, is_protected=is_protected
        ):
            if self._options.hold_s is None:
                return "queue_full"
            self._hold(sequence, now_ns)
            return "held"
        self._sequences[work.id] = sequence
        return None

    def _enqueue(self, sequence: _Sequence, now_ns: int, *, is_protected: bool = False) -> bool:
        """Put a request into the queue, and into the batch if there is a place; False if the queue has no room."""
        self._waiting.append(sequence)
        self._admit_waiting(now_ns)
        limit = self._options.queue
        is_over = sequence.stage == "waiting" and limit is not None and len(self._waiting) > limit
        if is_over and not is_protected:
            self._waiting.pop()
            return False
        return True

    def _hold(self, sequence: _Sequence, now_ns: int) -> None:
        hold_s = self._options.hold_s
        sequence.stage = "held"
        if hold_s is not None and math.isfinite(hold_s):
            sequence.held_until_ns = now_ns + round(hold_s * NS_PER_S)
        self._held.append(sequence)
        self._sequences[sequence.work.id] = sequence

    def _release_held(self, now_ns: int) -> None:
        """Take in what is held as long as the queue has room, the first come first."""
        while self._held:
            sequence = self._held.popleft()
            sequence.stage = "waiting"
            if not self._enqueue(sequence, now_ns):
                sequence.stage = "held"
                self._held.appendleft(sequence)
                return
            self._events.append(TakenIn(sequence.work.id, now_ns))

    def _end_holds(self, now_ns: int) -> None:
        # All are held for the same time, so the first to come is the first to go.
        while self._held and (until_ns := self._held[0].held_until_ns) is not None and until_ns <= now_ns:
            sequence = self._held.popleft()
            sequence.stage = "ended"
            del self._sequences[sequence.work.id]
            self._events.append(HoldEnded(sequence.work.id, now_ns))

    def cancel(self, work_id: int, now_ns: int) -> None:
        """Forget a request and free what it holds. What that starts is told by the next `advance`."""
        sequence = self._sequences.get(work_id)
        if sequence is None:
            return
        if sequence.stage in ("held", "waiting"):
            del self._sequences[work_id]
            (self._held if sequence.stage == "held" else self._waiting).remove(sequence)
        else:
            self._end(sequence)
        if self._prefilling is sequence:
            self._prefilling = None
        elif sequence in self._to_prefill:
            self._to_prefill.remove(sequence)
        self._admit(now_ns)

    def next_at_ns(self) -> int | None:
        """When something will be due without a new request; None if nothing will."""
        due_ns = self._due[0][0] if self._due else None
        held_ns = self._held[0].held_until_ns if self._held else None
        return min((at_ns for at_ns in (due_ns, held_ns) if at_ns is not None), default=None)

    def advance(self, now_ns: int) -> list[Event]:
        """All that has come due since the last time, in order."""
        self._run(now_ns)
        events, self._events = self._events, []
        return events

    def _run(self, now_ns: int) -> None:
        while self._due and self._due[0][0] <= now_ns:
            at_ns, _, sequence = heapq.heappop(self._due)
            if sequence.stage == "ended":
                continue
            if sequence.stage == "prefill":
                self._finish_prefill(sequence, at_ns)
            self._tell_tokens(sequence, now_ns)
        self._end_holds(now_ns)

    def _admit(self, now_ns: int) -> None:
        self._admit_waiting(now_ns)
        self._release_held(now_ns)

    def _admit_waiting(self, now_ns: int) -> None:
        while self._waiting and self._running < self._options.batch:
            sequence = self._waiting[0]
            lease = self._cache.admit(self._shareable(sequence.work), self._total_blocks(sequence.work))
            if lease is None:
                break
            self._waiting.popleft()
            sequence.lease = lease
            sequence.stage, sequence.admitted_ns = "prefill", now_ns
            self._running += 1
            self._to_prefill.append(sequence)
            self._events.append(Admitted(sequence.work.id, now_ns))
        self._start_prefill(now_ns)

    def _start_prefill(self, free_ns: int) -> None:
        if self._prefilling is not None or not self._to_prefill:
            return
        sequence = self._to_prefill.popleft()
        work, lease = sequence.work, sequence.lease
        at_ns = max(free_ns, sequence.admitted_ns)
        self._cache.extend(lease, self._shareable(work))
        cached_tokens = len(lease.pinned) * self._options.block_size
        self._prefilling = sequence
        self._events.append(PrefillStarted(work.id, at_ns, cached_tokens))
        self._push(at_ns + round((work.prompt_tokens - cached_tokens) * self._prefill_ns), sequence)

    def _finish_prefill(self, sequence: _Sequence, at_ns: int) -> None:
        prompt_blocks = sequence.work.prompt_tokens // self._options.block_size
        self._cache.register(sequence.lease, sequence.work.blocks[:prompt_blocks])
        sequence.stage, sequence.first_ns = "decode", at_ns
        self._prefilling = None
        # From the time at which prefill was over by the model, so that late wakes do not add up.
        self._start_prefill(at_ns)

    def _tell_tokens(self, sequence: _Sequence, now_ns: int) -> None:
        work = sequence.work
        end = self._tokens_until(sequence, now_ns)
        is_last = end == work.output_tokens
        if is_last or end > sequence.sent:
            self._events.append(TokensDue(work.id, sequence.sent, end, is_last))
        sequence.sent = end
        if is_last:
            self._cache.register(sequence.lease, work.blocks)
            self._end(sequence)
            self._admit(now_ns)
        else:
            self._push(self._on_step(self._token_ns(sequence, end)), sequence)

    def _end(self, sequence: _Sequence) -> None:
        sequence.stage = "ended"
        self._cache.release(sequence.lease)
        self._running -= 1
        del self._sequences[sequence.work.id]

    def _token_ns(self, sequence: _Sequence, index: int) -> int:
        """When token `index` is due."""
        work = sequence.work
        late = work.stall_after_tokens is not None and index >= work.stall_after_tokens
        return sequence.first_ns + math.ceil(index * self._decode_ns) + (work.stall_ns if late else 0)

    def _tokens_until(self, sequence: _Sequence, now_ns: int) -> int:
        """Number of tokens due by `now_ns`."""
        low, high = sequence.sent, sequence.work.output_tokens
        # The usual case, one token more, is asked first: this runs for every event that is streamed.
        middle = min(low + 1, high - 1)
        while low < high:
            if self._token_ns(sequence, middle) <= now_ns:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def _on_step(self, at_ns: int) -> int:
        step_ns = self._options.step_ns
        return at_ns if step_ns == 0 else -(-at_ns // step_ns) * step_ns

    def _push(self, at_ns: int, sequence: _Sequence) -> None:
        self._pushes += 1
        heapq.heappush(self._due, (at_ns, self._pushes, sequence))

    def _shareable(self, work: Work) -> Sequence[int]:
        """Blocks that may come from the cache: the last token of a prompt is always computed."""
        return work.blocks[: (work.prompt_tokens - 1) // self._options.block_size]

    def _total_blocks(self, work: Work) -> int:
        return -(-(work.prompt_tokens + max(0, work.output_tokens - 1)) // self._options.block_size)


def _ns_per_token(tokens_per_s: float | None) -> float:
    return 0.0 if tokens_per_s is None else NS_PER_S / tokens_per_s
