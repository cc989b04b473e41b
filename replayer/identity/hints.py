"""Pure: hints to routers and engines that calls carry: body fields and headers, by harness, class or agent.

A file of hints is a JSON list of rules; a rule says what calls get, and which ones:

    good: [{"where": {"class": "main"}, "body": {"nvext": {"agent_hints": {"priority": 1}}}}]
    good: [{"body": {"cache_salt": "{root}"}, "headers": {"X-Gateway-Priority": "low"}}]
    bad:  [{"where": {"kind": "main"}, "body": {…}}] (no such condition)

`where` may name `harness`, `class` and `agent`, each a text or a list of texts; all that it names must hold. Fields of a
later rule are laid over those of an earlier one, objects within objects. `{session}`, `{parent}`, `{root}` and `{call}`
in texts stand for ids, as in templates of headers; a field that names one which the call has not is left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import orjson

from aitrace.errors import InputError, UsageError, shown
from aitrace.schema import CallClass
from replayer.identity.identity_names import (
    CREDENTIAL_HEADERS,
    CREDENTIAL_HINT,
    PLACE,
    PLACES,
    PLACES_TEXT,
    HeaderTemplate,
    header_template,
)

_RULE_KEYS = ("where", "body", "headers")
_WHERE_KEYS = ("harness", "class", "agent")
_PROMPT_FIELDS = ("messages", "system", "tools", "input", "instructions", "prompt")
_LENGTH_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "ignore_eos", "min_tokens")
_OWN_FIELDS = frozenset((*_PROMPT_FIELDS, *_LENGTH_FIELDS, "model", "stream", "stream_options"))
"""Fields that the replay writes itself."""
_CREDENTIALS = CREDENTIAL_HEADERS | {"api_key", "apikey", "access_token", "auth_token", "password", "secret"}
_LEFT_OUT = object()

Fill = Callable[[str], str | None]
"""Puts ids into a text; None if it names one that the call has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HintRule:
    """What the calls that meet some conditions carry."""

    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Values by `harness`, `class` or `agent`, of which a call must have one each; empty for all calls."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the body."""
    headers: tuple[HeaderTemplate, ...] = ()
    """Headers."""

    def is_for(self, facts: Mapping[str, str | None]) -> bool:
        """Whether a call of this harness, class and agent meets the conditions."""
        return all(facts[name] in values for name, values in self.where.items())


def hints_from_json(data: bytes, *, place: str) -> tuple[HintRule, ...]:
    """The rules of a file.

    Args:
        place: Name of the file, for errors.

    Raises:
        InputError: It is no JSON, or no list of rules.
        UsageError: A rule would carry a credential, or write what the replay writes itself.
    """
    try:
        rules = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{place}: is no JSON: {error}") from error
    if not isinstance(rules, list):
        raise InputError(f"{place}: expected a list of rules, got {shown(rules)}")
    return tuple(_rule(rule, f"{place}: rule {number}") for number, rule in enumerate(rules, 1))


def json_from_hints(rules: Iterable[HintRule]) -> list[dict[str, Any]]:
    """The rules as a run keeps them: as a file has them, but for values of headers that may be secrets."""
    return [
        {
            "where": {name: list(values) for name, values in rule.where.items()},
            "body": dict(rule.body),
            "headers": {header.name: header.kept_value for header in rule.headers},
        }
        for rule in rules
    ]


def hinted_body(rules: Sequence[HintRule], facts: Mapping[str, str | None], fill: Fill) -> dict[str, Any]:
    """Fields of the body of a call with these facts."""
    body: dict[str, Any] = {}
    for rule in rules:
        if rule.is_for(facts):
            body = laid_over(body, _filled(rule.body, fill))
    return body


def hinted_headers(rules: Sequence[HintRule], facts: Mapping[str, str | None], fill: Fill) -> dict[str, str]:
    """Headers of a call with these facts."""
    templates = [header for rule in rules if rule.is_for(facts) for header in rule.headers]
    values = {header.name: fill(header.value) for header in templates}
    return {name: value for name, value in values.items() if value is not None}


def laid_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of both, those of `upper` where both have one; objects within objects."""
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[name] = laid_over(below, value) if both else value  # type: ignore[arg-type] # both are objects
    return merged


def _filled(value: Any, fill: Fill) -> Any:
    match value:
        case str():
            text = fill(value)
            return _LEFT_OUT if text is None else text
        case dict():
            filled = {name: _filled(each, fill) for name, each in value.items()}
            return {name: each for name, each in filled.items() if each is not _LEFT_OUT}
        case list():
            return [each for each in (_filled(item, fill) for item in value) if each is not _LEFT_OUT]
        case _:
            return value


def _rule(rule: Any, place: str) -> HintRule:
    _check_keys(rule, _RULE_KEYS, place)
    where = rule.get("where", {})
    _check_keys(where, _WHERE_KEYS, f"{place}: where")
    body, headers = rule.get("body", {}), rule.get("headers", {})
    if not isinstance(body, dict):
        raise InputError(f"{place}: body: expected an object, got {shown(body)}")
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise InputError(f"{place}: headers: expected an object of texts, got {shown(headers)}")
    if not (body or headers):
        raise InputError(f"{place}: says neither body nor headers")
    own = sorted(_OWN_FIELDS & body.keys())
    if own:
        raise UsageError(f"{place}: body: {own[0]!r} is written by the replay")
    _check_values(body, f"{place}: body")
    return HintRule(
        where={name: _texts(name, value, place) for name, value in where.items()},
        body=body,
        headers=tuple(_header(name, value, place) for name, value in headers.items()),
    )


def _header(name: str, value: str, place: str) -> HeaderTemplate:
    try:
        return header_template(f"{name}: {value}")
    except UsageError as error:
        raise UsageError(f"{place}: headers: {error}", hint=error.hint) from error


def _check_keys(value: Any, known: Sequence[str], place: str) -> None:
    if not isinstance(value, dict):
        raise InputError(f"{place}: expected an object, got {shown(value)}")
    unknown = sorted(value.keys() - set(known))
    if unknown:
        raise InputError(f"{place}: {unknown[0]!r} is not known, expected one of {', '.join(known)}")


def _texts(name: str, value: Any, place: str) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{place}: where: {name}: expected a text or a list of texts, got {shown(value)}")
    unknown = [text for text in texts if name == "class" and text not in get_args(CallClass)]
    if unknown:
        known = ", ".join(get_args(CallClass))
        raise InputError(f"{place}: where: class {unknown[0]!r} is not known, expected one of {known}")
    return tuple(texts)


def _check_values(value: Any, place: str) -> None:
    """Refuse credentials, and places that stand for no id."""
    match value:
        case dict():
            for name, each in value.items():
                if name.lower() in _CREDENTIALS:
                    raise UsageError(
                        f"{place}: {name!r} is a credential, and hints are kept in the run",
                        hint=CREDENTIAL_HINT,
                    )
                _check_values(each, f"{place}: {name}")
        case list():
            for each in value:
                _check_values(each, place)
        case str():
            unknown = [name for name in PLACE.findall(value) if name not in PLACES]
            if unknown:
                raise InputError(f"{place}: names {{{unknown[0]}}}, expected one of {PLACES_TEXT}")
