"""Pure: how many tokens a planned prompt and its answer have."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aitrace.columns import NOT_KNOWN, HasCallColumns, Integers, call_columns
from aitrace.schema import Call, Trace

ASSUMED_TOKENS_PER_BYTE = 0.25
"""For traces in bytes of which no call has its usage reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRatio:
    """What one unit of a trace's sizes is in tokens."""

    tokens_per_unit: float
    """Tokens of one unit: 1 for traces that count tokens."""
    note: str | None
    """Where the number comes from; None for traces that count tokens."""


def token_ratio(trace: Trace) -> TokenRatio:
    """Tokens per unit of a trace: reported input tokens over bytes of the same prompts, if sizes are bytes."""
    if trace.header.unit == "tokens":
        return TokenRatio(tokens_per_unit=1.0, note=None)
    columns = call_columns(trace)
    # What was not seen of a prompt is in its reported tokens, but not in its size.
    reported = (columns.input_tokens > 0) & (columns.unseen_start == 0)
    tokens = int(columns.input_tokens[reported].sum())
    size_bytes = int(columns.prompt_size[reported].sum())
    if not size_bytes:
        return TokenRatio(
            tokens_per_unit=ASSUMED_TOKENS_PER_BYTE,
            note=f"sizes are bytes and no call has its usage reported: {ASSUMED_TOKENS_PER_BYTE} tokens per byte is "
            "assumed",
        )
    return TokenRatio(
        tokens_per_unit=tokens / size_bytes,
        note=f"sizes are bytes: {tokens / size_bytes:.4f} tokens per byte, from the usage reported for "
        f"{np.count_nonzero(reported)} of {len(trace.calls)} calls",
    )


def prompt_sizes(trace: Trace) -> Integers:
    """Size of each call's prompt in the trace's unit."""
    return call_columns(trace).prompt_size


def usual_output_tokens(calls: Sequence[Call]) -> int:
    """Answer length for calls of which it is not known: the median of the others, 1 if there are none."""
    return _usual(_reported(calls))


def output_tokens(calls: Sequence[Call]) -> Integers:
    """Answer length of each call, at least 1."""
    reported = _reported(calls)
    return np.where(reported == NOT_KNOWN, _usual(reported), np.maximum(reported, 1))


def _reported(calls: Sequence[Call]) -> Integers:
    """Output tokens as reported, `NOT_KNOWN` where they were not."""
    if isinstance(calls, HasCallColumns):
        return calls.columns.output_tokens
    reported = (call.usage.output_tokens for call in calls)
    return np.array([NOT_KNOWN if tokens is None else tokens for tokens in reported], np.int64)


def _usual(reported: Integers) -> int:
    known = np.sort(reported[reported != NOT_KNOWN])
    return max(1, int(known[(len(known) - 1) // 2])) if len(known) else 1
