"""I/O: what a run is made of, whether one process plays it or several: whom it asks, and what it tells.

Nothing is done here; what is named here does it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from aitrace.protocols.protocol import WireProtocol
from aitrace.results import CallResult
from aitrace.signals import SIGNAL_HEADERS
from aitrace.units import NS_PER_S
from replayer.http.transport import Transport
from replayer.identity.router_tokens import RouterTokens
from replayer.identity.session_ends import FinalRequest
from replayer.planning.plan import Plan
from replayer.planning.planned import PlannedCall
from replayer.retry import RetryProfile
from replayer.scheduler import Progress
from replayer.scraper import Scraper
from replayer.tally import Tally

WATCH_EVERY_NS = NS_PER_S
"""How often `RunParts.watch` is shown the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of a run, for a live view."""

    elapsed_ns: int
    """Since the start, ns."""
    progress: Progress
    """The scheduler's counts."""
    in_backoff: int
    """Calls that wait for their next try; they are among those in flight."""
    earlier_tries: Mapping[str, int]
    """Tries so far that another one follows or followed, by error kind."""
    tally: Tally
    """Counts over the results so far; read it, it goes on changing."""
    planned_calls: int
    """Calls of the plan."""
    planned_trees: int
    """Trees of the plan."""
    planned_sessions: int
    """Sessions of the plan."""
    left_ns: int | None
    """About how long the run will go on; None if nothing can be said."""
    is_stopping: bool
    """Whether the run was asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where calls go, and as what."""

    url: str
    """Full URL of generation requests."""
    protocol: WireProtocol
    """How requests are written and answers are read."""
    model: str
    """Model to ask for."""
    output_forced: bool
    """Whether requests carry the fields that force the length of an answer."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of every request; they hold the API key, so they are never shown."""


class BodySource(Protocol):
    """What writes the bodies of requests; `replayer.requests.RequestBuilder` is one."""

    @property
    def counts(self) -> Mapping[Any, int]:
        """What requests had to be given, by what it was."""
        ...

    def build(self, planned: PlannedCall, *, model: str, output_forced: bool) -> bytes: ...

    def note_answer(self, index: int, text: str) -> None: ...

    def forget_tree(self, root: int, instance: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What a run is made of."""

    plan: Plan
    """What to send."""
    target: Target
    """Where to."""
    bodies: BodySource
    """Writes the requests."""
    transport: Transport
    """Carries them."""
    write_call: Callable[[CallResult], None]
    """Takes each result the moment it is known."""
    run_id: str
    """Start of every request id; another one for every run."""
    ids_of: Callable[[PlannedCall], Mapping[str, str]] = field(default=lambda _planned: {})
    """Headers of a call that say which session it belongs to."""
    final_of: Callable[[CallResult], FinalRequest | None] = field(default=lambda _result: None)
    """Is shown each result; the request that tells the target that the session is over, if it is now. None for none."""
    history_is_live: bool = False
    """Whether the endpoint's answers go into later prompts."""
    retries: Mapping[int, RetryProfile] = field(default_factory=dict)
    """How a call that failed is tried again, by session of the trace; a session that is absent gives up."""
    seed: int = 0
    """Seed of the random parts of waits between tries."""
    signal_headers: frozenset[str] = SIGNAL_HEADERS
    """Response headers to keep of each call, in lower case."""
    tokens: RouterTokens | None = None
    """Sends a router's tokens back to it; None if no header of a response is to be sent back."""
    wait_for_start: Callable[[], Awaitable[None]] | None = None
    """Returns when the first call may be due; None to begin as soon as the first bodies are built."""
    scraper: Scraper | None = None
    """Reads the engine's metrics; None for no reading."""
    watch: Callable[[Snapshot], None] | None = None
    """Is shown the state of the run every second and at its end; None if nobody looks."""
