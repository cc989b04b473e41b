"""What servers tell of how a call was served, and how much of it is kept."""

import orjson
import pytest

from aitrace.signals import (
    MAX_SIGNAL_BYTES,
    SIGNAL_HEADERS,
    body_signals,
    bounded,
    header_signals,
    may_hold_signals,
)

NVEXT = {
    "worker_id": {"prefill_worker_id": 12242881756685873637, "decode_worker_id": 8, "decode_dp_rank": 0},
    "timing": {"ttft_ms": 12.5, "kv_hit_rate": 0.25, "note": None},
    "token_ids": [1, 2, 3],
}
FLAT = {
    "nvext.worker_id.prefill_worker_id": "12242881756685873637",
    "nvext.worker_id.decode_worker_id": "8",
    "nvext.worker_id.decode_dp_rank": 0,
    "nvext.timing.ttft_ms": 12.5,
    "nvext.timing.kv_hit_rate": 0.25,
}


def test_of_the_headers_only_those_on_the_list_are_kept():
    headers = {"X-SMG-Routed-Worker-Id": "http://w:1", "Set-Cookie": "secret", "x-request-id": "1"}
    assert header_signals(headers, SIGNAL_HEADERS) == {"x-smg-routed-worker-id": "http://w:1"}
    assert header_signals(headers, ["x-request-id"]) == {"x-request-id": "1"}


@pytest.mark.parametrize("payload", [{"nvext": NVEXT}, {"type": "x", "response": {"nvext": NVEXT}}])
def test_workers_and_timing_are_kept_under_dotted_names(payload):
    data = orjson.dumps(payload)
    assert may_hold_signals(data)
    assert body_signals(data) == FLAT


@pytest.mark.parametrize(
    "data",
    [
        b'{"nvext"',
        b'["nvext"]',
        b'{"nvext":1}',
        b'{"nvext":{"timing":[1]}}',
        b'{"nvext":{"timing":{"a":true,"b":{},"c":18446744073709551615}}}',
    ],
)
def test_what_has_another_shape_gives_nothing(data):
    assert body_signals(data) == {}


def test_an_event_without_the_object_is_not_decoded():
    assert not may_hold_signals(b'{"choices":[]}')


def test_all_together_is_at_most_a_kilobyte():
    kept = bounded({f"name-{number:02}": "x" * 500 for number in range(50)})
    assert sum(len(name) + len(str(value)) for name, value in kept.items()) <= MAX_SIGNAL_BYTES
    assert list(kept) == ["name-00", "name-01", "name-02", "name-03"]
    assert {len(str(value)) for value in kept.values()} == {200}


def test_numbers_stay_numbers():
    assert bounded(FLAT) == FLAT
