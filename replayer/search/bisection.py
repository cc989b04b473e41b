"""Pure: which load a search plays next, and what it has found: doubles until a level breaks, bisects, repeats the answer.

A level has held if all its runs held. The bracket is the lowest level that did not hold and the highest below it that
did, so a contradiction (noise, or a repeat that fails) makes it wider and never wrong in silence. Levels whose run could
not tell are passed over on the way up, where more load gives more calls, and end the search elsewhere.
"""

from dataclasses import dataclass
from typing import Literal, assert_never

StepOutcome = Literal["held", "not_held", "unclear", "client_limited"]
SearchState = Literal["searching", "answered", "in_doubt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels of load that a search may play."""

    low: float
    """Where it begins; nothing below is played."""
    high: float
    """Nothing above is played."""
    whole: bool
    """Whether levels are whole numbers, as those of lanes are."""
    precision: float
    """The search is over once the bracket is this share of its lower end, or one whole level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """What is known of the highest level that holds."""

    held: float | None
    """Highest level that held, below the lowest that did not; None if none did."""
    not_held: float | None
    """Lowest level that did not; None if none was found."""


class Bisection:
    """State of a search. `next_level` says what to play, `note` takes what came of it."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels
        self._held: dict[float, int] = {}
        self._not_held: set[float] = set()
        self._unclear: set[float] = set()
        self._unclear_sample = -1
        """What the last run that could not tell had to tell from."""
        self._doubt: str | None = None

    @property
    def bracket(self) -> Bracket:
        """What is known so far."""
        not_held = min(self._not_held, default=None)
        below = [level for level in self._held if not_held is None or level < not_held]
        return Bracket(held=max(below, default=None), not_held=not_held)

    @property
    def doubt(self) -> str | None:
        """Why the search ended without an answer; None if it did not."""
        return self._doubt

    @property
    def state(self) -> SearchState:
        """Whether it goes on, has its answer, or ended without one."""
        if self._doubt is not None:
            return "in_doubt"
        return "searching" if self.next_level() is not None else "answered"

    @property
    def is_repeat(self) -> bool:
        """Whether the next level is one that held, played again."""
        return self.next_level() in self._held

    def next_level(self) -> float | None:
        """The level to play next; None if the search is over."""
        if self._doubt is not None:
            return None
        bracket = self.bracket
        if bracket.not_held is None:
            return self._level_above(bracket.held)
        bottom = self._bottom()
        if bottom is None:
            # Not even the lowest level held: that is the answer.
            return None
        middle = self._middle(bottom, bracket.not_held)
        return middle if middle is not None else self._repeat(bracket.held)

    def note(self, level: float, outcome: StepOutcome, *, sample: int | None = None) -> None:
        """Take what a run at `level` came to.

        Args:
            sample: Calls that the run had to tell from; None if that is not known.
        """
        was_held = level in self._held
        match outcome:
            case "held":
                self._held[level] = self._held.get(level, 0) + 1
                self._unclear.discard(level)
            case "not_held":
                self._held.pop(level, None)
                self._not_held.add(level)
                if was_held:
                    self._doubt = "the repeat contradicts: the same load held once and once did not"
            case "unclear":
                self._unclear.add(level)
                if was_held:
                    self._doubt = "the repeat could not tell"
                elif self._not_held or level >= self._levels.high:
                    self._doubt = "a run could not tell"
                elif sample is not None and sample <= self._unclear_sample:
                    # An endpoint that is full answers fewer calls with more load, so no higher level would tell.
                    self._doubt = "more load gave no more calls to tell from: a longer --duration does"
                self._unclear_sample = self._unclear_sample if sample is None else sample
            case "client_limited":
                self._doubt = "the client limited the load"
            case _:
                assert_never(outcome)
        if self._doubt is None and self._unclear and self.bracket.held is None and self.next_level() is None:
            self._doubt = "no run of a lower load could tell"

    def _level_above(self, held: float | None) -> float | None:
        tried = max((*self._held, *self._unclear), default=None)
        if tried is None:
            return self._levels.low
        if tried >= self._levels.high:
            return self._repeat(held)
        return min(2 * tried, self._levels.high)

    def _bottom(self) -> float | None:
        """Highest level below the lowest that did not hold of which that is not known."""
        not_held = min(self._not_held)
        return max((level for level in (*self._held, *self._unclear) if level < not_held), default=None)

    def _middle(self, bottom: float, top: float) -> float | None:
        """A level between two; None if they are close enough."""
        if self._levels.whole:
            middle = (bottom + top) // 2
            is_close = top - bottom <= max(1, self._levels.precision * bottom)
            return None if is_close else middle
        is_close = top - bottom <= self._levels.precision * bottom
        return None if is_close else float(f"{(bottom + top) / 2:.4g}")

    def _repeat(self, held: float | None) -> float | None:
        """The answer, if it was played only once."""
        return held if held is not None and self._held[held] == 1 else None
