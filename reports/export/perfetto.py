"""Pure: a run as trace events (Chrome's JSON format) for the Perfetto UI: a process per tree, a thread per session.

Times are whole µs since the start of the run, rounded down: what nests in ns nests in µs, and no reader rounds again.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from aitrace.results import CallResult
from aitrace.units import NS_PER_MS, NS_PER_US
from reports.export.links import CallLink, TraceLinks
from reports.export.phases import outcome_of_call, phases
from reports.export.places import Place, Places, Track
from reports.export.source import RunSource, run_id

GAUGES = ("running", "waiting", "kv_usage_ratio")
"""Readings that are drawn."""

_Event = dict[str, Any]


def perfetto_chunks(source: RunSource) -> Iterator[bytes]:
    """The document, with one event per line."""
    yield b'{"displayTimeUnit":"ms","otherData":'
    yield orjson.dumps(_other_data(source))
    yield b',"traceEvents":[\n'
    for place, event in enumerate(_events(source)):
        yield (b",\n" if place else b"") + orjson.dumps(event)
    yield b"\n]}\n"


def _other_data(source: RunSource) -> dict[str, Any]:
    header = source.header
    return {
        "run": run_id(header),
        "producer": header.producer,
        "started_unix_ns": str(header.started_unix_ns),
        "url": header.url,
        "model": header.model,
        "trace": header.trace,
        "ended": source.end is not None,
        "dependencies": source.links is not None,
    }


def _events(source: RunSource) -> Iterator[_Event]:
    places = Places(source.calls())
    for track in places.tracks:
        yield from _names(track, source.links)
    flows = 0
    for line, call in enumerate(source.calls()):
        place = places.of_line(line)
        if place is None:
            continue
        yield from _gap(call, place)
        yield _slice(_call_name(call), "call", place.track, (place.start_ns, place.end_ns), _call_args(call))
        for link in (
            () if source.links is None or call.phase == "prime" else source.links.after.get(call.call, ())
        ):
            other = places.of_call(call.instance, link.call)
            if other is not None:
                flows += 1
                yield from _flow(flows, link, other, place)
        for phase in phases(call):
            args = {"try": phase.number} if call.attempts else {}
            yield _slice(phase.name, "phase", place.track, (phase.start_ns, phase.end_ns), args)
    yield from _gauges(source, 1 + max((track.thread for track in places.tracks), default=0))


def _names(track: Track, links: TraceLinks | None) -> Iterator[_Event]:
    """Names and order of a track, and of its tree along with its first one."""
    link = None if links is None else links.sessions.get(track.session)
    agent = "main" if track.session == track.root else (link.agent if link else None) or "agent"
    name = f"{agent} {track.session}" + (f" ({track.lane + 1})" if track.lane else "")
    if track.thread == track.process:
        yield _metadata(
            "process_name", track.process, 0, {"name": f"tree {track.root} (playing {track.instance})"}
        )
        yield _metadata("process_sort_index", track.process, track.process, {"sort_index": track.process})
    yield _metadata("thread_name", track.process, track.thread, {"name": name})
    yield _metadata("thread_sort_index", track.process, track.thread, {"sort_index": track.thread})


def _metadata(name: str, process: int, thread: int, args: dict[str, Any]) -> _Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "args": args}


def _gap(call: CallResult, place: Place) -> Iterator[_Event]:
    if call.gap_cause is not None and call.gap_ns is not None and place.gap_start_ns < place.start_ns:
        span = (place.gap_start_ns, place.start_ns)
        args = {"cause": call.gap_cause, "before_call": call.call, "gap_ms": call.gap_ns / NS_PER_MS}
        yield _slice(f"{call.gap_cause} gap", "gap", place.track, span, args)


def _slice(name: str, category: str, track: Track, span_ns: tuple[int, int], args: dict[str, Any]) -> _Event:
    start_us, end_us = span_ns[0] // NS_PER_US, span_ns[1] // NS_PER_US
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": track.process,
        "tid": track.thread,
        "ts": start_us,
        "dur": end_us - start_us,
        "args": args,
    }


def _call_name(call: CallResult) -> str:
    name = "prime" if call.phase == "prime" else call.call_class
    return f"{name} {call.call}" + ("" if call.error is None else f": {outcome_of_call(call)}")


def _call_args(call: CallResult) -> dict[str, Any]:
    usage = call.usage
    args = {
        "index": call.index,
        "instance": call.instance,
        "session": call.session,
        "turn_index": call.turn_index,
        "phase": call.phase,
        "request_id": call.request_id,
        "outcome": outcome_of_call(call),
        "status": call.status,
        "finish": call.finish,
        "error_text": call.error_text,
        "planned_prompt_tokens": call.prompt_tokens,
        "planned_output_tokens": call.output_tokens,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "earlier_tries": len(call.attempts),
        "lateness_ms": _between_ms(call.retry_due_ns or call.due_ns, call.sent_ns),
        "ttft_service_ms": _between_ms(call.sent_ns, call.first_token_ns),
        "ttft_user_ms": _between_ms(call.due_ns, call.first_token_ns),
        **call.signals,
    }
    return {name: value for name, value in args.items() if value is not None}


def _between_ms(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / NS_PER_MS


def _flow(number: int, link: CallLink, other: Place, place: Place) -> Iterator[_Event]:
    """An arrow from a call to one that waited for it.

    Its begin lies within the slice that it leaves; its end before the slice that it comes to, since it is bound to the
    next one that begins: at the begin it would be bound to the first phase within the call.
    """
    start_us, to_us = other.start_ns // NS_PER_US, max(0, place.start_ns // NS_PER_US - 1)
    from_us = start_us if link.trigger == "dispatch" else max(start_us, other.end_ns // NS_PER_US - 1)
    same = {"name": link.relation, "cat": "dependency", "id": number}
    start = {"pid": other.track.process, "tid": other.track.thread, "ts": min(from_us, max(start_us, to_us))}
    end = {"pid": place.track.process, "tid": place.track.thread, "ts": to_us}
    yield {"ph": "s", **same, **start}
    yield {"ph": "f", **same, **end}


def _gauges(source: RunSource, first: int) -> Iterator[_Event]:
    engines: dict[str, int] = {}
    for scrape in source.scrapes():
        if scrape.url not in engines:
            engines[scrape.url] = first + len(engines)
            yield _metadata(
                "process_name", engines[scrape.url], engines[scrape.url], {"name": f"engine {scrape.url}"}
            )
        for name in GAUGES:
            if name in scrape.values:
                yield {
                    "ph": "C",
                    "name": name,
                    "pid": engines[scrape.url],
                    "ts": scrape.at_ns // NS_PER_US,
                    "args": {name: scrape.values[name]},
                }
