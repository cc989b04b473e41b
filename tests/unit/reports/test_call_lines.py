"""Lines of calls as frames."""

from dataclasses import fields

import orjson
import polars as pl
import pytest

from aitrace.codec import decode_record, encode_record
from aitrace.errors import InputError
from aitrace.results import NO_COLUMNS, Attempt, CallResult
from aitrace.schema import MAX_COUNT, Usage
from aitrace.signals import WORKER_SIGNALS, worker_of
from aitrace.testing import make_call_result
from reports.call_lines import CALL_SCHEMA, LEFT_OUT, USAGE_SCHEMA, rows_from_calls, rows_from_lines

COMPUTED = ("backoff_ns", "worker")
TRIED = make_call_result(7, attempts=(Attempt(end_ns=9, error="refused", wait_ns=30),))


def changed(call=TRIED, **values):
    """The line of a call with other fields; None leaves a field out."""
    line = orjson.loads(encode_record(call)) | values
    return orjson.dumps({name: value for name, value in line.items() if value is not None}) + b"\n"


def test_every_field_of_a_call_that_a_number_is_made_of_has_a_column():
    plain = [field.name for field in fields(CallResult) if field.name not in (*NO_COLUMNS, *LEFT_OUT)]
    assert [*plain, *COMPUTED] == list(CALL_SCHEMA)
    assert list(USAGE_SCHEMA) == [f"usage_{field.name}" for field in fields(Usage)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("index", pl.Int64), ("end_ns", pl.Int64), ("new_connection", pl.Boolean), ("error", pl.String)],
)
def test_columns_have_the_types_of_the_fields(name, kind):
    assert CALL_SCHEMA[name] == kind


def test_a_call_becomes_a_row_with_its_usage():
    attempts = [Attempt(end_ns=9, error="refused", wait_ns=wait_ns) for wait_ns in (30, 40)]
    call = make_call_result(
        3,
        at_ns=70,
        usage=Usage(input_tokens=5, cache_read_tokens=2),
        error_text="<b>\n\u00e9\u4e2d",
        attempts=tuple(attempts),
    )
    (row,) = rows_from_calls([call]).calls.rows(named=True)
    plain = [name for name in CALL_SCHEMA if name not in COMPUTED]
    assert {name: row[name] for name in plain} == {name: getattr(call, name) for name in plain}
    assert row["backoff_ns"] == 70
    assert (row["usage_input_tokens"], row["usage_cache_read_tokens"], row["usage_output_tokens"]) == (
        5,
        2,
        None,
    )


def test_what_a_line_leaves_out_has_its_default():
    line = encode_record(make_call_result())
    assert b"phase" not in line
    assert b"unparsed_events" not in line
    (row,) = rows_from_lines(line).calls.rows(named=True)
    assert (row["phase"], row["unparsed_events"]) == ("measured", 0)


@pytest.mark.parametrize(
    "signals", [{}, {"other": 1.5}, {name: f"w{place}" for place, name in enumerate(WORKER_SIGNALS)}]
)
def test_the_worker_is_that_of_the_signals(signals):
    call = make_call_result(signals=signals)
    assert rows_from_calls([call]).calls["worker"].to_list() == [worker_of(signals)]


def test_a_worker_that_is_named_by_a_number_is_named():
    call = make_call_result(signals={WORKER_SIGNALS[2]: 4})
    assert rows_from_calls([call]).calls["worker"].to_list() == ["4"]


def test_no_calls_are_frames_without_rows():
    rows = rows_from_calls([])
    assert rows.calls.schema == CALL_SCHEMA | USAGE_SCHEMA
    assert rows.tries.schema == rows_from_calls([TRIED]).tries.schema


def test_fields_of_a_later_program_are_passed_over():
    assert rows_from_lines(changed(new={"deep": [1]})).calls.equals(rows_from_calls([TRIED]).calls)


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b"\n",
        b"{}\n",
        changed(index=None),
        changed(index="1"),
        changed(index=1.0),
        changed(index=True),
        changed(sent_ns=2**63),
        changed(call_class="else"),
        changed(error="no such error"),
        changed(phase="later"),
        changed(new_connection=1),
        changed(response_bytes="5"),
        changed(usage=5),
        changed(usage={"input_tokens": "5"}),
        changed(usage={"input_tokens": MAX_COUNT + 1}),
        changed(usage={"output_tokens": -MAX_COUNT - 1}),
        changed(attempts={}),
        changed(attempts=[5]),
        changed(attempts=[None]),
        changed(attempts=[{"end_ns": 1, "error": "refused"}]),
        changed(attempts=[{"end_ns": 1, "error": "no such error", "wait_ns": 1}]),
        changed(attempts=[{"end_ns": 1.5, "error": "refused", "wait_ns": 1}]),
    ],
)
def test_a_line_that_is_none_of_a_call_is_refused_among_others(line):
    with pytest.raises(InputError):
        decode_record(CallResult, line, place="here")
    assert rows_from_lines(encode_record(TRIED) + line + encode_record(TRIED)) is None


@pytest.mark.parametrize("line", [changed(), changed(attempts=[]), changed(usage={}), changed(signals={})])
def test_whole_lines_are_taken(line):
    call = decode_record(CallResult, line, place="here")
    rows, expected = rows_from_lines(line), rows_from_calls([call])
    assert rows.calls.equals(expected.calls)
    assert rows.tries.equals(expected.tries)
