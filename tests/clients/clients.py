"""I/O: runs a real client without and under `aitrace record`, in a home of its own and on loopback only.

The client starts with an empty environment but for PATH, HOME, a key that opens nothing, and what a user would have set
up. What `aitrace record` must add, it adds itself.
"""

import datetime as dt
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scenarios import Scenario
from upstream import Certificate, Seen, Upstream

ClientName = Literal["claude", "codex", "codex-ws", "opencode"]
Mode = Literal["direct", "reverse", "forward"]

LIMIT_S = 120
HOSTS = ("api.anthropic.com", "api.openai.com", "chatgpt.com")
"""Where the clients go by themselves; Codex asks the last one for a list of models."""
# Made of parts, so that no scanner takes them for keys that somebody lost.
ANTHROPIC_KEY = "-".join(("sk", "ant", "api03", "dummy", "0" * 24))
OPENAI_KEY = "-".join(("sk", "dummy", "0" * 40))
CODEX_MODEL = "gpt-6.2-sol"
"""Runs tools from a script and forks sub-agents with their parent's history."""
CODEX_HTTP_MODEL = "scripted-model"
"""Unknown to Codex, which then offers functions, parallel calls and fresh sub-agents."""
PLATFORM_BINARIES = {
    "claude": "@anthropic-ai/claude-code-linux-{arch}/claude",
    "codex": "@openai/codex-linux-{arch}/vendor/*/bin/codex",
    "opencode": "opencode-linux-{arch}/bin/opencode",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where one run takes place."""

    client: ClientName
    """Which client."""
    mode: Mode
    """What stands between it and the endpoint."""
    scenario: Scenario
    """What it is led through."""
    folder: Path
    """Empty; everything of the run goes here."""
    binaries: Path
    """The clients' node_modules."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def trace(self) -> Path:
        return self.folder / "out.aitrace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that is over."""

    setting: Setting
    """Its setting."""
    seen: tuple[Seen, ...]
    """What the endpoint saw."""
    problems: tuple[str, ...]
    """Requests that the script could not answer."""
    counted: int
    """Requests to count tokens."""
    status: int
    """Exit status."""
    stderr: str
    """What the client and the recorder said."""


def find_binary(client: ClientName, node_modules: Path) -> Path:
    """The client's own program for this machine, past the launcher that asks for newer versions of Node."""
    arch = {"x86_64": "x64", "aarch64": "arm64"}[os.uname().machine]
    name = client.removesuffix("-ws")
    if (client, arch) == ("opencode", "x64") and "avx2" not in Path("/proc/cpuinfo").read_text():
        arch = "x64-baseline"
    found = sorted(node_modules.glob(PLATFORM_BINARIES[name].format(arch=arch)))
    if not found:
        raise FileNotFoundError(f"no program of {name} for {arch} under {node_modules}")
    return found[0]


def run(setting: Setting) -> Finished:
    """One client through one scenario."""
    for folder in (setting.home, setting.project, setting.folder / "bin", setting.folder / "tmp"):
        folder.mkdir(parents=True)
    (setting.project / "notes.txt").write_text("alpha\nbeta\n")
    certificate = make_certificate(setting.folder)
    has_websocket = setting.client == "codex-ws"
    with Upstream(
        setting.scenario, project=setting.project, certificate=certificate, websocket=has_websocket
    ) as upstream:
        environment = CLIENTS[setting.client](setting, upstream)
        command = [*recorder(setting, upstream, certificate), *client_command(setting)]
        status, stderr = drive(setting, command, environment, upstream)
        return Finished(
            setting=setting,
            seen=tuple(upstream.seen),
            problems=tuple(upstream.problems),
            counted=len(upstream.counted),
            status=status,
            stderr=stderr,
        )


def recorder(setting: Setting, upstream: Upstream, certificate: Certificate) -> list[str]:
    """The words before the client's own command."""
    if setting.mode == "direct":
        return []
    words = [str(Path(sys.executable).parent / "aitrace"), "record", "-o", str(setting.trace)]
    if setting.mode == "reverse":
        return [*words, "--upstream", f"http://127.0.0.1:{upstream.port}", "--"]
    for host in HOSTS:
        words += ["--connect-to", f"{host}:443=127.0.0.1:{upstream.tls_port}"]
    return [*words, "--upstream-ca", str(certificate.chain), "--"]


def client_command(setting: Setting) -> list[str]:
    """The client as a user calls it; several prompts are several calls in a script of the client's name."""
    name = setting.client.removesuffix("-ws")
    binary = find_binary(setting.client, setting.binaries)
    here = setting.folder / "bin" / name
    prompts = setting.scenario.prompts
    if len(prompts) == 1:
        here.symlink_to(binary)
        return [name, *ARGUMENTS[setting.client](setting, prompts[0], 0)]
    lines = ["#!/bin/sh", "trap : INT  # Ctrl-C is for the client"]
    for number, prompt in enumerate(prompts):
        words = shlex.join(ARGUMENTS[setting.client](setting, prompt, number))
        lines.append(f'{shlex.quote(str(binary))} "$@" {words}')
    here.write_text("\n".join(lines) + "\n")
    here.chmod(0o755)
    return [name]


def drive(
    setting: Setting, command: list[str], environment: dict[str, str], upstream: Upstream
) -> tuple[int, str]:
    """Start it, press Ctrl-C where the scenario says so, wait for its end."""
    out, err = setting.folder / "stdout", setting.folder / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        child = subprocess.Popen(
            command,
            cwd=setting.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            executable=None if "/" in command[0] else setting.folder / "bin" / command[0],
        )
        try:
            if setting.scenario.interrupt_step is not None:
                assert upstream.is_mid_stream.wait(LIMIT_S), err.read_text()[-2000:]
                os.killpg(child.pid, signal.SIGINT)
            child.wait(LIMIT_S)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return child.returncode, err.read_text()


def common_environment(setting: Setting) -> dict[str, str]:
    """What every user has."""
    return {
        "PATH": f"{setting.folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(setting.home),
        "TMPDIR": str(setting.folder / "tmp"),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "SHELL": "/bin/sh",
    }


def set_up_claude(setting: Setting, upstream: Upstream) -> dict[str, str]:
    """Claude Code with a key."""
    environment = {
        "ANTHROPIC_API_KEY": ANTHROPIC_KEY,
        "IS_SANDBOX": "1",  # lets it run tools unasked as root too
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if setting.mode == "direct":
        environment["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{upstream.port}"
        environment["CLAUDE_CODE_GATEWAY_HINT_HEADERS"] = "1"
    return common_environment(setting) | environment


def set_up_codex(setting: Setting, upstream: Upstream) -> dict[str, str]:
    """Codex with its own provider and a key."""
    folder = setting.home / ".codex"
    folder.mkdir()
    (folder / "auth.json").write_bytes(orjson.dumps({"OPENAI_API_KEY": OPENAI_KEY}))
    top = [
        f'model = "{CODEX_MODEL if setting.client == "codex-ws" else CODEX_HTTP_MODEL}"',
        "check_for_update_on_startup = false",
    ]
    if setting.scenario.context_tokens:
        top.append(f"model_auto_compact_token_limit = {setting.scenario.context_tokens}")
    if setting.mode == "direct":
        top.append(f'openai_base_url = "http://127.0.0.1:{upstream.port}/v1"')
    tables = [
        "[analytics]",
        "enabled = false",
        f'[projects."{setting.project}"]',
        'trust_level = "trusted"',
    ]
    (folder / "config.toml").write_text("\n".join([*top, *tables]) + "\n")
    return common_environment(setting)


def set_up_opencode(setting: Setting, upstream: Upstream) -> dict[str, str]:
    """OpenCode with a provider of the user's own, in the project's configuration."""
    url = "https://api.openai.com/v1" if setting.mode == "forward" else f"http://127.0.0.1:{upstream.port}/v1"
    limit = {"context": setting.scenario.context_tokens or 200_000, "output": 8192}
    models = {name: {"name": name, "limit": limit, "tool_call": True} for name in ("scripted", "small")}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": {"baseURL": url, "apiKey": OPENAI_KEY},
        "models": models,
    }
    configuration = {
        "model": "local/scripted",
        "small_model": "local/small",
        "permission": "allow",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"local": provider},
    }
    (setting.project / "opencode.json").write_bytes(orjson.dumps(configuration))
    names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return common_environment(setting) | {f"OPENCODE_DISABLE_{name}": "1" for name in names}


def claude_arguments(setting: Setting, prompt: str, number: int) -> list[str]:
    words = ["-p", prompt, "--dangerously-skip-permissions"]
    if setting.scenario.context_tokens:
        words += ["--autocompact", str(setting.scenario.context_tokens)]
    return [*words, "--continue"] if number else words


def codex_arguments(_setting: Setting, prompt: str, number: int) -> list[str]:
    resume = ["resume", "--last"] if number else []
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", *resume, *flags, prompt]


def opencode_arguments(_setting: Setting, prompt: str, number: int) -> list[str]:
    return ["run", *(["--continue"] if number else []), prompt]


CLIENTS: dict[ClientName, Callable[[Setting, Upstream], dict[str, str]]] = {
    "claude": set_up_claude,
    "codex": set_up_codex,
    "codex-ws": set_up_codex,
    "opencode": set_up_opencode,
}
ARGUMENTS: dict[ClientName, Callable[[Setting, str, int], list[str]]] = {
    "claude": claude_arguments,
    "codex": codex_arguments,
    "codex-ws": codex_arguments,
    "opencode": opencode_arguments,
}


def make_certificate(folder: Path) -> Certificate:
    """A certificate for the vendors' hosts that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "scripted upstream")])
    hosts = [x509.DNSName(host) for host in HOSTS]
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Certificate(chain=folder / "upstream.pem", key=folder / "upstream.key")
    made.chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return made
