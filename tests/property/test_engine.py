"""The engine's cache, tokens and timing against slow twins and laws."""

import math
import re
from dataclasses import dataclass, field

import xxhash
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from replayer.engine.options import EngineOptions
from replayer.engine.prefix_cache import Lease, PrefixCache
from replayer.engine.simulation import Admitted, PrefillStarted, Simulation, TokensDue, Work
from replayer.engine.tokens import PIECE_BYTES, Digest, digest_steps

# Tokens


def digest(text: bytes, block_size: int, piece_bytes: int = PIECE_BYTES) -> Digest:
    steps = digest_steps(text, block_size, piece_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def slow_digest(text: bytes, block_size: int) -> tuple[int, list[int]]:
    """Tokens and block keys by the words of the definition."""
    ends = []
    for word in re.finditer(rb"[^\x00-\x20]+", text):
        ends += [min(at + 8, word.end()) for at in range(word.start(), word.end(), 8)]
    keys, key, start = [], 0, 0
    for end in ends[block_size - 1 :: block_size]:
        key = xxhash.xxh3_64_intdigest(text[start:end], key)
        keys.append(key)
        start = end
    return len(ends), keys


texts = st.lists(
    st.one_of(
        st.sampled_from([b" ", b"\n", b"  \t", b"\x00", b"a", b"word", b"12345678", b"x" * 9, b"y" * 40]),
        st.binary(max_size=12),
    ),
    max_size=60,
).map(b"".join)


@given(text=texts, block_size=st.integers(1, 7))
@settings(max_examples=200)
def test_tokens_and_blocks_are_as_defined(text, block_size):
    found = digest(text, block_size)
    assert (found.tokens, list(found.blocks)) == slow_digest(text, block_size)


@given(text=texts, block_size=st.integers(1, 7), piece_bytes=st.integers(1, 64))
@settings(max_examples=200)
def test_pieces_of_any_size_give_the_same_digest(text, block_size, piece_bytes):
    assert digest(text, block_size, piece_bytes) == digest(text, block_size)


@given(start=texts, rest=texts, block_size=st.integers(1, 7))
@settings(max_examples=200)
def test_the_blocks_of_a_text_are_those_of_every_extension(start, rest, block_size):
    start += b"\n"
    blocks = digest(start, block_size).blocks
    assert blocks == digest(start + rest, block_size).blocks[: len(blocks)]


# Cache


@dataclass
class TwinBlock:
    users: int = 0
    last_use: int = 0
    depth: int = 0


@dataclass
class Twin:
    """A prefix tree as a dict of paths: evicts the idle leaf that was released first, in one request the deepest."""

    capacity: int | None
    blocks: dict[tuple[int, ...], TwinBlock] = field(default_factory=dict)
    private: int = 0
    uses: int = 0

    def match(self, path: tuple[int, ...]) -> int:
        return next((n for n in range(len(path)) if path[: n + 1] not in self.blocks), len(path))

    def held(self) -> int:
        return self.private + sum(1 for block in self.blocks.values() if block.users)

    def admit(self, path: tuple[int, ...], total: int) -> int | None:
        hits = self.match(path)
        for n in range(hits):
            self.blocks[path[: n + 1]].users += 1
        self.private += total - hits
        if self.capacity is not None and self.held() > self.capacity:
            for n in range(hits):
                self.blocks[path[: n + 1]].users -= 1
            self.private -= total - hits
            return None
        while self.capacity is not None and self.private + len(self.blocks) > self.capacity:
            del self.blocks[min(self.idle_leaves(), key=lambda p: (self.blocks[p].last_use, -len(p)))]
        return hits

    def idle_leaves(self) -> list[tuple[int, ...]]:
        parents = {path[:-1] for path in self.blocks}
        return [path for path, block in self.blocks.items() if not block.users and path not in parents]

    def register(self, path: tuple[int, ...], pinned: int) -> None:
        for n in range(pinned, len(path)):
            self.blocks.setdefault(path[: n + 1], TwinBlock()).users += 1
            self.private -= 1

    def release(self, path: tuple[int, ...], pinned: int, private: int) -> None:
        self.uses += 1
        self.private -= private
        for n in range(pinned):
            self.blocks[path[: n + 1]].users -= 1
            self.blocks[path[: n + 1]].last_use = self.uses


def keys_from_path(path: tuple[int, ...]) -> list[int]:
    """Chained keys, as the digest makes them: equal only for equal paths."""
    return [hash(path[: n + 1]) for n in range(len(path))]


paths = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)
actions = st.one_of(
    st.tuples(st.just("admit"), paths, st.integers(0, 2)),
    st.tuples(st.sampled_from(["compute", "release", "extend"]), st.integers(0, 5), st.just(0)),
)


@given(capacity=st.one_of(st.none(), st.integers(1, 14)), steps=st.lists(actions, max_size=50))
@settings(max_examples=400)
def test_the_cache_does_what_a_prefix_tree_does(capacity, steps):
    cache, twin = PrefixCache(capacity), Twin(capacity)
    held: list[tuple[tuple[int, ...], Lease]] = []
    for name, what, more in steps:
        if name == "admit":
            total = len(what) + more
            lease, hits = cache.admit(keys_from_path(what), total), twin.admit(what, total)
            assert (None if lease is None else len(lease.pinned)) == hits
            if lease is not None:
                held.append((what, lease))
        elif held:
            path, lease = held[what % len(held)]
            step_on(cache, twin, name, path, lease)
            if name == "release":
                held.pop(what % len(held))
        assert (cache.used_blocks, cache.cached_blocks) == (twin.held(), len(twin.blocks))
        assert capacity is None or cache.used_blocks <= capacity
    for path in [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]:
        assert cache.match(keys_from_path(path)) == twin.match(path)


def step_on(cache: PrefixCache, twin: Twin, name: str, path: tuple[int, ...], lease: Lease) -> None:
    pinned = len(lease.pinned)
    if name == "compute":
        cache.register(lease, keys_from_path(path))
        twin.register(path, pinned)
    elif name == "extend":
        cache.extend(lease, keys_from_path(path))
        twin.register(path[: twin.match(path)], pinned)
    else:
        private = lease.private
        cache.release(lease)
        twin.release(path, pinned, private)


# Simulation

MS = 1_000_000


@dataclass
class Visit:
    """A request, and what happens to it; times in ns."""

    at: int
    prompt: int
    output: int
    conversation: int
    leaves: int | None
    told: dict[str, int] = field(default_factory=dict)


class SlowEngine:
    """The documented rules, every step found by looking through everything; blocks of 4, 1 ms per prompt token."""

    def __init__(self, visits: list[Visit], batch: int) -> None:
        self.batch = batch
        self.cached: set[tuple[int, int]] = set()
        self.waiting: list[Visit] = []
        self.running: list[Visit] = []
        self.to_prefill: list[Visit] = []
        self.ahead = [(visit.at, self.arrive, visit) for visit in visits]
        self.ahead += [(visit.leaves, self.leave, visit) for visit in visits if visit.leaves is not None]

    def play(self) -> None:
        while self.ahead:
            step = min(self.ahead, key=lambda step: step[0])
            self.ahead.remove(step)
            at, act, visit = step
            # What comes first of two things in the same ns is not documented.
            assume(all(other[0] > at for other in self.ahead))
            act(visit, at)
            while self.waiting and len(self.running) < self.batch:
                admitted = self.waiting.pop(0)
                admitted.told["admitted"] = at
                self.running.append(admitted)
                self.to_prefill.append(admitted)
            if self.to_prefill and not any(act == self.compute for _, act, _ in self.ahead):
                self.begin(self.to_prefill.pop(0), at)

    def arrive(self, visit: Visit, at: int) -> None:
        self.waiting.append(visit)

    def begin(self, visit: Visit, at: int) -> None:
        hits = 0
        while hits < (visit.prompt - 1) // 4 and (visit.conversation, hits) in self.cached:
            hits += 1
        visit.told |= {"prefill": at, "cached": hits * 4}
        self.ahead.append((at + (visit.prompt - hits * 4) * MS, self.compute, visit))

    def compute(self, visit: Visit, at: int) -> None:
        visit.told["first"] = at
        self.cached |= {(visit.conversation, n) for n in range(visit.prompt // 4)}
        decode_ns = math.ceil((visit.output - 1) * 1e9 / ODD_RATE)
        self.ahead.append((at + decode_ns, self.finish, visit))

    def finish(self, visit: Visit, at: int) -> None:
        visit.told["last"] = at
        self.cached |= {(visit.conversation, n) for n in range((visit.prompt + visit.output - 1) // 4)}
        self.running.remove(visit)

    def leave(self, visit: Visit, at: int) -> None:
        self.ahead = [step for step in self.ahead if step[2] is not visit]
        for line in (self.waiting, self.running, self.to_prefill):
            if visit in line:
                line.remove(visit)


# Tokens per second; so odd that hardly ever two things happen in the same ns.
ODD_RATE = 97.3
visits = st.tuples(
    st.integers(1, 60),  # ms since the last
    st.integers(1, 40),  # prompt tokens
    st.integers(2, 9),  # output tokens
    st.integers(0, 2),  # conversation
    st.one_of(st.none(), st.integers(1, 90)),  # ms after which the client leaves
)


@given(drawn=st.lists(visits, min_size=1, max_size=12), batch=st.integers(1, 4))
@settings(max_examples=200)
def test_admission_prefill_hits_and_tokens_are_those_of_a_slow_engine(drawn, batch):
    now, expected = 0, []
    for number, (wait_ms, prompt, output, conversation, stays_ms) in enumerate(drawn):
        # A few odd ns apart, for the same reason.
        now += wait_ms * MS + 7919
        leaves = None if stays_ms is None else now + stays_ms * MS + 100_003 * (number + 1)
        expected.append(Visit(now, prompt, output, conversation, leaves))
    SlowEngine(expected, batch).play()
    assert play_fast(expected, batch) == [visit.told for visit in expected]


def play_fast(visits: list[Visit], batch: int) -> list[dict[str, int]]:
    options = EngineOptions(
        block_size=4, prefill_tokens_per_s=1000.0, decode_tokens_per_s=ODD_RATE, batch=batch, step_ns=0
    )
    simulation = Simulation(options)
    told: list[dict[str, int]] = [{} for _ in visits]
    acts = [(visit.at, number, True) for number, visit in enumerate(visits)]
    acts += [(visit.leaves, number, False) for number, visit in enumerate(visits) if visit.leaves is not None]
    acts.sort()
    while acts or simulation.next_at_ns() is not None:
        due_ns = simulation.next_at_ns()
        if acts and (due_ns is None or acts[0][0] < due_ns):
            now, number, arrives = acts.pop(0)
            visit = visits[number]
            blocks = [visit.conversation * 100 + n for n in range((visit.prompt + visit.output - 1) // 4)]
            work = Work(id=number, prompt_tokens=visit.prompt, output_tokens=visit.output, blocks=blocks)
            _ = simulation.submit(work, now) if arrives else simulation.cancel(number, now)
        else:
            now = due_ns
        for event in simulation.advance(now):
            note(told[event.id], event, now)
    return told


def note(told: dict[str, int], event: Admitted | PrefillStarted | TokensDue, now: int) -> None:
    match event:
        case Admitted():
            told["admitted"] = event.at_ns
        case PrefillStarted():
            told |= {"prefill": event.at_ns, "cached": event.cached_tokens}
        case TokensDue():
            told |= {"first": now} if event.first == 0 else {}
            told |= {"last": now} if event.is_last else {}


submissions = st.tuples(
    st.integers(0, 40),  # ms since the last
    st.integers(1, 30),  # prompt tokens
    st.integers(0, 12),  # output tokens
    st.integers(0, 3),  # conversation
    st.booleans(),  # whether the client leaves
)


@given(
    arrivals=st.lists(submissions, min_size=1, max_size=12),
    batch=st.integers(1, 3),
    queue=st.one_of(st.none(), st.integers(0, 3)),
    cache_blocks=st.one_of(st.none(), st.integers(4, 20)),
    step_ns=st.sampled_from([0, 5 * MS]),
    late_ns=st.integers(0, 30 * MS),
)
@settings(max_examples=200)
def test_every_request_taken_in_gets_all_its_tokens_in_order_and_in_time(
    arrivals, batch, queue, cache_blocks, step_ns, late_ns
):
    options = EngineOptions(
        block_size=4,
        prefill_tokens_per_s=1000.0,
        decode_tokens_per_s=150.0,
        batch=batch,
        queue=queue,
        cache_blocks=cache_blocks,
        step_ns=step_ns,
    )
    simulation = Simulation(options)
    taken: dict[int, Work] = {}
    told: list[tuple[int, Admitted | PrefillStarted | TokensDue]] = []
    cancelled = set()
    now = 0
    for id_, (wait_ms, prompt, output, conversation, leaves) in enumerate(arrivals):
        now += wait_ms * MS
        blocks = [conversation * 100 + i for i in range((prompt + max(0, output - 1)) // 4)]
        work = Work(id=id_, prompt_tokens=prompt, output_tokens=output, blocks=blocks)
        if simulation.submit(work, now) is None:
            taken[id_] = work
        told += [(now, event) for event in simulation.advance(now)]
        assert simulation.running <= batch
        assert queue is None or simulation.waiting <= queue
        if leaves and id_ in taken:
            simulation.cancel(id_, now)
            cancelled.add(id_)
    while (at_ns := simulation.next_at_ns()) is not None:
        now = max(now, at_ns + late_ns)
        told += [(now, event) for event in simulation.advance(now)]
    assert (simulation.running, simulation.waiting, simulation.cache.used_blocks) == (0, 0, 0)
    for id_, work in taken.items():
        check_story(
            work, [(at, event) for at, event in told if event.id == id_], is_whole=id_ not in cancelled
        )


def check_story(work: Work, story, *, is_whole: bool) -> None:
    due = [(at, event) for at, event in story if isinstance(event, TokensDue)]
    assert [event.first for _, event in due[1:]] == [event.end for _, event in due[:-1]]
    assert all(not event.is_last for _, event in due[:-1])
    if not is_whole:
        return
    (admitted,) = [event for _, event in story if isinstance(event, Admitted)]
    (begun,) = [event for _, event in story if isinstance(event, PrefillStarted)]
    assert due[-1][1].is_last
    assert due[-1][1].end == work.output_tokens
    assert begun.at_ns >= admitted.at_ns
    assert begun.cached_tokens <= (work.prompt_tokens - 1) // 4 * 4
    first_ns = begun.at_ns + (work.prompt_tokens - begun.cached_tokens) * MS
    for at, event in due:
        last_index = max(0, event.end - 1)
        assert at >= first_ns + last_index * 1_000_000_000 / 150 - 1
