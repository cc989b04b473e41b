"""Pure: what servers and routers tell of how a call was served, beside the answer itself.

Kept are a few response headers, and from Dynamo's `nvext` object, in the last events of a stream or in a body, the
workers and the timing, under dotted names: `nvext.worker_id.decode_worker_id`, `nvext.timing.ttft_ms`. Ids of workers
are texts, since Dynamo's need more than the 63 bits that integers have in files of a run. Ids of requests are left out,
they join with nothing that a run keeps.
"""

from collections.abc import Container, Mapping
from typing import Any

import orjson

Signals = dict[str, str | int | float]
"""Values by name."""

SIGNAL_HEADERS = frozenset(
    {
        "x-smg-routed-worker-id",  # SMG: URL of the worker
        "x-smg-error-code",  # SMG: why it refused
        "x-llm-d-request-dropped-reason",  # llm-d's flow control
        "x-gateway-destination-endpoint-served",  # inference gateways: address of the worker
        "x-session-token",  # llm-d's session affinity
    }
)
"""Names of the headers that are kept, in lower case."""
MAX_SIGNAL_BYTES = 1000
"""Names and values of a call are at most so long together, as UTF-8; what goes beyond is left out."""

WORKER_SIGNALS = (
    "nvext.worker_id.prefill_worker_id",
    "nvext.worker_id.decode_worker_id",
    "x-smg-routed-worker-id",
    "x-gateway-destination-endpoint-served",
)
"""Those that may tell who computed a prompt; the first one there is counts."""
_MARK = b'"nvext"'
_KEPT_GROUPS = ("worker_id", "timing")
_MAX_VALUE_CHARS = 200
_NUMBER_BYTES = 20


def header_signals(headers: Mapping[str, str], names: Container[str]) -> Signals:
    """The signals among response headers, whose names come in any case.

    Args:
        names: Headers to keep, in lower case.
    """
    return {name.lower(): value for name, value in headers.items() if name.lower() in names}


def may_hold_signals(data: bytes) -> bool:
    """Whether it is worth decoding an event or a body for its signals."""
    return _MARK in data


def body_signals(data: bytes) -> Signals:
    """The signals in the data of an event, or in a body; none if it cannot be read."""
    try:
        payload = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    found: Signals = {}
    for owner in (payload, _member(payload, "response")):
        nvext = _member(owner, "nvext")
        for group in _KEPT_GROUPS:
            found |= _flat(f"nvext.{group}", _member(nvext, group))
    return found


def bounded(signals: Signals) -> Signals:
    """The signals, in order, as far as they fit into `MAX_SIGNAL_BYTES`; long texts are cut."""
    kept: Signals = {}
    left_bytes = MAX_SIGNAL_BYTES
    for name, value in signals.items():
        short = value[:_MAX_VALUE_CHARS] if isinstance(value, str) else value
        left_bytes -= len(name.encode()) + (
            len(short.encode(errors="replace")) if isinstance(short, str) else _NUMBER_BYTES
        )
        if left_bytes < 0:
            break
        kept[name] = short
    return kept


def worker_of(signals: Signals) -> str | None:
    """Who computed the prompt, of the signals that tell it the first of: Dynamo's prefill and decode worker, SMG's
    worker, the address that a gateway names; None if none does.
    """
    return next((str(signals[name]) for name in WORKER_SIGNALS if name in signals), None)


def _member(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, dict) else None


def _flat(prefix: str, group: Any) -> Signals:
    if not isinstance(group, dict):
        return {}
    values = {
        f"{prefix}.{name}": str(value) if name.endswith("_id") else value
        for name, value in group.items()
        if isinstance(value, (str, int, float)) and not isinstance(value, bool)
    }
    return {name: value for name, value in values.items() if _fits(value)}


def _fits(value: str | float) -> bool:
    """Whether the files of a run can hold the value; integers there have 64 bits."""
    return not isinstance(value, int) or -(2**63) <= value < 2**63
