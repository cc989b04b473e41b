"""I/O: what one process has to know to play a run or its part of it, and the parts it makes from that."""

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aitrace.clock import Clock
from aitrace.identity import BlockIdentity
from aitrace.protocols import PROTOCOLS
from aitrace.results import ArrivalClock, Calibration, CallResult
from aitrace.schema import Trace
from aitrace.signals import SIGNAL_HEADERS
from replayer.credentials import result_without_key
from replayer.endpoint import Endpoint
from replayer.http.socket_transport import SocketTransport
from replayer.http.sockets import new_socket
from replayer.http.transport import AiohttpTransport, Transport
from replayer.identity.router_tokens import RouterTokens
from replayer.identity.session_ends import FinalRequests
from replayer.identity.wire_identity import WireIdentity, caller_of
from replayer.planning.options import LoadOptions
from replayer.planning.plan import Plan
from replayer.requests import RequestBuilder
from replayer.retry import PROFILES, RetryProfile
from replayer.run_parts import RunParts, Target
from replayer.text import TextSource

TransportName = Literal["socket", "aiohttp"]
MAX_WORKERS = 256
"""Processes that may share a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run as each of its processes has to know it. It holds the API key, and is never written to a file."""

    spool: Path
    """Where the trace to be played lies unpacked; see `aitrace.stored_trace`."""
    load: LoadOptions
    """How."""
    endpoint: Endpoint
    """Against what."""
    model: str
    """Model to ask for."""
    calibration: Calibration
    """How the target counts."""
    text_seed: int
    """Seed of generated text."""
    run_id: str
    """Start of every request id."""
    timeout_ns: int
    """Longest wait for headers, and then for each further piece."""
    call_limit_ns: int
    """Longest time of one try of a call."""
    transport: TransportName
    """What carries calls."""
    arrivals: ArrivalClock
    """Who stamps what arrives."""
    router_token: str | None
    """Response header to be sent back; None for none."""


def open_transport(job: Job, clock: Clock) -> SocketTransport | AiohttpTransport:
    """What carries the calls of a job; to be used as an async context manager."""
    if job.transport == "aiohttp":
        return AiohttpTransport(
            clock, timeout_ns=job.timeout_ns, limit_ns=job.call_limit_ns, socket_factory=new_socket
        )
    return SocketTransport(
        clock,
        timeout_ns=job.timeout_ns,
        limit_ns=job.call_limit_ns,
        kernel_times=job.arrivals == "kernel",
    )


def parts_of(
    job: Job,
    plan: Plan,
    trace: Trace,
    transport: Transport,
    write_call: Callable[[CallResult], None],
) -> RunParts:
    """What a driver needs to play a plan, or a part of one.

    Args:
        trace: The trace of the file.
    """
    identity = WireIdentity(
        trace.sessions,
        job.load.identity,
        run_id=job.run_id,
        templates=job.load.headers,
        hints=job.load.hints,
        faults=job.load.identity_faults,
        seed=job.load.seed,
    )
    protocol = PROTOCOLS[job.endpoint.protocol]
    finals = FinalRequests(identity, protocol, model=job.model, run_id=job.run_id)
    return RunParts(
        plan=plan,
        target=Target(
            url=job.endpoint.url + protocol.path,
            protocol=protocol,
            model=job.model,
            output_forced=job.calibration.output_forced,
            headers=job.endpoint.headers,
        ),
        bodies=_bodies(job, plan, identity),
        transport=transport,
        write_call=lambda result: write_call(result_without_key(identity.marked(result), job.endpoint.key)),
        run_id=job.run_id,
        ids_of=lambda planned: identity.headers(caller_of(planned, job.run_id)),
        final_of=lambda result: finals.after(result, plan.call(result.index)),
        history_is_live=job.load.history == "live",
        retries=_retries(job.load, trace),
        seed=job.load.seed,
        signal_headers=SIGNAL_HEADERS | ({job.router_token.lower()} if job.router_token else set()),
        tokens=None if job.router_token is None else RouterTokens(job.router_token, trace.sessions),
    )


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def raise_file_limit() -> None:
    """Let every call have a connection: the usual limit is 1,024 open files, the hard one far above."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _bodies(job: Job, plan: Plan, identity: WireIdentity) -> RequestBuilder:
    return RequestBuilder(
        plan.trace,
        BlockIdentity(plan.trace, share_system=job.load.share_system),
        TextSource(job.text_seed, job.calibration.tokens_per_word),
        job.load,
        PROTOCOLS[job.endpoint.protocol],
        fields_of=lambda planned: identity.body_fields(caller_of(planned, job.run_id), job.endpoint.protocol),
    )


def _retries(load: LoadOptions, trace: Trace) -> dict[int, RetryProfile]:
    """How each session tries again; those that do not are left out."""
    names = {
        session.id: session.harness if load.retries == "harness" else load.retries
        for session in trace.sessions
    }
    profiles = {number: PROFILES[name] for number, name in names.items() if name in PROFILES}
    return {number: profile for number, profile in profiles.items() if profile is not None}
