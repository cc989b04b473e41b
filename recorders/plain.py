"""I/O: the recorder as an addon of somebody's own mitmproxy: options, settings of the proxy, and the last words."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from mitmproxy.addonmanager import Loader
from mitmproxy.exceptions import OptionsError
from mitmproxy.options import Options
from mitmproxy.proxy import server

from aitrace.schema import CaptureMode, Privacy
from aitrace.store import partial_path
from recorders.ending import Session, ending
from recorders.notes import WriterReport
from recorders.options import RecordOptions
from recorders.tally import UPSTREAM_CA, Tally

_log = logging.getLogger(__name__)
OPTIONS: dict[str, tuple[str, str, Sequence[str] | None]] = {
    "aitrace_out": ("", "Trace to write.", None),
    "aitrace_privacy": (
        "hash",
        "What of prompts the trace holds: `hash`, no text; `content`, their text.",
        get_args(Privacy),
    ),
    "aitrace_capture": (
        "auto",
        "How clients reach the endpoint; `auto` goes by the mode of the proxy.",
        ("auto", *get_args(CaptureMode)),
    ),
}
"""By name: default, help, and choices."""
_QUIET_S = 24 * 3600
"""How long a connection may be silent: an agent keeps its WebSocket open while its user thinks."""


def add_options(loader: Loader) -> None:
    """Add the recorder's options to mitmproxy's."""
    for name, (default, text, choices) in OPTIONS.items():
        loader.add_option(name, str, default, text, choices)


def options_from(options: Options) -> RecordOptions:
    """What the recording is to be.

    Raises:
        OptionsError: It cannot be.
    """
    for name, (_, _, choices) in OPTIONS.items():
        value = getattr(options, name)
        if choices is not None and value not in choices:
            raise OptionsError(f"{name}: {value!r} is none of {', '.join(choices)}")
    if not options.aitrace_out:
        raise OptionsError("no file is named, add `--set aitrace_out=FILE.aitrace`")
    path = Path(options.aitrace_out).expanduser()
    if str(path) == "-":
        raise OptionsError("aitrace_out: a recording cannot be written to standard output, name a file")
    for there in (path, partial_path(path)):
        if there.exists():
            raise OptionsError(f"aitrace_out: {str(there)!r} exists, name a file that does not")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise OptionsError(f"aitrace_out: {str(path.parent)!r} is no folder that you may write to")
    capture = options.aitrace_capture
    if capture == "auto":
        is_reverse = all(mode.startswith("reverse:") for mode in options.mode)
        capture = "reverse" if is_reverse else "forward"
    return RecordOptions(path=str(path), privacy=options.aitrace_privacy, capture=capture)


def prepare_proxy(options: Options) -> None:
    """Settings that a recording needs, where the user did not make their own."""
    # Else a refused endpoint fails before the request is read, and the call is never seen.
    if not options.has_changed("connection_strategy"):
        options.update(connection_strategy="lazy")
    if "tcp_timeout" not in options:
        vars(server)["TCP_TIMEOUT"] = _QUIET_S  # before mitmproxy 12.2.1 it is no option
    elif not options.has_changed("tcp_timeout"):
        options.update(tcp_timeout=_QUIET_S)


def log_refusal(error: OptionsError) -> None:
    """Say why nothing is recorded."""
    _log.error("aitrace: cannot record: %s", error)


def log_last_words(
    report: WriterReport, capture: CaptureMode, tally: Tally, complaints: Sequence[str]
) -> None:
    """Say what became of a recording, and what went wrong."""
    said = ending(Session(client=None, mode=capture, report=report, tally=tally))
    # Of an empty recording, what follows is about options of `aitrace record`.
    lines = said.lines if report.calls or report.leaks or report.error else said.lines[:1]
    for line in lines:
        text = line.replace(UPSTREAM_CA, "--set ssl_verify_upstream_trusted_ca=FILE")
        _log.log(logging.ERROR if said.in_doubt else logging.INFO, "aitrace: %s", text)
    for line in complaints:
        _log.error("aitrace: %s", line)
