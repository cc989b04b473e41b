import pytest

from aitrace.results import Calibration
from aitrace.testing import TraceBuilder, make_call_result
from reports.sections.run import what_was_run
from reports.summary import report_from_facts


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


def test_a_run_says_what_was_run(report_of):
    report = report_of([make_call_result()], options={"concurrency": 4}, open_loop=False, time_scale=0.25)
    run = dict(what_was_run(report))
    assert run["arrival"] == "4 lanes, each plays one tree after another"
    assert run["time scale of gaps"] == "× 0.25"
    assert run["started"] == "2023-11-14 22:13:20 UTC"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"open_loop": False, "options": {"concurrency": 1}}, "1 lane, plays one tree after another"),
        ({"open_loop": False, "options": {}}, "lanes, each plays one tree after another"),
        ({"open_loop": True, "options": {"arrival": "fixed:1/s"}}, "trees start by the clock (fixed:1/s)"),
        ({"open_loop": True, "options": {}}, "trees start by the clock"),
    ],
)
def test_how_trees_began_is_told_in_words(report_of, header, words):
    assert dict(what_was_run(report_of([make_call_result()], **header)))["arrival"] == words


@pytest.mark.parametrize(
    ("ratio", "overhead", "words"),
    [(1.0, 5.0, "1 token per word, 5 tokens per request"), (1.25, 1.0, "1.25 tokens per word, 1 token per")],
)
def test_one_token_has_no_plural(report_of, ratio, overhead, words):
    calibration = Calibration(
        tokens_per_word=ratio, request_overhead_tokens=overhead, source="probe", output_forced=True
    )
    run = dict(what_was_run(report_of([make_call_result()], calibration=calibration)))
    assert run["prompt sizes"].startswith(words)


def test_the_seed_of_texts_is_told_where_the_run_knows_it(report_of):
    assert dict(what_was_run(report_of([make_call_result()], text_seed=7)))["seed of texts"] == "7"
    assert "seed of texts" not in dict(what_was_run(report_of([make_call_result()])))


def test_whose_data_a_trace_is_is_told(report_of):
    builder = TraceBuilder(attribution="somebody")
    builder.call(builder.session())
    assert (
        dict(what_was_run(report_of([make_call_result()], trace=builder.trace())))["source of the trace"]
        == "somebody"
    )
