"""The line of the log."""

import orjson

from replayer.engine.record import EngineRecord, line_from_record


def test_a_line_has_every_field_and_null_for_what_did_not_happen():
    record = EngineRecord(request_id="r1", session=None, protocol="chat", head_ns=5)
    line = line_from_record(record)
    assert line.endswith(b"}\n")
    value = orjson.loads(line)
    assert list(EngineRecord.__slots__) == list(value)
    assert (
        value["request_id"],
        value["head_ns"],
        value["first_token_ns"],
        value["output_tokens"],
    ) == ("r1", 5, None, 0)
