"""Pure: what a call's prompt consists of, segment by segment."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain
from typing import Protocol, runtime_checkable

from aitrace.schema import Call, Segment, Trace

_KEPT_IDS = 2**20
"""Most segment ids that are kept for prompts that continue them."""


PromptParts = tuple[int | None, int, Sequence[int]]
"""Call whose prompt is continued, None if nothing is kept; segments kept of it; segments added."""


@runtime_checkable
class HasPromptParts(Protocol):
    """A sequence of calls that tells their prompts without decoding the calls."""

    def prompt_parts(self, call_id: int) -> PromptParts:
        """What the prompt of a call is made of."""


class PromptResolver:
    """Resolves `{base, keep, add}` prompts to segment ids, in any order.

    The prompts resolved last are kept, so that one which continues another costs what it adds; how many is bounded.
    """

    def __init__(self, calls: Sequence[Call], *, kept_ids: int = _KEPT_IDS) -> None:
        self._calls = calls
        self._parts = calls.prompt_parts if isinstance(calls, HasPromptParts) else self._decoded_parts
        self._kept_ids = kept_ids
        self._resolved: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._held_ids = 0

    def segment_ids(self, call_id: int) -> tuple[int, ...]:
        """Segments of the prompt of `call_id`, in order."""
        known = self._resolved.get(call_id)
        if known is not None:
            self._resolved.move_to_end(call_id)
            return known
        base, keep, added = self._parts(call_id)
        kept: tuple[int, ...] = ()
        parts = [added]
        while base is not None:
            known = self._resolved.get(base)
            if known is not None:
                kept = known[:keep]
                break
            base, base_keep, added = self._parts(base)
            parts.append(added[: max(keep - base_keep, 0)])
            keep = min(keep, base_keep)
        segment_ids = kept + tuple(chain.from_iterable(reversed(parts)))
        self._keep(call_id, segment_ids)
        return segment_ids

    def _decoded_parts(self, call_id: int) -> PromptParts:
        prompt = self._calls[call_id].prompt
        return prompt.base, prompt.keep, prompt.add

    def _keep(self, call_id: int, segment_ids: tuple[int, ...]) -> None:
        self._resolved[call_id] = segment_ids
        self._held_ids += len(segment_ids)
        while self._held_ids > self._kept_ids and len(self._resolved) > 1:
            self._held_ids -= len(self._resolved.popitem(last=False)[1])


def prompt_size(trace: Trace, segment_ids: Sequence[int]) -> int:
    """Sum of the sizes of these segments, in the trace's unit."""
    return sum(trace.segments[i].size for i in segment_ids)


def block_sizes(segment: Segment, block_size: int) -> list[int]:
    """Size of each block of a segment: all full but the last."""
    count = sum(n for _, n in segment.blocks)
    if count == 0:
        return []
    return [block_size] * (count - 1) + [segment.size - block_size * (count - 1)]
