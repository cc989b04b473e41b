"""Pure: what the engine answers. One token is one word, so the tokens reported are the words that came.

An answer is drawn from the prompt's key and the seed: the same prompt under the same seed gets the same answer. Its
length is the request's `max_tokens` with `ignore_eos`, else a drawn one, at least `min_tokens`, at most `max_tokens`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from aitrace.protocols.protocol import MalformedRequestError, Request, TokenKind
from replayer.engine.options import MAX_ANSWER_TOKENS, EngineOptions

Finish = Literal["stop", "length", "tool_call"]
TOOL_CALL_TOKENS = 8

# At most 7 letters each: with the space before it, a word is one token of the engine's own meter.
WORDS: tuple[bytes, ...] = tuple(
    b"""
    able about above across add after again air all almost along also always and animal answer any area around ask
    back base be before began begin behind best better between big bird black blue boat body book both box boy bring
    brown build busy but call came can car care carry change check city class clear close cold color come common
    could country course cover cross cut dark day deep did differ direct do dog done door down draw drive dry during
    each early earth ease east eat end enough even ever every eye face fact fall family far farm fast father feel
    field figure fill final find fine fire first fish five fly follow food foot force form found four free friend
    from front full game gave get girl give go gold good got govern great green ground group grow half hand happen
    hard has head hear heat help her here high him hold home horse hot hour house how idea inch island just keep kind
    king knew know land large last late laugh lay lead learn leave left less let letter life light like line list
    listen little live long look love low machine made main make many map mark may mean measure men mind minute miss
    money moon more morning most mother move much multi music must name near need never new next night north note
    nothing notice noun now number off often old once one only open order other our out over own page paper part pass
    pattern people person picture piece place plain plan plane plant play point port power press problem produce pull
    put quick rain ran reach read ready real record red rest right river road rock room round rule run said same saw
    say school science sea second see seem self sentence serve set several shape she ship short should show side
    simple since sing six size sleep slow small snow some song soon sound south space spell stand star start state
    stay step still stood stop story street strong study such sun sure surface system table tail take talk teach tell
    ten test than that the their them then there these thing think this thought three through time told too took top
    toward town travel tree true try turn two under unit until use usual verb very voice vowel wait walk want war warm
    was watch water way week weight well went were west what wheel when where which while white who whole why wind
    with wonder wood word work world would write year yes yet you young
    """.split()
)
WORDS = tuple(word for word in WORDS if len(word) <= 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer before it is written."""

    words: tuple[bytes, ...]
    """Its tokens, without spaces; ASCII letters only, so that they need no escaping in JSON."""
    reasoning_tokens: int = 0
    """Leading tokens that are reasoning."""
    tool_call_tokens: int = 0
    """Trailing tokens that are the argument of a tool call."""
    tool_name: str = ""
    """Tool that is called; empty if none is."""
    is_cut: bool = False
    """Whether the limit ended it rather than the model."""

    @property
    def finish(self) -> Finish:
        if self.tool_call_tokens:
            return "tool_call"
        return "length" if self.is_cut else "stop"

    def runs(self, first: int, end: int) -> Iterator[tuple[TokenKind, int, int]]:
        """Tokens `first` to before `end`, split by kind: kind, first, end."""
        text_end = len(self.words) - self.tool_call_tokens
        bounds: tuple[tuple[TokenKind, int, int], ...] = (
            ("reasoning", 0, self.reasoning_tokens),
            ("content", self.reasoning_tokens, text_end),
            ("tool_call", text_end, len(self.words)),
        )
        for kind, run_first, run_end in bounds:
            low, high = max(first, run_first), min(end, run_end)
            if low < high:
                yield kind, low, high

    def text(self, kind: TokenKind) -> bytes:
        """All words of one kind."""
        for run_kind, first, end in self.runs(0, len(self.words)):
            if run_kind == kind:
                return b" ".join(self.words[first:end])
        return b""


def plan_answer(request: Request, options: EngineOptions, key: int) -> Answer:
    """The answer to a request whose prompt has this key.

    Raises:
        MalformedRequestError: `ignore_eos` or `min_tokens` make no sense, or ask for an answer that is too long.
    """
    random = Random(key ^ (options.seed << 64))
    length, is_cut = _length(request, options, random)
    if length > MAX_ANSWER_TOKENS:
        raise MalformedRequestError(f"answer of {length} tokens: expected at most {MAX_ANSWER_TOKENS}")
    reasoning_tokens = min(options.reasoning_tokens, length - 1)
    tool_name = _first_tool(request) if options.tool_call and not _has_new_result(request) else None
    tool_call_tokens = (
        0 if tool_name is None else max(0, min(TOOL_CALL_TOKENS, length - reasoning_tokens - 1))
    )
    return Answer(
        words=tuple(random.choices(WORDS, k=length)),
        reasoning_tokens=reasoning_tokens,
        tool_call_tokens=tool_call_tokens,
        tool_name=tool_name if tool_name is not None and tool_call_tokens else "",
        is_cut=is_cut,
    )


def _length(request: Request, options: EngineOptions, random: Random) -> tuple[int, bool]:
    low, high = options.answer_tokens
    drawn = options.reasoning_tokens + random.randint(low, high)
    least = _min_tokens(request.body.get("min_tokens"))
    limit = request.max_output_tokens
    if limit is not None and limit < 1:
        raise MalformedRequestError(f"limit on output tokens: expected 1 or more, got {limit!r}")
    if limit is not None and least > limit:
        raise MalformedRequestError(f"min_tokens: expected at most the limit of {limit}, got {least!r}")
    if _ignores_end(request.body.get("ignore_eos")):
        return (options.reasoning_tokens + high if limit is None else limit), True
    natural = max(drawn, least)
    if limit is not None and natural > limit:
        return limit, True
    return natural, False


def _min_tokens(value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedRequestError(f"min_tokens: expected an integer of 0 or more, got {value!r}")
    return value


def _ignores_end(value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise MalformedRequestError(f"ignore_eos: expected true or false, got {value!r}")
    return value


def _first_tool(request: Request) -> str | None:
    names = (part.tool_name for part in request.parts if part.type == "tool_definition")
    return next((name for name in names if name), None)


def _has_new_result(request: Request) -> bool:
    """Whether a tool's result came after the last thing the model said: a call then would never let an agent end."""
    for part in reversed(request.parts):
        if part.type == "tool_result":
            return True
        if part.role == "assistant":
            return False
    return False
