"""Pure: what a call's prompt consists of, segment by segment."""

from collections.abc import Sequence

from aitrace.schema import Call, Segment, Trace


class PromptResolver:
    """Resolves `{base, keep, add}` prompts to segment ids; calls must be asked for in order of their ids at first.

    Resolved prompts are kept as tuples of segment ids: a session of 150 turns shares them by slicing, so this costs
    one machine word per segment and call.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._resolved: list[tuple[int, ...]] = []

    def segment_ids(self, call_id: int) -> tuple[int, ...]:
        """Segments of the prompt of `call_id`, in order."""
        while len(self._resolved) <= call_id:
            prompt = self._calls[len(self._resolved)].prompt
            kept = () if prompt.base is None else self._resolved[prompt.base][: prompt.keep]
            self._resolved.append(kept + prompt.add)
        return self._resolved[call_id]


def prompt_size(trace: Trace, segment_ids: Sequence[int]) -> int:
    """Sum of the sizes of these segments, in the trace's unit."""
    return sum(trace.segments[i].size for i in segment_ids)


def block_sizes(segment: Segment, block_size: int) -> list[int]:
    """Size of each block of a segment: all full but the last."""
    count = sum(n for _, n in segment.blocks)
    if count == 0:
        return []
    return [block_size] * (count - 1) + [segment.size - block_size * (count - 1)]
