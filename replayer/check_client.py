"""I/O: tries the client at a plan's peak against the built-in engine, both as processes of their own on this machine."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from aitrace.errors import EXIT_IN_DOUBT, EXIT_OK
from aitrace.results import ClientCheck
from aitrace.runstore import read_run
from aitrace.schema import ProtocolName
from aitrace.store import write_trace
from replayer.client_check import TrialLoad, check_from_trial, trial_load, trial_trace
from replayer.planning.peak import Peak

_AITRACE = (sys.executable, "-m", "aitrace")
_LISTENING = "listening on "
_BATCH = "100000"
_ERROR_CHARS = 300


class TrialError(Exception):
    """A trial that came to nothing; the text says why."""


def check_client(
    peak: Peak, *, protocol: ProtocolName, workers: int, options: Sequence[str] = ()
) -> ClientCheck:
    """What the client's times are worth at this peak, here and now.

    Args:
        options: Further options of the replay.

    Raises:
        TrialError: The engine or the replay could not be started, or no call was complete.
    """
    load = trial_load(peak)
    with tempfile.TemporaryDirectory() as folder:
        trace, run, log = Path(folder, "trial.aitrace"), Path(folder, "run"), Path(folder, "log")
        write_trace(trace, trial_trace(load))
        with _engine(load, log) as url:
            _replay(
                [str(trace), "--url", url, "--protocol", protocol, "-o", str(run)],
                ["--arrival", f"fixed:{load.calls_per_s:g}/s", "--workers", str(workers), *options],
            )
        played = read_run(run)
        logged = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    check = None if played.end is None else check_from_trial(load, played.calls, played.end, logged)
    if check is None:
        raise TrialError("no call of it was complete")
    return check


@contextmanager
def _engine(load: TrialLoad, log: Path) -> Iterator[str]:
    options = ["--prefill-rate", "unlimited", "--decode-rate", f"{load.tokens_per_s:g}", "--batch", _BATCH]
    process = subprocess.Popen(
        [*_AITRACE, "engine", "--port", "0", *options, "--log", str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    with process.stdout as stdout:
        try:
            line = stdout.readline().strip()
            if not line.startswith(_LISTENING):
                raise TrialError("the engine could not be started")
            yield line.removeprefix(_LISTENING)
        finally:
            process.terminate()
            process.wait()


def _replay(where: Sequence[str], how: Sequence[str]) -> None:
    fixed = ["--no-metrics", "--no-live", "--retries", "none", "--identity", "none", "--tokens-per-word", "1"]
    done = subprocess.run(
        [*_AITRACE, "replay", *where, *how, *fixed], check=False, capture_output=True, text=True
    )
    if done.returncode not in (EXIT_OK, EXIT_IN_DOUBT):
        raise TrialError(" ".join(done.stderr.split())[-_ERROR_CHARS:])
