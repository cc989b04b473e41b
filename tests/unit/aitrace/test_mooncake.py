import math
from pathlib import Path

import orjson
import pytest
import zstandard

from aitrace.codec import encode_line
from aitrace.errors import InputError
from aitrace.formats.mooncake import (
    MooncakeImporter,
    chained_requests,
    header_for,
    request_from_json,
    resolution_ns,
)
from aitrace.no_text import find_text
from aitrace.prompts import PromptResolver, block_sizes
from aitrace.schema import Call, Segment, Session, Trace

DATA = Path(__file__).parents[2] / "data" / "mooncake"
FILES = ("conversation_600", "synthetic_1500")


def requests(*rows, block_size=10):
    """Requests from (ms, input, output, ids)."""
    return [
        request_from_json(
            {"timestamp": t, "input_length": size, "output_length": out, "hash_ids": list(ids)},
            f"f:{i}",
            block_size,
        )
        for i, (t, size, out, ids) in enumerate(rows, start=1)
    ]


def chains(*rows):
    return chained_requests(requests(*rows), 10)


def converted(found, block_size):
    header = header_for(found, block_size=block_size, producer="test", attribution=None)
    importer = MooncakeImporter(header)
    lines = list(importer.lines(found))
    trace = Trace(
        header=header,
        sessions=tuple(line for line in lines if isinstance(line, Session)),
        segments=tuple(line for line in lines if isinstance(line, Segment)),
        calls=tuple(line for line in lines if isinstance(line, Call)),
    )
    return trace, importer.summary()


def test_a_prompt_that_holds_another_and_its_answer_continues_it():
    assert chains(
        (0, 25, 5, [1, 2, 3]), (9, 45, 5, [1, 2, 4, 5, 6]), (20, 70, 5, [1, 2, 4, 5, 8, 9, 10])
    ) == [
        None,
        0,
        1,
    ]


def test_a_block_that_two_chains_share_ties_nothing_to_them():
    # All three begin with the system prompt's block 1, and nothing else of the first two is full.
    assert chains((0, 15, 1, [1, 2]), (1, 15, 1, [1, 3]), (2, 35, 1, [1, 4, 5, 6])) == [None, None, None]


def test_a_block_is_told_apart_only_once_a_second_chain_has_it():
    assert chains((0, 15, 1, [1, 2]), (5, 25, 1, [1, 4, 5])) == [None, 0]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ((9, 29, 5, [1, 2, 4]), "too short for prompt and answer"),
        ((0, 45, 5, [1, 2, 4, 5, 6]), "not later"),
        ((9, 45, 5, [1, 7, 4, 5, 6]), "another history"),
        ((9, 8, 5, [9]), "nothing shared"),
    ],
)
def test_a_request_that_cannot_continue_starts_a_chain(second, why):
    assert chains((0, 25, 5, [1, 2, 3]), second) == [None, None], why


def test_a_prompt_without_a_full_block_is_never_continued():
    assert chains((0, 5, 1, [1]), (5, 25, 1, [1, 2, 3])) == [None, None]


def test_a_second_continuation_of_one_prompt_starts_a_chain():
    rows = (0, 25, 5, [1, 2, 3]), (9, 45, 5, [1, 2, 4, 5, 6]), (12, 45, 5, [1, 2, 7, 8, 9])
    assert chains(*rows) == [None, 0, None]


def test_calls_of_a_chain_are_timed_from_start_to_start():
    trace, _ = converted(requests((0, 25, 5, [1, 2, 3]), (9000, 45, 12, [1, 2, 4, 5, 6])), 10)
    link = trace.calls[1].after[0]
    assert (link.call, link.relation, link.trigger, link.gap_ns, link.cause) == (
        0,
        "sequence",
        "dispatch",
        9_000_000_000,
        "unknown",
    )
    assert trace.calls[0].times.end_ns is None
    assert any(sentence.startswith("sessions: they are inferred") for sentence in trace.header.unknown)


def test_the_answer_stands_between_the_old_prompt_and_the_new_input():
    trace, summary = converted(requests((0, 25, 12, [1, 2, 3]), (9, 55, 5, [1, 2, 4, 5, 6, 7])), 10)
    ids = PromptResolver(trace.calls).segment_ids(1)
    assert [(trace.segments[i].role, trace.segments[i].size) for i in ids] == [
        ("user", 20),
        ("assistant", 10),
        ("user", 25),
    ]
    assert (summary.shared_blocks, summary.block_references, summary.trees) == (2, 9, 1)


def test_a_single_new_block_is_input():
    trace, _ = converted(requests((0, 20, 1, [1, 2]), (9, 28, 5, [1, 2, 3])), 10)
    assert [s.role for s in trace.segments] == ["user", "user"]


def test_requests_out_of_order_are_sorted_and_that_is_explained():
    trace, summary = converted(requests((5, 10, 1, [1]), (2, 10, 1, [2])), 10)
    assert [c.times.request_ns for c in trace.calls] == [2_000_000, 5_000_000]
    assert [(r.kind, r.first_place) for r in summary.remarks] == [("out_of_order", "f:2")]


@pytest.mark.parametrize(
    ("times_ms", "step_ms"),
    [
        ([0, 3000, 5999, 9000, 12001, 15000], 3000),
        ([0, 40, 277, 471], 1),
        ([0, 1000, 3000, 10000], 1000),
        ([5], 1),
    ],
)
def test_the_time_resolution_is_the_grid_that_arrivals_keep(times_ms, step_ms):
    assert resolution_ns(requests(*((t, 10, 1, [1]) for t in times_ms))) == step_ms * 1_000_000


def test_a_wrong_block_size_names_the_line_and_the_option():
    with pytest.raises(InputError, match="f:1: 3 block ids for 45 tokens, expected 5 of 10") as caught:
        requests((0, 45, 1, [1, 2, 3]))
    assert "--block-size" in caught.value.hint


@pytest.mark.parametrize("document", [None, 3, {"input_length": 1}, {"timestamp": "x"}, {"timestamp": 0}])
def test_what_is_no_request_is_refused_with_its_place(document):
    with pytest.raises(InputError, match=r"^f:7: "):
        request_from_json(document, "f:7", 512)


def test_an_empty_trace_is_refused():
    with pytest.raises(InputError, match="holds no call"):
        header_for([], block_size=512, producer="test", attribution=None)


def test_no_line_holds_text():
    trace, _ = converted(requests((0, 25, 5, [1, 2, 3]), (9, 45, 5, [1, 2, 4, 5, 6])), 10)
    lines = [trace.header, *trace.sessions, *trace.segments, *trace.calls]
    assert [f for number, line in enumerate(lines) for f in find_text(number, encode_line(line))] == []


# --- the real files, counted independently over their raw lines ---


def raw(name):
    data = zstandard.ZstdDecompressor().stream_reader((DATA / f"{name}.jsonl.zst").read_bytes()).read()
    return [orjson.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("name", FILES)
def test_real_requests_arrive_with_their_tokens_and_blocks(name):
    rows = raw(name)
    found = [request_from_json(row, f"{name}:{i}", 512) for i, row in enumerate(rows, start=1)]
    trace, summary = converted(found, 512)
    resolver = PromptResolver(trace.calls)
    identity = {}
    for call, row in zip(trace.calls, rows, strict=True):
        segments = [trace.segments[i] for i in resolver.segment_ids(call.id)]
        blocks = [b for s in segments for first, n in s.blocks for b in range(first, first + n)]
        assert [identity.setdefault(i, b) for i, b in zip(row["hash_ids"], blocks, strict=True)] == blocks
        assert sum(size for s in segments for size in block_sizes(s, 512)) == row["input_length"]
    assert len(set(identity.values())) == len(identity) == summary.blocks
    assert summary.input_tokens == sum(row["input_length"] for row in rows)
    assert summary.output_tokens == sum(row["output_length"] for row in rows)


@pytest.mark.parametrize("name", FILES)
def test_real_chains_hold_what_their_rule_says(name):
    """Each continuation, checked over the raw rows: full prefix, a block of its own, room for the answer, later."""
    rows = raw(name)
    found = [request_from_json(row, "f", 512) for row in rows]
    earlier = chained_requests(found, 512)
    chain = {}
    owners = {}
    for i, j in enumerate(earlier):
        chain[i] = i if j is None else chain[j]
        if j is not None:
            full = rows[j]["input_length"] // 512
            last = rows[j]["hash_ids"][full - 1]
            assert rows[i]["hash_ids"][:full] == rows[j]["hash_ids"][:full]
            assert owners[last] == {chain[j]}
            assert rows[i]["input_length"] >= rows[j]["input_length"] + rows[j]["output_length"]
            assert rows[i]["timestamp"] > rows[j]["timestamp"]
        for block in rows[i]["hash_ids"]:
            owners.setdefault(block, set()).add(chain[i])
    assert sum(j is not None for j in earlier) == {"conversation_600": 70, "synthetic_1500": 35}[name]


def test_the_real_conversation_trace_is_on_a_grid_of_3_s():
    found = [request_from_json(row, "f", 512) for row in raw("conversation_600")]
    assert resolution_ns(found) == 3_000_000_000
    assert math.gcd(*(row["timestamp"] for row in raw("conversation_600"))) == 1
