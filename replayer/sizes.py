"""Pure: how many tokens a planned prompt and its answer have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from aitrace.prompts import PromptResolver, prompt_size
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
    sizes = prompt_sizes(trace)
    reported = [
        (call.usage.input_tokens, size)
        for call, size in zip(trace.calls, sizes, strict=True)
        # What was not seen of a prompt is in its reported tokens, but not in its size.
        if call.usage.input_tokens and not call.prompt.unseen_start
    ]
    tokens = sum(tokens for tokens, _ in reported)
    size_bytes = sum(size for _, size in reported)
    if not size_bytes:
        return TokenRatio(
            tokens_per_unit=ASSUMED_TOKENS_PER_BYTE,
            note=f"sizes are bytes and no call has its usage reported: {ASSUMED_TOKENS_PER_BYTE} tokens per byte is "
            "assumed",
        )
    return TokenRatio(
        tokens_per_unit=tokens / size_bytes,
        note=f"sizes are bytes: {tokens / size_bytes:.4f} tokens per byte, from the usage reported for "
        f"{len(reported)} of {len(trace.calls)} calls",
    )


def prompt_sizes(trace: Trace) -> list[int]:
    """Size of each call's prompt in the trace's unit."""
    prompts = PromptResolver(trace.calls)
    return [prompt_size(trace, prompts.segment_ids(call.id)) for call in trace.calls]


def usual_output_tokens(calls: Iterable[Call]) -> int:
    """Answer length for calls of which it is not known: the median of the others, 1 if there are none."""
    known = [call.usage.output_tokens for call in calls if call.usage.output_tokens is not None]
    return max(1, median_low(known)) if known else 1


def output_tokens(calls: Sequence[Call]) -> list[int]:
    """Answer length of each call, at least 1."""
    usual = usual_output_tokens(calls)
    reported = [call.usage.output_tokens for call in calls]
    return [usual if tokens is None else max(1, tokens) for tokens in reported]
