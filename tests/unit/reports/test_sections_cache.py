import pytest

from aitrace.testing import TraceBuilder, make_call_result
from aitrace.units import NS_PER_S
from reports.cache.text import CAUSE_MEANINGS, CAUSE_NAMES
from reports.sections.cache import cache_notes, cache_section, cache_table, gap_table, loss_table, place_table
from reports.summary import report_from_facts
from reports.tables import facts_from_run
from reports.testing import make_up_run


@pytest.fixture
def report_of(facts_of):
    return lambda calls, **options: report_from_facts(facts_of(calls, **options))


@pytest.fixture(scope="module")
def made_up():
    run = make_up_run(trees=6, calls=12)
    return report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))


def test_each_hit_rate_has_numerator_denominator_and_share():
    run = make_up_run(trees=3, calls=6)
    report = report_from_facts(facts_from_run(run.header, run.end, run.calls, run.scrapes, run.trace))
    numbers = report.answers.numbers
    row = cache_table(report.answers).rows[0]
    assert row[1:3] == (f"{numbers['cache_reported_tokens']:,}", f"{numbers['cache_input_tokens']:,}")
    assert row[3] == f"{numbers['cache_reported_ratio']:.1%}".replace("%", " %")


@pytest.mark.parametrize(
    ("header", "run", "words"),
    [
        ({"block_scope": "tree"}, {}, "cannot tell equal content in two trees"),
        ({"unit": "bytes"}, {}, "shares of bytes"),
        ({}, {"history": "live"}, "kept its own answers"),
        ({"block_size": 512}, {}, "blocks of 512 tokens"),
    ],
)
def test_notes_tell_what_the_bound_does_not_know(report_of, header, run, words):
    builder = TraceBuilder(**header)
    builder.call(builder.session())
    notes = cache_notes(report_of([make_call_result()], trace=builder.trace(), **run))
    assert any(words in note for note in notes)


def test_shared_system_prompts_leave_no_note_on_trees(report_of):
    builder = TraceBuilder(block_scope="tree")
    builder.call(builder.session())
    notes = cache_notes(report_of([make_call_result()], trace=builder.trace(), share_system=True))
    assert not any("two trees" in note for note in notes)


def test_gap_rows_have_shares_where_they_are_known(report_of):
    rows = gap_table(report_of([make_call_result(0)])).rows
    assert rows == (("first call of a tree", "–", "1", "1,000", "–", "–", "–", "–"),)


@pytest.mark.parametrize(
    ("scale", "cells"),
    [(1.0, ("10 s – 1 min",)), (0.1, ("6 s – 30 s", "1 min – 5 min")), (0.0, ("any",))],
)
def test_gaps_that_were_scaled_are_told_as_played_and_as_recorded(report_of, scale, cells):
    call = make_call_result(0, turn_index=1, gap_cause="tool", gap_ns=int(12 * NS_PER_S * bool(scale)))
    table = gap_table(report_of([call], time_scale=scale))
    assert table.rows[0][: 1 + len(cells)] == ("after a tool gap", *cells)
    assert ("gap in the recording" in table.columns) == (len(cells) == 2)
    assert len(table.columns) == len(table.rows[0])


def parts(section):
    """Ids of the figures under each heading."""
    found, current = {}, None
    for block in section.blocks:
        if block.kind == "heading":
            current = found.setdefault(block.id, [])
        elif current is not None and block.kind in ("figure", "beside"):
            current += [figure.id for figure in getattr(block, "figures", (block,))]
    return found


def test_each_question_stands_above_its_figures(made_up):
    assert parts(cache_section(made_up)) == {
        "gaps": ["cache-survival", "cache-gap"],
        "losses": ["cache-losses"],
        "cache-model": ["cache-capacity", "cache-lifetime"],
        "cache-places": ["cache-turn", "cache-depth"],
    }


def test_without_a_trace_only_what_calls_tell_is_asked(report_of):
    section = cache_section(report_of([make_call_result()]))
    assert parts(section) == {"gaps": ["cache-gap"], "cache-places": ["cache-turn"]}
    question = next(block for block in section.blocks if block.kind == "heading")
    assert question.text == "Does the prefix survive the gap?"


def test_findings_stand_out_and_follow_their_question(made_up):
    blocks = cache_section(made_up).blocks
    findings = [block.text for block in blocks if block.kind == "words" and block.tone == "finding"]
    assert [finding.partition(" ")[0] for finding in findings][-2:] == ["Whatever", "A"]
    assert any("had been sent before and were lost" in finding for finding in findings)
    assert any("of prefixes survive" in finding for finding in findings)


def test_losses_have_a_row_for_every_cause_with_its_meaning(made_up):
    table = loss_table(made_up)
    assert [row[0] for row in table.rows] == list(CAUSE_NAMES.values())
    assert [row[-1] for row in table.rows] == list(CAUSE_MEANINGS.values())
    tokens = sum(int(row[1].replace(",", "")) for row in table.rows)
    assert tokens == made_up.answers.numbers["cache_uncached_tokens"]


def test_places_are_told_by_turn_and_then_by_depth(made_up):
    names = [row[0] for row in place_table(made_up).rows]
    assert names[0] == "call 0"
    assert names[-2:] == ["main agent", "sub-agent, 1 deep"]
