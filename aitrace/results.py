"""Pure: what a replay leaves behind, as frozen dataclasses; docs/format.md describes the run directory.

A run is a directory: `run.json` (RunHeader, and RunEnd once it ended), `calls.jsonl` (one CallResult per line,
appended as each call finishes), `calls.parquet` (the same, written at the end), `scrapes.jsonl` (one Scrape per
line) and `trace.aitrace` (a copy of the trace that was played). All times are ns since the start of the run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from aitrace.schema import CallClass, ErrorKind, GapCause, ProtocolName, Usage
from aitrace.signals import Signals, worker_of

RUN_VERSION = 1
LATENESS_BOUND_MS = 50.0
"""Bound on the client's lateness and on the lag of its event loop, where the run's options name none."""
NO_COLUMNS = ("usage", "attempts", "signals")
"""Fields of a call that are no column under their own name."""

ArrivalClock = Literal["kernel", "loop"]
"""Who stamped what arrived: the kernel when it came, or the event loop when it read."""
UnsentReason = Literal["session_lost", "interrupted", "duration", "worker_lost"]
"""Why a planned call was never sent: its session had lost an earlier call, the run was stopped, its time was over, or the
process that was to send it was lost."""
IdentityFault = Literal["missing", "shared", "churn"]
"""Ids that cannot be trusted: none at all, one for many sessions, or another one with every call."""
Phase = Literal["prime", "warm_up", "measured"]
"""What a call counts for: `prime` only puts a prompt into the target's cache, `warm_up` came before what is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How the target counts the words that a replay writes."""

    tokens_per_word: float
    """Tokens that one more word of generated text adds to a prompt."""
    request_overhead_tokens: float
    """Tokens of a request beyond its words (chat template)."""
    source: Literal["probe", "given", "assumed"]
    """`probe`: measured at the target; `given`: by option; `assumed`: the target reports no usage, 1.0 was taken."""
    output_forced: bool
    """Whether the target accepts the fields that force the length of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCheck:
    """What the client's times were worth at a plan's peak, in a trial against the built-in engine on the same machine."""

    calls_per_s: float
    """Rate of calls of the trial."""
    prompt_tokens: int
    """Prompt of each."""
    output_tokens: int
    """Answer of each."""
    calls: int
    """Calls that were complete."""
    failed_calls: int
    """Calls that were not."""
    reached_events_per_s: float
    """Events of the trial's busiest second; the engine may have been the limit."""
    workers: int
    """Processes that played it."""
    ttft_error_p50_ns: int
    """Median of the client's TTFT less the engine's."""
    ttft_error_p99_ns: int
    """99th percentile of it."""
    lateness_p50_ns: int
    """Median time from due to sent, opening of connections included."""
    lateness_p99_ns: int
    """99th percentile of it."""
    cpu_per_event_ns: int
    """CPU time of the client over all events."""
    cpu_per_call_ns: int
    """CPU time of the client over all calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What was to be played, and against what; written before the first call is sent."""

    version: int = RUN_VERSION
    """Version of the run directory's format."""
    producer: str
    """Program and version."""
    started_unix_ns: int
    """Wall time of offset 0, ns since 1970."""
    url: str
    """Base URL of the target, without credentials."""
    protocol: ProtocolName
    """Wire protocol used."""
    model: str
    """Model asked for."""
    trace: str
    """File name of the trace that was played."""
    options: dict[str, Any]
    """Options of the replay by name, defaults included; never a credential."""
    open_loop: bool
    """True if trees start when the arrival process says so; False if a lane waits for the tree before."""
    time_scale: float
    """Factor on recorded gaps."""
    seed: int
    """Seed of arrivals."""
    text_seed: int | None = None
    """Seed of generated text; None if the run does not tell."""
    arrival_clock: ArrivalClock | None = None
    """Who stamped the arrival of answers; None if the run does not tell."""
    share_system: bool
    """Whether trees of one harness were given the same tools and system prompt."""
    history: Literal["recorded", "live"]
    """Whose answers went into the next prompt."""
    calibration: Calibration
    """How sizes became words."""
    planned_trees: int
    """Trees to be played."""
    planned_sessions: int
    """Sessions to be played."""
    planned_calls: int
    """Calls to be sent."""
    client_check: ClientCheck | None = None
    """What a trial before the run said about the client; None if there was none."""

    @property
    def lateness_bound_ms(self) -> float:
        """Bound on lateness: the run's own option, else `LATENESS_BOUND_MS`."""
        bound = self.options.get("max_lateness_ms")
        return float(bound) if isinstance(bound, int | float) else LATENESS_BOUND_MS

    @property
    def metrics_every_s(self) -> float | None:
        """Beat on which engines are read, s; None if the options do not tell."""
        beat = self.options.get("metrics_every_s")
        return float(beat) if isinstance(beat, int | float) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnd:
    """How one of the processes that played a run ended."""

    sent_calls: int
    """Calls that it sent."""
    cpu_ns: int | None
    """Its CPU time between start and end; None if it was lost."""
    loop_lag_p99_ns: int | None
    """99th percentile of how late its event loop woke a timer; None if it was lost or that was never sampled."""
    late_bodies: int = 0
    """Requests whose body had to be built when their call was due already."""
    lost: bool = False
    """Whether it ended before its part of the run had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended; absent from run.json if the program did not get to write it."""

    ended_ns: int
    """When the last call had ended."""
    interrupted: bool
    """Whether the user stopped it."""
    sent_calls: int
    """Calls that were sent."""
    unsent_calls: int
    """Planned calls that were not."""
    cpu_ns: int
    """CPU time of the replaying processes between start and end."""
    loop_lag_p99_ns: int | None
    """99th percentile of how late the event loop woke a timer; None if it was never sampled."""
    late_bodies: int = 0
    """Requests whose body had to be built when their call was due already."""
    cut_ns: int | None = None
    """When the run's duration was over, and what was in flight was cut; None if it ended in another way."""
    unstarted_trees: int = 0
    """Trees that the plan held in store and no lane took before the duration was over; nothing tells of their calls."""
    unstarted_sessions: int = 0
    """Their sessions."""
    unstarted_calls: int = 0
    """Their calls."""
    ran_out_ns: int | None = None
    """When a lane first found no tree left before the duration was over; None if that never came."""
    final_requests: int = 0
    """Requests beyond the calls, each of which told the endpoint that a session was over."""
    failed_final_requests: int = 0
    """Those of them that were not answered with status 200."""
    workers: tuple[WorkerEnd, ...] = ()
    """The processes that played the run, whose CPU times and highest loop lag are those above; empty if it was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A try of a call that gave no answer and was followed by another one."""

    sent_ns: int | None = None
    """When the request's head was handed to the socket; None if no connection came about."""
    headers_ns: int | None = None
    """When status and headers came."""
    first_token_ns: int | None = None
    """When the first token came."""
    end_ns: int
    """When the try was over."""
    status: int | None = None
    """HTTP status; None if no headers came."""
    error: ErrorKind
    """What went wrong."""
    error_text: str | None = None
    """First 200 characters of what the endpoint or the network said; None if nothing."""
    retry_after_ns: int | None = None
    """Wait that the endpoint asked for; None if it did not."""
    wait_ns: int
    """Wait of the harness before the next try."""
    signals: Signals = field(default_factory=dict)
    """What servers and routers told of it, as in `CallResult`; empty if nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """One planned call and what became of it."""

    index: int
    """Place in the plan."""
    call: int
    """Call of the trace that this one plays."""
    session: int
    """Session of the trace."""
    instance: int
    """Which playing of a tree this belongs to, from 1; (instance, session) is one session of the run."""
    root: int
    """Root session of the trace's tree."""
    call_class: CallClass
    """What the call is for."""
    turn_index: int
    """Position of the call within its session, from 0."""
    identity_fault: IdentityFault | None = None
    """What was wrong with the ids of its session, on purpose; None if nothing was."""
    request_id: str
    """Sent as `X-Request-Id`; joins with the engine's log."""
    gap_ns: int | None
    """Scaled and capped gap before the call; None for the first call of a tree."""
    gap_cause: GapCause | None
    """What filled it; None for the first call of a tree."""
    prompt_tokens: int
    """Tokens of the prompt by plan."""
    output_tokens: int
    """Tokens of the answer by plan."""
    phase: Phase = "measured"
    """Whether it is measured, belongs to the warm-up, or only primed the target's cache."""
    unsent: UnsentReason | None = None
    """Why it was not sent; None if it was, and then the times below say how it went."""
    attempts: tuple[Attempt, ...] = ()
    """Earlier tries, in order; the times from `dispatched_ns` on, outcome and usage are those of the last try."""
    planned_ns: int | None = None
    """When it would be due if every answer took its recorded time; None if the plan cannot tell."""
    due_ns: int | None = None
    """When all it waited for had ended and the gap was over; None if that never came."""
    retry_due_ns: int | None = None
    """When the last try was due, after the wait of the harness; None if it was the first."""
    dispatched_ns: int | None = None
    """When the program began to send it."""
    connected_ns: int | None = None
    """When its connection was ready."""
    sent_ns: int | None = None
    """When the request's head was handed to the socket."""
    uploaded_ns: int | None = None
    """When the whole body was handed to the socket."""
    headers_ns: int | None = None
    """When status and headers of the answer came."""
    first_byte_ns: int | None = None
    """When the first byte of the body came."""
    first_event_ns: int | None = None
    """When the first event of the stream was complete."""
    first_token_ns: int | None = None
    """First content, reasoning or tool-call delta; for an answer that was not streamed, its end."""
    first_visible_ns: int | None = None
    """First delta of answer text."""
    last_token_ns: int | None = None
    """Last content, reasoning or tool-call delta."""
    end_ns: int | None = None
    """When the exchange was over, however it ended."""
    new_connection: bool | None = None
    """Whether a connection had to be opened; None if none came about."""
    stale_connections: int = 0
    """Kept connections that turned out to have been closed by the server before a byte of an answer: the request was
    sent again on another one, and the times are those of the last sending."""
    request_bytes: int | None = None
    """Bytes of the request's body."""
    response_bytes: int | None = None
    """Bytes of the answer's body."""
    events: int | None = None
    """Events of the stream; None if it was not one."""
    token_events: int | None = None
    """Events that carried content, reasoning or a tool-call delta."""
    longest_stall_ns: int | None = None
    """Longest time between two such events, or from the last one to the end; None with fewer than two."""
    unparsed_events: int = 0
    """Events that could not be read, and lines of the stream that belong to none."""
    status: int | None = None
    """HTTP status; None if no headers came."""
    error: ErrorKind | None = None
    """What went wrong; None = a complete answer."""
    error_text: str | None = None
    """First 200 characters of what the endpoint or the network said; None without an error."""
    finish: str | None = None
    """Finish reason in the protocol's word."""
    retry_after_ns: int | None = None
    """Wait that the endpoint asked for; None if it did not."""
    usage: Usage = field(default_factory=Usage)
    """Tokens as reported."""
    signals: Signals = field(default_factory=dict)
    """What servers and routers told of how it was served, see `aitrace.signals`; empty if nothing."""


ENGINE_COUNTERS = ("prefix_query_tokens", "prefix_hit_tokens", "preemptions", "rejections")
"""What an engine counts up from its start, by the common names of a `Scrape`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One reading of an engine's metrics, in names common to all engines."""

    at_ns: int
    """When the reading came back."""
    url: str
    """Where it was read."""
    values: dict[str, float] = field(default_factory=dict)
    """Common name to value, as listed in docs/replay-reference.md; empty if the reading failed."""
    error: str | None = None
    """Why the reading failed; None if it did not."""


def waits_ns(call: CallResult) -> list[int]:
    """The harness's wait after each earlier try of a call, ns; of one that was cut by the run's end, what had passed."""
    waits = [attempt.wait_ns for attempt in call.attempts]
    if waits and call.sent_ns is None and call.end_ns is not None:
        waits[-1] = min(waits[-1], call.end_ns - call.attempts[-1].end_ns)
    return waits


def call_columns(calls: Iterable[CallResult]) -> dict[str, list[Any]]:
    """Columns of calls: the fields of `CallResult` but for its signals, those of its usage as `usage_…`, of its earlier
    tries their number and the waits after them, and who computed its prompt.
    """
    names = [field.name for field in fields(CallResult) if field.name not in NO_COLUMNS]
    usage_names = [field.name for field in fields(Usage)]
    columns: dict[str, list[Any]] = {name: [] for name in names}
    columns.update({f"usage_{name}": [] for name in usage_names})
    columns.update({"earlier_tries": [], "backoff_ns": [], "worker": []})
    for call in calls:
        for name in names:
            columns[name].append(getattr(call, name))
        for name in usage_names:
            columns[f"usage_{name}"].append(getattr(call.usage, name))
        columns["earlier_tries"].append(len(call.attempts))
        columns["backoff_ns"].append(sum(waits_ns(call)))
        columns["worker"].append(worker_of(call.signals))
    return columns
