"""Pure: whether runs played the same plan, and what else differs between them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aitrace.results import RunEnd, RunHeader
from aitrace.units import NS_PER_S

PLAN_OPTIONS = (
    "arrival", "concurrency", "trees", "time_scale", "gap_caps_ns", "seed", "share_system", "history", "tool_messages",
    "stream", "duration_ns", "warm_up", "start_at", "prime", "select", "context_tokens", "over_context", "schedule",
)  # fmt: skip
"""Options of a replay that decide what is asked of the endpoint, and when it would be if answers took equally long."""
_OF_HEADER = ("protocol", "url", "model", "producer", "arrival_clock")
_CALIBRATION = ("tokens_per_word", "request_overhead_tokens", "output_forced")
_NOT_TOLD = "not told"
_TYPED = {"gap_caps_ns": "--gap-cap", "duration_ns": "--duration", "context_tokens": "--context"}
"""How options are typed that are kept under another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedPlan:
    """What a run says of its plan."""

    name: str
    """The run, as it was named."""
    header: RunHeader
    """What was to be played."""
    end: RunEnd | None
    """How it ended; None if the program did not get to write it."""
    trace_digest: str | None
    """Digest of the content of the trace that it played; None if the run no longer has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionDifference:
    """A value in which two runs differ."""

    option: str
    """Which one; an option that decides the plan as it is typed."""
    first: str
    """Its value in the first run."""
    other: str
    """Its value in the other run."""
    run: str
    """The other run."""


def plan_differences(plans: Sequence[PlayedPlan]) -> tuple[OptionDifference, ...]:
    """Each way in which the plan of a run is not that of the first."""
    traces: dict[str, str] = {}
    for plan in plans:
        if plan.trace_digest is not None:
            # One content may have many names.
            traces.setdefault(plan.trace_digest, f"{plan.header.trace} ({plan.trace_digest})")
    # A run without its trace cannot be told to have played another one, see `without_trace`.
    first = next(iter(traces.values()), "missing")
    return _differences(plans, lambda plan: _plan_values(plan, traces.get(plan.trace_digest or "", first)))


def without_trace(plans: Iterable[PlayedPlan]) -> tuple[str, ...]:
    """Runs that no longer have the trace they played, so that it cannot be told to be that of the others."""
    return tuple(plan.name for plan in plans if plan.trace_digest is None)


def setup_differences(plans: Sequence[PlayedPlan]) -> tuple[OptionDifference, ...]:
    """What else differs from the first run: endpoint, model, and options that leave the plan as it is."""
    return _differences(plans, _setup_values)


def shared_texts(plans: Sequence[PlayedPlan]) -> tuple[tuple[str, str], ...]:
    """Pairs of runs that sent the same texts, so that a cache may have known those of the later one."""
    found = []
    for place, plan in enumerate(plans):
        seed = plan.header.text_seed
        earlier = [other for other in plans[:place] if seed is not None and other.header.text_seed == seed]
        found += [(other.name, plan.name) for other in earlier[:1]]
    return tuple(found)


def text_from_option(value: Any) -> str:
    """A value of an option in a table."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(f"{key}={text_from_option(each)}" for key, each in value.items()) or "none"
        case list() | tuple():
            return ", ".join(text_from_option(each) for each in value) or "none"
        case float():
            return f"{value:g}"
    return str(value)


def _differences(
    plans: Sequence[PlayedPlan], values_of: Callable[[PlayedPlan], dict[str, Any]]
) -> tuple[OptionDifference, ...]:
    found: dict[tuple[str, str], OptionDifference] = {}
    first = values_of(plans[0]) if plans else {}
    for plan in plans[1:]:
        values = values_of(plan)
        for option in (*first, *(name for name in values if name not in first)):
            one = text_from_option(first.get(option, _NOT_TOLD))
            other = text_from_option(values.get(option, _NOT_TOLD))
            if one != other:
                difference = OptionDifference(option=option, first=one, other=other, run=plan.name)
                # Repeats of one way differ in the same: it is told of the first of them.
                found.setdefault((option, other), difference)
    return tuple(found.values())


def _plan_values(plan: PlayedPlan, trace: str) -> dict[str, Any]:
    header, end = plan.header, plan.end
    unstarted = 0 if end is None else end.unstarted_calls
    options = {
        **{name: header.options[name] for name in PLAN_OPTIONS if name in header.options},
        "time_scale": header.time_scale,
        "seed": header.seed,
        "share_system": header.share_system,
        "history": header.history,
    }
    return {
        "trace": trace,
        **{_typed_name(name): _typed_value(name, value) for name, value in options.items()},
        # How many of the trees in store a lane takes before the time is over depends on the endpoint.
        **({} if unstarted else {"planned calls": header.planned_calls}),
    }


def _typed_name(name: str) -> str:
    return _TYPED.get(name, f"--{name.replace('_', '-')}")


def _typed_value(name: str, value: Any) -> Any:
    if value is None or value in ({}, []):
        return "not given"
    match name:
        case "duration_ns":
            return _typed_duration(value)
        case "gap_caps_ns":
            return {cause: _typed_duration(cap_ns) for cause, cap_ns in value.items()}
    return value


def _typed_duration(length_ns: int) -> str:
    """Exact, and as options read it: `90s`, `0.25s`."""
    return f"{length_ns / NS_PER_S:.9f}".rstrip("0").rstrip(".") + "s"


def _setup_values(plan: PlayedPlan) -> dict[str, Any]:
    header = plan.header
    return {
        **{name: getattr(header, name) for name in _OF_HEADER},
        **{name: value for name, value in header.options.items() if name not in PLAN_OPTIONS},
        **{name: getattr(header.calibration, name) for name in _CALIBRATION},
    }


def options_of(differences: Iterable[OptionDifference]) -> str:
    """The options that differ, each with both values, as an error names them."""
    return "; ".join(f"{each.option} {each.first} and {each.other} ({each.run})" for each in differences)
