# Every target sets itself up: a virtual environment with pinned packages, then the job.
#   make PYTHON=python3.13 VENV=.venv-3.13 test     another interpreter, beside the first

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= out
# Test processes: twice the cores, since most of the time of the tests in tests/e2e is waiting.
JOBS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))

.PHONY: demo test lint types unit modules alone test-clients test-engines test-engine-llama test-engine-smg test-engine-dynamo \
	coverage bench docs format clean

# Exit code 1 says that the run is in doubt, as on a busy machine: the report has been written and says why.
demo: $(VENV)/installed
	$(BIN)/aitrace demo -o $(OUT)/demo --force || { [ $$? -eq 1 ] && [ -f $(OUT)/demo/report.html ]; }

test: lint types unit alone

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed
	$(BIN)/mypy

# By file, in the order of their names: tests/e2e, which has the longest, comes first, and what a file shares is made once.
unit: $(VENV)/installed
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not alone"

# The same without tests/e2e: what depends on the version of Python is in the modules, not between processes.
modules: $(VENV)/installed
	$(BIN)/pytest -n $(JOBS) -m "not alone" tests/unit tests/property

# Tests that compare clocks of two processes: nothing else may run beside them.
alone: $(VENV)/installed
	$(BIN)/pytest -m alone

# The real Claude Code, Codex and OpenCode, installed from npm below .clients/ (1.2 GB), recorded against a scripted
# endpoint on loopback: about five minutes on two busy cores. Without npm or the packages it says so and does nothing,
# which is an error only if REQUIRE_CLIENTS is set.
test-clients: $(VENV)/installed
	tests/clients/run $(BIN)/pytest

# Real engines, installed below .engines/ and checked against what a replay says of them: llama-server from Debian (90 MB,
# half a minute), SMG in front of two of them (150 MB more), Dynamo's frontend with its mocker (700 MB). Where one cannot
# be had it says so and does nothing, which is an error only if REQUIRE_ENGINES is set. vLLM by hand: docs/engines-real.md.
test-engines: test-engine-llama test-engine-smg test-engine-dynamo

test-engine-llama test-engine-smg test-engine-dynamo: test-engine-%: $(VENV)/installed
	tests/engines/run $* $(BIN)/pytest

# Branch coverage of the unit tests. Not part of `test`: it doubles their time, and what is missing is for a reader to judge.
coverage: $(VENV)/installed
	$(BIN)/pytest -n auto -q --cov --cov-branch --cov-report=term:skip-covered tests/unit tests/property

# Not part of `test`: numbers of a busy machine fail nobody. About sixteen minutes; docs/performance.md has the results, and
# how to give bench/peers.py other load generators.
bench: $(VENV)/installed
	$(BIN)/python bench/commands.py
	$(BIN)/python bench/replay.py
	$(BIN)/python bench/record.py
	$(BIN)/python bench/report.py
	$(BIN)/python bench/peers.py --rounds 1

# The tables of docs/metrics.md, from the definitions.
docs: $(VENV)/installed
	$(BIN)/python -m reports.metrics_page docs/metrics.md

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(OUT)

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("aitrace needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@
