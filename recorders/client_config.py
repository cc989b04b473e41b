"""Pure: what the clients' own configuration files say about endpoints.

Files are read, never written: what a recording needs goes into the child's environment and command line.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from recorders.merge import merged


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What matters of a client's configuration for a recording."""

    provider: str | None = None
    """Provider that the model comes from; None if the client's own default, or not told."""
    base_urls: dict[str, str] = field(default_factory=dict)
    """Base URL by provider or variable, as configured."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that the client sets for itself at its start, over those it was given."""
    unreadable: tuple[str, ...] = ()
    """Places of the files that could not be read."""


def claude_config(texts: Mapping[str, bytes]) -> ClientConfig:
    """What Claude Code's settings say; the files by place, the strongest last."""
    values, unreadable = _objects(texts)
    environment: dict[str, str] = {}
    for value in values:
        found = value.get("env")
        if isinstance(found, dict):
            environment |= {name: str(text) for name, text in found.items()}
    base = environment.get("ANTHROPIC_BASE_URL")
    urls = {} if base is None else {"ANTHROPIC_BASE_URL": base}
    return ClientConfig(base_urls=urls, environment=environment, unreadable=unreadable)


def codex_config(texts: Mapping[str, bytes], arguments: Sequence[str]) -> ClientConfig:
    """What Codex's configuration and command line say; the files by place, the strongest last."""
    config: dict[str, Any] = {}
    unreadable = []
    for place, text in texts.items():
        try:
            config = merged(config, tomllib.loads(text.decode()))
        except ValueError:
            unreadable.append(place)
    for setting in _values(arguments, "-c", "--config"):
        config = merged(config, _from_dotted(setting))
    profile = _last(_values(arguments, "-p", "--profile"), config.get("profile"))
    chosen = _table(_table(config.get("profiles")).get(str(profile)))
    provider = chosen.get("model_provider", config.get("model_provider"))
    if "--oss" in arguments:
        provider = config.get("oss_provider", "oss")
    urls = {
        name: table["base_url"]
        for name, table in _table(config.get("model_providers")).items()
        if isinstance(table, dict) and isinstance(table.get("base_url"), str)
    }
    if isinstance(config.get("openai_base_url"), str):
        urls["openai"] = config["openai_base_url"]
    return ClientConfig(
        provider=provider if isinstance(provider, str) else None,
        base_urls=urls,
        unreadable=tuple(unreadable),
    )


def opencode_config(texts: Mapping[str, bytes], arguments: Sequence[str]) -> ClientConfig:
    """What OpenCode's configuration and command line say; the files by place, the strongest last."""
    values, unreadable = _objects(texts)
    config: dict[str, Any] = {}
    for value in values:
        config = merged(config, value)
    model = _last(_values(arguments, "-m", "--model"), config.get("model"))
    provider = model.partition("/")[0] if isinstance(model, str) and "/" in model else None
    urls = {
        name: options["baseURL"]
        for name, table in _table(config.get("provider")).items()
        if isinstance((options := _table(_table(table).get("options"))).get("baseURL"), str)
    }
    return ClientConfig(provider=provider, base_urls=urls, unreadable=unreadable)


def object_from_jsonc(text: bytes) -> dict[str, Any]:
    """The object in a JSON file that may have comments and commas before a closing bracket.

    Raises:
        ValueError: It is none.
    """
    value = orjson.loads(_without_comments(text.decode()) or "{}")
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004 - one error for whatever is wrong with a file
    return value


_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


def _without_comments(text: str) -> str:
    bare = _STRING_OR_COMMENT.sub(lambda m: m[0] if m[0].startswith('"') else " ", text)
    return _STRING_OR_COMMA.sub(lambda m: m[0] if m[0].startswith('"') else "", bare).strip()


def _objects(texts: Mapping[str, bytes]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    values, unreadable = [], []
    for place, text in texts.items():
        try:
            values.append(object_from_jsonc(text))
        except ValueError:
            unreadable.append(place)
    return values, tuple(unreadable)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _values(arguments: Sequence[str], *names: str) -> list[str]:
    """Values of an option in their order, in the forms `-c V`, `--config V`, `--config=V`."""
    found = []
    for number, word in enumerate(arguments):
        if word == "--":
            break
        if word in names and number + 1 < len(arguments):
            found.append(arguments[number + 1])
        found += [word.partition("=")[2] for name in names if name[1] == "-" and word.startswith(f"{name}=")]
    return found


def _last(values: Sequence[str], otherwise: Any) -> Any:
    return values[-1] if values else otherwise


def _from_dotted(setting: str) -> dict[str, Any]:
    """The table that `a.b="value"` stands for; a value that is no TOML is a string."""
    path, _, text = setting.partition("=")
    value: Any
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()
    for name in reversed(_names(path)):
        value = {name: value}
    return value if isinstance(value, dict) else {}


def _names(path: str) -> list[str]:
    return [part.strip().strip('"') for part in re.findall(r'"[^"]*"|[^.]+', path.strip())]
