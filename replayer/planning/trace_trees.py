"""Pure: the trees of a trace, one at a time: which of their calls are played, and what is left out of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aitrace.columns import Integers, call_columns
from aitrace.errors import UsageError
from aitrace.schema import Trace
from replayer.planning.context_window import Fitted, Window
from replayer.planning.options import LoadOptions
from replayer.planning.selection import SelectedCall, Selection, select_calls
from replayer.planning.sizes import prompt_sizes, token_ratio
from replayer.planning.tree_filter import meets, traits_of

LeftOut = Literal["retried", "counted", "over_sessions", "over_calls", "compacted"]
"""Attempts that a later one replaces, calls that only counted tokens; sessions of which a call did not fit into the
window, calls left out for that, and calls whose prompts were cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTree:
    """One tree of the trace."""

    root: int
    """Its root session."""
    calls: tuple[SelectedCall, ...]
    """What is played of it, every call after those it waits for; empty if nothing is."""
    left_out: Mapping[LeftOut, int]
    """How much is not, or not as it was."""

    @property
    def recorded_start_ns(self) -> int:
        """When its first request was made; of a tree that is played."""
        return min(one.request_ns for one in self.calls)


class TraceTrees:
    """The trees of a trace that meet the conditions, by root; each is read from the trace when it is asked for."""

    def __init__(self, trace: Trace, options: LoadOptions) -> None:
        """Take on a trace.

        Raises:
            UsageError: No tree meets the conditions.
        """
        self._recorded = trace
        roots = call_columns(trace).root
        self._order = np.argsort(roots, kind="stable")
        self._roots, firsts = np.unique(roots[self._order], return_index=True)
        self._bounds = [*firsts.tolist(), len(roots)]
        self._chosen: Sequence[int] = range(len(self._roots))
        self.unmet = 0
        """Trees with a call to play that do not meet the conditions."""
        if options.select:
            self._chosen = self._that_meet(options)
        self._window: Window | None = None
        if options.context_tokens is not None:
            self._window = Window(
                trace,
                self._selected_calls(),
                window_tokens=options.context_tokens,
                policy=options.over_context,
            )
        self.trace = trace if self._window is None else self._window.trace
        """What is played: the trace, but with compacted prompts where its own do not fit into the window."""

    def __len__(self) -> int:
        return len(self._chosen)

    def tree(self, place: int) -> TracedTree:
        """Tree `place` of these, from 0."""
        selection = self._selection(self._chosen[place])
        fitted = Fitted(calls=selection.calls) if self._window is None else self._window.fit(selection.calls)
        left_out: dict[LeftOut, int] = {
            "retried": len(selection.dropped_attempts),
            "counted": len(selection.dropped_counts),
            "over_sessions": len(fitted.over),
            "over_calls": len(fitted.left_out),
            "compacted": len(fitted.compacted),
        }
        return TracedTree(root=self.root(place), calls=fitted.calls, left_out=Counter(left_out))

    def root(self, place: int) -> int:
        """Root session of tree `place`."""
        return int(self._roots[self._chosen[place]])

    def members(self, place: int) -> Integers:
        """All calls of tree `place`, whether they are played or not, in the order of ids."""
        return self._members(self._chosen[place])

    def _members(self, number: int) -> Integers:
        return self._order[self._bounds[number] : self._bounds[number + 1]]

    def _selection(self, number: int) -> Selection:
        calls = self._recorded.calls
        return select_calls(calls[call] for call in self._members(number).tolist())

    def _selected_calls(self) -> Iterator[SelectedCall]:
        for number in self._chosen:
            yield from self._selection(number).calls

    def _that_meet(self, options: LoadOptions) -> list[int]:
        sizes, ratio = prompt_sizes(self._recorded), token_ratio(self._recorded).tokens_per_unit
        chosen: list[int] = []
        for number, root in enumerate(self._roots.tolist()):
            members = self._selection(number).calls
            if not members:
                continue
            tokens = {member.call.id: int(sizes[member.call.id]) * ratio for member in members}
            if meets(traits_of(root, members, self._recorded.sessions, tokens), options.select):
                chosen.append(number)
            else:
                self.unmet += 1
        if self.unmet and not chosen:
            raise UsageError(
                f"no tree of {self.unmet:,} meets {' and '.join(one.text for one in options.select)}",
                hint="`aitrace inspect` shows what is in the trace.",
            )
        return chosen
