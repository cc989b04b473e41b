"""Pure: what is said at the end of a recording, and whether it is in doubt."""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aitrace.leaks import warning_lines
from aitrace.schema import CaptureMode
from aitrace.units import size_from_count
from recorders.clients import ClientName
from recorders.notes import WriterReport
from recorders.tally import Tally

_SHOWN_LEAKS = 5
_SHOWN_HOSTS = 3
_SHOWN_REASONS = 2
_ROUTES = "/v1/messages, /v1/responses or /v1/chat/completions"

_HINTS: dict[CaptureMode, dict[ClientName | None, str]] = {
    "forward": {
        "claude": "Claude Code looks at HTTPS_PROXY; calls to Bedrock and Vertex have routes that are not recorded",
        "codex": "Codex looks at HTTPS_PROXY; with --remote it leaves its calls to a server elsewhere",
        "opencode": "OpenCode looks at HTTPS_PROXY; `opencode attach` leaves its calls to a server elsewhere",
        None: "the client may not look at HTTPS_PROXY and HTTP_PROXY; with --upstream URL it is told a base URL instead",
    },
    "reverse": {
        "claude": "Claude Code looks at ANTHROPIC_BASE_URL, but not with Bedrock, Vertex or Foundry",
        "codex": "with a ChatGPT login Codex asks its own endpoint, whatever its base URL: leave out --upstream",
        "opencode": "only the provider of OpenCode's main model is led to the recorder: leave out --upstream for others",
        None: "the client has to be told the recorder's address as its base URL",
    },
}
"""Why nothing may have come, by client and mode."""

_KINDS = {
    "refused": "the endpoint has no room",
    "http_error": "the endpoint answers with an error",
    "connect": "no connection to the endpoint",
    "cut": "the answer was cut off",
    "error_event": "the endpoint sends an error in its answer",
    "malformed": "the answer is not of the request's protocol",
}
"""What an `ErrorKind` is, where nothing more is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What came of a session, as the command saw it."""

    client: ClientName | None
    """The client; None if there was none to start."""
    mode: CaptureMode
    """How the recorder stood."""
    report: WriterReport | None
    """What the writer says; None if it said nothing."""
    tally: Tally = field(default_factory=Tally)
    """How the requests that came through the proxy ended."""
    unread_hosts: Mapping[str, int] = field(default_factory=dict)
    """Hosts whose connections were passed on unread, with their number."""
    proxy_errors: int = 0
    """Errors in the proxy's log."""
    first_proxy_error: str | None = None
    """The first of them; None if there was none."""
    no_proxy: str | None = None
    """`NO_PROXY` as the client has it; None if it has none, or if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What to say, and with which exit code."""

    lines: tuple[str, ...]
    """Lines for standard error."""
    in_doubt: bool
    """Whether the recording does not hold what it should."""


def ending(session: Session) -> Ending:
    """What a user has to know when the session is over."""
    report = session.report
    if report is None:
        lines = [
            "the recording has no end: its writer did not report; what it wrote is in FILE.partial, if anything"
        ]
        return Ending(lines=(*lines, *_traffic_lines(session)), in_doubt=True)
    if report.leaks:
        return Ending(lines=(*_leak_lines(report), *_traffic_lines(session)), in_doubt=True)
    if not report.calls:
        return Ending(lines=(*_empty_lines(session, report), *_traffic_lines(session)), in_doubt=True)
    lines = _summary_lines(report)
    failed = sum(report.failures.values())
    is_lost = report.error is not None or report.dropped_calls > 0
    if failed >= report.calls:
        who = "the only call" if report.calls == 1 else f"all {report.calls} calls"
        lines.insert(0, f"{who} failed: {_reasons(session, report)}")
        is_lost = True
    elif failed:
        lines.append(f"{failed} of {report.calls} calls failed: {_reasons(session, report)}")
    return Ending(lines=(*lines, *_traffic_lines(session)), in_doubt=is_lost)


def _reasons(session: Session, report: WriterReport) -> str:
    """Why calls failed: as the proxy saw it, or else by their kind of error."""
    kinds = Counter({_KINDS.get(kind, kind): number for kind, number in report.failures.items()})
    return _most_common(session.tally.failures or kinds)


def _most_common(reasons: Counter[str]) -> str:
    shown = [reason for reason, _ in reasons.most_common(_SHOWN_REASONS)]
    return "; ".join([*shown, *(["and others"] if len(reasons) > len(shown) else [])])


def _summary_lines(report: WriterReport) -> list[str]:
    sizes = f"{size_from_count(report.trace_bytes)}B for {size_from_count(report.traffic_bytes)}B of traffic"
    calls, sessions, trees = (
        _count(number, what)
        for number, what in ((report.calls, "call"), (report.sessions, "session"), (report.trees, "tree"))
    )
    lines = [
        f"recorded {calls} of {sessions} in {trees}: {sizes}",
        f"next: aitrace inspect {shlex.quote(report.path)}",
    ]
    return [*lines, *_lost_lines(report)]


def _lost_lines(report: WriterReport) -> list[str]:
    lines = []
    if report.error is not None:
        lines.append(f"the trace is not whole: {report.error}")
    if report.dropped_calls:
        are = "is" if report.dropped_calls == 1 else "are"
        lines.append(
            f"{_count(report.dropped_calls, 'call')} could not be recorded and {are} missing in the trace"
        )
    if report.unrecorded_calls:
        lines.append(f"{_count(report.unrecorded_calls, 'call')} had not ended when the recording did")
    return lines


def _leak_lines(report: WriterReport) -> list[str]:
    return [
        *warning_lines(report.leaks, report.path, most=_SHOWN_LEAKS),
        f"next: aitrace check --no-text {shlex.quote(report.path)}; then delete the file or keep it to yourself",
        "what was found should not have been written: please report it as a bug of aitrace",
    ]


def _empty_lines(session: Session, report: WriterReport) -> list[str]:
    """What may have kept calls away, the surest first; there is no file."""
    tally = session.tally
    if report.error is not None:
        what = "the recording is not whole" if report.trace_bytes else "no call was recorded"
        return [f"{what}: {report.error}", *_lost_lines(replace(report, error=None))]
    if report.unreadable_calls and report.unreadable_calls == report.dropped_calls:
        calls = _count(report.dropped_calls, "request")
        return [f"no call was recorded: {calls} came through, but the body is none of the route's protocol"]
    if report.dropped_calls:
        calls = _count(report.dropped_calls, "call")
        return [f"no call was recorded: {calls} came through and could not be written"]
    if tally.recorded:
        return [f"no call was recorded: {_socket_words(tally)}"]
    if not tally.requests:
        return ["no call was recorded: nothing came through the recorder", *_hints(session)]
    requests, failed = _count(tally.requests, "request"), tally.other_failures.total()
    if failed >= tally.requests:
        return [
            f"no call was recorded: {requests} came through and failed: {_most_common(tally.other_failures)}"
        ]
    lines = [f"no call was recorded: {requests} came through, none of them to {_ROUTES}", *_hints(session)]
    if failed:
        lines.append(f"  {failed} of them failed: {_most_common(tally.other_failures)}")
    return lines


def _socket_words(tally: Tally) -> str:
    """What became of requests that would have led to calls: a WebSocket's calls come when it is open."""
    sockets = _count(tally.recorded, "WebSocket")
    if tally.failures:
        return f"{sockets} for calls could not be opened: {_most_common(tally.failures)}"
    return f"{sockets} for calls came through, and no call on it"


def _hints(session: Session) -> list[str]:
    known = _HINTS[session.mode]
    hints = [known.get(session.client, known[None])]
    if session.mode == "forward" and session.no_proxy:
        hints.append(
            f"NO_PROXY keeps these away from the recorder: {session.no_proxy}; "
            "record an endpoint there with --upstream URL"
        )
    return [f"  {hint}" for hint in hints]


def _traffic_lines(session: Session) -> list[str]:
    lines = []
    if session.unread_hosts:
        hosts = ", ".join(sorted(session.unread_hosts)[:_SHOWN_HOSTS])
        more = len(session.unread_hosts) - _SHOWN_HOSTS
        lines.append(
            f"passed on unread, since a program did not trust the recorder's certificate: {hosts}"
            + (f" and {more} more" if more > 0 else "")
        )
    if session.proxy_errors:
        errors = _count(session.proxy_errors, "error")
        lines.append(f"the proxy reported {errors}, the first: {session.first_proxy_error}")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
