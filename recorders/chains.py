"""Pure: whole prompts of requests that state only what is new and name the answer that they continue.

What a later request may still name is kept, not what was said: the last answers of each connection, whatever the
length of the recording. Their prompts share the parts they have in common.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aitrace.protocols.protocol import MalformedRequestError, Request, RequestPart
from aitrace.protocols.responses import head_size, parts_from_output

KEPT_PER_CONNECTION = 4
"""Answers of one connection that may be continued. Codex names the last one; it never goes back."""
KEPT_ANSWERS = 64
"""Answers of all connections together that may be continued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePrompt:
    """The prompt of a request, from its beginning."""

    parts: tuple[RequestPart, ...]
    """Tools and instructions as this request states them, then the whole history."""
    head: int
    """How many of the parts are tools and instructions."""
    unseen_start: bool
    """Whether the history goes on from an answer that is not known here."""
    is_unchained: bool
    """Whether it is this request that names an answer not known here."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a request that continues this answer has before its own input."""

    connection: int
    history: tuple[RequestPart, ...]
    unseen_start: bool


class ResponseChains:
    """The answers of a recording that may be continued."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._ids: dict[int, list[str]] = {}

    @property
    def kept(self) -> int:
        """Answers that may be continued."""
        return len(self._answers)

    def whole_prompt(self, request: Request) -> WholePrompt:
        """The request's prompt with the history that it continues."""
        head = head_size(request.body)
        previous_id = request.body.get("previous_response_id")
        if not isinstance(previous_id, str):
            return WholePrompt(parts=request.parts, head=head, unseen_start=False, is_unchained=False)
        previous = self._answers.get(previous_id)
        if previous is None:
            return WholePrompt(parts=request.parts, head=head, unseen_start=True, is_unchained=True)
        self._answers.move_to_end(previous_id)
        return WholePrompt(
            parts=request.parts[:head] + previous.history + request.parts[head:],
            head=head,
            unseen_start=previous.unseen_start,
            is_unchained=False,
        )

    def remember(
        self, connection: int, prompt: WholePrompt, response_id: str, output: Iterable[Mapping[str, Any]]
    ) -> None:
        """An answer to this prompt is complete.

        An answer with an item that is not of the protocol is not kept: what continues it has an unseen start.
        """
        try:
            added = parts_from_output(output)
        except MalformedRequestError:
            return
        self._forget(response_id)
        history = prompt.parts[prompt.head :] + added
        self._answers[response_id] = _Answer(connection, history, prompt.unseen_start)
        ids = self._ids.setdefault(connection, [])
        ids.append(response_id)
        if len(ids) > KEPT_PER_CONNECTION:
            self._forget(ids[0])
        if len(self._answers) > KEPT_ANSWERS:
            self._forget(next(iter(self._answers)))

    def _forget(self, response_id: str) -> None:
        answer = self._answers.pop(response_id, None)
        if answer is None:
            return
        ids = self._ids[answer.connection]
        ids.remove(response_id)
        if not ids:
            del self._ids[answer.connection]
