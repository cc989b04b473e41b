"""Pure: what is in a trace, as numbers: trees, gaps, prompt sizes, sharing.

Sharing asks, of every unit of every prompt in order of the trace: was the same prefix sent before, and by whom? It
is what a cache that never forgets could serve. Prompts that continue an earlier call of their session were sent before
up to there, so only their new segments are looked at block by block.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aitrace.prompts import PromptResolver, block_sizes
from aitrace.quantiles import quantile
from aitrace.schema import Call, GapCause, Header, Segment, Session, Trace, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """One session."""

    id: int
    """Session id in the trace."""
    depth: int
    """0 for a root, 1 for its sub-agents, and so on."""
    agent: str | None
    """Kind of agent; None for a main agent or if not told."""
    label: str | None
    """Name in the source; None if there is none."""
    calls: int
    """Calls of this session alone."""
    windows: int
    """Histories it had: 1 more than the number of times its history was replaced."""
    first_prompt: int | None
    """Size of its first prompt, in the trace's unit; None if it made no call."""
    largest_prompt: int | None
    """Size of its largest prompt, in the trace's unit; None if it made no call."""
    output_tokens: int | None
    """Sum of reported output tokens; None if no call reported any."""
    start_ns: int | None
    """Its first request on the trace's clock, ns; None if it made no call."""
    duration_ns: int | None
    """From its first request to its last known point, ns; None if no second point is known."""
    models: tuple[str, ...]
    """Models asked for, in order of appearance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFacts:
    """One root session with its descendants."""

    root: int
    """Session id of the root."""
    calls: int
    """Calls of all its sessions."""
    prompt_units: int
    """Sum of the sizes of all its prompts, in the trace's unit."""
    duration_ns: int | None
    """From the first request to the last known point of any of its calls, ns; None if no second point is
    known."""
    turns: int | None
    """Prompts of the user; None if no call says to which it belongs."""
    sessions: tuple[SessionFacts, ...]
    """Parents before their children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFacts:
    """Gaps of one cause: per call, from the end of the last thing it waited for to its request."""

    cause: GapCause
    """What filled them."""
    count: int
    """Number of gaps."""
    negative: int
    """Those below 0: the request came before the end of what it waited for, within the source's time resolution."""
    p50_ns: int
    """Median, ns; like the others the smallest observed value that this share of gaps does not exceed."""
    p90_ns: int
    """90th percentile, ns."""
    p99_ns: int
    """99th percentile, ns."""
    max_ns: int
    """Longest, ns."""
    total_ns: int
    """Sum, ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFacts:
    """Distribution of a size over calls."""

    count: int
    """Number of calls."""
    p50: int
    """Median."""
    p90: int
    """90th percentile."""
    p99: int
    """99th percentile."""
    max: int
    """Largest."""
    total: int
    """Sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Prompt units by who had sent the same prefix before; the parts add up to `prompt_units`."""

    prompt_units: int
    """All units of all prompts: the denominator of every ratio of sharing."""
    within_session: int
    """Sent before by the same session."""
    between_agents: int
    """Sent before by another session of the same tree, and not by this one."""
    between_trees: int | None
    """Sent before by another tree only; None where block ids are local to a tree, so that it cannot be known."""
    new: int
    """Not sent before, as far as it can be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What is in a trace."""

    header: Header
    """Its header."""
    unit: Unit
    """What prompt sizes and sharing count."""
    calls: int
    """Calls."""
    calls_by_class: dict[str, int]
    """Calls by what they are for."""
    calls_by_error: dict[str, int]
    """Calls that did not end with a complete answer, by kind of error; `unrecorded` are those whose end is not known."""
    retries: int
    """Calls that repeat an earlier attempt."""
    calls_with_unseen_start: int
    """Calls of whose prompt the beginning was not seen."""
    calls_by_transport: dict[str, int]
    """Calls by what carried them; calls of which that is not known are left out."""
    compressed_answers: dict[str, int]
    """Calls by the content-encoding of their response; those without one are left out."""
    models: dict[str, int]
    """Calls by model; calls without one are left out."""
    sessions: int
    """Sessions."""
    sessions_by_harness: dict[str, int]
    """Sessions by harness, with its version where that is known; sessions of an unknown one are left out."""
    sessions_by_evidence: dict[str, int]
    """Sessions by the rules that told whose calls they are; one session may have several."""
    segments: int
    """Segments stored."""
    blocks: int
    """Distinct blocks."""
    input_tokens: int | None
    """Sum of reported prompt tokens; None if no call reported any."""
    output_tokens: int | None
    """Sum of reported output tokens; None if no call reported any."""
    prompt_sizes: SizeFacts | None
    """Sizes of prompts in the trace's unit; None if there are no calls."""
    gaps: tuple[GapFacts, ...]
    """Gaps after completions by cause, the most time first."""
    start_to_start: int
    """Calls timed only from the dispatch of another one, which are in no gap."""
    unknown_gaps: int
    """Calls that waited for something whose time is not known."""
    sharing: Sharing
    """Who had sent the prompts' units before."""
    trees: tuple[TreeFacts, ...]
    """Trees in order of the trace."""
    dropped_calls: int | None
    """Calls the recorder saw but did not write; None without a footer."""


def inspect_trace(trace: Trace) -> Inspection:
    """All facts of a trace."""
    prompts = PromptResolver(trace.calls)
    segment_sizes = [segment.size for segment in trace.segments]
    prompt_sizes = [sum(map(segment_sizes.__getitem__, prompts.segment_ids(call.id))) for call in trace.calls]
    gaps, start_to_start, unknown_gaps = _gaps(trace.calls)
    footer = trace.footer
    return Inspection(
        header=trace.header,
        unit=trace.header.unit,
        calls=len(trace.calls),
        calls_by_class=_counts(call.call_class for call in trace.calls),
        calls_by_error=_counts(call.outcome.error for call in trace.calls),
        retries=sum(call.retry_of is not None for call in trace.calls),
        calls_with_unseen_start=sum(call.prompt.unseen_start for call in trace.calls),
        calls_by_transport=_counts(call.wire.transport for call in trace.calls if call.wire),
        compressed_answers=_counts(call.wire.response_encoding for call in trace.calls if call.wire),
        models=_counts(call.model for call in trace.calls),
        sessions=len(trace.sessions),
        sessions_by_harness=_counts(map(_harness, trace.sessions)),
        sessions_by_evidence=_counts(rule for session in trace.sessions for rule in session.evidence),
        segments=len(trace.segments),
        blocks=max(
            (first + count for segment in trace.segments for first, count in segment.blocks), default=0
        ),
        input_tokens=_known_sum(call.usage.input_tokens for call in trace.calls),
        output_tokens=_known_sum(call.usage.output_tokens for call in trace.calls),
        prompt_sizes=_size_facts(prompt_sizes),
        gaps=gaps,
        start_to_start=start_to_start,
        unknown_gaps=unknown_gaps,
        sharing=sharing_of(trace, sum(prompt_sizes)),
        trees=_trees(trace, prompt_sizes),
        dropped_calls=None if footer is None else footer.dropped_calls,
    )


def _harness(session: Session) -> str | None:
    if session.harness is None or session.harness_version is None:
        return session.harness
    return f"{session.harness} {session.harness_version}"


def _counts(values: Iterable[str | None]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        if value is not None:
            counts[value] = counts.get(value, 0) + 1
    return counts


def _known_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _size_facts(sizes: Sequence[int]) -> SizeFacts | None:
    if not sizes:
        return None
    ordered = sorted(sizes)
    return SizeFacts(
        count=len(ordered),
        p50=quantile(ordered, 0.5),
        p90=quantile(ordered, 0.9),
        p99=quantile(ordered, 0.99),
        max=ordered[-1],
        total=sum(ordered),
    )


def _gaps(calls: Sequence[Call]) -> tuple[tuple[GapFacts, ...], int, int]:
    """Gaps by cause; the number of calls timed from a dispatch; the number whose gap is not known."""
    by_cause: dict[GapCause, list[int]] = {}
    start_to_start = unknown = 0
    for call in calls:
        completions = [link for link in call.after if link.trigger == "completion"]
        timed = [(link.gap_ns, link.cause) for link in completions if link.gap_ns is not None]
        if timed:
            # The shortest gap belongs to what ended last: the rest was waiting for that.
            gap_ns, cause = min(timed)
            by_cause.setdefault(cause, []).append(gap_ns)
        elif completions or any(link.gap_ns is None for link in call.after):
            unknown += 1
        elif call.after:
            start_to_start += 1
    facts = [_gap_facts(cause, sorted(gaps)) for cause, gaps in by_cause.items()]
    return tuple(sorted(facts, key=lambda gap: -gap.total_ns)), start_to_start, unknown


def _gap_facts(cause: GapCause, gaps: Sequence[int]) -> GapFacts:
    return GapFacts(
        cause=cause,
        count=len(gaps),
        negative=sum(gap < 0 for gap in gaps),
        p50_ns=quantile(gaps, 0.5),
        p90_ns=quantile(gaps, 0.9),
        p99_ns=quantile(gaps, 0.99),
        max_ns=gaps[-1],
        total_ns=sum(gaps),
    )


class _Prefixes:
    """Every prefix that was sent, as nodes of a tree of blocks, with who sent it."""

    def __init__(self) -> None:
        self._node_of: dict[tuple[int, int], int] = {}
        self._seen: set[tuple[int, int]] = set()

    def step(self, node: int, block: int) -> tuple[int, bool]:
        """The node one block further, and whether it was there before; 0 and below are empty prefixes."""
        key = (node, block)
        known = self._node_of.get(key)
        if known is not None:
            return known, True
        self._node_of[key] = new = len(self._node_of) + 1
        return new, False

    def mark(self, node: int, who: int) -> bool:
        """Note that `who` sent this prefix; whether it had before."""
        key = (node, who)
        if key in self._seen:
            return True
        self._seen.add(key)
        return False


def sharing_of(trace: Trace, prompt_units: int) -> Sharing:
    """Who had sent the units of all prompts before.

    Args:
        prompt_units: Sum of the sizes of all prompts.
    """
    prefixes = _Prefixes()
    local = trace.header.block_scope == "tree"
    # Where a prompt whose start was not seen begins, nobody else's does: what came before it may differ.
    unseen: dict[int, int] = {}
    # Nodes at the ends of each call's segments, for the prompts that keep them.
    ends: list[tuple[int, ...]] = []
    counts = dict.fromkeys(("session", "tree", "trace", "new"), 0)
    prompts = PromptResolver(trace.calls)
    sizes = [block_sizes(segment, trace.header.block_size) for segment in trace.segments]
    for call in trace.calls:
        root = trace.sessions[call.session].root
        base = None if call.prompt.base is None else trace.calls[call.prompt.base]
        nodes: list[int] = []
        ids = prompts.segment_ids(call.id)
        if base is not None and base.session == call.session:
            nodes = list(ends[base.id][: call.prompt.keep])
            counts["session"] += sum(trace.segments[i].size for i in ids[: len(nodes)])
        # Equal ids of two trees say nothing where they are local: each tree then has an empty prefix of its own.
        start = -1 - root if local else 0
        if call.prompt.unseen_start:
            kept_from = base.id if base is not None and call.prompt.keep else call.id
            start = unseen[call.id] = unseen.get(kept_from, -1 - len(trace.sessions) - call.id)
        node = nodes[-1] if nodes else start
        for segment_id in ids[len(nodes) :]:
            for block, size in zip(_blocks(trace.segments[segment_id]), sizes[segment_id], strict=True):
                node, known = prefixes.step(node, block)
                # Sessions and trees are told apart by their parity.
                by_session = prefixes.mark(node, 2 * call.session)
                by_tree = prefixes.mark(node, 2 * root + 1)
                who = "session" if by_session else "tree" if by_tree else "trace" if known else "new"
                counts[who] += size
            nodes.append(node)
        ends.append(tuple(nodes))
    return Sharing(
        prompt_units=prompt_units,
        within_session=counts["session"],
        between_agents=counts["tree"],
        between_trees=None if local else counts["trace"],
        new=counts["new"],
    )


def _blocks(segment: Segment) -> Iterator[int]:
    for first, count in segment.blocks:
        yield from range(first, first + count)


def _trees(trace: Trace, prompt_sizes: Sequence[int]) -> tuple[TreeFacts, ...]:
    calls_of: dict[int, list[Call]] = {session.id: [] for session in trace.sessions}
    for call in trace.calls:
        calls_of[call.session].append(call)
    members: dict[int, list[Session]] = {}
    for session in trace.sessions:
        members.setdefault(session.root, []).append(session)
    return tuple(
        _tree_facts(root, _parents_first(sessions), calls_of, prompt_sizes)
        for root, sessions in members.items()
    )


def _parents_first(sessions: Sequence[Session]) -> list[tuple[int, Session]]:
    """Sessions of a tree with their depth; each one's children directly after it."""
    children: dict[int | None, list[Session]] = {}
    for session in sessions:
        children.setdefault(session.parent, []).append(session)
    ordered: list[tuple[int, Session]] = []
    stack = [(0, session) for session in reversed(children.get(None, []))]
    while stack:
        depth, session = stack.pop()
        ordered.append((depth, session))
        stack += [(depth + 1, child) for child in reversed(children.get(session.id, []))]
    return ordered


def _tree_facts(
    root: int,
    sessions: Sequence[tuple[int, Session]],
    calls_of: dict[int, list[Call]],
    prompt_sizes: Sequence[int],
) -> TreeFacts:
    calls = [call for _, session in sessions for call in calls_of[session.id]]
    turns = {call.turn for call in calls if call.turn is not None}
    return TreeFacts(
        root=root,
        calls=len(calls),
        prompt_units=sum(prompt_sizes[call.id] for call in calls),
        duration_ns=_duration_ns(calls),
        turns=len(turns) if turns or not calls else None,
        sessions=tuple(
            _session_facts(depth, session, calls_of[session.id], prompt_sizes) for depth, session in sessions
        ),
    )


def _session_facts(
    depth: int, session: Session, calls: Sequence[Call], prompt_sizes: Sequence[int]
) -> SessionFacts:
    sizes = [prompt_sizes[call.id] for call in calls]
    return SessionFacts(
        id=session.id,
        depth=depth,
        agent=session.agent,
        label=session.label,
        calls=len(calls),
        windows=len({call.window for call in calls}),
        first_prompt=sizes[0] if sizes else None,
        largest_prompt=max(sizes, default=None),
        output_tokens=_known_sum(call.usage.output_tokens for call in calls),
        start_ns=min((call.times.request_ns for call in calls), default=None),
        duration_ns=_duration_ns(calls),
        models=tuple(_counts(call.model for call in calls)),
    )


def _duration_ns(calls: Sequence[Call]) -> int | None:
    if not calls:
        return None
    start_ns = min(call.times.request_ns for call in calls)
    points = [call.times.request_ns if call.times.end_ns is None else call.times.end_ns for call in calls]
    # A single call whose end is not known has no length, rather than a length of 0.
    return max(points) - start_ns or None
