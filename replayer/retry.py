"""Pure: what a harness does when a call fails: whether it tries again, after how long, and when it gives up.

The profiles are data, measured with the real clients against a scripted endpoint (versions at each profile). Waits
double from try to try up to a cap, with a random part on top; a `Retry-After` takes the place of the wait.
"""

import random
from dataclasses import dataclass
from typing import Literal, get_args

from aitrace.schema import ErrorKind
from aitrace.units import NS_PER_MS, NS_PER_S

RetryName = Literal["none", "claude-code", "codex", "opencode"]
RETRY_NAMES: tuple[RetryName, ...] = get_args(RetryName)

_TRANSIENT: frozenset[ErrorKind] = frozenset(
    {"refused", "connect", "timeout", "cut", "error_event", "malformed"}
)
_FALLBACK_WAIT_NS = 20 * NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A try that did not give an answer."""

    error: ErrorKind
    """What went wrong."""
    status: int | None
    """HTTP status; None if no headers came."""
    retry_after_ns: int | None
    """Wait that the endpoint asked for; None if it did not."""
    error_text: str | None
    """What the endpoint said; None if nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Try again."""

    wait_ns: int
    """From the end of the failed try to the next one, ns."""
    stream: bool = True
    """False if the next try asks for an answer in one piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryProfile:
    """How one harness retries."""

    base_ns: int
    """Wait before the second try, without its random part."""
    cap_ns: int
    """Longest wait, without its random part."""
    random_ratio: float
    """Largest random part of a wait, as a share of it."""
    tries_in_round: int
    """Tries with doubling waits; a new round begins with the base again."""
    rounds: int
    """Rounds until it gives up; the waits between rounds double as those within."""
    retry_after_extra_ns: int
    """What it waits beyond a `Retry-After`."""
    longest_retry_after_ns: int | None = None
    """Longest `Retry-After` that it waits out, a longer one ends the session; None if it waits out any."""
    is_bare_429_fatal: bool = False
    """Whether a 429 without `Retry-After` ends the session at once."""
    is_overload_event_fatal: bool = False
    """Whether an error event that speaks of overload ends the session at once."""
    has_whole_fallback: bool = False
    """Whether an error event is answered at once by the same request for an answer in one piece."""
    is_connect_endless: bool = False
    """Whether it never gives up on an endpoint that takes no connection."""


PROFILES: dict[str, RetryProfile | None] = {
    "none": None,
    "claude-code": RetryProfile(  # 2.1.332: 0.65, 1.1, 2.4, 4.6, 9.2, 19.9, 38.7, then 34 to 38 s; 10 retries
        base_ns=500 * NS_PER_MS,
        cap_ns=32 * NS_PER_S,
        random_ratio=0.25,
        tries_in_round=11,
        rounds=1,
        retry_after_extra_ns=350 * NS_PER_MS,
        longest_retry_after_ns=60 * NS_PER_S,  # not measured: so its vendor documents it for gateways
        has_whole_fallback=True,
    ),
    "codex": RetryProfile(  # 0.171.0: 6 rounds of 5 tries, 0.22, 0.40, 0.76, 1.75 s, between rounds 0.24 to 3.3 s
        base_ns=200 * NS_PER_MS,
        cap_ns=3_200 * NS_PER_MS,
        random_ratio=0.1,
        tries_in_round=5,
        rounds=6,
        retry_after_extra_ns=30 * NS_PER_MS,
        is_bare_429_fatal=True,
        is_overload_event_fatal=True,
        is_connect_endless=True,
    ),
    "opencode": RetryProfile(  # 1.18.33: 2.5, 5, 8, 17, 37 s; 5 retries
        base_ns=2 * NS_PER_S,
        cap_ns=32 * NS_PER_S,
        random_ratio=0.25,
        tries_in_round=6,
        rounds=1,
        retry_after_extra_ns=50 * NS_PER_MS,
    ),
}
"""By name; `none` gives up at the first failure."""


def next_try(profile: RetryProfile, tries: int, failed: Failed, generator: random.Random) -> Retry | None:
    """What the harness does after a failed try; None if it gives up.

    Args:
        tries: Tries so far, the failed one included.
    """
    if not _is_worth_it(profile, failed):
        return None
    is_endless = failed.error == "connect" and profile.is_connect_endless
    if tries >= profile.tries_in_round * profile.rounds and not is_endless:
        return None
    if failed.error == "error_event" and profile.has_whole_fallback:
        return Retry(wait_ns=_FALLBACK_WAIT_NS, stream=False)
    if failed.retry_after_ns is not None:
        return Retry(wait_ns=failed.retry_after_ns + profile.retry_after_extra_ns)
    round_number, place = divmod(tries - 1, profile.tries_in_round)
    doublings = place if place < profile.tries_in_round - 1 else round_number
    wait_ns = min(profile.cap_ns, profile.base_ns << min(doublings, 32))
    return Retry(wait_ns=round(wait_ns * (1 + generator.random() * profile.random_ratio)))


def _is_worth_it(profile: RetryProfile, failed: Failed) -> bool:
    """Whether the harness takes a failure for one that may pass."""
    longest_ns, asked_ns = profile.longest_retry_after_ns, failed.retry_after_ns
    if longest_ns is not None and asked_ns is not None and asked_ns > longest_ns:
        return False
    if failed.error == "http_error":
        return failed.status is not None and failed.status >= 500
    if failed.error not in _TRANSIENT:
        return False
    if failed.status == 429 and failed.retry_after_ns is None and profile.is_bare_429_fatal:
        return False
    if failed.error == "error_event" and profile.is_overload_event_fatal:
        return "overload" not in (failed.error_text or "").lower()
    return True
