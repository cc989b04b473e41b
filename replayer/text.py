"""Pure: prompt text from block keys, the same for the same key and seed wherever it stands.

The number of words depends on the key alone: text of another seed has the same size.

Word p of a block is a hash of (seed, key, p), so a shorter block of a key begins the longer one, and blocks of
different keys part within their first words: the first six words are 60 of the 64 bits of a one-to-one hash of the
key, and two keys agree in four words with a chance of 2**-40.
"""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from aitrace.identity import Run
from replayer.words import WORDS

_Numbers = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_WORDS_PER_HASH = 6
_BITS_PER_WORD = 10
_WORD_MASK = np.uint64((1 << _BITS_PER_WORD) - 1)
_MAX_WORD_BYTES = 8
_BATCH_WORDS = 1 << 14
"""Words made at a time, so that all steps of the work stay in a processor's cache."""
_FEW_BLOCKS = 8
_FEW_WORDS = 300
"""Texts up to this size are made number by number."""
_MASK = (1 << 64) - 1
_STEP_NUMBER = int(_STEP)
_WORD_BITS = int(_WORD_MASK)
_TABLE = np.array(WORDS, dtype=f"S{_MAX_WORD_BYTES}")
"""Padded with zero bytes, which are taken out of the finished text."""


class TextSource:
    """Text of blocks under one seed, for a target that counts `tokens_per_word` (above 0) for each word."""

    def __init__(self, seed: int, tokens_per_word: float) -> None:
        digest = blake2b(b"aitrace text %d" % seed, digest_size=8).digest()
        self._salt_number = int.from_bytes(digest, "little")
        self._salt = np.array([int.from_bytes(digest, "little")], dtype=np.uint64)
        self._words_per_token = 1 / tokens_per_word

    def block(self, key: int, tokens: float) -> bytes:
        """Text of one block: words with a leading space each, nothing that JSON would escape.

        The number of words is rounded up or down by a hash of the key, so that sums over many blocks are not biased.
        """
        return self.segment([(key, 1)], [tokens])

    def segment(self, runs: Sequence[Run], sizes: Sequence[float]) -> bytes:
        """Text of the blocks of these runs; `sizes` in tokens, one for each block."""
        if not runs:
            return b""
        if len(sizes) <= _FEW_BLOCKS and sum(sizes) * self._words_per_token <= _FEW_WORDS:
            keys_of_few = (key for first, count in runs for key in range(first, first + count))
            return b"".join(map(self._small_block, keys_of_few, sizes))
        keys = np.concatenate([np.arange(first, first + count, dtype=np.uint64) for first, count in runs])
        wanted = np.asarray(sizes, dtype=np.float64) * self._words_per_token
        batch = max(1, _BATCH_WORDS // (int(wanted.max()) + 1))
        pieces = [
            self._blocks(keys[start : start + batch], wanted[start : start + batch])
            for start in range(0, len(keys), batch)
        ]
        return b"".join(pieces)

    def _small_block(self, key: int, size: float) -> bytes:
        """The same text as `_blocks` makes; arrays of a few numbers cost more than the numbers."""
        share = (_mixed_number(_mixed_number(key)) >> 32) / (1 << 32)
        left = int(size * self._words_per_token + share)
        base = _mixed_number(key ^ self._salt_number)
        words: list[bytes] = []
        for _ in range(0, left, _WORDS_PER_HASH):
            base = (base + _STEP_NUMBER) & _MASK
            bits = _mixed_number(base)
            words += (
                WORDS[bits & _WORD_BITS],
                WORDS[bits >> 10 & _WORD_BITS],
                WORDS[bits >> 20 & _WORD_BITS],
                WORDS[bits >> 30 & _WORD_BITS],
                WORDS[bits >> 40 & _WORD_BITS],
                WORDS[bits >> 50 & _WORD_BITS],
            )
        return b"".join(words[:left])

    def _blocks(self, keys: _Numbers, wanted: npt.NDArray[np.float64]) -> bytes:
        bases = _mixed(keys ^ self._salt)
        # 32 bits, so that a whole number of words plus a share below 1 is never rounded up to the next one.
        shares = (_mixed(_mixed(keys)) >> np.uint64(32)).astype(np.float64) / (1 << 32)
        counts = np.floor(wanted + shares).astype(np.int64)
        most = int(counts.max())
        steps = np.arange(1, most // _WORDS_PER_HASH + 2, dtype=np.uint64) * _STEP
        hashes = _mixed(bases[:, np.newaxis] + steps)
        numbers = np.empty((*hashes.shape, _WORDS_PER_HASH), dtype=np.uint16)
        for word in range(_WORDS_PER_HASH):
            numbers[:, :, word] = (hashes >> np.uint64(word * _BITS_PER_WORD)) & _WORD_MASK
        places = numbers.reshape(len(keys), -1)
        chosen = places[np.arange(places.shape[1]) < counts[:, np.newaxis]]
        return _TABLE[chosen].tobytes().translate(None, b"\0")


def _mixed(numbers: _Numbers) -> _Numbers:
    """A one-to-one hash of 64-bit numbers (the finaliser of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _mixed_number(number: int) -> int:
    """The same of one number."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
