"""Pure: a run as a benchmark report of llm-d, version 0.2.1: one JSON document with statistics, no single calls.

Counts and samples are those of docs/metrics.md: measured calls, inverted CDF, no quantile of a sample that is too small
for it. Of each call a few numbers are kept, so a run of a million calls takes some 100 MB.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson

from aitrace.quantiles import min_count
from aitrace.results import CallResult, Scrape
from aitrace.units import NS_PER_S
from reports.export.source import RunSource, id_of, run_id
from reports.export.tally import RunTally, SessionTally, is_complete
from reports.stats import Floats, quantile

LLM_D_VERSION = "0.2.1"
"""Version of the report's schema."""

_QUANTILES = {
    "p0p1": 0.001,
    "p1": 0.01,
    "p5": 0.05,
    "p10": 0.1,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p99p9": 0.999,
}
_SERIES = {
    "kv_cache_usage": ("kv_usage_ratio", "fraction"),
    "num_requests_running": ("running", "count"),
    "num_requests_waiting": ("waiting", "count"),
    "num_preemptions": ("preemptions", "count"),
    "prefix_cache_queries": ("prefix_query_tokens", "count"),
    "prefix_cache_hits": ("prefix_hit_tokens", "count"),
    "external_prefix_cache_hits": ("external_hit_tokens", "count"),
    "prompt_tokens": ("prompt_tokens", "count"),
    "generation_tokens": ("output_tokens", "count"),
}
_NOT_TOLD = "not told"


def _sample() -> "array[float]":
    return array("d")


@dataclass(slots=True, kw_only=True)
class _Calls:
    """What is kept of the measured calls."""

    unmeasured: int = 0
    """Calls of the warm-up, and calls that primed prompts: nothing else tells of them."""
    sent: int = 0
    """Calls that were sent."""
    failures: int = 0
    """Of these, ended in an error of the endpoint or the network."""
    incomplete: int = 0
    """Of these, cut by the end of the run."""
    refused: int = 0
    """Of the failures, refused."""
    complete: int = 0
    """Answered completely."""
    first_due_ns: int | None = None
    """When the first was due."""
    ttft_s: "array[float]" = field(default_factory=_sample)
    """First token − sent, of calls with a token."""
    tpot_s: "array[float]" = field(default_factory=_sample)
    """(Last token − first token) / (output tokens − 1), of complete streams with at least 2."""
    ntpot_s: "array[float]" = field(default_factory=_sample)
    """(End − sent) / output tokens, of complete calls that report them."""
    latency_s: "array[float]" = field(default_factory=_sample)
    """End − sent, of complete calls."""
    input_tokens: "array[float]" = field(default_factory=_sample)
    """Reported, of complete calls."""
    output_tokens: "array[float]" = field(default_factory=_sample)
    """Reported, of complete calls."""
    request_bytes: "array[float]" = field(default_factory=_sample)
    """Bodies of sent calls."""
    planned_input: "array[float]" = field(default_factory=_sample)
    """Prompt by plan, of all measured calls."""
    planned_output: "array[float]" = field(default_factory=_sample)
    """Answer by plan, of all measured calls."""

    def add(self, call: CallResult) -> None:
        if call.phase != "measured":
            self.unmeasured += 1
            return
        self.planned_input.append(call.prompt_tokens)
        self.planned_output.append(call.output_tokens)
        if call.due_ns is not None:
            self.first_due_ns = min(
                call.due_ns, call.due_ns if self.first_due_ns is None else self.first_due_ns
            )
        if call.sent_ns is None:
            return
        self.sent += 1
        self.incomplete += call.error == "client_abort"
        self.failures += call.error not in (None, "client_abort")
        self.refused += call.error == "refused"
        if call.request_bytes is not None:
            self.request_bytes.append(call.request_bytes)
        if call.first_token_ns is not None:
            self.ttft_s.append((call.first_token_ns - call.sent_ns) / NS_PER_S)
        if is_complete(call) and call.end_ns is not None:
            self._add_complete(call, (call.end_ns - call.sent_ns) / NS_PER_S)

    def _add_complete(self, call: CallResult, latency_s: float) -> None:
        self.complete += 1
        self.latency_s.append(latency_s)
        if call.usage.input_tokens is not None:
            self.input_tokens.append(call.usage.input_tokens)
        output_tokens = call.usage.output_tokens
        if output_tokens is None:
            return
        self.output_tokens.append(output_tokens)
        if output_tokens > 0:
            self.ntpot_s.append(latency_s / output_tokens)
        first_ns, last_ns = call.first_token_ns, call.last_token_ns
        if call.events is not None and output_tokens > 1 and first_ns is not None and last_ns is not None:
            self.tpot_s.append((last_ns - first_ns) / NS_PER_S / (output_tokens - 1))


def llm_d_chunks(source: RunSource) -> Iterator[bytes]:
    """The report, in one piece."""
    tally, calls = RunTally(), _Calls()
    for call in tally.passing(source.calls()):
        calls.add(call)
    ended_ns = tally.last_ns if source.end is None else source.end.ended_ns
    warm_ns = (calls.first_due_ns or 0) if calls.unmeasured else 0
    measured_s = (ended_ns - warm_ns) / NS_PER_S
    components = _components(source)
    report = {
        "version": LLM_D_VERSION,
        "run": _run(source, tally, ended_ns),
        "scenario": {
            "stack": [_stack(source, label) for label in components] or None,
            "load": _load(source, calls, tally),
        },
        "results": {
            "request_performance": {"aggregate": _requests(calls, measured_s)},
            "session_performance": {"sessions": _sessions(source, tally, measured_s)},
            "observability": {
                "components": [
                    {"component_label": label, "time_series": series} for label, series in components.items()
                ]
                or None,
                "drop_rate": _mean("fraction", calls.refused / calls.sent if calls.sent else None),
            },
        },
    }
    yield orjson.dumps(_known(report), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _run(source: RunSource, tally: RunTally, ended_ns: int) -> dict[str, Any]:
    header = source.header
    missing = max(0, source.planned_calls - tally.calls)
    cut = f"the run was cut: {missing:,} of {source.planned_calls:,} planned calls left no result"
    return {
        "uid": run_id(header),
        "time": {
            "start": _time(header.started_unix_ns),
            "end": _time(header.started_unix_ns + ended_ns),
            "duration": f"PT{ended_ns / NS_PER_S:.6f}S",
        },
        "description": f"replay of {header.trace} against {header.url}" + ("" if source.end else f"; {cut}"),
        "keywords": ["aitrace", header.protocol, *([] if source.end else ["cut"])],
    }


def _load(source: RunSource, calls: _Calls, tally: RunTally) -> dict[str, Any]:
    header = source.header
    options = orjson.dumps(header.options, option=orjson.OPT_SORT_KEYS).decode()
    per_session = [one.calls for one in tally.sessions.values() if one.calls]
    workers = header.options.get("workers")
    concurrency = header.options.get("concurrency")
    return {
        "metadata": {
            "cfg_id": id_of(header.trace, options, digits=32),
            "description": f"trace {header.trace}",
        },
        "standardized": {
            "tool": "aitrace",
            "tool_version": header.producer.removeprefix("aitrace "),
            "parallelism": workers if isinstance(workers, int) and workers > 0 else 1,
            # The sizes come from the trace, the words are drawn.
            "source": "random",
            "input_seq_len": _length(calls.planned_input),
            "output_seq_len": _length(calls.planned_output) if header.calibration.output_forced else None,
            "multi_turn": {
                "enabled": True,
                "max_turns": _length(array("d", per_session)) if per_session else None,
            },
            "concurrency": concurrency if isinstance(concurrency, int) and concurrency > 0 else None,
        },
        "native": {
            "config": {"options": header.options, "time_scale": header.time_scale, "seed": header.seed}
        },
    }


def _length(values: "array[float]") -> dict[str, Any]:
    if not values:
        return {"distribution": "other", "value": 0}
    sample = np.frombuffer(values)
    return {
        "distribution": "other",
        "value": float(sample.mean()),
        "min": int(sample.min()),
        "max": max(1, int(sample.max())),
    }


def _requests(calls: _Calls, measured_s: float) -> dict[str, Any]:
    input_tokens, output_tokens = sum(calls.input_tokens), sum(calls.output_tokens)

    def rate(count: float) -> float | None:
        return count / measured_s if measured_s > 0 and calls.complete else None

    return {
        "requests": {
            "total": calls.sent,
            "failures": calls.failures,
            "incomplete": calls.incomplete,
            "input_length": _statistics("count", calls.input_tokens),
            "output_length": _statistics("count", calls.output_tokens),
            "request_size": _statistics("bytes", calls.request_bytes),
        },
        "latency": {
            "time_to_first_token": _statistics("s", calls.ttft_s),
            "normalized_time_per_output_token": _statistics("s/token", calls.ntpot_s),
            "time_per_output_token": _statistics("s/token", calls.tpot_s),
            "request_latency": _statistics("s", calls.latency_s),
        },
        "throughput": {
            "input_token_rate": _mean("tokens/s", rate(input_tokens)),
            "output_token_rate": _mean("tokens/s", rate(output_tokens)),
            "total_token_rate": _mean("tokens/s", rate(input_tokens + output_tokens)),
            "request_rate": _mean("queries/s", rate(calls.complete)),
        },
    }


def _sessions(source: RunSource, tally: RunTally, measured_s: float) -> dict[str, Any]:
    whole = {(one.instance, one.session) for one in tally.whole(source.planned_calls, source.links)}
    measured = [one for one in tally.sessions.values() if one.calls and not one.warm_up_calls]
    succeeded = [
        one for one in measured if (one.instance, one.session) in whole and one.complete_calls == one.calls
    ]
    return {
        "total": len(measured),
        "succeeded": len(succeeded),
        "failed": sum(one.fatal_calls > 0 for one in measured),
        "total_events": sum(one.calls for one in measured),
        "total_events_completed": sum(one.complete_calls for one in measured),
        "total_events_cancelled": sum(one.unsent_calls for one in measured),
        "session_rate": _mean("queries/s", len(succeeded) / measured_s if measured_s > 0 else None),
        "session_duration": _statistics("s", [_duration_s(one) for one in succeeded]),
        "events_per_session": _statistics("count", [one.calls for one in measured]),
        "events_cancelled_per_session": _statistics("count", [one.unsent_calls for one in measured]),
        "input_tokens_per_session": _statistics("count", [one.input_tokens for one in measured]),
        "output_tokens_per_session": _statistics("count", [one.output_tokens for one in measured]),
    }


def _duration_s(one: SessionTally) -> float:
    return ((one.end_ns or 0) - (one.due_ns or 0)) / NS_PER_S


def _components(source: RunSource) -> dict[str, dict[str, Any]]:
    """Series by the address that they were read from."""
    found: dict[str, dict[str, Any]] = {}
    for scrape in source.scrapes():
        series = found.setdefault(scrape.url, {})
        for name, (value, units) in _SERIES.items():
            if value in scrape.values:
                points = series.setdefault(name, {"units": units, "series": []})["series"]
                points.append(_point(source, scrape, scrape.values[value]))
    return found


def _point(source: RunSource, scrape: Scrape, value: float) -> dict[str, Any]:
    return {"ts": _time(source.header.started_unix_ns + scrape.at_ns), "value": value}


def _stack(source: RunSource, label: str) -> dict[str, Any]:
    header = source.header
    return {
        "metadata": {"label": label, "cfg_id": id_of(label, header.model, digits=32)},
        "standardized": {
            "kind": "generic",
            "tool": _NOT_TOLD,
            "tool_version": _NOT_TOLD,
            "model": {"name": header.model},
            "protocol": header.protocol,
        },
        "native": {},
    }


def _statistics(units: str, values: "array[float] | list[int] | list[float]") -> dict[str, Any] | None:
    sample: Floats = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        return None
    shown = {
        name: quantile(sample, q) for name, q in _QUANTILES.items() if sample.size >= min_count(max(q, 1 - q))
    }
    return {
        "units": units,
        "mean": float(sample.mean()),
        "stddev": float(sample.std()),
        "min": float(sample.min()),
        **shown,
        "max": float(sample.max()),
    }


def _mean(units: str, value: float | None) -> dict[str, Any] | None:
    return None if value is None else {"units": units, "mean": value}


def _time(unix_ns: int) -> str:
    """ISO 8601 in UTC, with µs."""
    seconds, rest_ns = divmod(unix_ns, NS_PER_S)
    return (
        datetime.fromtimestamp(seconds, UTC)
        .replace(microsecond=rest_ns // 1000)
        .isoformat()
        .replace("+00:00", "Z")
    )


def _known(value: Any) -> Any:
    """The value without fields that are not known."""
    if isinstance(value, dict):
        return {name: _known(one) for name, one in value.items() if one is not None}
    return [_known(one) for one in value] if isinstance(value, list) else value
