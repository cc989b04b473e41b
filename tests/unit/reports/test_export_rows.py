"""Calls as rows."""

import csv
import io

import orjson
import polars as pl
import pytest

from aitrace.codec import encode_record
from aitrace.results import Attempt
from aitrace.testing import make_call_result
from reports.export.rows import COLUMNS, batches, csv_chunks, frames, plain_text
from reports.export.testing import make_source, source_of_run
from reports.testing import make_up_run

RUN = make_up_run(trees=4, calls=8, seed=3, refused_ratio=0.1)


def read(source):
    text = b"".join(csv_chunks(source)).decode()
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_says_what_the_lines_of_the_run_say():
    rows = read(source_of_run(RUN))
    lines = [orjson.loads(encode_record(call)) for call in RUN.calls]
    assert [row["request_id"] for row in rows] == [line["request_id"] for line in lines]
    for name in (
        "call",
        "session",
        "gap_ns",
        "due_ns",
        "sent_ns",
        "first_token_ns",
        "end_ns",
        "status",
        "error",
    ):
        assert [row[name] for row in rows] == [
            "" if line.get(name) is None else str(line[name]) for line in lines
        ]
    for name in ("input_tokens", "output_tokens"):
        said = [line.get("usage", {}).get(name, "") for line in lines]
        assert [row[f"usage_{name}"] for row in rows] == [str(value) for value in said]


def test_a_call_that_was_not_sent_has_no_outcome():
    rows = read(
        make_source([make_call_result(), make_call_result(error="cut"), make_call_result(unsent="duration")])
    )
    assert [row["outcome"] for row in rows] == ["complete", "cut", ""]


def test_flags_signals_and_tries_are_written_as_texts_and_numbers():
    attempt = Attempt(sent_ns=1, end_ns=2, error="refused", wait_ns=30)
    call = make_call_result(new_connection=True, signals={"nvext.timing.ttft_ms": 1.5}, attempts=(attempt,))
    (row,) = read(make_source([call]))
    assert (row["new_connection"], row["signals"]) == ("true", '{"nvext.timing.ttft_ms":1.5}')
    assert (row["earlier_tries"], row["backoff_ns"]) == ("1", "30")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("too many requests", "too many requests"),
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("@sum", "'@sum"),
        ("-1+2", "'-1+2"),
        ("a\nb\tc\rd\x1b[31m", "a\\nb\\tc\\rd\\x1b[31m"),
        ('ä, "b"', 'ä, "b"'),
    ],
)
def test_a_text_is_one_line_and_no_formula(text, written):
    assert written == plain_text(text)
    call = make_call_result(error="http_error", error_text=text)
    data = b"".join(csv_chunks(make_source([call])))
    assert data.count(b"\n") == 2
    assert read(make_source([call]))[0]["error_text"] == written


def test_numbers_below_0_stay_numbers():
    assert read(make_source([make_call_result(planned_ns=-5)]))[0]["planned_ns"] == "-5"


def test_frames_hold_the_same_as_csv():
    frame = pl.concat(frames(source_of_run(RUN)))
    assert dict(frame.schema) == COLUMNS
    assert frame["outcome"].to_list() == [row["outcome"] or None for row in read(source_of_run(RUN))]
    assert frame["sent_ns"].to_list() == [call.sent_ns for call in RUN.calls]


def test_calls_come_in_batches():
    assert [len(batch) for batch in batches([make_call_result()] * 5, 2)] == [2, 2, 1]
    assert list(batches([])) == []


def test_a_run_without_calls_is_a_line_of_names():
    assert b"".join(csv_chunks(make_source())).decode() == ",".join(COLUMNS) + "\n"
