"""Pure: money in words and tables."""

from collections.abc import Sequence

from reports.document import Block, Heading, Headline, Pairs, Table
from reports.metric import Row
from reports.recorded.answers import Answers
from reports.recorded.prices import KINDS
from reports.words import NOT_KNOWN, counted

_KIND_NAMES = {
    "input": "prompt, not cached",
    "cache_read": "read from cache",
    "cache_write_5m": "written, 5 min",
    "cache_write_1h": "written, 1 h",
    "output": "output",
}
_SUMS = {
    "cost_usd": "cost",
    "saved_usd": "saved by caching, against prompts paid as input",
    "lost_reuse_usd": "paid for tokens that were possible and not reported as cached",
    "prefix_breaks_usd": "paid for content sent again behind a break, had it been cached",
}


def usd_text(value: float | str | None) -> str:
    """An amount; cents are told apart as far as they matter."""
    if value is None or isinstance(value, str):
        return NOT_KNOWN
    digits = 2 if abs(value) >= 1 or value == 0 else 4
    return f"{'−' if value < 0 else ''}${abs(value):,.{digits}f}"


def cost_headline(answers: Answers) -> tuple[Headline, ...]:
    """What it cost, if prices are given."""
    if answers.money is None:
        return ()
    cost, is_upper = usd_text(answers.numbers["cost_usd"]), bool(answers.numbers["upper_bound_calls"])
    return (
        Headline(
            name="cost",
            value=f"at most {cost}" if is_upper else cost,
            note=f"saved by caching {usd_text(answers.numbers['saved_usd'])} · "
            f"n = {counted(answers.numbers['priced_calls'], 'call')}",
        ),
    )


def money_table(rows: Sequence[Row]) -> Table:
    """Cost by model and kind of token."""
    return Table(
        caption="Calls that report prompt and output tokens, for whose model the price table has what is needed. Calls that "
        "do not report cached tokens are paid as if nothing was cached.",
        columns=("model", "calls", *_KIND_NAMES.values(), "cost", "saved by caching"),
        rows=tuple(
            (
                str(row["model"]),
                f"{row['calls']:,}",
                *(usd_text(row[f"{kind}_usd"]) for kind in KINDS),
                usd_text(row["cost_usd"]),
                usd_text(row["saved_usd"]),
            )
            for row in rows
        ),
    )


def session_cost_table(rows: Sequence[Row], limit: int) -> Table:
    """Sessions by their cost."""
    caption = f"The {limit} that cost most of {counted(len(rows), 'session')}." if len(rows) > limit else ""
    return Table(
        caption=caption,
        columns=("session", "agent", "harness", "priced calls", "cost"),
        rows=tuple(
            (
                str(row["session"]),
                str(row["agent"] or (NOT_KNOWN if row["depth"] else "main")),
                str(row["harness"] or NOT_KNOWN),
                f"{row['calls']:,}",
                usd_text(row["cost_usd"]),
            )
            for row in rows[:limit]
        ),
    )


def money_blocks(answers: Answers) -> tuple[Block, ...]:
    """What the calls cost; nothing without prices."""
    if answers.money is None:
        return ()
    sums = [(name, usd_text(answers.numbers[key])) for key, name in _SUMS.items()]
    unpriced = [
        (f"calls without a cost: {reason}", f"{count:,}") for reason, count in answers.money.unpriced.items()
    ]
    blocks: list[Block] = [Heading(text="Money, by the prices given"), Pairs(pairs=(*sums, *unpriced))]
    if answers.money.by_model:
        blocks += [
            money_table(answers.money.by_model),
            Heading(text="By session"),
            session_cost_table(answers.money.by_session, 25),
        ]
    return tuple(blocks)
