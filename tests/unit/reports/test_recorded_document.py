"""The document of a recorded trace."""

from aitrace.schema import Dependency, ToolCall, Usage
from aitrace.testing import TraceBuilder, make_trace
from reports.recorded.document import about_trace, document_of_trace, headlines, survival_sentence
from reports.recorded.prices import Prices
from reports.recorded.summary import report_from_trace

S = 10**9
SECTIONS = [
    "recorded",
    "sessions",
    "time",
    "gaps",
    "growth",
    "breaks",
    "cache",
    "tokens",
    "outcomes",
    "timelines",
]


def kinds(document, section):
    (found,) = (one for one in document.sections if one.id == section)
    return [block.kind for block in found.blocks]


def test_a_trace_without_calls_has_every_section():
    document = document_of_trace(report_from_trace(TraceBuilder().trace(), "x.aitrace"))
    assert [section.id for section in document.sections] == SECTIONS
    assert (document.title, document.is_fine) == ("x.aitrace", False)


def test_ids_of_figures_and_sections_differ():
    document = document_of_trace(report_from_trace(make_trace(2, 3), "x"))
    ids = [figure.id for figure in document.figures()] + [section.id for section in document.sections]
    assert len(ids) == len(set(ids))


def test_what_a_trace_lacks_has_no_table():
    document = document_of_trace(report_from_trace(make_trace(2, 3), "x"))
    assert kinds(document, "sessions") == ["table", "figure"]
    assert kinds(document, "gaps") == ["table", "figure"]
    assert kinds(document, "breaks") == ["words", "table"]
    assert kinds(document, "tokens") == ["table"]


def full():
    builder = TraceBuilder(
        block_size=10,
        block_scope="tree",
        clock_unix_ns=1_700_000_000 * S,
        capture="reverse",
        source="recorder",
    )
    for _ in range(2):
        main = builder.session(harness="codex", harness_version="0.171.0")
        tools = (ToolCall(name="Bash", duration_ns=S),)
        usage = Usage(input_tokens=2000, cache_read_tokens=0, cache_write_5m_tokens=9)
        last = builder.call(main, [builder.segment(2000)], usage=usage, tool_calls=tools)
        for _ in range(12):
            wait = Dependency(call=last, relation="sequence", gap_ns=2 * S, cause="tool")
            usage = Usage(input_tokens=2000, cache_read_tokens=1800)
            last = builder.call(main, after=[wait], usage=usage, tool_calls=tools)
        builder.call(main, [builder.segment(5)], keep=0)
        builder.call(builder.session(parent=main), [builder.segment(5)])
    return builder.trace()


def test_what_a_trace_has_is_shown():
    report = report_from_trace(full(), "x", Prices(by_model={"*": {"input": 1, "output": 1}}))
    document = document_of_trace(report)
    assert kinds(document, "sessions") == ["table", "heading", "table", "figure"]
    assert kinds(document, "gaps") == ["table", "figure", "heading", "table", "heading", "table"]
    assert kinds(document, "breaks") == ["words", "table", "heading", "table"]
    assert kinds(document, "cache")[:6] == ["table", "words", "pairs", "table", "heading", "words"]
    assert "pairs" in kinds(document, "tokens")


def test_the_sentence_on_gaps_needs_20_calls():
    sentence = survival_sentence(report_from_trace(full(), "x"))
    assert sentence.startswith(
        "After gaps of 1 s – 10 s, 100.0 % of calls found their session's prefix in the cache"
    )
    assert sentence.endswith("n = 24).")
    assert survival_sentence(report_from_trace(make_trace(2, 3), "x")) is None


def test_headlines_end_with_the_cost_if_there_are_prices():
    names = [it.name for it in headlines(report_from_trace(full(), "x"))]
    priced = [it.name for it in headlines(report_from_trace(full(), "x", Prices(by_model={})))]
    assert priced == [*names, "cost"]


def test_where_a_trace_comes_from():
    about = dict(about_trace(report_from_trace(full(), "x")))
    assert (about["source"], about["clock begins"]) == ("recorder, reverse proxy", "2023-11-14 22:13 UTC")
    assert about["sessions of"] == "codex 0.171.0 (2), an unknown harness (2)"
    about = dict(about_trace(report_from_trace(TraceBuilder().trace(), "x")))
    assert (about["source"], about["clock begins"], about["sessions of"]) == ("–", "–", "–")
