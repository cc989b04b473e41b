"""I/O: starts the engines that are installed, on loopback, and waits until they answer."""

import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

MODEL = "known"
"""Name under which engines serve the model."""
START_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An engine, or a router in front of several."""

    url: str
    """Where it takes requests."""
    metrics_url: str
    """Where its counters are."""
    worker_urls: tuple[str, ...] = ()
    """The engines behind it."""
    request_trace: Path | None = None
    """File into which it writes what it did with each request; None if it writes none."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(url: str) -> str:
    """The text behind a URL; empty if it cannot be had now."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - on loopback
            return str(response.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def counter(metrics_url: str, name: str, **labels: str) -> float:
    """Sum of the series of a counter that have these labels; 0 if there are none."""
    total = 0.0
    for line in page(metrics_url).splitlines():
        found = re.fullmatch(rf"{re.escape(name)}(?:\{{(.*)\}})? (\S+)", line)
        series = found and (found[1] or "")
        if found and all(f'{label}="{value}"' in series for label, value in labels.items()):
            total += float(found[2])
    return total


@contextmanager
def process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A program that runs in the background, its output in a file, and is ended with the block."""
    own = os.environ | {"PYTHONPATH": ""} | dict(environment or {})  # this program's packages are not its
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=own)
        try:
            yield
        finally:
            running.terminate()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def wait_for(url: str, word: str, log: Path) -> None:
    """Wait until a page has a word in it."""
    end_s = time.monotonic() + START_S
    while word not in page(url):
        assert time.monotonic() < end_s, f"not ready: {url}\n{log.read_text()[-2000:]}"
        time.sleep(0.05)


@contextmanager
def llama_server(
    engines: Path, model: Path, directory: Path, *, slots: int = 2, slot_tokens: int = 8192
) -> Iterator[Running]:
    """llama.cpp's server: so many requests at a time, the others wait."""
    url = f"http://127.0.0.1:{free_port()}"
    log = directory / f"llama-{url.rpartition(':')[2]}.log"
    # More threads than one would spin, and starve the replay on a machine with two cores.
    options = [
        "-t",
        "1",
        "-np",
        str(slots),
        "-c",
        str(slots * slot_tokens),
        "--no-kv-unified",
        "--cache-ram",
        "0",
    ]
    served = ["--host", "127.0.0.1", "--port", url.rpartition(":")[2], "--offline", "--no-ui", "--metrics"]
    named = ["-m", str(model / "model.gguf"), "--alias", MODEL]
    with process([str(engines / "llama" / "llama-server"), *named, *served, *options], log):
        wait_for(f"{url}/health", "ok", log)
        yield Running(url=url, metrics_url=f"{url}/metrics")


@contextmanager
def smg(engines: Path, model: Path, directory: Path, *options: str) -> Iterator[Running]:
    """SMG in front of two llama-servers of one slot each."""
    with ExitStack() as stack:
        workers = [
            stack.enter_context(llama_server(engines, model, directory, slots=1)).url for _ in range(2)
        ]
        port, metrics_port = free_port(), free_port()
        url, log = f"http://127.0.0.1:{port}", directory / "smg.log"
        served = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", *workers]
        counted = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)]
        command = [str(engines / "smg" / "bin" / "smg"), "launch", *served, *counted, "--disable-retries"]
        stack.enter_context(process([*command, *options], log))
        wait_for(f"{url}/v1/models", MODEL, log)
        metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        yield Running(url=url, metrics_url=metrics_url, worker_urls=tuple(workers))


@contextmanager
def dynamo(
    engines: Path, model: Path, directory: Path, *options: str, limits: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Dynamo's frontend and its mocker: everything is real but the engine's steps and cache, which are simulated.

    Args:
        options: Of the mocker.
        limits: Further environment of the mocker.
    """
    python, port = str(engines / "dynamo" / "bin" / "python"), free_port()
    url, trace = f"http://127.0.0.1:{port}", directory / "requests.jsonl"
    (directory / "home").mkdir()
    environment = {
        "HOME": str(directory / "home"),
        "HF_HUB_OFFLINE": "1",
        "DYN_LOG": "warn",
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(directory / "discovery"),
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
        "DYN_REQUEST_TRACE": "1",
        "DYN_REQUEST_TRACE_FILE_FORMAT": "jsonl",
        "DYN_REQUEST_TRACE_FILE_PATH": str(trace),
        "DYN_REQUEST_TRACE_FILE_FLUSH_INTERVAL_MS": "50",
    }
    hosts = ("EVENT_PLANE", "TCP_RPC", "TCP_RESPONSE_STREAM", "SYSTEM")
    environment |= {f"DYN_{name}_HOST": "127.0.0.1" for name in hosts}
    frontend_log, mocker_log = directory / "frontend.log", directory / "mocker.log"
    frontend = ["-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port)]
    frontend += ["--router-mode", "kv", "--enable-anthropic-api"]
    mocker = ["-m", "dynamo.mocker", "--model-path", str(model), "--model-name", MODEL, "--num-workers", "1"]
    mocker += ["--block-size", "16", "--max-model-len", "16384"]
    with (
        process([python, *frontend], frontend_log, environment),
        process([python, *mocker, *options], mocker_log, environment | dict(limits or {})),
    ):
        wait_for(f"{url}/v1/models", f'"{MODEL}"', mocker_log)
        yield Running(url=url, metrics_url=f"{url}/metrics", request_trace=trace)
