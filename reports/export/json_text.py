"""Pure: a run as one JSON document: header and end, calls, readings, sessions; docs/export.md lists its fields."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import orjson

from aitrace.results import CallResult
from reports.export.phases import outcome_of_call
from reports.export.source import RunSource, run_id
from reports.export.tally import RunTally, SessionTally

JSON_VERSION = 1
"""Version of the document's form."""


def json_chunks(source: RunSource) -> Iterator[bytes]:
    """The document, with one call, reading or session per line."""
    tally = RunTally()
    yield b'{"version":%d,"id":"%b",\n"run":' % (JSON_VERSION, run_id(source.header).encode())
    yield orjson.dumps(_run(source))
    yield b',\n"calls":['
    yield from _listed(_call(call) for call in tally.passing(source.calls()))
    yield b'],\n"scrapes":['
    yield from _listed(orjson.dumps(scrape) for scrape in source.scrapes())
    yield b'],\n"sessions":['
    yield from _listed(orjson.dumps(_session(one, source)) for one in tally.sessions.values())
    yield b'],\n"missing_calls":%d}\n' % max(0, source.planned_calls - tally.calls)


def _run(source: RunSource) -> dict[str, Any]:
    header = {one.name: getattr(source.header, one.name) for one in fields(source.header)}
    return {**header, "end": source.end}


def _call(call: CallResult) -> bytes:
    outcome = orjson.dumps(outcome_of_call(call))
    return orjson.dumps(call)[:-1] + b',"outcome":' + outcome + b"}"


def _session(tally: SessionTally, source: RunSource) -> dict[str, Any]:
    link = None if source.links is None else source.links.sessions.get(tally.session)
    own = {one.name: getattr(tally, one.name) for one in fields(tally)}
    return {
        **own,
        "parent": None if link is None else link.parent,
        "agent": None if link is None else link.agent,
    }


def _listed(items: Iterable[bytes]) -> Iterator[bytes]:
    for place, item in enumerate(items):
        yield (b",\n" if place else b"\n") + item
