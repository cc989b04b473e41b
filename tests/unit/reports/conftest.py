from typing import Any

import pytest

from aitrace.testing import make_run_end, make_run_header
from reports.tables import facts_from_run


@pytest.fixture
def facts_of():
    """Facts of some calls; the header plans just these."""

    def build(calls, *, trace=None, scrapes=(), end: Any = "fine", lines_lost=0, **header):
        header = make_run_header(**{"planned_calls": len(calls), **header})
        ended = make_run_end() if end == "fine" else end
        return facts_from_run(header, ended, calls, list(scrapes), trace, lines_lost=lines_lost)

    return build
