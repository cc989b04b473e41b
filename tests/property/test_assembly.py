"""Any interleaving of agents gives a valid trace that says what was asked, when, and why."""

from dataclasses import dataclass, field
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.assembly import Answer, Ask, Assembler
from aitrace.codec import encode_line
from aitrace.harnesses.detector import Identity
from aitrace.no_text import find_text
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import (
    Call,
    CallClass,
    CallTimes,
    ErrorKind,
    Footer,
    Header,
    Outcome,
    Role,
    Segment,
    SegmentType,
    Session,
    ToolCall,
    Update,
)
from aitrace.updates import updated_call
from aitrace.validate import TraceRules

PROSE = "the words of "
ERRORS = (None, None, None, "refused", "cut", "client_abort", "error_event")
STEPS = ("typed", "results", "notice", "retry", "compaction", "replaced", "title", "waited")
AGENTS = ("a", "a/b", "a/b/c", "a/d", "e", "e/f")


@dataclass
class Agent:
    """What the slow twin knows of a session."""

    key: str
    prompt: list = field(default_factory=list)
    chain: list = field(default_factory=list)
    windows: int = 0
    is_compacted: bool = False


@dataclass
class Asked:
    """What the slow twin knows of a call."""

    agent: Agent
    parts: tuple
    at_ns: int
    step: str
    is_aside: bool
    error: str | None = None
    asks_tools: bool = False
    end_ns: int | None = None


class Twin:
    """Draws what agents do, feeds it to an assembler, and keeps everything."""

    def __init__(self, steps):
        self.assembler = Assembler(b"key", block_size=8)
        self.agents = {key: Agent(key) for key in AGENTS}
        self.lines = [Header(producer="test", unit="bytes", block_size=8)]
        self.asked = []
        self.open = []
        self.now_ns = 0
        self.count = 0
        for agent, step, pause, flag in steps:
            self.now_ns += pause
            if agent is None:
                self._end(flag)
            else:
                self._begin(self.agents[agent], step)

    def _part(self, role, kind="text", **fields):
        self.count += 1
        return RequestPart(role=role, type=kind, text=f"{PROSE}{self.count}", **fields)

    def _begin(self, agent, step):
        parts, typed = self._parts(agent, step)
        if step == "retry" and agent.chain and self.asked[agent.chain[-1]].step == "compaction":
            step = "compaction"
        is_aside = step == "title"
        call_class = {"title": "auxiliary", "compaction": "compaction"}.get(step, "unknown")
        ask = Ask(
            identity=Identity(
                harness="codex",
                session=agent.key,
                parent=agent.key.rpartition("/")[0] or None,
                root=agent.key.partition("/")[0],
                agent="made up" if "/" in agent.key else None,
                call_class=call_class,
                tool_durations=(("Agent", 5), ("acme", 6)),
            ),
            protocol="responses",
            model="gpt",
            parts=tuple(parts),
            typed=typed,
            streamed=True,
            request_ns=self.now_ns,
        )
        call, lines = self.assembler.begin(ask)
        assert call == len(self.asked)
        self.lines += lines
        self.open.append(call)
        self.asked.append(Asked(agent, ask.parts, self.now_ns, step, is_aside))
        if not is_aside:
            agent.chain.append(call)

    def _parts(self, agent, step):
        """The next prompt of an agent and the places that were typed in it."""
        old = agent.prompt
        if step == "title":
            return [self._part("system", "system"), self._part("user")], (1,)
        if step == "retry" and agent.chain:
            return list(self.asked[agent.chain[-1]].parts), ()
        if step == "compaction":
            return [*old, self._part("user")], ()
        if step == "replaced" or not old:
            agent.prompt = [self._part("user")]
            return agent.prompt, (0,) if step == "typed" else ()
        name = {"results": "Agent", "waited": "wait_agent"}.get(step)
        if name is not None:
            use = self._part("assistant", "tool_use", tool_id=f"tool {self.count}", tool_name=name)
            agent.prompt = [*old, use, self._part("tool", "tool_result", tool_id=use.tool_id)]
            return agent.prompt, ()
        agent.prompt = [*old, self._part("assistant"), self._part("user")]
        return agent.prompt, (len(agent.prompt) - 1,) if step == "typed" else ()

    def _end(self, flag):
        if not self.open:
            return
        call = self.open.pop(flag % len(self.open))
        asked = self.asked[call]
        asked.error = ERRORS[flag % len(ERRORS)]
        asked.end_ns = self.now_ns if flag % 11 else None
        names = (("Agent", "acme"), ("Bash",), ())[flag % 3]
        asked.asks_tools = asked.error is None and bool(names)
        self.lines += self.assembler.end(
            call,
            Answer(
                outcome=Outcome(status=200, error=asked.error),
                times=CallTimes(request_ns=asked.at_ns, end_ns=asked.end_ns),
                tool_calls=None if asked.error else tuple(ToolCall(name=name) for name in names),
                tool_ids=tuple(f"call {call} {name}" for name in names) if flag % 2 else (),
            ),
        )


steps = st.lists(
    st.tuples(
        st.sampled_from((*AGENTS, None, None, None)),
        st.sampled_from(STEPS),
        st.integers(0, 3),
        st.integers(0, 300),
    ),
    max_size=60,
)


def merged(lines):
    calls = []
    for line in lines:
        if isinstance(line, Call):
            calls.append(line)
        elif isinstance(line, Update):
            calls[line.call] = updated_call(calls[line.call], line)
    return calls


@settings(max_examples=300, deadline=None)
@given(steps)
def test_the_lines_are_a_valid_trace_without_text(drawn):
    twin = Twin(drawn)
    rules = TraceRules()
    counts = [sum(isinstance(line, kind) for line in twin.lines) for kind in (Session, Segment, Call)]
    blocks = [block for line in twin.lines if isinstance(line, Segment) for block in line.blocks]
    footer = Footer(
        sessions=counts[0],
        segments=counts[1],
        calls=counts[2],
        blocks=max((first + count for first, count in blocks), default=0),
    )
    for number, line in enumerate([*twin.lines, footer], 1):
        assert [f for f in rules.check(number, line) if f.severity == "error"] == []
        assert list(find_text(number, encode_line(line))) == []
        assert PROSE.encode() not in encode_line(line)
    assert [f for f in rules.finish() if f.severity == "error"] == []


@settings(max_examples=200, deadline=None)
@given(steps)
def test_prompts_resolve_to_what_was_asked(drawn):
    twin = Twin(drawn)
    segment_of = {}
    resolved = []
    for call, asked in zip(merged(twin.lines), twin.asked, strict=True):
        prompt = call.prompt
        kept = () if prompt.base is None else resolved[prompt.base][: prompt.keep]
        resolved.append(kept + prompt.add)
        assert len(resolved[-1]) == len(asked.parts)
        for part, segment in zip(asked.parts, resolved[-1], strict=True):
            assert segment_of.setdefault((part.role, part.type, part.text), segment) == segment
        longest = max((_shared(asked.parts, other.parts) for other in twin.asked[: call.id]), default=0)
        assert prompt.keep == longest
    assert len(set(segment_of.values())) == len(segment_of)


def _shared(one, other):
    return next(
        (place for place, (x, y) in enumerate(zip(one, other, strict=False)) if x != y),
        min(len(one), len(other)),
    )


@settings(max_examples=300, deadline=None)
@given(steps)
def test_every_call_can_be_placed_and_has_its_session_retry_window_and_cause(drawn):
    twin = Twin(drawn)
    sessions = [line for line in twin.lines if isinstance(line, Session)]
    key_of = {}
    roots = set()
    windows = dict.fromkeys(AGENTS, 0)
    chain = dict.fromkeys(AGENTS)
    for call, asked in zip(merged(twin.lines), twin.asked, strict=True):
        key = asked.agent.key
        assert key_of.setdefault(call.session, key) == key
        assert bool(call.after) == (sessions[call.session].root in roots)
        roots.add(sessions[call.session].root)
        assert all(wait.gap_ns is None or wait.gap_ns >= 0 for wait in call.after)
        assert len({(wait.call, wait.relation) for wait in call.after}) == len(call.after)
        last = None if chain[key] is None else twin.asked[chain[key]]
        is_over = last is not None and _has_ended(twin, chain[key], call.id)
        is_retry = not asked.is_aside and is_over and last.error is not None and last.parts == asked.parts
        assert (call.retry_of == chain[key] if is_retry else call.retry_of is None) or asked.is_aside
        if not asked.is_aside:
            if asked.step == "replaced" and last is not None and _has_history(twin, key, call.id):
                windows[key] += 1
            assert call.window == windows[key]
            if last is not None and not is_retry:
                assert call.after[0].call == chain[key]
                assert call.after[0].cause == _cause(asked, last, is_over)
            chain[key] = call.id


def _has_history(twin, key, before):
    """Whether the session's chain has a call that is no compaction."""
    return any(call < before and twin.asked[call].step != "compaction" for call in twin.agents[key].chain)


def _has_ended(twin, call, by):
    """Whether the call's end was told before `by` began."""
    for line in twin.lines:
        if isinstance(line, Call) and line.id == by:
            return False
        if isinstance(line, Update) and line.call == call and line.outcome is not None:
            return True
    raise AssertionError(by)


def _cause(asked, last, is_over):
    is_done = is_over and not last.asks_tools and last.step != "compaction"
    has_results = asked.step in ("results", "waited") and asked.parts[-1].type == "tool_result"
    is_root = "/" not in asked.agent.key
    error = last.error if is_over else None
    if asked.step == "compaction":
        if is_over and last.asks_tools:
            return "tool"
        return "user" if is_done and is_root and error in (None, "client_abort") else "harness"
    if has_results and last.step != "compaction":
        return "tool"
    if asked.step == "typed" and is_root:
        return "user"
    return "backoff" if error not in (None, "client_abort") else "harness"


prompts = st.lists(
    st.lists(st.sampled_from(["sys", "one", "two", "three"]), max_size=5), min_size=1, max_size=30
)


@settings(max_examples=300, deadline=None)
@given(prompts, st.lists(st.integers(0, 6), min_size=30, max_size=30))
def test_prompts_of_nobody_are_sessions_by_what_they_extend(drawn, flags):
    assembler = Assembler(b"key")
    rules = TraceRules()
    lines = [Header(producer="test", unit="bytes", block_size=256)]
    for at_ns, (words, flag) in enumerate(zip(drawn, flags, strict=False)):
        parts = tuple(
            RequestPart(role="system" if word == "sys" else "user", type="text", text=word) for word in words
        )
        ask = Ask(identity=Identity(), protocol=None, model=None, parts=parts, request_ns=at_ns)
        call, begun = assembler.begin(ask)
        lines += begun
        if flag:
            lines += assembler.end(
                call,
                Answer(outcome=Outcome(error=ERRORS[flag]), times=CallTimes(request_ns=at_ns, end_ns=at_ns)),
            )
    for number, line in enumerate(lines, 1):
        assert [f for f in rules.check(number, line) if f.severity == "error"] == []
    last_words = {}
    for call, words in zip(merged(lines), drawn, strict=False):
        last = last_words.get(call.session)
        assert last is None or last == words[: len(last)]
        assert (last == words) == (call.retry_of is not None)
        last_words[call.session] = words


keys = st.none() | st.sampled_from(["", "a", "b", "c", "\ud800"])
texts = st.sampled_from(["", "x", "y" * 700, "\ud800"])
identities = st.builds(
    Identity,
    harness=st.sampled_from([None, "codex"]),
    session=keys,
    parent=keys,
    root=keys,
    agent=st.sampled_from([None, "Explore", "acme", "\ud800"]),
    call_class=st.sampled_from(get_args(CallClass)),
    prompt_id=keys,
    is_window_start=st.booleans(),
    tool_durations=st.none() | st.lists(st.tuples(texts, st.integers(-2, 9)), max_size=3).map(tuple),
)
parts = st.builds(
    RequestPart,
    role=st.sampled_from(get_args(Role)),
    type=st.sampled_from(get_args(SegmentType)),
    text=texts,
    tool_id=keys,
    tool_name=st.sampled_from([None, "Agent", "acme", "wait"]),
)
asks = st.builds(
    Ask,
    identity=identities,
    scope=st.sampled_from(["", "a"]),
    protocol=st.none(),
    model=st.none(),
    parts=st.lists(parts, max_size=6).map(tuple),
    typed=st.none() | st.lists(st.integers(-2, 9), max_size=3).map(tuple),
    result_durations=st.dictionaries(st.sampled_from(["", "a", "b"]), st.integers(-2, 9)),
    spawned_by=keys,
    unseen_start=st.booleans(),
    streamed=st.none() | st.booleans(),
    request_ns=st.integers(-9, 99),
)
answers = st.builds(
    Answer,
    outcome=st.builds(Outcome, error=st.sampled_from([None, *get_args(ErrorKind)])),
    times=st.builds(CallTimes, request_ns=st.just(0), end_ns=st.none() | st.integers(99, 199)),
    tool_calls=st.none()
    | st.lists(st.builds(ToolCall, name=st.sampled_from([None, "Agent", "acme"])), max_size=2).map(tuple),
    tool_ids=st.lists(keys, max_size=2).map(tuple),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(asks, st.none() | answers), max_size=12))
def test_whatever_is_asked_gives_a_valid_trace(drawn):
    """Keys in circles, ids that nobody gave, clocks that run backwards."""
    assembler = Assembler(b"")
    rules = TraceRules()
    lines = [Header(producer="test", unit="bytes", block_size=256)]
    for ask, answer in drawn:
        call, begun = assembler.begin(ask)
        lines += begun if answer is None else [*begun, *assembler.end(call, answer)]
    for number, line in enumerate(lines, 1):
        assert [f for f in rules.check(number, line) if f.severity == "error"] == []
        assert list(find_text(number, encode_line(line))) == []
