"""Pure: which blocks of two played trees are the same text, as integer keys.

A block that only one tree of the trace contains gets a key of its own for every instance of that tree; a block that
several trees contain has one key for all. So playing a tree twice warms nothing but what real trees share. With
`share_system`, the leading tool definitions and system prompts of sessions of one harness and agent kind have the
same keys up to the shorter one, whatever the trace's ids say: for sources whose ids are local to one conversation.
The replayer writes text from these keys and the report's unlimited-cache bound matches on them, so both agree.
"""

from collections.abc import Iterator

from aitrace.prompts import PromptResolver
from aitrace.schema import Call, Segment, Trace

_INSTANCE_SHIFT = 40
_SYSTEM_NAMESPACE = 1 << 62
_PARTIAL_OFFSET = 1 << (_INSTANCE_SHIFT - 1)

Run = tuple[int, int]
"""First key and number of consecutive keys."""


class BlockIdentity:
    """Keys of blocks, by segment and instance of its tree."""

    def __init__(self, trace: Trace, *, share_system: bool = False) -> None:
        self._segments = trace.segments
        self._common = {block: block for block in _shared_blocks(trace)}
        if share_system:
            self._common.update(_system_keys(trace))

    def runs(self, segment_id: int, instance: int) -> tuple[Run, ...]:
        """Keys of the segment's blocks, in order, as runs.

        Args:
            instance: Which playing of the tree, from 1.
        """
        own = instance << _INSTANCE_SHIFT
        blocks = self._segments[segment_id].blocks
        if not self._common:
            return tuple((own + first, count) for first, count in blocks)
        runs: list[Run] = []
        for block in _block_ids(blocks):
            key = self._common.get(block, own + block)
            if runs and runs[-1][0] + runs[-1][1] == key:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((key, 1))
        return tuple(runs)


def _block_ids(runs: tuple[Run, ...]) -> Iterator[int]:
    for first, count in runs:
        yield from range(first, first + count)


def _shared_blocks(trace: Trace) -> set[int]:
    """Blocks that the prompts of more than one tree contain."""
    if trace.header.block_scope == "tree":
        return set()
    root_of_block: dict[int, int] = {}
    shared: set[int] = set()
    for root, segment in _segments_by_tree(trace):
        for block in _block_ids(segment.blocks):
            if root_of_block.setdefault(block, root) != root:
                shared.add(block)
    return shared


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


def _system_keys(trace: Trace) -> dict[int, int]:
    """Keys of the blocks of leading tool and system segments, by the place of the block in the segment and by what
    the segment is for. A block that a tree uses in two such segments keeps one key, so what the trace says of sharing
    inside a tree stays true; sessions of an unknown harness are left out.
    """
    keys: dict[int, int] = {}
    namespaces: dict[tuple[object, ...], int] = {}
    variants: dict[tuple[object, ...], dict[int, int]] = {}
    prompts = PromptResolver(trace.calls)
    for call in trace.calls:
        session = trace.sessions[call.session]
        if session.harness is None:
            continue
        for position, segment in enumerate(_leading_system(trace, prompts, call)):
            use = (session.harness, session.agent, call.call_class, segment.type, position)
            # A session may change its system prompt: its second one corresponds to the second one of other trees.
            in_tree = variants.setdefault((session.root, *use), {})
            if segment.id in in_tree:
                continue
            in_tree[segment.id] = len(in_tree)
            number = namespaces.setdefault((*use, in_tree[segment.id]), len(namespaces))
            base = _SYSTEM_NAMESPACE + (number << _INSTANCE_SHIFT)
            full = segment.size // trace.header.block_size
            for offset, block in enumerate(_block_ids(segment.blocks)):
                # A partial block must not be taken for the full block of a longer prompt.
                keys.setdefault(block, base + (offset if offset < full else _PARTIAL_OFFSET + segment.size))
    return keys


def _leading_system(trace: Trace, prompts: PromptResolver, call: Call) -> Iterator[Segment]:
    for segment_id in prompts.segment_ids(call.id):
        segment = trace.segments[segment_id]
        if segment.type not in ("tool_definition", "system"):
            return
        yield segment
