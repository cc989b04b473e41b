"""Pure: reads traces of the Mooncake format: one JSON object per request, block ids that all requests share.

The format has no sessions. They are recovered: a request continues the last one of a chain if

1. its blocks begin with all full blocks of that one's prompt,
2. the last of these full blocks has been seen in no other chain, so that a system prompt or a document which many
   requests share does not tie them together,
3. it is long enough to hold that one's answer: `input_length` >= that one's input + output length, and
4. it comes later: its `timestamp` is larger.

Otherwise it starts a chain of its own. Each chain is a root session of the trace.

Good: {"timestamp": 0, "input_length": 700, "output_length": 20, "hash_ids": [0, 1]} (512-token blocks)
Bad:  {"timestamp": 0, "input_length": 700, "output_length": 20, "hash_ids": [0]} (one block cannot hold 700 tokens)
Bad:  {"input_length": 700, "output_length": 20, "hash_ids": [0, 1]} (no time)
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from aitrace.errors import InputError
from aitrace.formats.blocks import BlockNumbers, Cut, HeldPrompt, PromptWriter
from aitrace.formats.format import Summary, Tally, block_ids, demand_format, ns_from_number, whole_number
from aitrace.formats.unknowns import Unknown
from aitrace.schema import Call, CallTimes, Dependency, Header, Line, Session, Usage
from aitrace.units import NS_PER_MS, NS_PER_S

DEFAULT_BLOCK_SIZE = 512
_GRID_RATIO = 0.002
_GRID_SHARE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeRequest:
    """One line of the source."""

    place: str
    """Where it stands in the source."""
    at_ns: int
    """Arrival, ns from the start of the trace."""
    input_tokens: int
    """Tokens of the prompt."""
    output_tokens: int
    """Tokens of the answer."""
    hash_ids: tuple[int, ...]
    """Ids of its blocks; the last may be partial."""


def request_from_json(document: object, place: str, block_size: int) -> MooncakeRequest:
    """The request that a line describes.

    Raises:
        InputError: If the line is not of this format, or its blocks are not of `block_size`.
    """
    if not isinstance(document, Mapping):
        raise InputError(f"{place}: expected an object with 'timestamp', got {type(document).__name__}")
    demand_format(document, place, "mooncake")
    request = MooncakeRequest(
        place=place,
        at_ns=ns_from_number(document.get("timestamp"), per_unit_ns=NS_PER_MS, name="timestamp", place=place),
        input_tokens=whole_number(document, "input_length", place),
        output_tokens=whole_number(document, "output_length", place),
        hash_ids=block_ids(document, place),
    )
    expected = -(-request.input_tokens // block_size)
    if len(request.hash_ids) != expected:
        raise InputError(
            f"{place}: {len(request.hash_ids)} block ids for {request.input_tokens} tokens, expected {expected} of "
            f"{block_size} tokens each",
            hint="give the block size of the file with --block-size TOKENS (Mooncake's own files have 512, "
            "variants of other tools 16)",
        )
    return request


def chained_requests(requests: Sequence[MooncakeRequest], block_size: int) -> list[int | None]:
    """For each request in order of time, the index of the one it continues; None if it starts a chain."""
    chain_of_block: dict[int, int | None] = {}
    last_of_chain: list[int] = []
    chain_of_request: list[int] = []
    earlier: list[int | None] = []
    for index, request in enumerate(requests):
        chain = _continued_chain(request, requests, last_of_chain, chain_of_block, block_size)
        earlier.append(None if chain is None else last_of_chain[chain])
        if chain is None:
            chain = len(last_of_chain)
            last_of_chain.append(index)
        last_of_chain[chain] = index
        chain_of_request.append(chain)
        for block in request.hash_ids:
            if chain_of_block.setdefault(block, chain) != chain:
                chain_of_block[block] = None
    return earlier


def _continued_chain(
    request: MooncakeRequest,
    requests: Sequence[MooncakeRequest],
    last_of_chain: Sequence[int],
    chain_of_block: Mapping[int, int | None],
    block_size: int,
) -> int | None:
    """The chain that `request` continues, or None."""
    found = (chain_of_block.get(block) for block in request.hash_ids)
    for chain in {chain for chain in found if chain is not None}:
        last = requests[last_of_chain[chain]]
        full = last.input_tokens // block_size
        if (
            full
            and request.hash_ids[:full] == last.hash_ids[:full]
            and chain_of_block[last.hash_ids[full - 1]] == chain
            and request.input_tokens >= last.input_tokens + last.output_tokens
            and request.at_ns > last.at_ns
        ):
            return chain
    return None


def resolution_ns(requests: Sequence[MooncakeRequest]) -> int:
    """Steps in which arrivals are given: a grid that they keep within 0.2 % of its step, else what divides them all."""
    times = sorted({request.at_ns for request in requests})
    if len(times) < 2:
        return NS_PER_MS
    step = round(median(later - earlier for earlier, later in pairwise(times)))
    slack = max(2 * NS_PER_MS, round(step * _GRID_RATIO))
    on_grid = sum(min(at % step, step - at % step) <= slack for at in times)
    if step > 4 * slack and on_grid >= _GRID_SHARE * len(times):
        return step
    return math.gcd(*times)


def header_for(
    requests: Sequence[MooncakeRequest], *, block_size: int, producer: str, attribution: str | None
) -> Header:
    """The header of a trace of these requests.

    Raises:
        InputError: If there are none.
    """
    if not requests:
        raise InputError("the input holds no call", hint="check that the right file was named")
    step_ns = resolution_ns(requests)
    return Header(
        producer=producer,
        clock_scope="trace",
        clock_resolution_ns=step_ns,
        unit="tokens",
        block_size=block_size,
        block_scope="trace",
        source="mooncake",
        attribution=attribution,
        unknown=(
            Unknown.SESSIONS,
            Unknown.AGENTS,
            Unknown.DURATIONS,
            Unknown.RESOLUTION.format(f"{step_ns / NS_PER_S:g}"),
            Unknown.CUTS_BY_ANSWERS,
            Unknown.WIRE_AND_MODEL,
        ),
    )


class MooncakeImporter:
    """Gives the lines of a trace in order of time."""

    def __init__(self, header: Header) -> None:
        self._block_size = header.block_size
        self._numbers = BlockNumbers()
        self._tally = Tally()

    def summary(self) -> Summary:
        """Counts of everything written so far."""
        self._tally.counts["blocks"] = self._numbers.blocks
        self._tally.counts["segments"] = self._numbers.segments
        return self._tally.summary("mooncake")

    def lines(self, requests: Sequence[MooncakeRequest]) -> Iterator[Line]:
        """Sessions, segments and calls of all requests."""
        ordered = sorted(requests, key=lambda request: request.at_ns)
        self._note_order(requests)
        block_of_source_id: dict[int, int] = {}
        writers: list[PromptWriter] = []
        session_of_call: list[int] = []
        held: list[HeldPrompt] = []
        for call_id, earlier in enumerate(chained_requests(ordered, self._block_size)):
            request = ordered[call_id]
            if earlier is None:
                session = len(writers)
                writers.append(
                    PromptWriter(
                        block_size=self._block_size,
                        numbers=self._numbers,
                        block_of_source_id=block_of_source_id,
                    )
                )
                yield Session(id=session, root=session)
                self._tally.add("sessions")
                self._tally.add("trees")
            else:
                session = session_of_call[earlier]
            session_of_call.append(session)
            base = None if earlier is None else held[earlier]
            answered = None if earlier is None else ordered[earlier]
            written = writers[session].write(
                call_id,
                request.hash_ids,
                request.input_tokens,
                base,
                _cuts(request, answered, self._block_size),
            )
            held.append(written.held)
            self._count(request, writers[session], base)
            yield from written.segments
            yield Call(
                id=call_id,
                session=session,
                prompt=written.prompt,
                usage=Usage(input_tokens=request.input_tokens, output_tokens=request.output_tokens),
                times=CallTimes(request_ns=request.at_ns),
                after=() if earlier is None else (_dependency(request, ordered[earlier], earlier),),
            )

    def _note_order(self, requests: Sequence[MooncakeRequest]) -> None:
        for earlier, later in pairwise(requests):
            if later.at_ns < earlier.at_ns:
                self._tally.remark(
                    "out_of_order", "a request stands before an earlier one; sorted by time", later.place
                )

    def _count(self, request: MooncakeRequest, writer: PromptWriter, base: HeldPrompt | None) -> None:
        self._tally.add("calls")
        self._tally.add("input_tokens", request.input_tokens)
        self._tally.add("output_tokens", request.output_tokens)
        self._tally.add("block_references", len(request.hash_ids))
        if base is not None:
            self._tally.add(
                "shared_blocks", writer.shared_blocks(base, request.hash_ids, request.input_tokens)
            )


def _cuts(request: MooncakeRequest, answered: MooncakeRequest | None, block_size: int) -> list[Cut]:
    end = len(request.hash_ids)
    everything = Cut(upto_block=end, role="user", type="text")
    if answered is None:
        return [everything]
    old_end = answered.input_tokens // block_size
    new = end - old_end
    if new <= 1:
        return [everything]
    answer = min(max(1, round(answered.output_tokens / block_size)), new - 1)
    return [Cut(upto_block=old_end + answer, role="assistant", type="text"), everything]


def _dependency(request: MooncakeRequest, earlier: MooncakeRequest, call_id: int) -> Dependency:
    """Start to start is all that the source tells."""
    return Dependency(
        call=call_id, relation="sequence", trigger="dispatch", gap_ns=request.at_ns - earlier.at_ns
    )
