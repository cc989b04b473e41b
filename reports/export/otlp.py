"""Pure: a run as OpenTelemetry spans, in the JSON encoding of OTLP, with the names of the GenAI conventions.

Each line is a `TracesData` object of at most `BATCH_SPANS` spans, as the OTLP file format has it. A tree is a trace; a
session is a span `invoke_agent`, a child of the one that spawned it; a call is a span `chat`, and each of its tries a
child of it if there was more than one. All ids are derived from the run and the call, see `reports.export.source`.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import orjson

from aitrace.outcomes import outcome_of
from aitrace.results import Attempt, CallResult, waits_ns
from aitrace.schema import ProtocolName
from aitrace.units import NS_PER_S
from reports.export.phases import outcome_of_call, span_ns
from reports.export.places import Places
from reports.export.source import RunSource, id_of, run_id
from reports.export.tally import RunTally, SessionTally

BATCH_SPANS = 256
"""Spans per line; about half of the MiB at which collectors cut a line by default."""

_PROVIDERS: dict[ProtocolName, str] = {"anthropic": "anthropic", "responses": "openai", "chat": "openai"}
_PORTS = {"http": 80, "https": 443}
_CLIENT, _INTERNAL = 3, 1
_ERROR = 2
_EVENTS = ("headers", "first_token", "last_token")
_KINDS = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
_Span = dict[str, Any]


def otlp_chunks(source: RunSource) -> Iterator[bytes]:
    """The spans, line by line: calls in the order in which they finished, then sessions."""
    spans = _Spans(source).all()
    resource = {"attributes": _attributes(_resource(source))}
    scope = {"name": "aitrace", "version": source.header.producer.removeprefix("aitrace ")}
    while batch := list(islice(spans, BATCH_SPANS)):
        scoped = {"scope": scope, "spans": batch}
        yield orjson.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}) + b"\n"


def _resource(source: RunSource) -> dict[str, Any]:
    header = source.header
    return {
        "service.name": "aitrace",
        "service.version": header.producer.removeprefix("aitrace "),
        "aitrace.run.id": run_id(header),
        "aitrace.run.trace": header.trace,
        "aitrace.run.ended": source.end is not None,
    }


class _Spans:
    """What the spans of one run have in common."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._run = run_id(source.header)
        self._started_ns = source.header.started_unix_ns
        self._places = None if source.links is None else Places(source.calls())
        server = urlsplit(source.header.url)
        self._request = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS[source.header.protocol],
            "gen_ai.request.model": source.header.model,
            "server.address": server.hostname,
            "server.port": server.port or _PORTS.get(server.scheme),
        }

    def all(self) -> Iterator[_Span]:
        tally = RunTally()
        for call in tally.passing(self._source.calls()):
            span = span_ns(call)
            if span is not None:
                yield self._call(call, span)
                yield from self._tries(call, span)
        for one in tally.sessions.values():
            if one.start_ns is not None and one.end_ns is not None:
                yield self._session(one, tally, (one.start_ns, one.end_ns))

    def _call(self, call: CallResult, span: tuple[int, int]) -> _Span:
        attributes = self._request | _call_attributes(call)
        attributes["gen_ai.conversation.id"] = self._conversation(call.instance, call.session)
        made = self._span(f"chat {self._source.header.model}", _CLIENT, span, attributes)
        made |= self._ids(
            call.instance, call.root, self._call_id(call), self._session_id(call.instance, call.session)
        )
        events = [(name, getattr(call, f"{name}_ns")) for name in _EVENTS]
        made["events"] = [
            {"timeUnixNano": str(self._started_ns + at_ns), "name": f"aitrace.{name}"}
            for name, at_ns in events
            if at_ns is not None
        ]
        made["links"] = list(self._links(call))
        return made | _status(call)

    def _tries(self, call: CallResult, span: tuple[int, int]) -> Iterator[_Span]:
        tries: list[CallResult | Attempt] = [*call.attempts, call]
        waits: list[int | None] = [*waits_ns(call), None]
        for number, (one, wait_ns) in enumerate(zip(tries, waits, strict=True), 1):
            if not call.attempts or one.sent_ns is None:
                continue
            attributes = {
                "http.response.status_code": one.status,
                "http.request.resend_count": number - 1,
                "error.type": None if one.error is None else outcome_of(one),
                "aitrace.retry_after_s": _seconds(one.retry_after_ns),
                "aitrace.backoff_s": _seconds(wait_ns),
            }
            end_ns = span[1] if one.end_ns is None else one.end_ns
            made = self._span(f"try {number}", _CLIENT, (one.sent_ns, end_ns), attributes)
            yield (
                made
                | self._ids(
                    call.instance, call.root, self._id("try", call.index, number), self._call_id(call)
                )
                | _status(one)
            )

    def _session(self, one: SessionTally, tally: RunTally, span: tuple[int, int]) -> _Span:
        links = self._source.links
        link = None if links is None else links.sessions.get(one.session)
        agent = "main" if one.session == one.root else (link.agent if link else None) or "agent"
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": self._request["gen_ai.provider.name"],
            "gen_ai.request.model": self._source.header.model,
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": self._conversation(one.instance, one.session),
            "aitrace.instance": one.instance,
            "aitrace.session": one.session,
            "aitrace.root": one.root,
            "aitrace.calls": one.calls,
            "aitrace.complete_calls": one.complete_calls,
            "aitrace.unsent_calls": one.unsent_calls,
        }
        made = self._span(f"invoke_agent {agent}", _INTERNAL, span, attributes)
        parent = self._parent(one, tally)
        own = self._session_id(one.instance, one.session)
        return made | self._ids(
            one.instance, one.root, own, None if parent is None else self._session_id(one.instance, parent)
        )

    def _parent(self, one: SessionTally, tally: RunTally) -> int | None:
        """The nearest session above that has a span; without a trace, the root."""
        links = self._source.links
        session = one.session
        while session != one.root:
            link = None if links is None else links.sessions.get(session)
            session = one.root if link is None or link.parent is None else link.parent
            above = tally.sessions.get((one.instance, session))
            if above is not None and above.start_ns is not None:
                return session
        return None

    def _links(self, call: CallResult) -> Iterator[dict[str, Any]]:
        """The calls that one waited for, those of its own session included."""
        if self._source.links is None or self._places is None or call.phase == "prime":
            return
        for link in self._source.links.after.get(call.call, ()):
            index = self._places.index_of_call(call.instance, link.call)
            if index is not None:
                yield {
                    "traceId": self._trace_id(call.instance, call.root),
                    "spanId": self._id("call", index),
                    "attributes": _attributes(
                        {"aitrace.relation": link.relation, "aitrace.trigger": link.trigger}
                    ),
                }

    def _span(self, name: str, kind: int, span: tuple[int, int], attributes: dict[str, Any]) -> _Span:
        return {
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(self._started_ns + span[0]),
            "endTimeUnixNano": str(self._started_ns + max(span)),
            "attributes": _attributes(attributes),
        }

    def _ids(self, instance: int, root: int, own: str, parent: str | None) -> _Span:
        ids = {"traceId": self._trace_id(instance, root), "spanId": own}
        return ids if parent is None else {**ids, "parentSpanId": parent}

    def _trace_id(self, instance: int, root: int) -> str:
        return id_of(self._run, "tree", str(instance), str(root), digits=32)

    def _session_id(self, instance: int, session: int) -> str:
        return self._id("session", instance, session)

    def _call_id(self, call: CallResult) -> str:
        return self._id("call", call.index)

    def _id(self, kind: str, *numbers: int) -> str:
        return id_of(self._run, kind, *map(str, numbers), digits=16)

    def _conversation(self, instance: int, session: int) -> str:
        return f"{self._run[:8]}-{instance}-{session}"


def _call_attributes(call: CallResult) -> dict[str, Any]:
    usage = call.usage
    written = [n for n in (usage.cache_write_5m_tokens, usage.cache_write_1h_tokens) if n is not None]
    return {
        "gen_ai.request.stream": True if call.events is not None else None,
        "gen_ai.response.finish_reasons": ["error" if call.error is not None else call.finish]
        if call.error is not None or call.finish is not None
        else None,
        "gen_ai.response.time_to_first_chunk": _between_s(call.sent_ns, call.first_event_ns),
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_write.input_tokens": sum(written) if written else None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "error.type": None if call.error is None else outcome_of_call(call),
        "http.response.status_code": call.status,
        "aitrace.index": call.index,
        "aitrace.call": call.call,
        "aitrace.instance": call.instance,
        "aitrace.session": call.session,
        "aitrace.call_class": call.call_class,
        "aitrace.phase": call.phase,
        "aitrace.turn_index": call.turn_index,
        "aitrace.request_id": call.request_id,
        "aitrace.gap_cause": call.gap_cause,
        "aitrace.gap_s": _seconds(call.gap_ns),
        "aitrace.lateness_s": _between_s(
            call.due_ns if call.retry_due_ns is None else call.retry_due_ns, call.sent_ns
        ),
        "aitrace.ttft_service_s": _between_s(call.sent_ns, call.first_token_ns),
        "aitrace.earlier_tries": len(call.attempts),
        "aitrace.planned_prompt_tokens": call.prompt_tokens,
        "aitrace.planned_output_tokens": call.output_tokens,
        **{f"aitrace.signal.{name}": value for name, value in call.signals.items()},
    }


def _status(one: CallResult | Attempt) -> _Span:
    if one.error is None:
        return {}
    return {"status": {"code": _ERROR} | ({} if one.error_text is None else {"message": one.error_text})}


def _seconds(length_ns: int | None) -> float | None:
    return None if length_ns is None else length_ns / NS_PER_S


def _between_s(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / NS_PER_S


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in values.items() if value is not None]


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    kind = _KINDS[type(value)]
    # Integers of 64 bits are texts in JSON.
    return {kind: str(value) if kind == "intValue" else value}
