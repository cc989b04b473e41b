"""Pure: the report of a recorded trace as a document."""

from collections import Counter
from datetime import UTC, datetime

from aitrace.quantiles import min_count
from aitrace.units import NS_PER_S
from reports.document import QUANTILES, Beside, Block, Document, Heading, Headline, Pairs, Section, Words
from reports.recorded import figures
from reports.recorded.money_words import cost_headline, money_blocks
from reports.recorded.summary import TraceReport
from reports.recorded.tables import (
    MAX_ROWS,
    break_table,
    class_table,
    growth_table,
    length_table,
    loss_table,
    model_table,
    outcome_table,
    ratio_cell,
    reuse_by_depth_table,
    reuse_by_gap_table,
    reuse_table,
    seconds_cell,
    session_table,
    tells_tools,
    time_table,
    tree_table,
)
from reports.words import NOT_KNOWN, counted, gap_label, text_from_value


def document_of_trace(report: TraceReport) -> Document:
    """Everything to be said about the trace."""
    return Document(
        kind="aitrace report",
        title=report.name,
        verdict=report.verdict,
        is_fine=report.is_fine,
        doubts=report.doubts,
        headlines=headlines(report),
        sections=(
            Section(id="recorded", title="What was recorded", blocks=(Pairs(pairs=about_trace(report)),)),
            Section(id="sessions", title="Sessions and agents", blocks=_session_blocks(report)),
            Section(id="time", title="Where the time goes", blocks=_time_blocks(report)),
            Section(id="gaps", title="Gaps and tools", blocks=_gap_blocks(report)),
            Section(id="growth", title="Prompt growth", blocks=_growth_blocks(report)),
            Section(id="breaks", title="Where prompts part", blocks=_break_blocks(report)),
            Section(id="cache", title="Prefix cache", blocks=_cache_blocks(report)),
            Section(id="tokens", title="Tokens and money", blocks=_token_blocks(report)),
            Section(
                id="outcomes",
                title="Refusals and retries",
                blocks=(outcome_table(report.answers.tables["outcomes"]),),
            ),
            Section(id="timelines", title="Sessions over time", blocks=(figures.timeline(report.answers),)),
        ),
        footer=f"{QUANTILES} Every number is defined in docs/report-trace.md.",
    )


def headlines(report: TraceReport) -> tuple[Headline, ...]:
    """The figures that say in one look what was recorded."""
    numbers = report.answers.numbers
    found = (
        Headline(
            name="sessions",
            value=f"{numbers['sessions_with_calls']:,}",
            note=f"in {counted(len(report.answers.tables['trees']), 'tree')}",
        ),
        Headline(
            name="calls",
            value=f"{numbers['calls']:,}",
            note=f"{numbers['refused_calls']:,} refused · {numbers['failed_calls']:,} failed otherwise",
        ),
        Headline(
            name="prompt tokens",
            value=text_from_value(numbers["prompt_tokens"], ""),
            note=f"longest prompt {text_from_value(numbers['largest_prompt_tokens'], '')} · output "
            f"{text_from_value(numbers['output_tokens'], '')}",
        ),
        Headline(
            name="prompt tokens cached",
            value=ratio_cell(numbers["cache_reported_ratio"]),
            note=f"possible {ratio_cell(numbers['cache_possible_ratio'])}",
        ),
        Headline(
            name="time in tools and sub-agents",
            value=seconds_cell(numbers["tool_gap_s"]),
            note=f"{ratio_cell(numbers['tool_gap_ratio'])} of the sessions' time",
        ),
        Headline(
            name="prompts that broke the prefix",
            value=f"{numbers['prefix_breaks']:,} of {numbers['compared_prompts']:,}",
            note=f"{text_from_value(numbers['prefix_lost_tokens'], 'tokens')} lost",
        ),
    )
    return (*found, *cost_headline(report.answers))


def about_trace(report: TraceReport) -> tuple[tuple[str, str], ...]:
    """What the trace is: name and value."""
    header, numbers = report.trace.header, report.answers.numbers
    when = (
        NOT_KNOWN
        if header.clock_unix_ns is None
        else datetime.fromtimestamp(header.clock_unix_ns // NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M UTC")
    )
    capture = "" if header.capture is None else f", {header.capture} proxy"
    return (
        ("source", f"{header.source or NOT_KNOWN}{capture}"),
        ("sessions of", _harnesses(report)),
        ("written by", header.producer),
        ("clock begins", when),
        ("sizes", f"in {header.unit}, blocks of {header.block_size:,}"),
        ("data", header.attribution or NOT_KNOWN),
        ("reasoning tokens", text_from_value(numbers["reasoning_tokens"], "")),
        ("tool calls", text_from_value(numbers["tool_calls"], "")),
        ("run time of tools, where told", seconds_cell(numbers["tool_run_s"])),
    )


def survival_sentence(report: TraceReport) -> str | None:
    """The share of calls that found their prefix after the longest gaps that enough calls follow; None without any."""
    rows = [
        row for row in report.answers.tables["cache_survival"] if int(row["calls"] or 0) >= min_count(0.9)
    ]
    if not rows:
        return None
    row = rows[-1]
    low, high = (ratio_cell(row[f"survived_{end}_ratio"]) for end in ("low", "high"))
    return (
        f"After gaps of {gap_label(row['gap_from_s'], row['gap_to_s'])}, {ratio_cell(row['survived_ratio'])} of calls found "
        f"their session's prefix in the cache (95 % interval {low} to {high}, n = {row['calls']:,})."
    )


def _harnesses(report: TraceReport) -> str:
    names = Counter(
        " ".join(filter(None, (session.harness, session.harness_version))) or "an unknown harness"
        for session in report.trace.sessions
    )
    return ", ".join(f"{name} ({count:,})" for name, count in names.most_common()) or NOT_KNOWN


def _session_blocks(report: TraceReport) -> tuple[Block, ...]:
    tables = report.answers.tables
    with_agents = [row for row in tables["trees"] if int(row["sessions"] or 0) > 1]
    blocks: list[Block] = [session_table(tables["sessions"], limit=MAX_ROWS)]
    if with_agents:
        blocks += [Heading(text="Trees with sub-agents"), tree_table(with_agents)]
    return (*blocks, figures.in_flight(report.answers))


def _time_blocks(report: TraceReport) -> tuple[Block, ...]:
    return (figures.time_shares(report.answers), time_table(report.answers.tables["time_by_state"]))


def _gap_blocks(report: TraceReport) -> tuple[Block, ...]:
    tables = report.answers.tables
    blocks: list[Block] = [
        length_table(
            tables["gap_lengths_by_cause"],
            "cause",
            "Per call the gap after the end of what it waited for last; below 0 if it began before that end.",
        ),
        figures.gap_ecdf(report.answers),
    ]
    if tells_tools(tables["gap_lengths_by_tool"]):
        caption = "By the tools that the answer before called. A gap is no run time: clients start tools while the answer streams."
        blocks += [Heading(text="Tool gaps"), length_table(tables["gap_lengths_by_tool"], "tool", caption)]
    if tables["tool_times"]:
        caption = "As the client tells it; n: tool calls with a time. Tools of one answer may overlap."
        blocks += [
            Heading(text="How long tools ran"),
            length_table(tables["tool_times"], "tool", caption, has_calls=True),
        ]
    return tuple(blocks)


def _growth_blocks(report: TraceReport) -> tuple[Block, ...]:
    return (
        Beside(figures=(figures.prompt_growth(report.answers), figures.new_by_turn(report.answers))),
        growth_table(report),
    )


def _break_blocks(report: TraceReport) -> tuple[Block, ...]:
    tables = report.answers.tables
    blocks: list[Block] = [
        Words(
            text="Each prompt is compared with the one before it in its session's conversation. Auxiliary calls, retries "
            "and prompts whose start was not seen are left out."
        ),
        class_table(tables["prefix_by_class"]),
    ]
    if tables["prefix_breaks"]:
        blocks.append(Heading(text="The breaks that lost most"))
        blocks.append(break_table(tables["prefix_breaks"], report.trace.header.unit))
    return tuple(blocks)


def _cache_blocks(report: TraceReport) -> tuple[Block, ...]:
    answers, tables = report.answers, report.answers.tables
    blocks: list[Block] = [reuse_table(report)]
    if report.trace.header.block_scope == "tree":
        blocks.append(
            Words(
                text="The source cannot tell equal content in two trees, so nothing is possible between trees here."
            )
        )
    written = [(name, answers.numbers[f"cache_write_{name}_tokens"]) for name in ("5m", "1h")]
    if any(value is not None for _, value in written):
        pairs = (
            (f"written to the cache, kept {name}", text_from_value(value, "tokens"))
            for name, value in written
        )
        blocks.append(Pairs(pairs=tuple(pairs)))
    if tables["cache_lost_by_reason"]:
        blocks.append(loss_table(tables["cache_lost_by_reason"]))
    blocks.append(Heading(text="Does the prefix survive the gap?"))
    sentence = survival_sentence(report)
    if sentence is not None:
        blocks.append(Words(text=sentence, tone="finding"))
    blocks += [
        Beside(figures=(figures.cache_survival(answers), figures.cache_by_turn(answers))),
        reuse_by_gap_table(tables["cache_by_gap"]),
        Heading(text="By depth of the agent"),
        reuse_by_depth_table(tables["cache_by_depth"]),
    ]
    return tuple(blocks)


def _token_blocks(report: TraceReport) -> tuple[Block, ...]:
    return (model_table(report.answers.tables["tokens_by_model"]), *money_blocks(report.answers))
