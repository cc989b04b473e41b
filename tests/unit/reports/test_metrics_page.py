from pathlib import Path

import pytest

from reports.metrics import METRICS
from reports.metrics_page import with_tables

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_page_has_the_definitions_of_the_program():
    """`make docs` brings it up to date."""
    assert with_tables(PAGE) == PAGE


def test_every_number_is_on_the_page():
    assert [name for name in METRICS if f"| `{name}` |" not in PAGE] == []


def test_a_page_without_a_place_for_a_table_is_not_silently_left_as_it_is():
    with pytest.raises(ValueError, match="0 places for numbers"):
        with_tables(PAGE.replace("<!-- numbers:", "<!-- figures:"))
