"""The one pass against slow twins: a cache that evicts block by block at each capacity, and one that forgets by age."""

from dataclasses import dataclass, field
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from reports.cache.paths import ROOT, PromptTree
from reports.cache.reuse import Use, reuse_of

OWN = 1 << 40
"""Keys from here on are of blocks that one tree has: other text in each playing."""

keys = st.one_of(st.integers(0, 6), st.integers(OWN, OWN + 6))
runs = st.lists(st.tuples(keys, st.integers(1, 4), st.sampled_from([1, 3])), max_size=4)


@dataclass
class Sent:
    """A prompt that was sent."""

    runs: list
    tree: int
    instance: int
    wait: int
    lasts: int | None
    first_after: int | None
    answer: int
    is_stored: bool
    at: int = 0
    """When it was sent."""
    first_at: int | None = None
    """When it had been computed."""
    number: int = 0
    blocks: list = field(default_factory=list)
    """Names that tell the whole path up to a block, and sizes."""


prompts = st.lists(
    st.builds(
        Sent,
        runs=runs,
        tree=st.just(0),
        instance=st.integers(1, 2),
        wait=st.integers(0, 3),
        lasts=st.one_of(st.none(), st.integers(0, 6)),
        first_after=st.one_of(st.none(), st.integers(0, 3)),
        answer=st.integers(0, 3),
        is_stored=st.sampled_from([True, True, True, False]),
    ),
    max_size=12,
)


def prepared(history):
    """Times of sending, and blocks as (whole path up to it, size): equal text from the prompt's start."""
    at = 0
    for number, prompt in enumerate(history):
        at += prompt.wait
        prompt.at = at
        prompt.first_at = None if prompt.first_after is None else at + prompt.first_after
        names = [(first + i, size) for first, count, size in prompt.runs for i in range(count)]
        path, prompt.blocks = [], []
        for key, size in names:
            path.append((key, size, prompt.instance if key >= OWN else 0))
            prompt.blocks.append((tuple(path), size))
        prompt.number = number
    return history


def moments(history):
    sent = [(p.at, 1, p.number, "sent", p) for p in history]
    ends = [
        (p.at + p.lasts, 0 if p.lasts else 2, p.number, "end", p)
        for p in history
        if p.lasts is not None and p.is_stored
    ]
    return sorted(sent + ends, key=lambda moment: moment[:3])


class Cache:
    """What was used last is first; blocks that a running call uses are not given up."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.blocks = []
        self.over = {}

    def served(self, prompt):
        """Size of the prefix that it has."""
        size = 0
        for name, block in prompt.blocks:
            if self.over.get(name, 0) > prompt.at:
                is_there = size + block <= self.capacity
            else:
                is_there = (name, block) in self.blocks
            if not is_there:
                break
            size += block
        return size

    def use(self, prompt):
        own = [*prompt.blocks, (("answer", prompt.number), prompt.answer)]
        for name, _ in own:
            self.over[name] = max(self.over.get(name, 0), prompt.at + (prompt.lasts or 0))
        self.blocks = own + [block for block in self.blocks if block not in own]
        while sum(size for _, size in self.blocks) > self.capacity:
            self.blocks.pop()


def hits_at(history, capacity):
    """Prefix of each prompt that a cache of `capacity` has, which drops the least recently used block at a time."""
    cache, hits = Cache(capacity), {}
    for _, _, number, what, prompt in moments(history):
        if what == "sent":
            hits[number] = cache.served(prompt)
        if prompt.is_stored:
            cache.use(prompt)
    return [hits[number] for number in range(len(history))]


def passed(history):
    """The one pass over the same prompts."""
    tree = PromptTree()
    return reuse_of(
        tree,
        [
            Use(
                node=tree.add(ROOT, prompt.runs),
                tree=prompt.tree,
                instance=prompt.instance,
                sent_ns=prompt.at,
                started_ns=prompt.at,
                first_token_ns=prompt.first_at,
                end_ns=None if prompt.lasts is None else prompt.at + prompt.lasts,
                answer_size=prompt.answer,
                is_stored=prompt.is_stored,
            )
            for prompt in history
        ],
    )


def blocks_within(prompt, start, end):
    """Places where the blocks end that lie between two places of a prompt."""
    ends, size = [], 0
    for _, block in prompt.blocks:
        size += block
        if start < size <= end:
            ends.append(size)
    return ends


def name_at(prompt, place):
    """The block that ends at a place."""
    ends = accumulate(size for _, size in prompt.blocks)
    return next(name for end, (name, _) in zip(ends, prompt.blocks, strict=True) if end == place)


def has(prompt, name):
    return name in [mine for mine, _ in prompt.blocks]


def pieces_of(reuse, number):
    mine = reuse.use == number
    columns = (reuse.start, reuse.end, reuse.before, reuse.age_ns)
    return list(zip(*(column[mine].tolist() for column in columns), strict=True))


@settings(max_examples=400, deadline=None)
@given(prompts)
def test_one_pass_has_the_hits_of_a_least_recently_used_cache_at_every_capacity(history):
    history = prepared(history)
    reuse = passed(history)
    for capacity in (*range(30), 1000):
        hits = [
            max(
                (
                    place
                    for start, end, before, _ in pieces_of(reuse, prompt.number)
                    for place in blocks_within(prompt, start, end)
                    if before + place - start <= capacity
                ),
                default=0,
            )
            for prompt in history
        ]
        assert hits_at(history, capacity) == hits


def common_size(prompt, others):
    """The longest prefix that one of the others has too."""
    names = {name for other in others for name, _ in other.blocks}
    return sum(size for name, size in prompt.blocks if name in names)


@settings(max_examples=300, deadline=None)
@given(prompts)
def test_what_is_known_and_ready_is_what_was_sent_and_computed_before(history):
    history = prepared(history)
    reuse = passed(history)
    for prompt in history:
        stored = [other for other in history[: prompt.number] if other.is_stored]
        ready = [other for other in stored if other.first_at is not None and other.first_at <= prompt.at]
        assert reuse.known_size[prompt.number] == common_size(prompt, stored)
        assert reuse.ready_size[prompt.number] == common_size(prompt, ready)


@settings(max_examples=300, deadline=None)
@given(prompts)
def test_the_age_of_a_block_is_the_time_since_the_last_call_with_it_ended(history):
    history = prepared(history)
    reuse = passed(history)
    for prompt in history:
        for start, end, _, age in pieces_of(reuse, prompt.number):
            for place in blocks_within(prompt, start, end):
                name = name_at(prompt, place)
                users = [other for other in history[: prompt.number] if other.is_stored and has(other, name)]
                assert age == max(0, prompt.at - max(user.at + (user.lasts or 0) for user in users))


@settings(max_examples=200, deadline=None)
@given(prompts, st.integers(0, 20))
def test_cutting_runs_into_single_blocks_and_prompts_in_two_changes_nothing(history, cut):
    history = prepared(history)
    whole, parts = PromptTree(), PromptTree()
    for prompt in history:
        blocks = [(first + i, 1, size) for first, count, size in prompt.runs for i in range(count)]
        node = parts.add(parts.add(ROOT, blocks[:cut]), blocks[cut:])
        kept = parts.part_of(node, sum(size for _, _, size in blocks[:cut]))
        assert parts.end(whole.add(ROOT, prompt.runs) and node) == sum(size for _, _, size in blocks)
        assert parts.end(kept) == sum(size for _, _, size in blocks[:cut])
        assert parts.add(kept, blocks[cut:]) == node
