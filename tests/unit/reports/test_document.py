import pytest

from reports.document import Beside, Document, Figure, Section, Table, Words

TABLE = Table(
    caption="all",
    columns=("", "n", "p95", "n"),
    rows=(("a", "1", "2", "x"), ("b", "3", "4", "y")),
    has_prose=True,
)


def test_columns_are_taken_by_their_heads():
    table = TABLE.of_columns("p95", "n", rows=1)
    assert (table.caption, table.columns, table.rows) == ("all", ("p95", "n"), (("2", "1"),))
    assert not table.has_prose


def test_prose_stays_prose():
    assert TABLE.of_columns(*TABLE.columns[:1], rows=0).rows == ()
    assert Table(caption="", columns=("", "why"), rows=(), has_prose=True).of_columns("why").has_prose


def test_a_head_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="not in tuple"):
        TABLE.of_columns("p99")


def test_a_document_has_its_figures_in_order():
    left, right, last = (Figure(id=name, title=name) for name in ("left", "right", "last"))
    blocks = (Words(text="first"), Beside(figures=(left, right)))
    document = Document(
        kind="report",
        title="",
        verdict="fine",
        is_fine=True,
        doubts=(),
        headlines=(),
        footer="",
        sections=(Section(id="a", title="A", blocks=blocks), Section(id="b", title="B", blocks=(last,))),
    )
    assert [figure.id for figure in document.figures()] == ["left", "right", "last"]
