"""Pure: what the writers of exports read: a run whose lines come one by one, without what must not leave it.

Of the endpoint's words only what was asked for goes on, with secrets masked; tokens by which routers know a session,
and the values of headers and body fields of the user's own, never do.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from aitrace.leaks import masked
from aitrace.results import Attempt, CallResult, RunEnd, RunHeader, Scrape
from aitrace.signals import SIGNAL_HEADERS, Signals
from reports.export.links import TraceLinks

_TOKEN_HEADERS = frozenset({"x-session-token"})
_SHOWN_SIGNALS = SIGNAL_HEADERS - _TOKEN_HEADERS
_BODY_SIGNALS = "nvext."
_OWN_VALUES = ("headers", "hints")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """A run to be exported."""

    header: RunHeader
    """What was to be played."""
    end: RunEnd | None
    """How it ended; None if the program did not get to write it."""
    calls: Callable[[], Iterator[CallResult]]
    """The calls in the order in which they finished, from the beginning each time."""
    scrapes: Callable[[], Iterator[Scrape]]
    """The readings in order of time, from the beginning each time."""
    links: TraceLinks | None
    """What the trace adds; None without a trace that can be read."""

    @property
    def planned_calls(self) -> int:
        """Calls that should have left a line."""
        return self.header.planned_calls - (0 if self.end is None else self.end.unstarted_calls)


def public_source(source: RunSource, *, error_texts: bool) -> RunSource:
    """The run without what must not leave it."""
    return replace(
        source,
        header=public_header(source.header),
        calls=lambda: (public_call(call, error_texts=error_texts) for call in source.calls()),
        scrapes=lambda: (public_scrape(scrape, error_texts=error_texts) for scrape in source.scrapes()),
    )


def public_header(header: RunHeader) -> RunHeader:
    """The header with addresses masked, and without the values of the user's own headers and hints."""
    options = {
        name: _masked_value(value) for name, value in header.options.items() if name not in _OWN_VALUES
    }
    return replace(header, url=masked(header.url), options=options)


def public_call(call: CallResult, *, error_texts: bool) -> CallResult:
    """The call without error texts, unless they are asked for, and without tokens of routers."""
    if call.error is None and not call.signals and not call.attempts:
        return call
    return replace(
        call,
        error_text=_public_text(call.error_text, is_wanted=error_texts),
        signals=_public_signals(call.signals),
        attempts=tuple(_public_attempt(attempt, error_texts=error_texts) for attempt in call.attempts),
    )


def public_scrape(scrape: Scrape, *, error_texts: bool) -> Scrape:
    """The reading with its address masked; of why it failed only that it did, unless texts are asked for."""
    failure = "failed" if scrape.error is not None and not error_texts else scrape.error
    return replace(scrape, url=masked(scrape.url), error=_public_text(failure, is_wanted=True))


def run_id(header: RunHeader) -> str:
    """32 hexadecimal digits that are the same for every export of a run, and differ between runs."""
    return id_of(
        str(header.started_unix_ns), str(header.text_seed), header.url, header.model, header.trace, digits=32
    )


def id_of(*parts: str, digits: int) -> str:
    """Hexadecimal digits derived from the parts."""
    return blake2b("\0".join(parts).encode(), digest_size=digits // 2).hexdigest()


def _public_attempt(attempt: Attempt, *, error_texts: bool) -> Attempt:
    text = _public_text(attempt.error_text, is_wanted=error_texts)
    return replace(attempt, error_text=text, signals=_public_signals(attempt.signals))


def _public_text(text: str | None, *, is_wanted: bool) -> str | None:
    return None if text is None or not is_wanted else masked(text)


def _public_signals(signals: Signals) -> Signals:
    return {
        name: masked(value) if isinstance(value, str) else value
        for name, value in signals.items()
        if name in _SHOWN_SIGNALS or name.startswith(_BODY_SIGNALS)
    }


def _masked_value(value: Any) -> Any:
    match value:
        case str():
            return masked(value)
        case list() | tuple():
            return [_masked_value(item) for item in value]
        case Mapping():
            return {name: _masked_value(item) for name, item in value.items()}
        case _:
            return value
