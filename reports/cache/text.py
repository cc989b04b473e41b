"""Pure: what became of cached prefixes, in sentences: how long they survive, why they are lost, what size would do."""

from collections.abc import Iterator

from reports.cache.curve import by_capacity, by_lifetime
from reports.cache.losses import POSSIBLE, losses
from reports.cache.pieces import MAX_CALLS, run_reuse
from reports.cache.rules import Border, LossRule
from reports.cache.survival import all_rows
from reports.metric import Row
from reports.summary import Report
from reports.words import counted, text_from_ratio, text_from_seconds

_NEAR_RATIO = 0.01
"""How far two hit rates may lie apart and still count as one."""

_NOTED_RATIO = 0.01
"""Share of the uncached tokens from which a loss has a cause worth telling."""

CAUSE_NAMES = {
    "first_contact": "first contact",
    "new_content": "new content",
    "prefix_changed": "prefix changed",
    "compaction": "compaction",
    "other_worker": "other worker",
    "not_computed": "not computed yet",
    "gap_expiry": "gap expiry",
    "eviction": "eviction",
    "expiry_or_eviction": "gap expiry or eviction",
    "rounding": "part of a block",
    "unexplained": "unexplained",
}
"""Causes of `reports.cache.losses.CAUSES`."""
CAUSE_MEANINGS = {
    "first_contact": "a session's first prompt, as far as no prompt before had begun alike",
    "new_content": "appended since the session's earlier prompt",
    "prefix_changed": "the session's earlier prompt had other content there",
    "compaction": "the same, after the history was replaced",
    "other_worker": "an earlier prompt had it, but none that this worker computed",
    "not_computed": "the prompts that had it had no first token yet",
    "gap_expiry": "not used for longer than anything that was kept",
    "eviction": "more was computed since than the cache holds",
    "expiry_or_eviction": "lost to time or to space; the run cannot tell which",
    "rounding": "less than a block of the cache",
    "unexplained": "possible and not served, by no rule found",
}
"""What each of them means."""


def survival_finding(report: Report) -> str | None:
    """What share of prefixes survives short and long times, and when half are lost; None without calls that tell."""
    rows = all_rows(report.answers.tables["cache_survival"])
    if not rows:
        return None
    half_s = report.answers.numbers["cache_half_lost_s"]
    first, last = rows[0], rows[-1]
    finding = f"{_survived(first)} when idle for {_idle(first)}"
    if last is not first:
        finding += f", {_survived(last)} when idle for {_idle(last)}"
    worst = min(rows, key=lambda row: float(row["survived_ratio"] or 0))
    if half_s is None and float(worst["survived_ratio"] or 0) < 0.5:
        if worst is not first:
            finding += f", but {_survived(worst)} when idle for {_idle(worst)}"
        return f"{finding}: it is not the time that decides."
    if half_s is None:
        return f"{finding}: at no idle time that was seen are half of the prefixes lost."
    if half_s == 0:
        return f"{finding}: more than half are lost however short the time."
    return f"{finding}: half are lost from {text_from_seconds(half_s)} on."


def losses_finding(report: Report) -> str | None:
    """The share of uncached tokens that was lost, and the cause that weighs most; None if it cannot be told."""
    rows = report.answers.tables["cache_losses"]
    total = sum(int(row["tokens"] or 0) for row in rows)
    if not rows or not total:
        return None
    lost = [row for row in rows if row["cause"] in POSSIBLE and row["tokens"]]
    if not lost:
        return (
            f"Nothing was lost: all {total:,} prompt tokens not served from cache had never been sent before."
        )
    lost_tokens = sum(int(row["tokens"] or 0) for row in lost)
    if lost_tokens / total < _NOTED_RATIO:
        return (
            f"Next to nothing was lost: of {total:,} prompt tokens not served from cache, "
            f"{text_from_ratio(lost_tokens / total)} had been sent before."
        )
    largest = max(lost, key=lambda row: int(row["tokens"] or 0))
    return (
        f"Of {total:,} prompt tokens not served from cache, {text_from_ratio(lost_tokens / total)} had been sent before and "
        f"were lost; the largest cause is “{CAUSE_NAMES[str(largest['cause'])]}”, "
        f"{text_from_ratio(int(largest['tokens'] or 0) / lost_tokens)} of them."
    )


def rule_finding(report: Report) -> str | None:
    """Whether losses follow age or amount, with the numbers that say so; None if nothing was lost by either."""
    found = losses(report.facts)
    return None if found is None or not found.rule.lost_cases else text_from_rule(found.rule)


def text_from_rule(rule: LossRule) -> str:
    """What explains the losses of a run, in a sentence."""
    n = f"n = {counted(rule.lost_cases, 'lost part')} and {rule.kept_cases:,} kept, of {counted(rule.sessions, 'session')}"
    if rule.age_s is None or rule.amount_tokens is None:
        return f"Too few prefixes were kept or lost to tell gap expiry from eviction ({n})."
    return f"{_verdict(rule, _age(rule.age_s), _amount(rule.amount_tokens))} ({n})."


def _verdict(rule: LossRule, age: str, amount: str) -> str:
    match rule.kind:
        case "age":
            return f"Losses follow the idle time: {age}, {amount}"
        case "amount":
            return f"Losses follow what was used since: {amount}, {age}"
        case "undecided":
            return f"Gap expiry and eviction cannot be told apart in this run: {age}, {amount}"
        case "either" if rule.pair is not None and rule.pair_score is not None:
            return (
                f"Both are at work: lost is what was idle for more than {text_from_seconds(rule.pair[0])} or behind more "
                f"than {rule.pair[1]:,.0f} other tokens, with a balanced accuracy of {text_from_ratio(rule.pair_score)}"
            )
        case _:
            return f"Neither the idle time nor what was used since explains the losses: {age}, {amount}"


def _age(border: Border) -> str:
    return (
        f"a border at {text_from_seconds(border.at)} idle tells lost from kept with a balanced accuracy of "
        f"{text_from_ratio(border.score)}"
    )


def _amount(border: Border) -> str:
    return f"a border at {border.at:,.0f} tokens used since tells them with {text_from_ratio(border.score)}"


def curve_finding(report: Report) -> str | None:
    """Today's place on the curve of sizes, and where it gets flat; None without a trace."""
    numbers = report.answers.numbers
    curve, enough = by_capacity(report.facts), numbers["cache_enough_tokens"]
    if curve is None or enough is None:
        return None
    possible = f"with {_size(enough)} {text_from_ratio(curve.ratio_at(enough))} would be possible"
    reported, equivalent = numbers["cache_reported_ratio"], numbers["cache_equivalent_tokens"]
    if reported is None:
        return f"As an LRU cache, {possible}."
    if equivalent is None:
        return _full_finding(reported, curve.highest)
    found = losses(report.facts)
    is_lru = found is not None and found.rule.kind in ("amount", "either", "undecided")
    lost = "The endpoint lost what" if is_lru else "Whatever lost them, the endpoint lost as much as"
    return f"{lost} an LRU cache of about {_size(equivalent)} would ({text_from_ratio(reported)} served); {possible}."


def _full_finding(reported: float, highest: float) -> str:
    """Of a run that lost next to nothing to the size of its cache."""
    served = f"No larger cache would help: {text_from_ratio(reported)} were served"
    if reported > highest + _NEAR_RATIO:
        return f"{served}, more than the {text_from_ratio(highest)} that the run's own prompts could bring: the cache was warm."
    if reported < highest - _NEAR_RATIO:
        return (
            f"{served} of a possible {text_from_ratio(highest)}, and the rest was lost to what no size mends."
        )
    return f"{served}, as much as any size could."


def lifetime_finding(report: Report) -> str | None:
    """The same of lifetimes."""
    curve, enough = by_lifetime(report.facts), report.answers.numbers["cache_enough_s"]
    if curve is None or enough is None:
        return None
    return (
        f"A cache that keeps everything for {text_from_seconds(enough)} after its last use could serve "
        f"{text_from_ratio(curve.ratio_at(enough))}."
    )


def model_notes(report: Report) -> Iterator[str]:
    """What must be known to read losses and curves."""
    reuse = run_reuse(report.facts)
    if reuse is None:
        return
    yield (
        "Sizes are tokens of prompts and answers as the endpoint counts them, for all of its workers together; what a "
        "token takes in bytes depends on the model. A prompt counts as used from when it is sent until its answer ends."
    )
    if reuse.sample_ratio < 1:
        yield (
            f"More than {MAX_CALLS:,} calls were sent: losses, survival and curves are those of whole trees drawn at "
            f"random, {text_from_ratio(reuse.sample_ratio)} of the calls, whose sizes stand for all."
        )
    if (report.answers.numbers["workers"] or 0) > 1:
        yield "Several workers answered: the curve of sizes is that of one cache which all of them share."
    surplus = report.answers.numbers["cache_surplus_tokens"]
    if surplus:
        yield (
            f"{surplus:,.0f} tokens were reported as cached beyond what the run had sent before; they count for no cause."
        )


def _survived(row: Row) -> str:
    low, high = row["survived_low_ratio"], row["survived_high_ratio"]
    interval = ""
    if low is not None and high is not None:
        interval = f", 95 % interval {text_from_ratio(float(low))} to {text_from_ratio(float(high))}"
    share = text_from_ratio(float(row["survived_ratio"] or 0))
    return f"{share} of prefixes survive (n = {int(row['calls'] or 0):,}{interval})"


def _idle(row: Row) -> str:
    low, high = float(row["idle_from_s"] or 0), row["idle_to_s"]
    if high is None:
        return f"{text_from_seconds(low)} and more" if low else "any time"
    if not low:
        return f"under {text_from_seconds(float(high))}"
    return f"{text_from_seconds(low)} to {text_from_seconds(float(high))}"


def _size(tokens: float) -> str:
    return f"{float(f'{tokens:.2g}'):,.0f} tokens"
