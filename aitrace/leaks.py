"""Pure: looks for what must never be in a shared trace: keys, e-mail addresses, home paths, ids, known names.

It is the second net behind the closed rules of `aitrace.no_text`, and knows nothing of them but the format's own
words: it takes any bytes. A line's strings are taken out, and each distinct one is looked at once, so the time goes
with the number of different strings, of which a trace without text has few. What lies between the strings of a line
must be numbers and brackets; if it is not, the whole line is looked at as one string.

    {"kind": "session", "id": 0, "root": 0, "label": "0a1b2c3d-0000-4000-8000-0123456789ab"}   nothing: a label
    {"kind": "call", …, "tool_calls": [{"name": "4c1d0e8a77b2f3a94c1d0e8a77b2f3a9"}]}          nothing: a keyed hash
    {"kind": "session", "id": 0, "root": 0, "agent": "ann@example.org"}                        an e-mail address
    {"kind": "call", …, "model": "/home/ann/models/llama"}                                     a home path
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import orjson

from aitrace.no_text import FORMAT_WORDS

LEAST_KNOWN_CHARS = 6
"""Known strings that are shorter are not looked for: they would be found by chance."""

_MOST_REMEMBERED = 1 << 20
_HEAD_BYTES = LEAST_KNOWN_CHARS
# A tool called `status` is no secret where a model is called `gpt-status-2`.
_CLASSES = ["0" if chr(i).isdigit() else "A" if chr(i).isupper() else "a" for i in range(128)]
_SEPARATORS = re.compile(rb"[^A-Za-z0-9]")
_PLAIN_WORD = re.compile(rb"[A-Za-z]{1,15}")
_TOKEN = re.compile(rb"[A-Za-z0-9_.:/@+-]+")
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_BETWEEN_STRINGS = re.compile(rb"[0-9\[\]{}:,.\s-]*(?:(?:true|false|null)[0-9\[\]{}:,.\s-]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Something that was found; what it is, not what it says."""

    line: int
    """Number of the line, from 1."""
    kind: str
    """What it looks like, with its article."""
    length: int
    """Bytes of what was found."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.length} bytes"


class _Hit(NamedTuple):
    """Something that was found in a string, wherever that stands."""

    kind: str
    """As in `Leak`."""
    length: int
    """As in `Leak`."""
    keys: tuple[bytes, ...] = ()
    """Fields whose values may look like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What one kind of secret looks like."""

    kind: str
    """With its article."""
    pattern: re.Pattern[bytes]
    """Where it may be."""
    mark: bytes
    """Bytes without which it need not be looked for; empty if there are none."""
    is_meant: Callable[[bytes], bool]
    """Whether a match is one."""
    keys: tuple[bytes, ...]
    """Fields whose values may look like this."""


def _shape(
    kind: str,
    pattern: str,
    *,
    mark: bytes = b"",
    is_meant: Callable[[bytes], bool] = bool,
    keys: tuple[bytes, ...] = (),
) -> _Shape:
    return _Shape(kind=kind, pattern=re.compile(pattern.encode()), mark=mark, is_meant=is_meant, keys=keys)


def _is_drawn(run: bytes) -> bool:
    """Whether capitals, small letters and digits follow each other as in random ones, not as in words and numbers."""
    words = [[_CLASSES[byte] for byte in word] for word in _SEPARATORS.split(run)]
    pairs = [pair for word in words for pair in pairwise(word)]
    changes = sum(one != other for one, other in pairs)
    # Of random ones 62 in 100 differ in class from the one before, of names of models 40 at most.
    return len({name for word in words for name in word}) == 3 and 20 * changes >= 9 * len(pairs)


def _is_mixed(run: bytes) -> bool:
    """Whether there are as many different digits as 24 random ones have for sure."""
    return len(set(run)) >= 5


_NAMES_BY_HASH = (b"label", b"name", b"agent")
_SHAPES = (
    _shape(
        "an API key",
        # Prefixes as vendors document them or secret scanners list them.
        r"(?<![A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{12,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}"
        r"|(?:xai|pplx|csk|tvly|tvly-dev)-[A-Za-z0-9]{24,}|(?:nvapi|glpat|pypi)-[A-Za-z0-9_-]{20,}"
        r"|ABSK[A-Za-z0-9+/=]{24,}|(?:gsk|hf|r8|fw|npm|dop_v1|[srp]k_(?:live|test))_[A-Za-z0-9]{16,})",
    ),
    _shape(
        "a GitHub token",
        r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})",
        mark=b"_",
    ),
    _shape("a Slack token", r"xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[0-9]-[A-Za-z0-9-]{8,}", mark=b"x"),
    _shape("a Slack address", r"hooks\.slack\.com/\S{8,}", mark=b"hooks."),
    _shape("an AWS key", r"(?<![A-Z0-9])(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{16}(?![A-Z0-9])"),
    _shape(
        "a JSON web token",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        mark=b"eyJ",
    ),
    _shape("credentials of a header", r"(?i:bearer|basic)[ :=]+[A-Za-z0-9._~+/=-]{12,}"),
    _shape("a private key or certificate", r"-----BEGIN [A-Z0-9 ]+-----", mark=b"-----BEGIN"),
    _shape("an address with a password", r"://[^\s/:@]+:[^\s/@]+@", mark=b"://"),
    _shape(
        "an e-mail address",
        r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}",
        mark=b"@",
        keys=(b"attribution",),
    ),
    _shape("a home path", r"/(?:home|Users)/[^/\s]+|/root(?:/|$)", mark=b"/"),
    _shape("a home path", r"[A-Za-z]:[\\/]+Users[\\/]+[^\\/\s]+", mark=b"Users"),
    _shape("a home path", r"(?<![A-Za-z0-9~])~(?:/|[A-Za-z_][A-Za-z0-9_.-]*)", mark=b"~"),
    _shape(
        "an id as services make them",
        r"(?<![A-Za-z0-9])(?:toolu|srvtoolu|call|msg|resp|req|chatcmpl|fc|rs|ses|prt|user|org|proj|file|asst|thread|run)"
        r"[_-](?:bdrk_)?[A-Za-z0-9]{16,}",
    ),
    _shape(
        "a UUID",
        r"(?i:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
        mark=b"-",
        keys=(b"label",),
    ),
    _shape(
        "a run of hexadecimal digits",
        r"[0-9a-f]{24,}|[0-9A-F]{24,}",
        is_meant=_is_mixed,
        keys=_NAMES_BY_HASH,
    ),
    _shape(
        "a run of hexadecimal digits",
        r"[0-9a-f]{65,}|[0-9A-F]{65,}",
        is_meant=_is_mixed,
    ),
    _shape("a run of random characters", r"[A-Za-z0-9]{24,}", is_meant=_is_drawn),
    _shape("a run of random characters", r"[A-Za-z0-9+/_-]{40,}", is_meant=_is_drawn),
    _shape("a run of random characters", r"[A-Za-z0-9+/_-]{24,}={1,2}(?![A-Za-z0-9=])", mark=b"="),
)
"""What is looked for."""

_EXCUSED = re.compile(
    rb'"(%b)":"((?:[^"\\]|\\.)*)"' % b"|".join(sorted({key for shape in _SHAPES for key in shape.keys}))
)
_WORDS = frozenset(word.encode() for word in FORMAT_WORDS)


class LeakScan:
    """Looks at the lines of one trace.

    Args:
        known: Strings that must not be there, such as ids seen while recording: in any string or name of a field, as
            they are or as JSON escapes them. A plain word (letters, up to 15) counts only where it stands alone and
            not as part of a longer name; words of the format itself do not count, nor do strings of fewer than 6
            characters.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._words: set[bytes] = set()
        self._heads: dict[bytes, list[bytes]] = {}
        for text in {text for text in known if len(text) >= LEAST_KNOWN_CHARS} - FORMAT_WORDS:
            # A lone surrogate comes from a broken client; it cannot be in UTF-8, what is around it can.
            data = text.encode(errors="replace")
            if _PLAIN_WORD.fullmatch(data):
                self._words.add(data)
            else:
                self._heads.setdefault(data[:_HEAD_BYTES], []).append(data)
        self._clear: set[bytes] = set(_WORDS)
        self._found: dict[bytes, tuple[_Hit, ...]] = {}

    def leaks(self, number: int, data: bytes) -> Iterator[Leak]:
        """What one line holds, each kind and length once.

        Args:
            number: Place of the line in the file, from 1.
            data: The line as it stands in the file.
        """
        strings, is_plain = _taken_apart(data)
        hits: list[_Hit] = []
        if not self._clear.issuperset(strings):
            hits += self._hits_in_strings(data, strings)
        if not is_plain:
            hits += self._hits(data)
        for kind, length in dict.fromkeys((hit.kind, hit.length) for hit in hits):
            yield Leak(line=number, kind=kind, length=length)

    def _hits_in_strings(self, line: bytes, strings: Sequence[bytes]) -> Iterator[_Hit]:
        excused: dict[bytes, Counter[bytes]] | None = None
        for string, times in Counter(strings).items():
            for hit in self._hits_in_string(string):
                if hit.keys and excused is None:
                    excused = _values_by_key(line)
                if excused is None or times > sum(excused[key][string] for key in hit.keys if key in excused):
                    yield hit

    def _hits_in_string(self, string: bytes) -> tuple[_Hit, ...]:
        if string in self._clear:
            return ()
        found = self._found.get(string)
        if found is None:
            found = tuple(self._hits(_unescaped(string)))
            if len(self._clear) + len(self._found) >= _MOST_REMEMBERED:
                self._clear = set(_WORDS)
                self._found.clear()
            if found:
                self._found[string] = found
            else:
                self._clear.add(string)
        return found

    def _hits(self, text: bytes) -> Iterator[_Hit]:
        for shape in _SHAPES:
            if shape.mark not in text:
                continue
            for match in shape.pattern.finditer(text):
                if shape.is_meant(match[0]):
                    yield _Hit(kind=shape.kind, length=len(match[0]), keys=shape.keys)
        for word in _TOKEN.findall(text) if self._words else ():
            if word in self._words:
                yield _Hit(kind="a known name", length=len(word))
        heads = self._heads
        for start in range(len(text) - _HEAD_BYTES + 1) if heads else ():
            for known in heads.get(text[start : start + _HEAD_BYTES], ()):
                if text.startswith(known, start):
                    yield _Hit(kind="a known string", length=len(known))


def find_leaks(data: bytes, known: Collection[str] = ()) -> list[str]:
    """What a trace holds that must not be there, one sentence each, the found text masked.

    Args:
        data: The trace as JSON lines, decompressed.
        known: As in `LeakScan`.
    """
    scan = LeakScan(known)
    return [
        f"line {leak.line}: {leak}"
        for number, line in enumerate(_lines(data), 1)
        for leak in scan.leaks(number, line)
    ]


def masked(text: str) -> str:
    """The text with what looks like a secret replaced by what it looks like, `[an API key]`."""
    data = text.encode(errors="replace")
    for shape in _SHAPES:
        if shape.mark in data:
            data = shape.pattern.sub(_mask(shape), data)
    return data.decode(errors="replace")


def _mask(shape: _Shape) -> Callable[[re.Match[bytes]], bytes]:
    name = f"[{shape.kind}]".encode()
    return lambda match: name if shape.is_meant(match[0]) else match[0]


def _lines(data: bytes) -> Iterator[bytes]:
    """The lines one by one: a list of all would take the size of the data again."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield data[start:end]
        start = end + 1


def _taken_apart(line: bytes) -> tuple[list[bytes], bool]:
    """The strings of a line as they stand there, and whether nothing but numbers and brackets is around them."""
    if b"\\" in line:
        strings = _STRING.findall(line)
        rest = _STRING.sub(b"", line)
    else:
        parts = line.split(b'"')
        if len(parts) % 2 == 0:
            return parts, False
        strings = parts[1::2]
        rest = b"".join(parts[::2])
    return strings, _BETWEEN_STRINGS.fullmatch(rest) is not None


def _unescaped(string: bytes) -> bytes:
    if b"\\" not in string:
        return string
    try:
        text: str = orjson.loads(b'"%b"' % string)
    except orjson.JSONDecodeError:
        return string
    return text.encode()


def _values_by_key(line: bytes) -> dict[bytes, Counter[bytes]]:
    """How often each string is the value of each field that excuses anything."""
    values: dict[bytes, Counter[bytes]] = {}
    for key, value in _EXCUSED.findall(line):
        values.setdefault(key, Counter())[value] += 1
    return values


def warning_lines(leaks: Sequence[str], kept: object, *, most: int) -> list[str]:
    """What to say of a trace in which something was found.

    Args:
        leaks: What was found, one sentence each.
        kept: Where the trace is; None if nowhere.
        most: Sentences to show.
    """
    what = "the trace may hold text or a secret, so it was not written"
    if kept is not None:
        what = f"DO NOT SHARE {kept}: it may hold text or a secret, so it was not given its final name"
    more = len(leaks) - most
    return [what, *(f"  {leak}" for leak in leaks[:most]), *([f"  and {more} more"] if more > 0 else [])]
