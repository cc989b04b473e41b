"""I/O: records the scenario `session` with each client and writes the traces that ship in examples/.

AITRACE_CLIENTS=.clients/node_modules .venv/bin/python tests/clients/write_examples.py examples
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from clients import ClientName, Setting, run
from scenarios import SCENARIOS

EXAMPLES: dict[ClientName, str] = {
    "claude": "recorded-claude-code.aitrace",
    "codex-ws": "recorded-codex.aitrace",
    "opencode": "recorded-opencode.aitrace",
}


def main(target: Path) -> None:
    """Write one trace for each client."""
    for client, name in EXAMPLES.items():
        with tempfile.TemporaryDirectory() as folder:
            setting = Setting(
                client=client,
                mode="forward",
                scenario=SCENARIOS["session"],
                folder=Path(folder) / "run",
                binaries=Path(os.environ["AITRACE_CLIENTS"]).resolve(),
            )
            finished = run(setting)
            if finished.status != 0 or finished.problems:
                sys.exit(
                    f"{client}: exit status {finished.status}: {finished.problems or finished.stderr[-2000:]}"
                )
            shutil.copyfile(setting.trace, target / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
