"""Pure: what a search played and found, as text and JSON, and what each of its runs came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK
from aitrace.units import NS_PER_MS
from replayer.search.bisection import Bracket, StepOutcome
from replayer.search.slo import Finding, verdict_of

SearchedLoad = Literal["concurrency", "rate"]
_OUTCOMES: dict[StepOutcome, str] = {
    "held": "holds",
    "not_held": "does not hold",
    "unclear": "cannot tell",
    "client_limited": "client-limited",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run of a search."""

    number: int
    """From 1."""
    level: float
    """Lanes, or trees per second."""
    is_repeat: bool
    """Whether the level was played before."""
    run: str
    """Its run directory."""
    outcome: StepOutcome
    """What it came to."""
    findings: tuple[Finding, ...]
    """By condition."""
    stopped_for: str | None
    """What piled up, so that it was stopped early; None if it was not."""
    doubts: tuple[str, ...]
    """What else the run says against itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search came to, or has come to so far."""

    slo: str
    """The conditions, as they were written."""
    by: SearchedLoad
    """What the levels count."""
    steps: tuple[Step, ...]
    """In order."""
    bracket: Bracket
    """What is known."""
    doubt: str | None
    """Why there is no answer; None if there is one."""

    @property
    def exit_code(self) -> int:
        """Exit code of the program."""
        return EXIT_OK if self.doubt is None else EXIT_IN_DOUBT


def outcome_of_step(
    found: Sequence[Finding], *, stopped_for: str | None, is_client_limited: bool, ran_out: bool
) -> StepOutcome:
    """What a run came to.

    Args:
        stopped_for: What piled up, if it was stopped for that.
        ran_out: Whether lanes found no tree to play any more, so that the load was below its level.
    """
    if is_client_limited:
        return "client_limited"
    verdict = verdict_of(found)
    if stopped_for is not None or verdict == "broken":
        return "not_held"
    return "unclear" if ran_out or verdict == "unclear" else "held"


def level_text(level: float, by: SearchedLoad) -> str:
    """A level for people."""
    if by == "rate":
        return f"{level:g} trees/s"
    return f"{level:.0f} lane{'' if level == 1 else 's'}"


def step_name(number: int, level: float, by: SearchedLoad) -> str:
    """Name of a step's run directory."""
    return f"step-{number:02d}-{'lanes' if by == 'concurrency' else 'rate'}-{level:g}"


def step_line(step: Step, by: SearchedLoad) -> str:
    """A step in one line."""
    parts = [finding.text for finding in step.findings]
    if step.stopped_for is not None:
        parts.append(f"stopped early: {step.stopped_for}")
    if step.outcome in ("unclear", "client_limited"):
        parts += step.doubts
    again = " again" if step.is_repeat else ""
    return f"step {step.number:>2}  {level_text(step.level, by)}{again}: {_OUTCOMES[step.outcome]}; {'; '.join(parts)}"


def answer_lines(result: SearchResult) -> list[str]:
    """The answer with its bracket."""
    held, not_held, by = result.bracket.held, result.bracket.not_held, result.by
    if held is None:
        answer = "not known" if not_held is None else f"below {level_text(not_held, by)}, the lowest played"
    elif not_held is None:
        answer = f"at least {level_text(held, by)}, the highest played"
    else:
        answer = level_text(held, by)
    bracket = (
        f"{'none' if held is None else level_text(held, by)} held, "
        f"{'none' if not_held is None else level_text(not_held, by)} did not"
    )
    doubt = [] if result.doubt is None else [f"in doubt  {result.doubt}"]
    return [f"answer    {answer}", f"bracket   {bracket}", *doubt]


def search_json(result: SearchResult) -> dict[str, Any]:
    """The result as the JSON object of `aitrace search --json`."""
    return {
        "slo": result.slo,
        "by": result.by,
        "unit": "lanes" if result.by == "concurrency" else "trees/s",
        "bracket": {"held": result.bracket.held, "not_held": result.bracket.not_held},
        "in_doubt": result.doubt,
        "steps": [
            {
                "step": step.number,
                "level": step.level,
                "is_repeat": step.is_repeat,
                "run": step.run,
                "outcome": step.outcome,
                "stopped_for": step.stopped_for,
                "doubts": list(step.doubts),
                "conditions": [_finding_json(finding) for finding in step.findings],
            }
            for step in result.steps
        ],
        "exit_code": result.exit_code,
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    is_share = finding.condition.ratio is None
    value = finding.value
    return {
        "condition": finding.condition.text,
        "verdict": finding.verdict,
        "ratio" if is_share else "ms": value if value is None or is_share else round(value / NS_PER_MS, 3),
        "count": finding.count,
        "needed": finding.needed,
    }
