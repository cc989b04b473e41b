"""Pure: which blocks of two played trees are the same text, as integer keys.

A block that only one tree of the trace contains gets a key of its own for every instance of that tree; a block that
several trees contain has one key for all. So playing a tree twice warms nothing but what real trees share. With
`share_system`, tool definitions and system prompts of sessions of the same harness and agent kind have the same
keys up to the shorter one, whatever the trace's ids say: for sources whose ids are local to one conversation.
The replayer writes text from these keys and the report's unlimited-cache bound matches on them, so both agree.
"""

from aitrace.prompts import PromptResolver
from aitrace.schema import Segment, Trace

_INSTANCE_SHIFT = 40
_HARNESS_NAMESPACE = 1 << 62
_PARTIAL_OFFSET = 1 << (_INSTANCE_SHIFT - 1)

Run = tuple[int, int]
"""First key and number of consecutive keys."""


class BlockIdentity:
    """Keys of blocks, by segment and instance of its tree."""

    def __init__(self, trace: Trace, *, share_system: bool = False) -> None:
        self._segments = trace.segments
        self._block_size = trace.header.block_size
        self._shared = _shared_blocks(trace)
        self._system_bases = _system_bases(trace) if share_system else {}

    def runs(self, segment_id: int, instance: int) -> tuple[Run, ...]:
        """Keys of the segment's blocks, in order, as runs.

        Args:
            instance: Which playing of the tree, from 1.
        """
        base = self._system_bases.get(segment_id)
        if base is not None:
            return self._system_runs(self._segments[segment_id], base)
        own = instance << _INSTANCE_SHIFT
        runs: list[Run] = []
        for first, count in self._segments[segment_id].blocks:
            runs.extend(_split_by_sharing(first, count, own, self._shared))
        return tuple(runs)

    def _system_runs(self, segment: Segment, base: int) -> tuple[Run, ...]:
        full, rest = divmod(segment.size, self._block_size)
        runs = [(base, full)] if full else []
        if rest:
            # A partial block must not be taken for the full block of a longer prompt.
            runs.append((base + _PARTIAL_OFFSET + rest, 1))
        return tuple(runs)


def _split_by_sharing(first: int, count: int, own: int, shared: frozenset[int]) -> list[Run]:
    if not shared:
        return [(own + first, count)]
    runs: list[Run] = []
    for block in range(first, first + count):
        key = block if block in shared else own + block
        if runs and runs[-1][0] + runs[-1][1] == key:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((key, 1))
    return runs


def _shared_blocks(trace: Trace) -> frozenset[int]:
    """Blocks that the prompts of more than one tree contain."""
    if trace.header.block_scope == "tree":
        return frozenset()
    root_of_block: dict[int, int] = {}
    shared: set[int] = set()
    for root, segment in _segments_by_tree(trace):
        for first, count in segment.blocks:
            for block in range(first, first + count):
                if root_of_block.setdefault(block, root) != root:
                    shared.add(block)
    return frozenset(shared)


def _segments_by_tree(trace: Trace) -> list[tuple[int, Segment]]:
    """Each pair of a tree and a segment it uses, once; trees by root session id."""
    prompts = PromptResolver(trace.calls)
    seen: dict[tuple[int, int], None] = {}
    for call in trace.calls:
        root = trace.sessions[call.session].root
        kept = (
            call.prompt.base is not None
            and trace.sessions[trace.calls[call.prompt.base].session].root == root
        )
        segment_ids = call.prompt.add if kept else prompts.segment_ids(call.id)
        for segment_id in segment_ids:
            seen.setdefault((root, segment_id))
    return [(root, trace.segments[segment_id]) for root, segment_id in seen]


def _system_bases(trace: Trace) -> dict[int, int]:
    """First key of each tool or system segment, common to all sessions of one harness and agent kind."""
    namespaces: dict[tuple[str | None, str | None, str, int], int] = {}
    bases: dict[int, int] = {}
    prompts = PromptResolver(trace.calls)
    for call in trace.calls:
        session = trace.sessions[call.session]
        for position, segment_id in enumerate(prompts.segment_ids(call.id)):
            segment = trace.segments[segment_id]
            if segment.type not in ("tool_definition", "system"):
                break
            if segment_id not in bases:
                name = (session.harness, session.agent, segment.type, position)
                number = namespaces.setdefault(name, len(namespaces))
                bases[segment_id] = _HARNESS_NAMESPACE + (number << _INSTANCE_SHIFT)
    return bases
