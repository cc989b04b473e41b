from dataclasses import replace

import pytest

from aitrace.results import Attempt
from aitrace.schema import Usage
from aitrace.testing import make_call_result
from reports.reference_notes import reference_notes
from reports.summary import report_from_facts

S = 10**9


def alone(count=20):
    """Calls of one second, one tree after another."""
    return [call(i, i * 2) for i in range(count)]


def call(index, at_s, **fields):
    usage = Usage(input_tokens=1000, cache_read_tokens=0, output_tokens=100)
    times = {"at_ns": round(at_s * S), "session": index, "root": index, "usage": usage, "events": 100}
    return make_call_result(index, **times | fields)


@pytest.fixture
def noted(facts_of):
    def build(reference, **header):
        facts = replace(facts_of(alone()), unloaded=facts_of(reference, **header))
        return {doubt.name: doubt for doubt in reference_notes(facts)}

    return build


def test_without_a_reference_there_is_nothing_to_note(facts_of):
    assert list(reference_notes(facts_of(alone()))) == []


def test_trees_played_one_after_another_at_the_same_endpoint_are_no_reason(noted):
    assert noted(alone()) == {}


def test_fewer_than_20_usable_calls_are_noted(noted):
    unusable = call(19, 100, usage=Usage(input_tokens=1000, output_tokens=100))
    (note,) = noted([*alone(19), unusable]).values()
    assert note.name == "unloaded_too_short"
    assert note.what == "the run given by --unloaded has 19 usable calls, 20 needed"
    assert "1 usable call," in noted(alone(1))["unloaded_too_short"].what


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ({"url": "http://x:1"}, "url 'http://x:1' and not 'http://127.0.0.1:8000'"),
        (
            {"model": "b", "protocol": "responses"},
            "protocol 'responses' and not 'chat', model 'b' and not 'model-a'",
        ),
    ],
)
def test_another_endpoint_or_model_is_noted(noted, header, told):
    (note,) = noted(alone(), **header).values()
    assert (note.name, note.weighs) == ("unloaded_elsewhere", False)
    assert note.what.endswith(f"at another endpoint: {told}")


@pytest.mark.parametrize(
    ("fields", "loaded"),
    [
        ({"at_s": 0.5}, 2),
        ({"at_s": 1.0}, 0),
        ({"at_s": 1.5}, 2),
        ({"at_s": 0.5, "root": 0}, 0),
        ({"at_s": 0.5, "root": 0, "instance": 2}, 2),
        ({"at_s": 0.5, "error": "cut"}, 1),
        ({"at_s": 36.5, "end_ns": None, "error": "client_abort"}, 2),
        ({"at_s": 100, "attempts": (Attempt(sent_ns=2 * S, end_ns=5 * S, error="refused", wait_ns=1),)}, 2),
    ],
)
def test_complete_calls_that_overlapped_tries_of_another_tree_are_noted(noted, fields, loaded):
    """The others take the second from 0, 2, … 38 s; the last call may overlap one or more of them."""
    other = call(20, **fields)
    notes = noted([*alone(), other])
    complete = 20 + (other.error is None)
    told = f"{loaded} of {complete} complete calls of the run given by --unloaded overlapped calls of other trees"
    assert [note.what for note in notes.values()] == ([told] if loaded else [])


def test_the_notes_are_in_the_report_and_leave_it_fine(facts_of):
    facts = facts_of(alone())
    names = [
        {doubt.name for doubt in report_from_facts(each).doubts}
        for each in (facts, replace(facts, unloaded=facts_of([])))
    ]
    assert names[1] - names[0] == {"unloaded_too_short"}
    assert not any(doubt.weighs for doubt in reference_notes(replace(facts, unloaded=facts_of([]))))
