"""Pure: what a load must keep to in a search, and whether the calls of a run kept to it.

    good: `ttft_p95<2s, refused<1%`, `user_ttft_p99<800ms`
    bad:  `ttft<2s` (which percentile?), `refused<1` (no unit)

| metric | of what |
| --- | --- |
| `ttft_p50`, `ttft_p95`, `ttft_p99` | first token − sent, of the last try of a call |
| `user_ttft_p50`, `user_ttft_p95`, `user_ttft_p99` | first token − due, so waits between tries are in it |
| `headers_p50`, `headers_p95`, `headers_p99` | headers − sent |
| `refused` | calls of which a try was refused / calls sent |
| `failed` | calls that gave up, refusals included / calls sent |
| `lost_sessions` | sessions that a failed call ended / sessions that sent a call |

A call that was cut or ran into a timeout before what is timed waited at least until then: it counts as above the bound
if that was long enough, and is left out otherwise. A sample that is too small to carry a bound is told as `unclear`.
It must hold two values beyond a percentile (p95: 40, p99: 200, p50: 4), and for a share of 1 % 100 calls or sessions. A
smaller one can still be `broken`, by five values beyond the bound; its percentile is not told, as in a report.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from aitrace.errors import UsageError
from aitrace.outcomes import REFUSED, outcome_of
from aitrace.quantiles import min_count, quantile
from aitrace.results import Attempt, CallResult
from aitrace.units import duration_from_ns, ns_from_duration

Verdict = Literal["kept", "broken", "unclear"]
_TIMES = ("ttft", "user_ttft", "headers")
_SHARES = ("refused", "failed", "lost_sessions")
_PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
_CONDITION = re.compile(r"([a-z0-9_]+)\s*<\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%|[a-z]+)?")
_MEDIAN_CALLS = 4
"""A median that is judged needs more than one that is only shown."""
_SURELY_BEYOND = 5
_HINT = "--slo 'ttft_p95<2s, refused<1%' asks for both."


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A bound on one metric."""

    text: str
    """As it was written."""
    metric: str
    """What is bounded, without its percentile."""
    ratio: float | None
    """Which percentile of it, 0 to 1; None of a share."""
    bound: float
    """What it must stay below: ns, or a share from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether a run kept to one condition."""

    condition: Condition
    """Which."""
    verdict: Verdict
    """Kept, broken, or more than the sample can tell."""
    value: float | None
    """What was measured, in the unit of the bound; None if nothing was, the sample cannot carry the
    percentile, or it is only known to be above the bound."""
    count: int
    """Size of the sample."""
    needed: int
    """Size that it must have to carry the bound."""

    @property
    def text(self) -> str:
        """The finding for people."""
        condition = self.condition
        name = condition.text.partition("<")[0].strip()
        if self.value is None:
            measured = "above the bound" if self.verdict == "broken" else "not known"
        elif condition.ratio is None:
            measured = f"{100 * self.value:.3g} %"
        else:
            measured = duration_from_ns(round(self.value))
        short = f", needs {self.needed:,}" if self.verdict == "unclear" else ""
        return f"{name} {measured} (n = {self.count:,}{short})"


def conditions_from_text(text: str) -> tuple[Condition, ...]:
    """The conditions that a text like `ttft_p95<2s, refused<1%` states.

    Raises:
        UsageError: It cannot be read, or names a metric twice.
    """
    conditions = tuple(_condition(piece.strip()) for piece in text.split(","))
    names = [(condition.metric, condition.ratio) for condition in conditions]
    if len(set(names)) < len(names):
        raise UsageError(f"SLO {text!r} bounds a metric twice")
    return conditions


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise UsageError(f"SLO {text!r} cannot be read, expected METRIC<BOUND", hint=_HINT)
    name, number, unit = match[1], match[2], match[3]
    metric, _, percentile = name.rpartition("_")
    if metric in _TIMES and percentile in _PERCENTILES:
        if unit not in ("ms", "s"):
            raise UsageError(f"SLO {text!r} bounds a time, expected a number with ms or s", hint=_HINT)
        bound: float = ns_from_duration(number + unit)
    elif name in _SHARES:
        metric, percentile = name, ""
        if unit != "%":
            raise UsageError(f"SLO {text!r} bounds a share, expected a number with %", hint=_HINT)
        bound = float(number) / 100
    else:
        known = ", ".join((*(f"{each}_p50, _p95, _p99" for each in _TIMES), *_SHARES))
        raise UsageError(f"SLO {text!r} names no known metric, expected one of {known}", hint=_HINT)
    if not 0 < bound < math.inf or (unit == "%" and bound > 1):
        raise UsageError(f"SLO {text!r} has a bound that nothing could be measured against", hint=_HINT)
    return Condition(text=text, metric=metric, ratio=_PERCENTILES.get(percentile), bound=bound)


def findings(
    conditions: Iterable[Condition], calls: Iterable[CallResult], *, with_warm_up: bool = False
) -> tuple[Finding, ...]:
    """Whether the measured calls of a run kept to each condition.

    Args:
        with_warm_up: Look at those of the warm-up too: the load may have been over before it was.
    """
    phases = ("measured", "warm_up") if with_warm_up else ("measured",)
    measured = [call for call in calls if call.phase in phases]
    return tuple(
        _share_finding(condition, measured)
        if condition.ratio is None
        else _time_finding(condition, condition.ratio, measured)
        for condition in conditions
    )


def verdict_of(found: Iterable[Finding]) -> Verdict:
    """Broken if a condition is, else unclear if one is, else kept."""
    verdicts = {finding.verdict for finding in found}
    return (
        "broken" if "broken" in verdicts else "unclear" if "unclear" in verdicts or not verdicts else "kept"
    )


def _time_finding(condition: Condition, ratio: float, calls: Sequence[CallResult]) -> Finding:
    lengths_ns = (_length_ns(condition, call) for call in calls)
    values_ns = [length_ns for length_ns in lengths_ns if length_ns is not None]
    value_ns = quantile(values_ns, ratio) if values_ns else None
    needed = max(_MEDIAN_CALLS, min_count(ratio))
    is_told = value_ns is not None and not math.isinf(value_ns) and len(values_ns) >= needed
    return _finding(
        condition,
        value=value_ns if is_told else None,
        is_broken=value_ns is not None and value_ns >= condition.bound,
        beyond=sum(each_ns >= condition.bound for each_ns in values_ns),
        count=len(values_ns),
        needed=needed,
    )


def _length_ns(condition: Condition, call: CallResult) -> float | None:
    """What a call took; inf if it took longer than the bound and nobody knows how long; None if it tells nothing."""
    begin_ns = call.due_ns if condition.metric == "user_ttft" else call.sent_ns
    end_ns = call.headers_ns if condition.metric == "headers" else call.first_token_ns
    if begin_ns is None or call.unsent is not None:
        return None
    if end_ns is not None:
        return end_ns - begin_ns
    is_cut_off = call.error in ("client_abort", "timeout") and call.end_ns is not None
    return math.inf if is_cut_off and (call.end_ns or 0) - begin_ns >= condition.bound else None


def _share_finding(condition: Condition, calls: Sequence[CallResult]) -> Finding:
    sent = [call for call in calls if call.unsent is None]
    if condition.metric == "lost_sessions":
        lost = {_session(call) for call in sent if _has_ended_session(call)}
        beyond, count = len(lost), len({_session(call) for call in sent})
    else:
        is_counted = _was_refused if condition.metric == "refused" else _has_failed
        known = [call for call in sent if call.error != "client_abort" or is_counted(call)]
        beyond, count = sum(map(is_counted, known)), len(known)
    value = beyond / count if count else None
    return _finding(
        condition,
        value=value,
        is_broken=value is not None and value >= condition.bound,
        beyond=beyond,
        count=count,
        needed=math.ceil(round(1 / condition.bound, 6)),
    )


def _finding(
    condition: Condition, *, value: float | None, is_broken: bool, beyond: int, count: int, needed: int
) -> Finding:
    verdict: Verdict = "broken" if is_broken else "kept"
    if count < needed and not (is_broken and beyond >= _SURELY_BEYOND):
        verdict = "unclear"
    return Finding(condition=condition, verdict=verdict, value=value, count=count, needed=needed)


def _session(call: CallResult) -> tuple[int, int]:
    return call.instance, call.session


def _was_refused(call: CallResult) -> bool:
    tries: tuple[CallResult | Attempt, ...] = (call, *call.attempts)
    return any(outcome_of(each) in REFUSED for each in tries)


def _has_failed(call: CallResult) -> bool:
    return call.error not in (None, "client_abort")


def _has_ended_session(call: CallResult) -> bool:
    # Without a title or a classification a session goes on.
    return _has_failed(call) and call.call_class != "auxiliary"
