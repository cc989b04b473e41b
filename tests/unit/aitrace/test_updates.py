from dataclasses import fields, replace

import orjson
import pytest

from aitrace.codec import decode_line, encode_line
from aitrace.schema import Call, CallTimes, Events, Outcome, ToolCall, Update, Usage, Wire
from aitrace.testing import make_call
from aitrace.updates import UPDATED, updated_call

CALL = make_call(0, usage=Usage(input_tokens=1), turn=3, model="m")
NEW = {
    "usage": Usage(output_tokens=2),
    "tool_calls": (ToolCall(name="Bash"),),
    "outcome": Outcome(error="cut"),
    "times": CallTimes(request_ns=0, end_ns=9),
    "events": Events(at_ns=(1,), size_bytes=(2,)),
    "wire": Wire(connection=4),
}


def test_every_field_of_an_update_is_one_of_a_call():
    assert set(UPDATED) == set(NEW)
    assert set(UPDATED) <= {field.name for field in fields(Call)}


@pytest.mark.parametrize("name", NEW)
def test_a_field_replaces_the_calls_own_as_a_whole(name):
    assert replace(CALL, **{name: NEW[name]}) == updated_call(CALL, Update(call=0, **{name: NEW[name]}))


def test_an_update_that_tells_nothing_changes_nothing():
    assert updated_call(CALL, Update(call=0)) is CALL


def test_an_empty_value_is_told():
    call = replace(CALL, tool_calls=(ToolCall(),), usage=Usage(input_tokens=1))
    update = Update(call=0, tool_calls=(), usage=Usage())
    assert ((), Usage()) == (updated_call(call, update).tool_calls, updated_call(call, update).usage)


def test_unknown_fields_go_with_what_they_stand_in():
    call = replace(CALL, extra={"x": 1, "usage": {"old": 1}, "times": {"kept": 1}})
    update = Update(call=0, usage=Usage(), extra={"usage": {"new": 2}, "y": 3})
    assert updated_call(call, update).extra == {"x": 1, "y": 3, "usage": {"new": 2}, "times": {"kept": 1}}
    assert updated_call(call, replace(update, extra={})).extra == {"x": 1, "times": {"kept": 1}}


@pytest.mark.parametrize("name", ["id", "model", "class", "prompt", "after", "call"])
def test_an_unknown_field_named_as_one_of_a_call_does_not_spoil_the_call(name):
    """A later version may give it to updates; the call is written back all the same."""
    fields_ = {"kind": "update", "call": 0, "usage": {}, **({} if name == "call" else {name: "x"})}
    update = decode_line(orjson.dumps(fields_), place="x:1")
    whole = updated_call(CALL, update)
    assert decode_line(encode_line(whole), place="x:1") == replace(CALL, usage=Usage())
