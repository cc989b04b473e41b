"""Pure: the bytes of a planned call's request.

Leading tool definitions and system segments become the request's tools and system prompt, all that follows becomes
its conversation: assistant and thinking segments are the assistant's, everything else is the user's. A conversation
begins and ends with the user, since protocols ask for it: where a prompt does not, a short line of the user is put
there. Both are counted, see `RequestBuilder.counts`.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

import numpy as np
import orjson

from aitrace.columns import NOT_KNOWN, call_columns
from aitrace.identity import BlockIdentity
from aitrace.prompts import PromptResolver, block_sizes
from aitrace.protocols.protocol import RequestSpec, WireMessage, WirePart, WireProtocol
from aitrace.schema import Segment, Trace
from replayer.conversation import NOTHING, Conversation, Piece, Settled, Speaker, conversation
from replayer.planning.options import LoadOptions
from replayer.planning.planned import PlannedCall
from replayer.planning.sizes import token_ratio
from replayer.text import TextSource

Adjustment = Literal["opened_with_user", "closed_with_user", "tool_messages_as_text", "empty_live_answers"]

MAX_CACHE_BYTES = 256 * 1024 * 1024
_PROBE_KEY = (1 << 62) - 1
_PROBE_OUTPUT_TOKENS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beginning:
    """The part of a body that later ones have too."""

    start: int
    """Where the body's prompt starts."""
    end: int
    """Where its settled messages end."""
    settled: Settled
    """What they are."""
    has_tools: bool
    """Whether the prompt defines tools."""
    answers: Mapping[int, bytes]
    """Live answers in what the settled messages rest on, by place in the prompt."""


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
        fields_of: Callable[[PlannedCall], Mapping[str, Any]] | None = None,
        max_cache_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        """Take on a trace.

        Args:
            fields_of: Further fields of a call's body.
            max_cache_bytes: Bytes of text that are kept for later requests.
        """
        self._trace = trace
        self._identity = identity
        self._text = text
        self._options = options
        self._protocol = protocol
        self._fields_of = fields_of
        self._tokens_per_unit = token_ratio(trace).tokens_per_unit
        self._prompts = PromptResolver(trace.calls)
        self._kept = _Kept(max_cache_bytes)
        self._beginnings = _Beginnings(trace, self._kept)
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
        known, start = self._beginnings.take(planned, answers)
        settled = NOTHING if known is None else known.settled
        pieces = [
            self._piece(place, segment_ids[place], planned.instance, answers.get(place))
            for place in range(settled.segments, len(segment_ids))
        ]
        if known is None:
            head = list(takewhile(lambda piece: piece.type in ("tool_definition", "system"), pieces))
            pieces = pieces[len(head) :]
            tools = [piece.text for piece in head if piece.type == "tool_definition"]
            system = b"".join([piece.text for piece in head if piece.type == "system"])
            start = self._protocol.write_start(tools, system)
            has_tools = bool(tools)
        else:
            has_tools = known.has_tools
        said = conversation(
            pieces, settled, native=self._options.tool_messages == "native", has_tools=has_tools
        )
        self._count(said)
        place = settled.messages
        fixed = self._protocol.write_messages(said.messages[: said.newly_settled], place)
        rest = self._protocol.write_messages(said.messages[said.newly_settled :], place + said.newly_settled)
        before, after = self._frame(planned, model, output_forced=output_forced)
        body = b"".join((before, start, fixed, memoryview(rest)[:-1], after))
        if said.settled is not None:
            beginning = _Beginning(
                start=len(before),
                end=len(before) + len(start) + len(fixed),
                settled=said.settled,
                has_tools=has_tools,
                answers=_up_to(said.settled.rests_on, answers),
            )
            self._beginnings.put(planned, beginning, body)
        return body

    def note_answer(self, index: int, text: str) -> None:
        """Take the target's answer to planned call `index` into the prompts that follow it.

        Without effect unless `options.history` is `live`.
        """
        if self._options.history == "live":
            self.counts["empty_live_answers"] += not text
            self._live.answers[index] = json_content(text)

    def forget_tree(self, root: int, instance: int) -> None:
        """Drop what is kept for a tree that is over."""
        self._live.forget_tree(root, instance)
        self._beginnings.forget_tree(root, instance)

    def _frame(self, planned: PlannedCall, model: str, *, output_forced: bool) -> tuple[bytes, bytes]:
        """What stands before and after the prompt of a call."""
        forced = forcing_fields(planned.output_tokens) if output_forced else {}
        return self._protocol.write_frame(
            RequestSpec(
                model=model,
                max_output_tokens=planned.max_output_tokens,
                stream=planned.streamed,
                extra=forced if self._fields_of is None else {**forced, **self._fields_of(planned)},
            )
        )

    def _count(self, said: Conversation) -> None:
        counts = self.counts
        if said.is_opened:
            counts["opened_with_user"] += 1
        if said.is_closed:
            counts["closed_with_user"] += 1
        if said.tools_as_text:
            counts["tool_messages_as_text"] += said.tools_as_text

    def _piece(self, place: int, segment_id: int, instance: int, answer: bytes | None) -> Piece:
        segment = self._trace.segments[segment_id]
        speaker: Speaker = "assistant" if segment.role == "assistant" else "user"
        if answer is not None:
            # An answer of the target is text, whatever the recorded one was.
            return Piece(place, "text", speaker, answer)
        return Piece(place, segment.type, speaker, self._segment_text(segment, instance))

    def _segment_text(self, segment: Segment, instance: int) -> bytes:
        key: _Key = ("text", segment.id, instance)
        cached = self._kept.get(key)
        if cached is not None:
            return cached
        runs = self._identity.runs(segment.id, instance)
        # Another playing must not say again what only its tree said; what is shared has the same keys in both.
        if segment.text is not None and (instance == 1 or runs == self._identity.runs(segment.id, 1)):
            text = json_content(segment.text)
        else:
            sizes = block_sizes(segment, self._trace.header.block_size)
            text = self._text.segment(runs, [size * self._tokens_per_unit for size in sizes])
        self._kept.put(key, text)
        return text


def forcing_fields(output_tokens: int) -> dict[str, Any]:
    """Fields that force the length of an answer, where the engine knows them: vLLM, SGLang, llama.cpp, Dynamo."""
    return {"ignore_eos": True, "min_tokens": output_tokens}


def json_content(text: str) -> bytes:
    """Content of a JSON string: escaped, without the quotes."""
    return orjson.dumps(text)[1:-1]


_Key = tuple[Literal["text", "body"], int, int]
"""A segment or a call, and its playing."""


class _Kept:
    """Texts of segments and bodies of calls, the ones used last, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[_Key, bytes] = OrderedDict()
        self._held_bytes = 0

    def get(self, key: _Key) -> bytes | None:
        data = self._held.get(key)
        if data is not None:
            self._held.move_to_end(key)
        return data

    def put(self, key: _Key, data: bytes) -> None:
        self.drop(key)
        self._held[key] = data
        self._held_bytes += len(data)
        while self._held_bytes > self._max_bytes:
            self._held_bytes -= len(self._held.popitem(last=False)[1])

    def drop(self, key: _Key) -> None:
        self._held_bytes -= len(self._held.pop(key, b""))


class _Beginnings:
    """The bodies that later ones begin with, until all calls that continue their prompts have been built."""

    def __init__(self, trace: Trace, kept: _Kept) -> None:
        self._columns = call_columns(trace)
        self._kept = kept
        bases = self._columns.base
        self._heirs = np.bincount(bases[bases != NOT_KNOWN], minlength=len(bases))
        self._known: dict[tuple[int, int], tuple[_Beginning, int]] = {}
        """With the number of calls that are still to be built from it, by call and playing."""
        self._members: dict[tuple[int, int], set[int]] = {}

    def take(
        self, planned: PlannedCall, answers: Mapping[int, bytes]
    ) -> tuple[_Beginning | None, bytes | memoryview]:
        """What the call's prompt begins with, and its bytes; None if that is not known."""
        key = (int(self._columns.base[planned.call]), planned.instance)
        beginning, heirs = self._known.get(key, (None, 0))
        if beginning is None:
            return None, b""
        body = self._kept.get(("body", *key))
        if heirs > 1 and body is not None:
            self._known[key] = (beginning, heirs - 1)
        else:
            self._drop(key)
        needed = beginning.settled.rests_on
        if (
            body is None
            or self._columns.keep[planned.call] < needed
            or _up_to(needed, answers) != beginning.answers
        ):
            return None, b""
        return beginning, memoryview(body)[beginning.start : beginning.end]

    def put(self, planned: PlannedCall, beginning: _Beginning, body: bytes) -> None:
        """Keep a body, if any call continues its prompt."""
        heirs = int(self._heirs[planned.call])
        if not heirs:
            return
        key = (planned.call, planned.instance)
        self._known[key] = (beginning, heirs)
        self._kept.put(("body", *key), body)
        self._members.setdefault((planned.root, planned.instance), set()).add(planned.call)

    def forget_tree(self, root: int, instance: int) -> None:
        for call in self._members.pop((root, instance), ()):
            self._drop((call, instance))

    def _drop(self, key: tuple[int, int]) -> None:
        self._known.pop(key, None)
        self._kept.drop(("body", *key))


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
            self._built.pop(index, None)  # a call that was built again is named twice
            self.answers.pop(index, None)

    def _answer_places(
        self, segment_ids: Sequence[int], first: int, answer: bytes
    ) -> Iterator[tuple[int, bytes]]:
        text = answer
        for place in range(first, len(segment_ids)):
            if self._segments[segment_ids[place]].role == "assistant":
                yield place, text
                text = b""


def _up_to(place: int, answers: Mapping[int, bytes]) -> Mapping[int, bytes]:
    """The answers before a place of a prompt."""
    return {at: text for at, text in answers.items() if at < place} if answers else answers


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
