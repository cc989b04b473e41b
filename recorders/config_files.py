"""I/O: reads the clients' own configuration files, where each client looks for them. Nothing here writes."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from recorders.client_config import ClientConfig, claude_config, codex_config, opencode_config
from recorders.clients import ClientName


def read_config(
    client: ClientName, command: Sequence[str], environ: Mapping[str, str], folder: Path
) -> ClientConfig:
    """What the client's files say that a recording has to know.

    Args:
        client: The client.
        command: The user's command, whose options go before the files.
        environ: The user's environment.
        folder: The folder that the client is started in.
    """
    home = Path(environ.get("HOME") or "~").expanduser()
    match client:
        case "claude":
            return claude_config(_texts(_claude_files(home, environ, folder)))
        case "codex":
            return codex_config(_texts(_codex_files(home, environ, folder)), command)
        case "opencode":
            texts = _texts(_opencode_files(home, environ, folder))
            if "OPENCODE_CONFIG_CONTENT" in environ:
                texts["OPENCODE_CONFIG_CONTENT"] = environ["OPENCODE_CONFIG_CONTENT"].encode()
            return opencode_config(texts, command)
        case "generic":
            return ClientConfig()


def _claude_files(home: Path, environ: Mapping[str, str], folder: Path) -> list[Path]:
    users = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    project = folder / ".claude"
    return [users / "settings.json", project / "settings.json", project / "settings.local.json"]


def _codex_files(home: Path, environ: Mapping[str, str], folder: Path) -> list[Path]:
    users = Path(environ.get("CODEX_HOME") or home / ".codex")
    projects = [parent / ".codex" / "config.toml" for parent in _project(folder)]
    return [Path("/etc/codex/config.toml"), users / "config.toml", *projects]


def _opencode_files(home: Path, environ: Mapping[str, str], folder: Path) -> list[Path]:
    users = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    own = [Path(environ["OPENCODE_CONFIG"])] if environ.get("OPENCODE_CONFIG") else []
    projects = _project(folder)
    names = ("opencode.json", "opencode.jsonc")
    return [
        *(users / name for name in ("config.json", *names)),
        *own,
        *(parent / name for parent in projects for name in names),
        *(parent / ".opencode" / name for parent in projects for name in names),
    ]


def _project(folder: Path) -> list[Path]:
    """The folder and those above it up to the repository's, the outermost first."""
    found = []
    for parent in (folder, *folder.parents):
        found.append(parent)
        if (parent / ".git").exists():
            return found[::-1]
    return [folder]


def _texts(paths: Iterable[Path]) -> dict[str, bytes]:
    texts = {}
    for path in dict.fromkeys(paths):
        try:
            texts[str(path)] = path.read_bytes()
        except OSError:
            continue  # most of them do not exist
    return texts
