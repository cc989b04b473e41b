"""Starts the server and a program, and reads what all processes of the program cost. Linux only."""

import csv
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

HERE = Path(__file__).parent
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SHOWN_CHARS = 600


@dataclass
class Served:
    """What the server noted of one call, in ns of CLOCK_MONOTONIC."""

    request_id: str
    received_ns: int
    first_ns: int | None
    late_ns: int | None


@dataclass
class Server:
    """A running server."""

    url: str
    log: Path

    def state(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.url}/state", timeout=10) as answer:  # noqa: S310 - our own server
            return orjson.loads(answer.read())

    def served(self) -> list[Served]:
        """To be read when the server has ended."""
        with self.log.open() as stream:
            return [
                Served(
                    row["request_id"],
                    *(int(row[name] or 0) or None for name in ("received_ns", "first_ns", "late_ns")),
                )
                for row in csv.DictReader(stream)
            ]


@contextmanager
def serve(folder: Path, *, core: int | None = None, **pace: float) -> Iterator[Server]:
    """A server at this pace, as its options say it."""
    log = folder / "server.csv"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in pace.items()]
    process = subprocess.Popen(
        [sys.executable, HERE / "server.py", *options, "--log", log], stdout=subprocess.PIPE, text=True
    )
    if core is not None:
        os.sched_setaffinity(process.pid, {core})
    try:
        yield Server(f"http://127.0.0.1:{process.stdout.readline().strip()}", log)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


class Running:
    """A program that runs, with all the processes that it started."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path):
        self.output = folder / "output.txt"
        # What some of them leave in the folder for temporary files goes with ours.
        environment = {**os.environ, "TMPDIR": str(folder), **environment}
        self.started_ns = time.monotonic_ns()
        self.usage = None
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        if self.usage is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode, self.usage = os.waitstatus_to_exitcode(status), usage
        return self.usage is not None

    def wait(self, limit_s: float) -> float | None:
        """CPU seconds of the program and all it waited for; None if it had to be ended."""
        limit = time.monotonic() + limit_s
        while not self.has_ended():
            if time.monotonic() > limit:
                self.kill()
                return None
            time.sleep(0.02)
        return self.usage.ru_utime + self.usage.ru_stime

    def members(self) -> list[int]:
        """Its process ids: those of its session, and all children of these."""
        stats = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (fields := stat_fields(int(entry.name))):
                stats[int(entry.name)] = fields
        found = {pid for pid, fields in stats.items() if int(fields[3]) == self.process.pid}
        while more := {pid for pid, fields in stats.items() if int(fields[1]) in found} - found:
            found |= more
        return sorted(found)

    def cpu_s(self) -> float:
        """CPU seconds until now, children that ended included."""
        if self.has_ended():
            return self.usage.ru_utime + self.usage.ru_stime
        every = [fields for pid in self.members() if (fields := stat_fields(pid))]
        return sum(int(value) for fields in every for value in fields[11:15]) * TICK_S

    def memory_kb(self) -> int:
        """Memory of all processes, what they share counted once (PSS)."""
        return sum(map(pss_kb, self.members()))

    def kill(self) -> None:
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        while not self.has_ended():
            time.sleep(0.01)

    def last_words(self) -> str:
        return self.output.read_text(errors="replace")[-SHOWN_CHARS:]


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; None if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def pss_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
