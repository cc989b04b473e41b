"""Pure: what a run's processes tell each other, line by line.

The parent writes to a worker its job, once, and then lines of `PLAY <ns>` and `STOP`. A worker writes lines that
begin with a letter:

    r              its first requests are built; it waits for `PLAY`
    s17            the request of call 17 is about to be sent
    c{...}         a call is over, as a line of calls.jsonl
    p{...}         how far it is, every second
    e{...}         it is done
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from aitrace.codec import decode_record, encode_record, fields_from_record, record_from_fields
from aitrace.results import CallResult, RunEnd
from replayer.scheduler import Progress

READY = b"r\n"
STOP = b"STOP\n"
_PLACE = "a worker's message"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far a worker is."""

    progress: Progress
    """Its counts."""
    in_backoff: int
    """Its calls that wait for their next try."""
    earlier_tries: dict[str, int]
    """Its tries so far that another one follows or followed, by error kind."""
    left_ns: int | None
    """About how long it will go on; None if nothing can be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a worker's part of the run ended."""

    end: RunEnd
    """Its end, with the counts of its part."""
    adjustments: dict[str, int] = field(default_factory=dict)
    """What its requests had to be given, see `RequestBuilder.counts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """It waits for the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A call is about to be sent."""

    number: int
    """Place in the whole plan."""


Message = Ready | Sending | CallResult | State | Done


def play_line(start_ns: int) -> bytes:
    """The order to play from this time on the machine's monotonic clock."""
    return b"PLAY %d\n" % start_ns


def start_from_line(line: bytes) -> int | None:
    """The time that such an order states; None if it is another one."""
    word, _, rest = line.partition(b" ")
    return int(rest) if word == b"PLAY" else None


def line_from_message(message: Message) -> bytes:
    """A worker's message as a line."""
    match message:
        case CallResult():
            return b"c" + encode_record(message)
        case Sending():
            return b"s%d\n" % message.number
        case Ready():
            return READY
        case State():
            return b"p" + orjson.dumps(asdict(message)) + b"\n"
        case Done():
            end = fields_from_record(message.end)
            return b"e" + orjson.dumps({"end": end, "adjustments": message.adjustments}) + b"\n"


def message_from_line(line: bytes) -> Message:
    """The message that a worker's line states.

    Raises:
        ValueError: It states none.
    """
    kind, rest = line[:1], line[1:]
    match kind:
        case b"c":
            return decode_record(CallResult, rest, place=_PLACE)
        case b"s":
            return Sending(number=int(rest))
        case b"r":
            return Ready()
        case b"p":
            fields: dict[str, Any] = orjson.loads(rest)
            return State(**{**fields, "progress": Progress(**fields["progress"])})
        case b"e":
            fields = orjson.loads(rest)
            end = record_from_fields(RunEnd, fields["end"], place=_PLACE)
            return Done(end=end, adjustments=fields["adjustments"])
        case _:
            raise ValueError(f"{line[:40]!r} is no message of a worker")


def sum_of(states: list[Progress]) -> Progress:
    """The counts of several workers together."""
    counts = [asdict(state) for state in states]
    return Progress(**{name: sum(count[name] for count in counts) for name in Progress.__dataclass_fields__})
