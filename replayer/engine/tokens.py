"""Pure: prompts as tokens without a tokenizer, and the keys of their cache blocks.

A word (bytes above 0x20 between bytes up to 0x20) of up to 8 bytes is one token, a longer one is a token for each 8
bytes begun. A token owns the white space before it. A block is `block_size` tokens; its key is a hash of its bytes
seeded with the key of the block before, so equal keys mean equal text from the start of the prompt.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass

import numpy as np
import xxhash

from aitrace.protocols.protocol import RequestPart
from aitrace.schema import Role, SegmentType

TOKEN_BYTES = 8
PIECE_BYTES = 128 * 1024
_SPACE = 0x20

# Every mark is one token, so that a part costs three tokens beside its text, four with a tool's name.
_ROLE_MARKS: dict[Role, str] = {
    "system": "<|sys|>",
    "user": "<|user|>",
    "assistant": "<|asst|>",
    "tool": "<|tool|>",
}
_TYPE_MARKS: dict[SegmentType, str] = {
    "tool_definition": "define",
    "system": "rules",
    "text": "says",
    "thinking": "thinks",
    "tool_use": "calls",
    "tool_result": "returns",
    "image": "shows",
    "opaque": "holds",
}
END_MARK = "\n<|end|>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """What a cache and a meter need to know of a text."""

    tokens: int
    """All its tokens."""
    blocks: tuple[int, ...]
    """Keys of its full blocks, in order."""
    tail: bytes
    """What follows the last full block."""

    @property
    def key(self) -> int:
        """One number for the whole text."""
        return xxhash.xxh3_64_intdigest(self.tail, seed=self.blocks[-1] if self.blocks else 0)


def render_prompt(parts: Iterable[RequestPart]) -> bytes:
    """The text an engine would compute: every part between marks, then the mark that opens an answer.

    The rendering of a prompt is a prefix of that of the same prompt continued with an answer and more parts.
    """
    pieces: list[str] = []
    for part in parts:
        pieces.append(_opening(part.role, part.type, part.tool_name))
        pieces.append(part.text)
        pieces.append(END_MARK)
    pieces.append(_opening("assistant", "text", None))
    return "".join(pieces).encode()


def _opening(role: Role, type_: SegmentType, tool_name: str | None) -> str:
    name = "" if tool_name is None else f" {tool_name}"
    return f"{_ROLE_MARKS[role]} {_TYPE_MARKS[type_]}{name}\n"


def continue_digest(prompt: Digest, text: bytes, block_size: int) -> Digest:
    """Digest of the prompt's text with `text` appended; `text` must begin a new word or the prompt end a word."""
    rest = _finish(prompt.tail + text, block_size, seed=prompt.blocks[-1] if prompt.blocks else 0)
    return Digest(
        tokens=len(prompt.blocks) * block_size + rest.tokens,
        blocks=prompt.blocks + rest.blocks,
        tail=rest.tail,
    )


def digest_steps(
    text: bytes, block_size: int, piece_bytes: int = PIECE_BYTES
) -> Generator[None, None, Digest]:
    """Tokens and block keys of `text`, yielding between pieces so that a server can attend to its streams meanwhile."""
    blocks: list[int] = []
    start = 0
    size = piece_bytes
    while start + size < len(text):
        piece = text[start : start + size]
        ends, _ = _block_ends(piece, block_size, is_open=True)
        if ends:
            _hash_blocks(piece, ends, blocks)
            start += ends[-1]
            size = piece_bytes
            yield
        else:
            size *= 2
    rest = _finish(text[start:], block_size, seed=blocks[-1] if blocks else 0)
    return Digest(
        tokens=len(blocks) * block_size + rest.tokens,
        blocks=(*blocks, *rest.blocks),
        tail=rest.tail,
    )


def _finish(text: bytes, block_size: int, seed: int) -> Digest:
    blocks = [seed]
    ends, tokens = _block_ends(text, block_size, is_open=False)
    _hash_blocks(text, ends, blocks)
    return Digest(tokens=tokens, blocks=tuple(blocks[1:]), tail=text[ends[-1] :] if ends else text)


def _hash_blocks(text: bytes, ends: list[int], blocks: list[int]) -> None:
    """Append the key of each block of `text`, chained to the last key in `blocks`."""
    key = blocks[-1] if blocks else 0
    hash_ = xxhash.xxh3_64_intdigest
    view = memoryview(text)
    start = 0
    for end in ends:
        key = hash_(view[start:end], key)
        blocks.append(key)
        start = end


def _block_ends(text: bytes, block_size: int, *, is_open: bool) -> tuple[list[int], int]:
    """Offset after the last token of each full block, and the number of tokens.

    Args:
        text: Begins where a block begins: before a word, before its white space, or inside a word at a multiple of 8.
        is_open: More text follows, so the last token may be incomplete and counts for no block.
    """
    spaces = np.frombuffer(text, dtype=np.uint8) <= _SPACE
    if not len(text):
        return [], 0
    edges = np.flatnonzero(spaces[1:] != spaces[:-1]) + 1
    bounds = np.concatenate(
        ([] if spaces[0] else [0], edges, [] if spaces[-1] else [len(text)]), dtype=np.int64, casting="unsafe"
    )
    starts, ends = bounds[0::2], bounds[1::2]
    if not len(starts):
        return [], 0
    counts = (ends - starts + (TOKEN_BYTES - 1)) // TOKEN_BYTES
    totals = np.cumsum(counts)
    tokens = int(totals[-1])
    targets = np.arange(block_size, tokens - is_open + 1, block_size)
    words = np.searchsorted(totals, targets)
    into_word = targets - (totals[words] - counts[words])
    return np.minimum(starts[words] + into_word * TOKEN_BYTES, ends[words]).tolist(), tokens
