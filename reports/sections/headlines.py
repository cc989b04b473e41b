"""Pure: the figures that say in one look how the run went."""

from aitrace.units import size_from_count
from reports.answers import Spread
from reports.document import Headline
from reports.metric import Number
from reports.metrics import METRICS
from reports.summary import Report
from reports.words import (
    NOT_KNOWN,
    counted,
    text_from_ms,
    text_from_ratio,
    text_from_seconds,
    text_from_slowdown,
    text_from_value,
)


def headlines(report: Report) -> tuple[Headline, ...]:
    """The figures that say in one look how the run went: latency, cache, who was let in, what got done, the client."""
    return (*_latency(report), *_cache(report), *_admission(report), *_sessions(report), _lateness(report))


def _latency(report: Report) -> tuple[Headline, ...]:
    ttft, itl = report.answers.spreads["ttft_service_ms"], report.answers.spreads["itl_ms"]
    return (
        Headline(
            name=METRICS["ttft_service_ms"].title,
            value=f"p50 {text_from_ms(ttft.quantiles['p50'])}",
            note=f"{_upper(ttft)} · n = {ttft.count:,}",
        ),
        Headline(
            name=METRICS["itl_ms"].title,
            value=f"p50 {text_from_ms(itl.quantiles['p50'])}",
            note=f"{_upper(itl)} · n = {itl.count:,}",
        ),
    )


def _cache(report: Report) -> tuple[Headline, ...]:
    numbers = report.answers.numbers
    bound, lost = numbers["cache_bound_ratio"], numbers["cache_lost_tokens"]
    possible = "possible: not known" if bound is None else f"of a possible {text_from_ratio(bound)}"
    return (
        Headline(
            name="prompt tokens cached",
            value=text_from_ratio(numbers["cache_reported_ratio"]),
            note=f"{possible} · engine {text_from_ratio(numbers['engine_hit_ratio'])}",
        ),
        Headline(
            name="possible, not served from cache",
            value=NOT_KNOWN if lost is None else f"{size_from_count(max(0, lost))} tokens",
            note=f"{_share(lost, numbers['cache_input_tokens'])} of the prompt tokens · preemptions by the engine: "
            f"{text_from_value(numbers['engine_preemptions'], '')}",
        ),
    )


def _admission(report: Report) -> tuple[Headline, ...]:
    numbers = report.answers.numbers
    waited_s = numbers["backoff_s"]
    measured = (numbers["planned_sessions"] or 0) - (numbers["unmeasured_sessions"] or 0)
    return (
        Headline(
            name="tries refused",
            value=f"{numbers['refused_tries']:,} of {numbers['tries']:,}",
            note=f"{numbers['refused_calls']:,} of {counted(numbers['sent_calls'], 'call')} given up · "
            f"{(numbers['failed_calls'] or 0):,} failed otherwise"
            + (f" · {text_from_seconds(waited_s)} in backoff" if waited_s else ""),
        ),
        Headline(
            name="lost sessions",
            value=f"{numbers['lost_sessions']:,} of {measured:,}",
            note=f"{text_from_value(numbers['lost_prefill_tokens'], 'prefill tokens')} lost with them",
        ),
    )


def _sessions(report: Report) -> tuple[Headline, ...]:
    answers = report.answers
    slowdown, numbers = answers.spreads["session_slowdown_ratio"], answers.numbers
    unloaded = answers.spreads["session_unloaded_slowdown_ratio"]
    p95 = slowdown.quantiles["p95"]
    beside = "" if p95 is None else f"p95 {text_from_value(p95, '×')} · "
    idle = f" · {text_from_value(unloaded.quantiles['p50'], '×')} unloaded" if unloaded.count else ""
    factor, _, rest = text_from_slowdown(slowdown.quantiles["p50"], "expected").partition(" × ")
    return (
        Headline(
            name="time of a session, p50",
            value=f"{factor} ×" if rest else factor,
            note=" · ".join(filter(None, (rest, f"{beside}n = {slowdown.count:,}{idle}"))),
        ),
        Headline(
            name=METRICS["trees_per_h"].title,
            value=text_from_value(numbers["trees_per_h"], ""),
            note=f"{counted(numbers['complete_trees'], 'tree')} complete · "
            f"{text_from_value(numbers['output_tokens_per_s'], 'output tokens/s')}",
        ),
    )


def _lateness(report: Report) -> Headline:
    numbers, lateness = report.answers.numbers, report.answers.spreads["client_lateness_ms"]
    return Headline(
        name="lateness, client",
        value=_upper(lateness),
        note=f"{numbers['late_calls']:,} of {counted(numbers['sent_calls'], 'call')} more than "
        f"{report.facts.header.lateness_bound_ms:g} ms late",
    )


def _upper(spread: Spread) -> str:
    """The 95th percentile of times in ms; where that is not known the highest that is, or the largest value."""
    known = [name for name in ("p90", "p95") if spread.quantiles[name] is not None]
    if not known:
        return f"max {text_from_ms(spread.largest)}"
    return f"{known[-1]} {text_from_ms(spread.quantiles[known[-1]])}"


def _share(part: Number, whole: Number) -> str:
    return text_from_ratio(None if part is None or not whole else max(0, part) / whole)
