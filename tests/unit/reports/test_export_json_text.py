"""A run as one JSON document."""

import re
from dataclasses import fields, replace
from pathlib import Path

import orjson

from aitrace.codec import encode_record
from aitrace.results import CallResult, RunHeader, Scrape
from aitrace.testing import make_call_result
from reports.export.json_text import json_chunks
from reports.export.source import run_id
from reports.export.testing import make_source, source_of_run
from reports.testing import make_up_run

RUN = make_up_run(trees=3, calls=6, seed=5, refused_ratio=0.1)
LINES = [orjson.loads(encode_record(call)) for call in RUN.calls]


def document(source):
    return orjson.loads(b"".join(json_chunks(source)))


def test_every_field_of_the_lines_is_there():
    calls = document(source_of_run(RUN))["calls"]
    assert len(calls) == len(LINES)
    assert set(calls[0]) == {field.name for field in fields(CallResult)} | {"outcome"}
    for call, line in zip(calls, LINES, strict=True):
        assert {name: value for name, value in call.items() if name in line and name != "usage"} == {
            name: value for name, value in line.items() if name != "usage"
        }
        assert call["usage"].items() >= line.get("usage", {}).items()


def test_header_end_and_readings_are_those_of_the_run():
    told = document(source_of_run(RUN))
    assert (told["version"], told["id"]) == (1, run_id(RUN.header))
    assert set(told["run"]) == {field.name for field in fields(RunHeader)} | {"end"}
    assert told["run"]["started_unix_ns"] == RUN.header.started_unix_ns
    assert told["run"]["end"]["ended_ns"] == RUN.end.ended_ns
    assert [one["at_ns"] for one in told["scrapes"]] == [one.at_ns for one in RUN.scrapes]
    assert set(told["scrapes"][0]) == {field.name for field in fields(Scrape)}


def test_sessions_add_up_their_calls():
    told = document(source_of_run(RUN))["sessions"]
    by_session = {}
    for line in LINES:
        by_session.setdefault(line["session"], []).append(line)
    assert [one["session"] for one in told] == list(by_session)
    for one in told:
        lines = by_session[one["session"]]
        sent = [line for line in lines if "sent_ns" in line]
        assert (one["calls"], one["sent_calls"]) == (len(lines), len(sent))
        assert one["end_ns"] == max((line["end_ns"] for line in sent), default=None)
        assert one["parent"] == RUN.trace.sessions[one["session"]].parent
        assert one["agent"] == RUN.trace.sessions[one["session"]].agent


def test_a_run_that_was_cut_says_what_is_missing():
    source = replace(source_of_run(RUN), end=None, calls=lambda: iter(RUN.calls[:5]))
    told = document(source)
    assert told["run"]["end"] is None
    assert (len(told["calls"]), told["missing_calls"]) == (5, len(RUN.calls) - 5)


def test_without_a_trace_parents_are_not_known():
    told = document(replace(source_of_run(RUN), links=None))
    assert {(one["parent"], one["agent"]) for one in told["sessions"]} == {(None, None)}


def test_a_run_without_calls_is_a_document():
    assert document(make_source())["calls"] == []


def test_texts_with_line_ends_stay_within_their_line():
    def data(text):
        return b"".join(json_chunks(make_source([make_call_result(error="cut", error_text=text)])))

    assert data('a\n"b"\u2028').count(b"\n") == data("a").count(b"\n")
    assert orjson.loads(data('a\n"b"\u2028'))["calls"][0]["error_text"] == 'a\n"b"\u2028'


def test_the_document_and_its_sessions_have_the_fields_that_the_docs_list():
    text = (
        (Path(__file__).parents[3] / "docs" / "export.md").read_text().split("## JSON")[1].split("\n## ")[0]
    )
    first, second = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    listed = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in f"{first}{second}".splitlines()]
    told = document(source_of_run(RUN))
    assert {name for names in listed for name in names} == {*told, *told["sessions"][0]}
