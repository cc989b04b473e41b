"""Pure: what each client needs in its environment and on its command line to be recorded, and why.

The tables say what was seen to work with the versions in `SEEN_WITH`; what they give goes to the child alone. A client
whose own files overrule its environment (Claude Code's settings) or that has no variable for a base URL (Codex,
OpenCode) gets the value in the form that overrules its files, for this one process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

import orjson

from aitrace.errors import UsageError
from aitrace.schema import CaptureMode
from recorders.client_config import ClientConfig, object_from_jsonc
from recorders.merge import merged
from recorders.no_proxy import entries_for_client, entries_from_environment

ClientName = Literal["claude", "codex", "opencode", "generic"]
CLIENTS: tuple[ClientName, ...] = ("claude", "codex", "opencode", "generic")
SEEN_WITH: dict[ClientName, str] = {
    "claude": "Claude Code 2.1.332",
    "codex": "Codex CLI 0.171.0",
    "opencode": "OpenCode 1.18.33",
    "generic": "curl 7.88, Python aiohttp 3.14",
}
"""Versions that the tables below were tried with."""

Value = Literal["proxy", "no-proxy", "bundle", "added", "base", "base/v1", "1"]
"""What a variable holds: the recorder's address, the hosts not to send there, a file with all trusted certificates, one
with only those to be added, the recorder as the endpoint (without or with the API's version), or a 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable of a recorded client."""

    name: str
    """Its name."""
    value: Value
    """What it holds."""
    reason: str
    """Why it is needed."""


_PROXY = (
    Variable(name="HTTPS_PROXY", value="proxy", reason="way to endpoints with https"),
    Variable(name="https_proxy", value="proxy", reason="the same; curl and Python look here first"),
    Variable(name="HTTP_PROXY", value="proxy", reason="way to endpoints with http, loopback too"),
    Variable(name="http_proxy", value="proxy", reason="the same; curl reads only this one"),
    Variable(name="NO_PROXY", value="no-proxy", reason="what is to bypass the recorder"),
    Variable(name="no_proxy", value="no-proxy", reason="the same"),
)
_TOOLS = (
    Variable(name="SSL_CERT_FILE", value="bundle", reason="trust: OpenSSL, Go, Rust, and all three clients"),
    Variable(name="NODE_EXTRA_CA_CERTS", value="added", reason="trust: Node and Bun"),
    Variable(
        name="REQUESTS_CA_BUNDLE", value="bundle", reason="trust: Python requests and pip in a shell tool"
    ),
    Variable(name="CURL_CA_BUNDLE", value="bundle", reason="trust: curl in a shell tool"),
    Variable(
        name="GIT_SSL_CAINFO", value="bundle", reason="trust: git in a shell tool, and Codex's own fetches"
    ),
    Variable(name="CARGO_HTTP_CAINFO", value="bundle", reason="trust: cargo in a shell tool"),
)
"""Tools that an agent runs inherit the proxy, so they have to trust its certificates too."""
_HINTS = Variable(
    name="CLAUDE_CODE_GATEWAY_HINT_HEADERS",
    value="1",
    reason="tool times and request classes, with any base URL",
)

FORWARD: dict[ClientName, tuple[Variable, ...]] = {
    "claude": (*_PROXY, *_TOOLS, _HINTS),
    "codex": (
        *_PROXY,
        *_TOOLS,
        Variable(name="CODEX_CA_CERTIFICATE", value="bundle", reason="trust: goes before SSL_CERT_FILE"),
    ),
    "opencode": (*_PROXY, *_TOOLS),
    "generic": (*_PROXY, *_TOOLS),
}
"""Variables of each client where the recorder is a proxy."""

REVERSE: dict[ClientName, tuple[Variable, ...]] = {
    "claude": (
        Variable(name="ANTHROPIC_BASE_URL", value="base", reason="the recorder is the endpoint"),
        _HINTS,
    ),
    "codex": (),
    "opencode": (),
    "generic": (
        Variable(name="ANTHROPIC_BASE_URL", value="base", reason="clients of the Anthropic API"),
        Variable(name="OPENAI_BASE_URL", value="base/v1", reason="clients of the OpenAI APIs"),
        Variable(name="OPENAI_API_BASE", value="base/v1", reason="the same; older name"),
    ),
}
"""Variables of each client where the recorder is the endpoint. Codex and OpenCode have none; see `setup`."""

OTHER_BUNDLES = (
    "AWS_CA_BUNDLE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "CODEX_CA_CERTIFICATE",
    "DENO_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "NIX_SSL_CERT_FILE",
    "PIP_CERT",
)
"""Variables that go before those above in one tool or other; they are set only where the user has set them."""

BASE_URL_VARIABLES = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE", "CODEX_OSS_BASE_URL")
"""Variables in which a user may have an endpoint."""

_NAMES: dict[str, ClientName] = {
    "claude": "claude",
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "opencode-ai": "opencode",
}
_LAUNCHERS = frozenset({"npx", "bunx", "pnpx", "pnpm", "yarn", "npm", "bun", "env", "node"})
_LOCAL_PROVIDERS = frozenset({"oss", "ollama", "lmstudio"})
_NO_DAEMON = "features.daemon_auto_start=false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """Where the recorder is."""

    mode: CaptureMode
    """How it stands between client and endpoint."""
    url: str
    """Its own address, without a path."""
    upstream: str | None = None
    """URL of the endpoint; None in forward mode."""
    bundle: str = ""
    """File with all trusted certificates; empty in reverse mode."""
    added: str = ""
    """File with the certificates that are to be added to the client's own; empty in reverse mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a client is started with."""

    command: tuple[str, ...]
    """The user's command with what was put in."""
    environment: dict[str, str]
    """Variables to set; all others stay as they are."""
    notes: tuple[str, ...] = field(default=())
    """What the user should know, as sentences."""


def client_from_command(command: Sequence[str]) -> ClientName:
    """Which client a command starts, told from the program's name or what a launcher such as npx is given."""
    return _NAMES.get(_plain_name(command[_place_of_client(command)]), "generic")


def setup(
    client: ClientName,
    road: Road,
    command: Sequence[str],
    environ: Mapping[str, str],
    config: ClientConfig,
) -> Setup:
    """How to start a client so that it is recorded.

    Args:
        client: The client.
        road: Where the recorder is.
        command: The user's command; empty to learn what to export.
        environ: The user's environment.
        config: What the client's own files say.

    Raises:
        UsageError: The client cannot be recorded this way.
    """
    prepare = _forward if road.mode == "forward" else _reverse
    ready = prepare(client, road, command, environ, config)
    notes = [
        f"{place} cannot be read, so what it says of endpoints is not known" for place in config.unreadable
    ]
    return replace(ready, notes=(*ready.notes, *notes))


def endpoint_hosts(environ: Mapping[str, str], config: ClientConfig) -> list[str]:
    """Hosts of endpoints that the user has set: in variables or in the client's files."""
    urls = [environ[name] for name in BASE_URL_VARIABLES if environ.get(name)]
    return [host for url in [*urls, *config.base_urls.values()] if (host := _host(url)) is not None]


def _forward(
    client: ClientName, road: Road, command: Sequence[str], environ: Mapping[str, str], config: ClientConfig
) -> Setup:
    users = entries_from_environment(environ)
    entries, left_out = entries_for_client(users, endpoint_hosts(environ, config))
    values: dict[Value, str] = {
        "proxy": road.url,
        "no-proxy": ",".join(entries),
        "bundle": road.bundle,
        "added": road.added,
        "1": "1",
    }
    environment = {name: road.bundle for name in OTHER_BUNDLES if environ.get(name)}
    environment |= _environment(FORWARD[client], values, environ)
    notes = []
    if left_out:
        notes.append(
            f"NO_PROXY of the client leaves out {', '.join(left_out)}, so that its endpoint is recorded"
        )
    urls = _base_urls(client, environ, config)
    if urls:
        notes.append(
            f"forward mode, so the client keeps its own base URL ({', '.join(urls)}); with --upstream it would be reverse mode"
        )
    words = list(command)
    if client == "claude":
        words = _with_claude_settings(words, environment, config)
    elif client == "codex":
        words = _inserted(words, ["-c", _NO_DAEMON])
    return Setup(command=tuple(words), environment=environment, notes=tuple(notes))


def _reverse(
    client: ClientName, road: Road, command: Sequence[str], environ: Mapping[str, str], config: ClientConfig
) -> Setup:
    assert road.upstream is not None  # noqa: S101 - reverse mode has one, for the type checker
    path = urlsplit(road.upstream).path.rstrip("/")
    bare = path.removesuffix("/v1")
    values: dict[Value, str] = {
        "base": f"{road.url}{bare}",
        "base/v1": f"{road.url}{path or '/v1'}",
        "1": "1",
    }
    environment = _environment(REVERSE[client], values, environ)
    users = entries_from_environment(environ)
    if _proxy_is_set(environ):
        # A proxy of the user's must not be asked for the recorder.
        entries = ",".join(dict.fromkeys([*users, "127.0.0.1"]))
        environment |= {"NO_PROXY": entries, "no_proxy": entries}
    words = list(command)
    if client == "claude":
        words = _with_claude_settings(words, environment, config)
    elif client == "codex":
        setting, variables = _codex_base_url(config, road.url, path)
        words = _inserted(words, ["-c", _NO_DAEMON, *setting])
        environment |= variables
    elif client == "opencode":
        environment |= _opencode_base_url(config, environ, road.url, path)
    return Setup(command=tuple(words), environment=environment)


def _environment(
    variables: Sequence[Variable], values: Mapping[Value, str], environ: Mapping[str, str]
) -> dict[str, str]:
    return {
        variable.name: values[variable.value]
        for variable in variables
        if not (variable.value == "1" and variable.name in environ)
    }


def _with_claude_settings(
    words: list[str], environment: Mapping[str, str], config: ClientConfig
) -> list[str]:
    """The command with `--settings` for the variables that the user's settings would set otherwise."""
    overruled = {
        name: value for name, value in environment.items() if config.environment.get(name, value) != value
    }
    if not overruled or not words:
        return words
    if any(word == "--settings" or word.startswith("--settings=") for word in words):
        raise UsageError(
            f"Claude Code's settings set {min(overruled)!r}, and the command has --settings already",
            hint="take the variable out of the `env` of the settings while you record",
        )
    return _inserted(words, ["--settings", orjson.dumps({"env": overruled}).decode()])


def _codex_base_url(config: ClientConfig, url: str, path: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables with which Codex's provider is at the recorder."""
    provider = config.provider or "openai"
    if provider in _LOCAL_PROVIDERS:
        return [], {"CODEX_OSS_BASE_URL": f"{url}{path or '/v1'}"}
    base = url + (path or _own_path(config, provider))
    if provider == "openai":
        return ["-c", f'openai_base_url="{base}"'], {}
    return ["-c", f'model_providers.{_toml_name(provider)}.base_url="{base}"'], {}


def _opencode_base_url(
    config: ClientConfig, environ: Mapping[str, str], url: str, path: str
) -> dict[str, str]:
    """The variable with which OpenCode's provider is at the recorder, laid over one that the user has."""
    if config.provider is None:
        raise UsageError(
            "OpenCode's base URL belongs to a provider, and no configuration says which one it uses",
            hint="name the model as `opencode run -m PROVIDER/MODEL …`, or record in forward mode, without --upstream",
        )
    base = url + (path or _own_path(config, config.provider))
    ours = {"provider": {config.provider: {"options": {"baseURL": base}}}}
    text = environ.get("OPENCODE_CONFIG_CONTENT", "")
    try:
        users = object_from_jsonc(text.encode())
    except ValueError as error:
        raise UsageError(
            "OPENCODE_CONFIG_CONTENT cannot be read, so nothing can be added to it",
            hint="unset it, or record in forward mode, without --upstream",
        ) from error
    return {"OPENCODE_CONFIG_CONTENT": orjson.dumps(merged(users, ours)).decode()}


def _own_path(config: ClientConfig, provider: str) -> str:
    """Path of the provider's own base URL, since an endpoint may not be at `/v1`."""
    own = config.base_urls.get(provider)
    return "/v1" if own is None else urlsplit(own).path.rstrip("/")


def _base_urls(client: ClientName, environ: Mapping[str, str], config: ClientConfig) -> list[str]:
    names = (
        BASE_URL_VARIABLES if client == "generic" else BASE_URL_VARIABLES[:1] if client == "claude" else ()
    )
    urls = {name: environ[name] for name in names if environ.get(name)}
    if client == "claude":
        urls |= config.base_urls
    return [f"{name}={_without_credentials(url)}" for name, url in urls.items()]


def _inserted(words: list[str], new: list[str]) -> list[str]:
    """The command with arguments put after the client's name."""
    if not words:
        return words
    place = _place_of_client(words) + 1
    return [*words[:place], *new, *words[place:]]


def _place_of_client(words: Sequence[str]) -> int:
    if not words or _plain_name(words[0]) not in _LAUNCHERS:
        return 0
    return next((place for place, word in enumerate(words) if _plain_name(word) in _NAMES), 0)


def _plain_name(word: str) -> str:
    """Name of a program or package without folder, scope, version and `.exe`."""
    name = word.lower().rpartition("/")[2]
    return name.partition("@")[0].removesuffix(".exe").removesuffix(".js").removesuffix(".cmd")


def _toml_name(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else orjson.dumps(name).decode()


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _without_credentials(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "?"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _proxy_is_set(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"))
