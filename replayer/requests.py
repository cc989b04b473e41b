"""Pure: the bytes of a planned call's request.

Leading tool definitions and system segments become the request's tools and system prompt, all that follows becomes
its conversation: assistant and thinking segments are the assistant's, everything else is the user's. A conversation
begins and ends with the user, since protocols ask for it: where a prompt does not, a short line of the user is put
there. Both are counted, see `RequestBuilder.counts`.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Any, Literal

import orjson

from aitrace.identity import BlockIdentity
from aitrace.prompts import PromptResolver, block_sizes
from aitrace.protocols.protocol import RequestSpec, WireMessage, WirePart, WireProtocol
from aitrace.schema import Segment, SegmentType, Trace
from replayer.options import LoadOptions
from replayer.plan import PlannedCall
from replayer.sizes import token_ratio
from replayer.text import TextSource

Adjustment = Literal["opened_with_user", "closed_with_user", "tool_messages_as_text", "empty_live_answers"]

MAX_CACHE_BYTES = 256 * 1024 * 1024
_OPENING = WirePart(kind="text", text=b" begin")
_CLOSING = WirePart(kind="text", text=b" continue")
_PROBE_KEY = (1 << 62) - 1
_PROBE_OUTPUT_TOKENS = 2

Speaker = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What one segment puts into a prompt."""

    type: SegmentType
    speaker: Speaker
    text: bytes


class RequestBuilder:
    """Writes requests; keeps what it wrote for a segment, so that a growing prompt costs what is new in it."""

    def __init__(
        self,
        trace: Trace,
        identity: BlockIdentity,
        text: TextSource,
        options: LoadOptions,
        protocol: WireProtocol,
        *,
        max_cache_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        """Take on a trace.

        Args:
            max_cache_bytes: Bytes of text that are kept for later requests.
        """
        self._trace = trace
        self._identity = identity
        self._text = text
        self._options = options
        self._protocol = protocol
        self._tokens_per_unit = token_ratio(trace).tokens_per_unit
        self._prompts = PromptResolver(trace.calls)
        self._fragments = _FragmentCache(max_cache_bytes)
        self._live = _LiveAnswers(self._prompts, trace.segments)
        self.counts: Counter[Adjustment] = Counter()
        """Requests that got an opening or closing line of the user, tool calls and results that were written as text
        though native ones were asked for, and live answers without text."""

    def build(self, planned: PlannedCall, *, model: str, output_forced: bool) -> bytes:
        """The body of the call's request.

        With live history the calls that it follows must have been built before.
        """
        segment_ids = self._prompts.segment_ids(planned.call)
        answers = self._live.replacements(planned) if self._options.history == "live" else {}
        pieces = [
            self._piece(segment_id, planned.instance, answers.get(position))
            for position, segment_id in enumerate(segment_ids)
        ]
        head = list(takewhile(lambda piece: piece.type in ("tool_definition", "system"), pieces))
        tools = [piece.text for piece in head if piece.type == "tool_definition"]
        spec = RequestSpec(
            model=model,
            tools=tools,
            system=b"".join(piece.text for piece in head if piece.type == "system"),
            messages=self._messages(pieces[len(head) :], has_tools=bool(tools)),
            max_output_tokens=planned.max_output_tokens,
            stream=planned.streamed,
            extra=forcing_fields(planned.output_tokens) if output_forced else {},
        )
        return self._protocol.write_request(spec)

    def note_answer(self, index: int, text: str) -> None:
        """Take the target's answer to planned call `index` into the prompts that follow it.

        Without effect unless `options.history` is `live`.
        """
        if self._options.history == "live":
            self.counts["empty_live_answers"] += not text
            self._live.answers[index] = json_content(text)

    def forget_tree(self, root: int, instance: int) -> None:
        """Drop the answers that are kept for a tree that is over."""
        self._live.forget_tree(root, instance)

    def _piece(self, segment_id: int, instance: int, answer: bytes | None) -> _Piece:
        segment = self._trace.segments[segment_id]
        text = self._segment_text(segment, instance) if answer is None else answer
        return _Piece(
            # An answer of the target is text, whatever the recorded one was.
            type=segment.type if answer is None else "text",
            speaker="assistant" if segment.role == "assistant" else "user",
            text=text,
        )

    def _segment_text(self, segment: Segment, instance: int) -> bytes:
        cached = self._fragments.get((segment.id, instance))
        if cached is not None:
            return cached
        runs = self._identity.runs(segment.id, instance)
        # Another playing must not say again what only its tree said; what is shared has the same keys in both.
        if segment.text is not None and (instance == 1 or runs == self._identity.runs(segment.id, 1)):
            text = json_content(segment.text)
        else:
            sizes = block_sizes(segment, self._trace.header.block_size)
            text = self._text.segment(runs, [size * self._tokens_per_unit for size in sizes])
        self._fragments.put((segment.id, instance), text)
        return text

    def _messages(self, pieces: Sequence[_Piece], *, has_tools: bool) -> list[WireMessage]:
        spoken = [piece for piece in pieces if piece.text]
        groups = [
            (speaker, list(group)) for speaker, group in groupby(spoken, key=lambda piece: piece.speaker)
        ]
        if self._options.tool_messages == "native":
            native = native_tool_pairs([group for _, group in groups] if has_tools else [])
            tool_pieces = sum(piece.type in ("tool_use", "tool_result") for piece in spoken)
            self.counts["tool_messages_as_text"] += tool_pieces - len(native)
        else:
            native = {}
        messages: list[WireMessage] = []
        for place, (speaker, group) in enumerate(groups):
            parts = tuple(_part(piece, native.get((place, position))) for position, piece in enumerate(group))
            messages.append(WireMessage(role=speaker, parts=parts))
        if not messages or messages[0].role == "assistant":
            self.counts["opened_with_user"] += 1
            messages.insert(0, WireMessage(role="user", parts=(_OPENING,)))
        if messages[-1].role == "assistant":
            self.counts["closed_with_user"] += 1
            messages.append(WireMessage(role="user", parts=(_CLOSING,)))
        return messages


def native_tool_pairs(groups: Sequence[Sequence[_Piece]]) -> dict[tuple[int, int], int]:
    """Which tool calls and results can be written in the protocol's form: (message, position) to the pair's number.

    Protocols want every call at the end of its message and every result at the start of the next one, so only those
    are paired, in order; a call or result that finds no partner stays text.
    """
    pairs: dict[tuple[int, int], int] = {}
    number = 0
    for place in range(len(groups) - 1):
        calls = list(takewhile(lambda piece: piece.type == "tool_use", reversed(groups[place])))
        results = list(takewhile(lambda piece: piece.type == "tool_result", groups[place + 1]))
        matched = min(len(calls), len(results))
        first_call = len(groups[place]) - matched
        for offset in range(matched):
            pairs[place, first_call + offset] = pairs[place + 1, offset] = number
            number += 1
    return pairs


def _part(piece: _Piece, pair: int | None) -> WirePart:
    if pair is None:
        return WirePart(kind="text", text=piece.text)
    if piece.type == "tool_use":
        return WirePart(kind="tool_use", text=piece.text, tool_id=f"call_{pair}", tool_name="tool_0")
    return WirePart(kind="tool_result", text=piece.text, tool_id=f"call_{pair}")


def forcing_fields(output_tokens: int) -> dict[str, Any]:
    """Fields that force the length of an answer, where the engine knows them: vLLM, SGLang, llama.cpp, Dynamo."""
    return {"ignore_eos": True, "min_tokens": output_tokens}


def json_content(text: str) -> bytes:
    """Content of a JSON string: escaped, without the quotes."""
    return orjson.dumps(text)[1:-1]


class _FragmentCache:
    """Texts of segments by segment and instance, the ones used last, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._texts: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._held_bytes = 0

    def get(self, key: tuple[int, int]) -> bytes | None:
        text = self._texts.get(key)
        if text is not None:
            self._texts.move_to_end(key)
        return text

    def put(self, key: tuple[int, int], text: bytes) -> None:
        self._texts[key] = text
        self._held_bytes += len(text)
        while self._held_bytes > self._max_bytes:
            self._held_bytes -= len(self._texts.popitem(last=False)[1])


class _LiveAnswers:
    """Which positions of which prompts hold what the target answered.

    The call that follows another one adds that one's answer to the prompt. The first assistant segment it adds gets
    the target's text, the other ones it adds become empty; prompts that continue from there keep both.
    """

    def __init__(self, prompts: PromptResolver, segments: Sequence[Segment]) -> None:
        self.answers: dict[int, bytes] = {}
        """By planned call; escaped."""
        self._prompts = prompts
        self._segments = segments
        self._built: dict[int, tuple[int, dict[int, bytes]]] = {}
        """Call of the trace and replaced positions, by planned call."""
        self._members: dict[tuple[int, int], list[int]] = {}

    def replacements(self, planned: PlannedCall) -> dict[int, bytes]:
        """Replaced positions of the call's prompt and what stands there."""
        segment_ids = self._prompts.segment_ids(planned.call)
        replaced: dict[int, bytes] = {}
        base = next((d for d in planned.after if d.relation in ("sequence", "spawn")), None)
        if base is not None and base.index in self._built:
            base_call, base_replaced = self._built[base.index]
            base_ids = self._prompts.segment_ids(base_call)
            common = _common_length(base_ids, segment_ids)
            replaced = {place: text for place, text in base_replaced.items() if place < common}
            answer = self.answers.get(base.index) if base.relation == "sequence" else None
            if answer is not None and common == len(base_ids):
                replaced.update(self._answer_places(segment_ids, common, answer))
        self._built[planned.index] = (planned.call, replaced)
        self._members.setdefault((planned.root, planned.instance), []).append(planned.index)
        return replaced

    def forget_tree(self, root: int, instance: int) -> None:
        for index in self._members.pop((root, instance), ()):
            del self._built[index]
            self.answers.pop(index, None)

    def _answer_places(
        self, segment_ids: Sequence[int], first: int, answer: bytes
    ) -> Iterator[tuple[int, bytes]]:
        text = answer
        for place in range(first, len(segment_ids)):
            if self._segments[segment_ids[place]].role == "assistant":
                yield place, text
                text = b""


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def calibration_body(protocol: WireProtocol, model: str, *, words: int, output_forced: bool) -> bytes:
    """A request of `words` words that asks for a short answer, to learn how the target counts."""
    text = TextSource(words, 1.0).block(_PROBE_KEY, words)
    spec = RequestSpec(
        model=model,
        messages=[WireMessage(role="user", parts=(WirePart(kind="text", text=text),))],
        max_output_tokens=_PROBE_OUTPUT_TOKENS,
        extra=forcing_fields(_PROBE_OUTPUT_TOKENS) if output_forced else {},
    )
    return protocol.write_request(spec)


def calibration_from_probes(small: tuple[int, int], large: tuple[int, int]) -> tuple[float, float] | None:
    """Tokens per word and tokens of overhead from two probes, each (words sent, prompt tokens reported).

    None if the counts do not grow with the words, so that they cannot be counts of the prompt.
    """
    (small_words, small_tokens), (large_words, large_tokens) = small, large
    if large_words <= small_words or large_tokens <= small_tokens:
        return None
    tokens_per_word = (large_tokens - small_tokens) / (large_words - small_words)
    return tokens_per_word, small_tokens - tokens_per_word * small_words
