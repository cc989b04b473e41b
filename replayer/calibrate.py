"""I/O: tries a target before a run: is it there, which model, how does it count, does it take forced lengths."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aitrace.clock import Clock
from aitrace.errors import UsageError
from aitrace.observe import Observation, ResponseObserver
from aitrace.protocols import PROTOCOLS
from aitrace.results import Calibration
from replayer.credentials import without_key
from replayer.endpoint import Endpoint, models_from_body, unreachable, unusable
from replayer.http.transport import AiohttpTransport, Failure, OutgoingRequest, Stamps
from replayer.requests import calibration_body, calibration_from_probes

ForceOutput = Literal["auto", "on", "off"]

SMALL_WORDS = 200
LARGE_WORDS = 2000
_UNKNOWN_FIELD_STATUSES = (400, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """What a user says about the target beforehand."""

    model: str | None = None
    """Model to ask for; None to take the first that the target lists."""
    tokens_per_word: float | None = None
    """Tokens of one word; None to measure it."""
    force_output: ForceOutput = "auto"
    """Whether to send the fields that force the length of an answer; `auto` = if the target takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What was learned about a target."""

    model: str
    """Model to ask for."""
    calibration: Calibration
    """How it counts."""
    notes: tuple[str, ...]
    """What had to be assumed, one sentence each."""


class Calibrator:
    """Tries one endpoint; `calibrate` does all of it."""

    def __init__(
        self, endpoint: Endpoint, transport: AiohttpTransport, pages: AiohttpTransport, clock: Clock
    ) -> None:
        """Take on an endpoint.

        Args:
            transport: For calls.
            pages: For pages, which need not be waited for as long as an answer.
        """
        self._endpoint = endpoint
        self._protocol = PROTOCOLS[endpoint.protocol]
        self._url = endpoint.url + self._protocol.path
        self._transport = transport
        self._pages = pages
        self._clock = clock

    async def calibrate(self, options: CalibrationOptions, *, trace_model: str | None) -> Calibrated:
        """Try the target and learn how it counts.

        Args:
            trace_model: Model that the trace's calls asked for, taken if the target lists none.

        Raises:
            EndpointError: The target cannot be used.
            UsageError: No model is known.
        """
        models = await self.models()
        model = options.model or (models[0] if models else trace_model)
        if model is None:
            raise UsageError(
                f"no model is known: {self._endpoint.url}/v1/models lists none, nor does the trace name one",
                hint="Give one with --model.",
            )
        small, forced = await self._first_call(model, options.force_output, models)
        if options.tokens_per_word is not None:
            return _given(model, options.tokens_per_word, small, output_forced=forced)
        large = await self._call(model, LARGE_WORDS, forced=forced)
        if large.error is not None:
            raise unusable(self._url, large, model=model, models=models)
        return _measured(model, small, large, output_forced=forced)

    async def models(self) -> list[str] | None:
        """Ids of the models that the target lists; None if it does not.

        Raises:
            EndpointError: Nothing answers there.
        """
        url = f"{self._endpoint.url}/v1/models"
        fetched = await self._pages.fetch(url, self._endpoint.headers)
        if isinstance(fetched, Failure):
            if fetched.kind == "connect":
                raise unreachable(self._endpoint.url, fetched.text)
            return None
        return models_from_body(fetched.body) if fetched.status == 200 else None

    async def _first_call(
        self, model: str, force_output: ForceOutput, models: Sequence[str] | None
    ) -> tuple[Observation, bool]:
        """The small probe, and whether it carried the fields that force the length of an answer."""
        forced = force_output != "off"
        seen = await self._call(model, SMALL_WORDS, forced=forced)
        if force_output == "auto" and seen.status in _UNKNOWN_FIELD_STATUSES:
            forced = False
            seen = await self._call(model, SMALL_WORDS, forced=False)
        if seen.error is not None:
            raise unusable(self._url, seen, model=model, models=models)
        return seen, forced

    async def _call(self, model: str, words: int, *, forced: bool) -> Observation:
        request = OutgoingRequest(
            url=self._url,
            headers=self._endpoint.headers,
            body=calibration_body(self._protocol, model, words=words, output_forced=forced),
        )
        observer = ResponseObserver(self._protocol, streamed=True)
        failure = await self._transport.send(request, observer, Stamps())
        kind, text = (None, None) if failure is None else (failure.kind, failure.text)
        seen = observer.on_end(self._clock.monotonic_ns(), kind, text)
        said = None if seen.error_text is None else without_key(seen.error_text, self._endpoint.key)
        return replace(seen, error_text=said)


def _given(model: str, tokens_per_word: float, small: Observation, *, output_forced: bool) -> Calibrated:
    reported = small.usage.input_tokens
    return Calibrated(
        model=model,
        calibration=Calibration(
            tokens_per_word=tokens_per_word,
            request_overhead_tokens=0.0 if reported is None else reported - tokens_per_word * SMALL_WORDS,
            source="given",
            output_forced=output_forced,
        ),
        notes=_forcing_notes(output_forced=output_forced),
    )


def _measured(model: str, small: Observation, large: Observation, *, output_forced: bool) -> Calibrated:
    few, many = small.usage.input_tokens, large.usage.input_tokens
    measured = None
    if few is not None and many is not None:
        measured = calibration_from_probes((SMALL_WORDS, few), (LARGE_WORDS, many))
    notes = _forcing_notes(output_forced=output_forced)
    if measured is None:
        said = (
            "reports no prompt tokens" if few is None or many is None else "reports counts that do not grow"
        )
        notes += (
            f"the target {said}, so one token per word is assumed (--tokens-per-word sets another ratio)",
        )
    tokens_per_word, overhead_tokens = (1.0, 0.0) if measured is None else measured
    return Calibrated(
        model=model,
        calibration=Calibration(
            tokens_per_word=tokens_per_word,
            request_overhead_tokens=overhead_tokens,
            source="assumed" if measured is None else "probe",
            output_forced=output_forced,
        ),
        notes=notes,
    )


def _forcing_notes(*, output_forced: bool) -> tuple[str, ...]:
    if output_forced:
        return ()
    return ("the length of answers is only limited, not forced: they may be shorter than recorded",)
