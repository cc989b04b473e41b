"""What several files of end-to-end tests start."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import orjson
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import Run, read_run
from aitrace.schema import Trace
from aitrace.store import write_trace
from replayer.engine.options import EngineOptions
from replayer.engine.record import EngineRecord
from replayer.engine.testing import engine_on_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A trace that was played and reported on, and what the engine knows of it."""

    summary: dict
    """What `aitrace replay --json` said."""
    run: Run
    """What it left behind."""
    report: dict
    """What `aitrace report --json` made of that."""
    log: dict[str, list[EngineRecord]]
    """The engine's lines by request id, those of each in the order in which they arrived; without the probes."""
    metrics: dict[str, float]
    """The engine's counters at the end."""
    probes: list[EngineRecord]
    """The lines of what was asked before the run."""

    @property
    def numbers(self) -> dict:
        return self.report["numbers"]

    @property
    def lines(self) -> list[EngineRecord]:
        return [line for lines in self.log.values() for line in lines]

    @property
    def last_lines(self) -> dict[str, EngineRecord]:
        return {id_: lines[-1] for id_, lines in self.log.items()}


@pytest.fixture
def play(tmp_path) -> Callable[..., Played]:
    """Plays a trace against an engine in this process, over the network, and reports on it."""

    directories = (tmp_path / f"run{number or ''}" for number in count())

    def play_against(trace: Trace, engine: EngineOptions, *options: str) -> Played:
        path, directory = tmp_path / "trace.aitrace", next(directories)
        write_trace(path, trace)
        given = ["--workers", "1", "--identity", "affinity", "--max-lateness", "5000", "--json", *options]
        if "--protocol" not in options:
            given += ["--protocol", "chat"]
        with engine_on_thread(engine) as target:
            arguments = ["replay", str(path), "--url", target.url, "-o", str(directory), *given]
            replayed = CliRunner().invoke(main, arguments, catch_exceptions=False)
            assert replayed.exit_code in (0, 1), replayed.output
            metrics = target.metrics()
        reported = CliRunner().invoke(main, ["report", str(directory), "--json", "--no-html"])
        assert reported.exit_code in (0, 1), reported.output
        records = sorted(target.records, key=lambda record: record.head_ns)
        log: dict[str, list[EngineRecord]] = {}
        for record in records:
            if record.request_id is not None:
                log.setdefault(record.request_id, []).append(record)
        return Played(
            summary=orjson.loads(replayed.stdout),
            run=read_run(directory),
            report=orjson.loads(reported.stdout),
            log=log,
            metrics=metrics,
            probes=[record for record in records if record.request_id is None],
        )

    return play_against


@pytest.fixture
def engine_url(tmp_path):
    """An engine in a process of its own, with its log."""
    options = ["--prefill-rate", "unlimited", "--decode-rate", "200", "--log", str(tmp_path / "log")]
    process = subprocess.Popen(
        [sys.executable, "-m", "aitrace", "engine", "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process.stdout.readline().removeprefix("listening on ").strip()
    process.kill()
    process.wait()
    process.stdout.close()
