"""Streams of the engine's writers, read back by an independent few lines of SSE and JSON."""

import itertools

import orjson
import pytest

from replayer.engine.answers import Answer
from replayer.engine.wire import ReplyPlan, ReplyWriter


def _plan(answer: Answer, **changes) -> ReplyPlan:
    usual = {"id": "ab", "model": 'm"1', "created_unix_s": 1700000000, "prompt_tokens": 50, "answer": answer}
    return ReplyPlan(**usual | changes)


def _stream(writer: ReplyWriter, *cuts: int, cached: int = 32) -> list[tuple[str | None, dict]]:
    """The events of a whole stream with the answer written in pieces that end at `cuts`."""
    out = writer.prelude()
    writer.cached_tokens = cached
    out += writer.begin()
    bounds = [0, *cuts, len(writer.plan.answer.words)]
    for first, end in itertools.pairwise(bounds):
        out += writer.tokens(first, end)
    return _events(out + writer.end())


def _events(data: bytes) -> list[tuple[str | None, dict]]:
    assert data.endswith(b"\n\n")
    found = []
    for block in data.decode().removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if fields["data"] != "[DONE]":
            found.append((fields.get("event"), orjson.loads(fields["data"])))
    return found


@pytest.fixture
def plan():
    """`plan(answer, **changes)`: an answer to be written."""
    return _plan


@pytest.fixture
def stream():
    """`stream(writer, *cuts)`: the events of a whole stream."""
    return _stream


@pytest.fixture
def events():
    """`events(data)`: name and value of each event."""
    return _events
