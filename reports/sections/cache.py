"""Pure: the prefix cache: three ways, whether prefixes survive, why they are lost, and what another size would do."""

from reports.answers import Answers
from reports.bucket_text import turn_label
from reports.cache.charts import (
    by_depth,
    by_turn,
    capacity_curve,
    depth_label,
    lifetime_curve,
    loss_bars,
    survival_curve,
)
from reports.cache.gap_text import gap_finding, gap_scale
from reports.cache.text import (
    CAUSE_MEANINGS,
    CAUSE_NAMES,
    curve_finding,
    lifetime_finding,
    losses_finding,
    model_notes,
    rule_finding,
    survival_finding,
)
from reports.document import Beside, Block, Heading, Section, Table, Words
from reports.figures.charts import cache_by_gap, cache_three_ways
from reports.metric import Row
from reports.metrics import METRICS
from reports.sections.cells import cell_text, share_text
from reports.summary import Report
from reports.words import KIND_NAMES, gap_label, text_from_value


def cache_section(report: Report) -> Section:
    """Hit rates three ways and by place, survival by gap and idle time, losses by cause, and the curves of the model."""
    blocks: list[Block] = [cache_table(report.answers)]
    blocks += [Words(text=note) for note in cache_notes(report)]
    blocks += [cache_three_ways(report), *_gaps(report), *_losses(report), *_curves(report), *_places(report)]
    return Section(id="cache", title="Prefix cache", blocks=tuple(blocks))


def _gaps(report: Report) -> list[Block]:
    blocks: list[Block] = [Heading(text="Does the prefix survive the gap?", id="gaps")]
    findings = (survival_finding(report), gap_finding(report))
    blocks += [Words(text=finding, tone="finding") for finding in findings if finding is not None]
    scale, gaps = gap_scale(report), gap_table(report)
    if scale is not None:
        blocks.append(Words(text=scale))
    if report.answers.tables["cache_survival"]:
        blocks.append(survival_curve(report))
    blocks.append(cache_by_gap(report))
    if gaps.rows:
        blocks.append(gaps)
    return blocks


def _losses(report: Report) -> list[Block]:
    if not report.answers.tables["cache_losses"]:
        return []
    blocks: list[Block] = [Heading(text="Why were prompt tokens not cached?", id="losses")]
    findings = (losses_finding(report), rule_finding(report))
    blocks += [Words(text=finding, tone="finding") for finding in findings if finding is not None]
    return [*blocks, loss_bars(report), loss_table(report)]


def _curves(report: Report) -> list[Block]:
    findings = [text for text in (curve_finding(report), lifetime_finding(report)) if text is not None]
    if not findings:
        return []
    return [
        Heading(text="What would a cache of another size or lifetime have had?", id="cache-model"),
        *(Words(text=finding, tone="finding") for finding in findings),
        *(Words(text=note, tone="note") for note in model_notes(report)),
        Beside(figures=(capacity_curve(report), lifetime_curve(report))),
    ]


def _places(report: Report) -> list[Block]:
    """By turn and depth; the figure of depths only where there are sub-agents."""
    depths = report.answers.tables["cache_by_depth"]
    figures = (by_turn(report), by_depth(report))
    heading = Heading(text="By turn and by agent", id="cache-places")
    if len(depths) < 2:
        return [heading, figures[0], place_table(report)]
    return [heading, Beside(figures=figures), place_table(report)]


def loss_table(report: Report) -> Table:
    """Every cause with tokens, what it means and how many calls it touched."""
    return Table(
        caption=f"{METRICS['cache_losses'].formula}.",
        columns=("cause", "tokens", "share", "calls", "meaning"),
        rows=tuple(
            (
                CAUSE_NAMES[str(row["cause"])],
                *(cell_text(row[key], key) for key in ("tokens", "uncached_ratio", "calls")),
                CAUSE_MEANINGS[str(row["cause"])],
            )
            for row in report.answers.tables["cache_losses"]
        ),
        has_prose=True,
    )


def place_table(report: Report) -> Table:
    """Rows by turn, then by depth."""
    tables = report.answers.tables
    named = [(turn_label(row), row) for row in tables["cache_by_turn"]]
    named += [(depth_label(row), row) for row in tables["cache_by_depth"]]
    keys = ("calls", "input_tokens", "reported_tokens", "bound_tokens", "reported_ratio", "bound_ratio")
    return Table(
        caption=f"{METRICS['cache_calls'].population}: by the call's place in its session, then by the agents above its own.",
        columns=(
            "",
            "calls",
            "prompt tokens",
            "reported",
            "unlimited cache",
            "reported share",
            "unlimited share",
        ),
        rows=tuple((name, *(cell_text(row[key], key) for key in keys)) for name, row in named),
    )


def cache_table(answers: Answers) -> Table:
    """Numerator, denominator and ratio of each of the three."""
    numbers = answers.numbers
    total = numbers["cache_input_tokens"]
    engine = numbers["engine_query_tokens"]
    rows = [
        ("reported by the API", numbers["cache_reported_tokens"], total),
        ("counted by the engine", numbers["engine_hit_tokens"], engine),
        ("unlimited cache", numbers["cache_bound_tokens"], total),
        ("… within the session", numbers["cache_bound_session_tokens"], total),
        ("… between agents of a tree", numbers["cache_bound_tree_tokens"], total),
        ("… between trees", numbers["cache_bound_other_tokens"], total),
        ("possible, not served from cache", numbers["cache_lost_tokens"], total),
    ]
    return Table(
        caption=f"{METRICS['cache_calls'].population}: n = {text_from_value(numbers['cache_calls'], '')}; "
        "engine: all requests it served between the first and the last reading; possible, not served: unlimited "
        "cache less reported.",
        columns=("", "tokens", "of tokens", "share"),
        rows=tuple(
            (name, text_from_value(part, ""), text_from_value(whole, ""), share_text(part, whole))
            for name, part, whole in rows
        ),
    )


def gap_table(report: Report) -> Table:
    """Rows by kind of call and gap; the gap in the recording has a column of its own where it was another."""
    scale = report.facts.header.time_scale
    is_scaled = scale not in (0, 1)
    counts_and_shares = (
        "calls", "input_tokens", "reported_tokens", "bound_tokens", "reported_ratio", "bound_ratio",
    )  # fmt: skip
    return Table(
        caption="Sub-agents and trees begin with a prompt of their own; no gap of theirs is to be survived.",
        columns=(
            "call",
            "gap as played",
            *(("gap in the recording",) if is_scaled else ()),
            "calls",
            "prompt tokens",
            "reported",
            "unlimited cache",
            "reported share",
            "unlimited share",
        ),
        rows=tuple(
            (
                KIND_NAMES[str(row["kind"])],
                gap_label(row["gap_from_s"], row["gap_to_s"]),
                *((_recorded_gap(row, scale),) if is_scaled else ()),
                *(cell_text(row[key], key) for key in counts_and_shares),
            )
            for row in report.answers.tables["cache_by_gap"]
        ),
    )


def _recorded_gap(row: Row, scale: float) -> str:
    low, high = (
        None if row[border] is None else float(row[border] or 0) / scale
        for border in ("gap_from_s", "gap_to_s")
    )
    return gap_label(low, high)


def cache_notes(report: Report) -> tuple[str, ...]:
    """What must be known to read the hit rates."""
    trace = None if report.facts.trace is None else report.facts.trace.header
    notes = [
        (
            "The bound is what a cache without limits could have served, had every prompt been reusable from the moment "
            "it was sent. What it had and the endpoint did not serve from its cache is what eviction, routing, block "
            "alignment and overlap in time cost."
        )
    ]
    if trace is not None:
        notes.append(
            f"Prefixes are matched in the trace's blocks of {trace.block_size:,} {trace.unit}; what two prompts share "
            "of the block in which they part is not counted."
        )
        if trace.block_scope == "tree" and not report.facts.header.share_system:
            notes.append(
                "The trace's source cannot tell equal content in two trees, so the bound has nothing between trees; "
                "real trees of one harness share tools and system prompt (see --share-system of the replay)."
            )
        if trace.unit == "bytes":
            notes.append("Shares of prompts are shares of bytes, applied to the tokens of each call.")
    if report.facts.header.history == "live":
        notes.append(
            "History is live: the endpoint may have kept its own answers, which the bound does not count."
        )
    return tuple(notes)
