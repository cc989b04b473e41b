"""Pure: what a report judges a run by: its numbers, for the rules of `aitrace.doubts`."""

import polars as pl

from aitrace.doubts import Evidence
from reports.answers import Answers
from reports.sessions import IS_COMPLETE, IS_FAILED, IS_STOPPED
from reports.tables import Facts

_NOT_FAILED = ("complete", "stopped")
"""Outcomes of tries that no fault of the endpoint ended."""


def evidence_of(facts: Facts, answers: Answers) -> Evidence:
    """All that the rules ask for."""
    left_out = facts.every_call.filter(pl.col("phase") != "measured")
    return Evidence(
        numbers={
            **answers.numbers,
            "first_token_calls": answers.spreads["ttft_service_ms"].count,
            "tries": facts.tries.height,
            "failed_tries": facts.tries.filter(~pl.col("outcome").is_in(_NOT_FAILED)).height,
            "unreachable_tries": facts.tries.filter(pl.col("outcome") == "connect").height,
            "prime_calls": left_out.filter(pl.col("phase") == "prime").height,
            "failed_unmeasured_calls": left_out.filter(IS_FAILED & ~IS_STOPPED).height,
            "complete_warm_up_calls": left_out.filter((pl.col("phase") == "warm_up") & IS_COMPLETE).height,
        },
        header=facts.header,
        end=facts.end,
        lines_lost=facts.lines_lost,
        has_trace=facts.trace is not None,
    )
