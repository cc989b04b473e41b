"""Pure: how the engine is set up, and the faults it can be told to commit.

A fault is written `KIND=VALUE`:

    cut=12            close the connection after 12 tokens
    stall=5:2.5       after 5 tokens, nothing for 2.5 seconds
    refuse=429:3      answer 429 with `Retry-After: 3`
    error=8           the protocol's error event after 8 tokens
    slow-headers=0.5  take the request up half a second late

Not accepted: `cut` (how many tokens?), `stall=5` (for how long?).
"""

import math
from dataclasses import dataclass
from typing import Literal

from aitrace.errors import UsageError
from aitrace.units import NS_PER_MS, NS_PER_S

FaultKind = Literal["cut", "stall", "refuse", "error", "slow-headers"]
RefusalStatus = Literal[429, 503, 529]
HeaderTime = Literal["early", "late"]
HEADER_TIMES: tuple[HeaderTime, ...] = ("early", "late")
REFUSAL_STATUSES: tuple[RefusalStatus, ...] = (429, 503, 529)
FAULT_FORMS = (
    "cut=TOKENS, stall=TOKENS:SECONDS, refuse=STATUS[:SECONDS], error=TOKENS or slow-headers=SECONDS"
)
MAX_BODY_BYTES = 64 * 1024 * 1024
# An answer is held in memory whole, and drawn while nothing else is served.
MAX_ANSWER_TOKENS = 250_000
_LONGEST_S = 86_400.0
_LOWEST_RATE = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One misbehaviour, for one request."""

    kind: FaultKind
    """What goes wrong."""
    after_tokens: int = 0
    """Tokens written before it does; 0 for kinds that act before any."""
    duration_ns: int = 0
    """How long a stall or a delay lasts, ns; 0 for other kinds."""
    status: int | None = None
    """HTTP status of a refusal; None for other kinds."""
    retry_after_s: float | None = None
    """Value of a refusal's `Retry-After`; None = no such header."""

    @property
    def text(self) -> str:
        """The kind and its value, in the form that `parse_fault` reads."""
        match self.kind:
            case "cut" | "error":
                return f"{self.kind}={self.after_tokens}"
            case "stall":
                return f"stall={self.after_tokens}:{text_from_s(self.duration_ns / NS_PER_S)}"
            case "refuse":
                wait = "" if self.retry_after_s is None else f":{text_from_s(self.retry_after_s)}"
                return f"refuse={self.status}{wait}"
            case "slow-headers":
                return f"slow-headers={text_from_s(self.duration_ns / NS_PER_S)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Everything that decides what the engine does with a sequence of requests."""

    host: str = "127.0.0.1"
    """Address to bind."""
    port: int = 8000
    """Port to bind, at most 65535; 0 = one that is free."""
    model: str = "aitrace-engine"
    """Name in `/v1/models` and in labels of metrics; requests may ask for any model."""
    block_size: int = 16
    """Tokens of one cache block."""
    cache_blocks: int | None = None
    """Blocks of the cache, running requests included; None = no limit."""
    prefill_tokens_per_s: float | None = 20_000.0
    """Prompt tokens computed per second, by all requests together; None = no time at all."""
    decode_tokens_per_s: float | None = 50.0
    """Output tokens per second of each running request; None = all at once."""
    batch: int = 64
    """Requests running at once."""
    queue: int | None = None
    """Requests waiting at most; None = no limit."""
    refuse: RefusalStatus = 503
    """Status for a request that finds the queue full."""
    retry_after_s: float | None = None
    """`Retry-After` of such an answer; None = no such header."""
    hold_s: float | None = None
    """Longest wait outside a full queue, without headers, before a request is refused; inf = until there is room,
    None = refused at once."""
    headers: HeaderTime = "early"
    """Whether the headers of a stream come when a request is taken in, or when it gets a place in the batch."""
    protect_returning: bool = False
    """Whether requests of a session that has had a token before are taken in however full the queue is."""
    step_ns: int = 5 * NS_PER_MS
    """Tokens of one request due within the same step are sent as one event; 0 = each token when it is due."""
    answer_tokens: tuple[int, int] = (20, 200)
    """Smallest and largest length of an answer that neither the request's limit nor `min_tokens` decides."""
    reasoning_tokens: int = 0
    """Tokens of reasoning at the start of each answer, part of its length."""
    tool_call: bool = False
    """Whether answers to requests that offer tools end with a tool call, unless a tool's result was just given."""
    seed: int = 0
    """Decides words and lengths of answers, ids, and which requests `fault` strikes."""
    fault: Fault | None = None
    """Misbehaviour for requests picked at `fault_ratio`; None = none."""
    fault_ratio: float = 0.0
    """Share of requests that `fault` strikes, 0-1."""
    max_body_bytes: int = MAX_BODY_BYTES
    """Largest request body; a larger one is answered with 413."""


def text_from_s(seconds: float) -> str:
    """Seconds to the ns, in as few digits as tell them and never with an exponent."""
    return f"{seconds:.9f}".rstrip("0").removesuffix(".")


def check_options(options: EngineOptions) -> None:
    """Raises UsageError for values that no engine could run with."""
    _require_at_least(1, {"--block-size": options.block_size, "--batch": options.batch})
    _require_at_least(0, {"--reasoning": options.reasoning_tokens, "--queue": options.queue})
    _require_at_least(1, {"--cache-blocks": options.cache_blocks, "--max-body": options.max_body_bytes})
    for name, rate in (
        ("--prefill-rate", options.prefill_tokens_per_s),
        ("--decode-rate", options.decode_tokens_per_s),
    ):
        if rate is not None and not _LOWEST_RATE <= rate < math.inf:
            raise UsageError(f"{name} is {rate!r}, expected {_LOWEST_RATE} or more, or `unlimited`")
    if not 0 <= options.port <= 65535:
        raise UsageError(f"--port is {options.port!r}, expected 0 to 65535")
    if options.retry_after_s is not None and not 0 <= options.retry_after_s < math.inf:
        raise UsageError(f"--retry-after is {options.retry_after_s!r}, expected a number of 0 or more")
    if options.hold_s is not None and not options.hold_s >= 0:
        raise UsageError(f"--hold is {options.hold_s!r}, expected 0 or more seconds, or `until-free`")
    for name, is_given in (
        ("--hold", options.hold_s is not None),
        ("--protect-returning", options.protect_returning),
    ):
        if is_given and options.queue is None:
            raise UsageError(f"{name} without --queue", hint="Say how many may wait: `--queue 16`.")
    if not 0 <= options.fault_ratio <= 1:
        raise UsageError(f"--fault-rate is {options.fault_ratio!r}, expected a number from 0 to 1")
    if options.fault is None and options.fault_ratio > 0:
        raise UsageError("--fault-rate without --fault", hint=f"Say which fault: {FAULT_FORMS}.")
    if options.fault is not None and options.fault_ratio == 0:
        raise UsageError("--fault without --fault-rate", hint="Say how often: `--fault-rate 0.1`.")
    low, high = options.answer_tokens
    if not 1 <= low <= high:
        raise UsageError(f"--answer-tokens is {low}:{high}, expected MIN:MAX with 1 <= MIN <= MAX")
    longest = options.reasoning_tokens + high
    if longest > MAX_ANSWER_TOKENS:
        text = "--reasoning and the largest of --answer-tokens"
        raise UsageError(f"{text} add up to {longest}, expected at most {MAX_ANSWER_TOKENS}")


def _require_at_least(least: int, values: dict[str, int | None]) -> None:
    for name, value in values.items():
        if value is not None and value < least:
            raise UsageError(f"{name} is {value!r}, expected {least} or more")


def parse_fault(text: str) -> Fault:
    """The fault that `text` describes.

    Raises:
        UsageError: It describes none.
    """
    kind, _, value = text.strip().partition("=")
    first, colon, second = value.partition(":")
    try:
        fault = _fault_from_values(kind, first, second if colon else None)
    except ValueError as error:
        raise UsageError(f"fault {text!r} cannot be read, expected {FAULT_FORMS}") from error
    return fault


def _fault_from_values(kind: str, first: str, second: str | None) -> Fault:
    """Raises ValueError if the values do not suit the kind."""
    if kind in ("cut", "error", "slow-headers") and second is not None:
        raise ValueError(kind)
    match kind:
        case "cut" | "error":
            return Fault(kind="cut" if kind == "cut" else "error", after_tokens=_count(first))
        case "stall" if second is not None:
            return Fault(kind="stall", after_tokens=_count(first), duration_ns=_duration_ns(second))
        case "slow-headers":
            return Fault(kind="slow-headers", duration_ns=_duration_ns(first))
        case "refuse":
            status = int(first)
            if not 400 <= status <= 599:
                raise ValueError(first)
            wait_s = None if second is None else _duration_ns(second) / NS_PER_S
            return Fault(kind="refuse", status=status, retry_after_s=wait_s)
    raise ValueError(kind)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(text)
    return int(text)


def _duration_ns(text: str) -> int:
    seconds = float(text)
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError(text)
    return round(seconds * NS_PER_S)
