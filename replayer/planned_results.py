"""Pure: what the result of a call says of its plan, and whether it is of the warm-up.

What was sent and what never will be get their results here in the same way, from the process that plays a call or
from the one that has lost that process.
"""

from dataclasses import replace
from typing import Any

from aitrace.results import CallResult
from replayer.planning.planned import PlannedCall


def planned_fields(planned: PlannedCall, request_id: str, started_ns: int) -> dict[str, Any]:
    """What a result says of the call as it was planned."""
    return {
        "index": planned.index,
        "call": planned.call,
        "session": planned.session,
        "instance": planned.instance,
        "root": planned.root,
        "call_class": planned.call_class,
        "turn_index": planned.turn_index,
        "request_id": request_id,
        "gap_ns": planned.gap_ns,
        "gap_cause": planned.gap_cause,
        "prompt_tokens": planned.prompt_tokens,
        "output_tokens": planned.output_tokens,
        "planned_ns": None if planned.planned_ns is None else started_ns + planned.planned_ns,
        "phase": planned.phase,
    }


def with_phase(result: CallResult, at_ns: int, warm_up_end_ns: int | None) -> CallResult:
    """The result, marked as of the warm-up if it was due, or was given up, in that time.

    Args:
        at_ns: When the call was given up, or seen to be sent; counts where it is not known when it was due.
        warm_up_end_ns: None if no time is the warm-up.
    """
    if warm_up_end_ns is None or result.phase != "measured":
        return result
    due_ns = at_ns if result.due_ns is None else result.due_ns
    return replace(result, phase="warm_up") if due_ns < warm_up_end_ns else result
