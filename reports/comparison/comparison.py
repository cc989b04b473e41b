"""Pure: ways of playing a plan compared: what was compared, what was found, and what there is to doubt in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aitrace.doubts import Doubt, is_fine, reasons_of, weighty_first
from reports.comparison.conditions import Checked, Condition, check_conditions
from reports.comparison.differences import (
    DEFAULT_FLOOR_RATIO,
    DEFAULT_FLOOR_SHARE,
    Difference,
    Setting,
    compare_ways,
    family_size,
)
from reports.comparison.intervals import tree_weights
from reports.comparison.matched import Matched, lacking_of, match
from reports.comparison.measures import DEFAULT_NAMES, TRACE_BASES, TRACE_NAMES, Measure, measures_from_names
from reports.comparison.noise import MeasureNoise, noise_from_differences
from reports.comparison.plan_check import (
    OptionDifference,
    PlayedPlan,
    plan_differences,
    setup_differences,
    shared_texts,
)
from reports.comparison.values import RunValues
from reports.comparison.wording import finding_text, is_worse, range_text
from reports.words import counted

UNEQUAL_RATIO = 0.05
"""Share of the calls that a run may have no value of, though another one has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayRun:
    """One run of a way."""

    name: str
    """Where it is."""
    plan: PlayedPlan | None
    """Its plan; None of what was recorded."""
    values: RunValues
    """What it measured."""
    doubts: tuple[Doubt, ...]
    """What its report doubts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of playing the plan, or what was recorded."""

    name: str
    """As it was named."""
    label: str
    """The last parts of the name, as many as tell the ways apart."""
    runs: tuple[WayRun, ...]
    """Its runs; of what was recorded one that stands for it."""
    left_out: tuple[str, ...] = ()
    """Runs that were cut or stopped, and left out for it."""

    @property
    def is_recorded(self) -> bool:
        return self.runs[0].plan is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ways side by side."""

    ways: tuple[Way, ...]
    """The first one is what the others are compared with."""
    matched: Matched
    """Values of all runs, in the order of the ways."""
    measures: tuple[Measure, ...]
    """What is compared."""
    differences: tuple[tuple[Difference, ...], ...]
    """By way from the second on, and measure."""
    checked: tuple[Checked, ...]
    """Conditions that were given, of each way from the second on."""
    noise: tuple[MeasureNoise, ...]
    """How far runs of one way are apart; empty unless that was asked."""
    setting: Setting
    """How sure it is."""
    plan: tuple[OptionDifference, ...]
    """Where the plans differ."""
    setup: tuple[OptionDifference, ...]
    """What else differs."""
    doubts: tuple[Doubt, ...]
    """Reasons to distrust it, those that weigh first."""

    @property
    def family(self) -> int:
        """Differences that the confidence holds for together."""
        return family_size(each for of_way in self.differences for each in of_way)

    @property
    def is_fine(self) -> bool:
        return is_fine(self.doubts)

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to doubt, no condition that failed, and no measure that is worse."""
        if self.checked:
            return self.is_fine and all(each.outcome == "kept" for each in self.checked)
        return self.is_fine and not any(is_worse(each) for of_way in self.differences for each in of_way)

    @property
    def knows_runs(self) -> bool:
        """Whether the spread between runs of one way is in the intervals."""
        return any(each.knows_runs for of_way in self.differences for each in of_way)

    def runs_of(self, way: int) -> list[int]:
        """Places of a way's runs among those that are matched."""
        return _places(self.ways)[way]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be compared, and how."""

    names: tuple[str, ...] = ()
    """Measures; empty for those that are usual."""
    conditions: tuple[Condition, ...] = ()
    """What must not come about."""
    setting: Setting = field(default_factory=Setting)
    """How sure one wants to be."""
    is_noise_asked: bool = False
    """Whether all are runs of one way, whose noise is asked for."""


def compare(ways: Sequence[Way], wish: Wish) -> Comparison:
    """Compare each way with the first."""
    if wish.is_noise_asked:
        runs = [run for way in ways for run in way.runs]
        labels = labels_of([run.name for run in runs])
        ways = [Way(name=run.name, label=label, runs=(run,)) for run, label in zip(runs, labels, strict=True)]
    plans = [run.plan for way in ways for run in way.runs if run.plan is not None]
    matched = match([run.values for way in ways for run in way.runs])
    measures = _measures(ways, wish)
    places = _places(ways)
    differences = compare_ways(
        matched,
        places[0],
        places[1:],
        measures,
        tree_weights(matched.trees, seed=wish.setting.seed),
        wish.setting,
        # Noise is that of one number of each run, so all are of the same calls.
        also=[run for way in places for run in way] if wish.is_noise_asked else (),
    )
    if any(way.is_recorded for way in ways):
        # A trace has not all that a run has, and that is nothing to be told of each measure.
        asked = {*wish.names, *(each.measure.name for each in wish.conditions)}
        differences = tuple(
            tuple(each for each in of_way if each.pairs or each.measure.name in asked)
            for of_way in differences
        )
    plan = plan_differences(plans)
    has_repeats = any(len(way.runs) > 1 for way in ways) or wish.is_noise_asked
    return Comparison(
        ways=tuple(ways),
        matched=matched,
        measures=measures,
        differences=differences,
        checked=tuple(
            checked
            for way, of_way in zip(ways[1:], differences, strict=True)
            for checked in check_conditions(wish.conditions, of_way, way.label)
        ),
        noise=noise_from_differences(differences) if wish.is_noise_asked else (),
        setting=wish.setting,
        plan=plan,
        setup=setup_differences(plans),
        doubts=weighty_first(
            [
                *_doubts(ways, plan, plans),
                *_unequal_work(ways, matched, measures, is_one_way=wish.is_noise_asked),
                *([] if has_repeats else [_no_repeats(wish)]),
            ]
        ),
    )


def labels_of(names: Sequence[str]) -> tuple[str, ...]:
    """The last parts of paths, as many as tell them apart."""
    parts = [name.rstrip("/").split("/") for name in names]
    for length in range(1, max(map(len, parts), default=0) + 1):
        labels = ["/".join(each[-length:]) for each in parts]
        # A number alone names a repeat, not a way.
        is_number = any(
            label.isdecimal() and len(each) > length for label, each in zip(labels, parts, strict=True)
        )
        if len(set(labels)) == len(labels) and not is_number:
            return tuple(labels)
    return tuple(names)


def verdict(comparison: Comparison) -> str:
    """What the comparison comes to, in a line."""
    prefix = "not the same plan: " if comparison.plan else ""
    if comparison.checked:
        failed = [each for each in comparison.checked if each.outcome != "kept"]
        met = sum(each.outcome == "met" for each in failed)
        if not failed:
            return f"{prefix}every condition is kept ({counted(len(comparison.checked), 'condition')})"
        unclear = len(failed) - met
        parts = [f"{counted(met, 'condition')} failed"] if met else []
        parts += [f"{counted(unclear, 'condition')} cannot be told"] if unclear else []
        return prefix + ", ".join(parts)
    return prefix + (_noise_verdict(comparison) if comparison.noise else "; ".join(_verdicts(comparison)))


def _noise_verdict(comparison: Comparison) -> str:
    runs = len(comparison.differences) + 1
    found = {
        each.measure.name
        for of_run in comparison.differences
        for each in of_run
        if each.finding in ("more", "less")
    }
    told = sum(not each.reason for each in comparison.noise)
    line = f"{runs} runs of one way: " + (
        f"{len(found)} of {counted(told, 'measure')} differ by more than chance ({', '.join(sorted(found))})"
        if found
        else f"no difference found in {counted(told, 'measure')}"
        if told
        else "too few to tell"
    )
    return f"{line}; two runs tell little of how far apart others are" if told and runs == 2 else line


def _verdicts(comparison: Comparison) -> Iterator[str]:
    first = comparison.ways[0].label
    for way, of_way in zip(comparison.ways[1:], comparison.differences, strict=True):
        found = [each for each in of_way if each.finding in ("more", "less")]
        told = sum(each.absolute is not None for each in of_way)
        head = f"{way.label} against {first}"
        if not told:
            yield f"{head}: too few to tell"
        elif not found:
            one = next(each for each in of_way if each.absolute is not None)
            yield (
                f"{head}: no difference found in {counted(told, 'measure')}, as far as this can tell "
                f"({one.measure.name}: {range_text(one)})"
            )
        else:
            worse = [each for each in found if is_worse(each)]
            strongest = max(worse or found, key=lambda each: abs((each.relative or each.absolute).point))  # type: ignore[union-attr] # a finding has one
            yield (
                f"{head}: {len(worse)} worse and {len(found) - len(worse)} better of {counted(told, 'measure')}, "
                f"{strongest.measure.name} {finding_text(strongest)}"
            )


def _measures(ways: Sequence[Way], wish: Wish) -> tuple[Measure, ...]:
    names = wish.names or tuple(dict.fromkeys(each.measure.name for each in wish.conditions)) or DEFAULT_NAMES
    measures = measures_from_names((*names, *(each.measure.name for each in wish.conditions)))
    if not any(way.is_recorded for way in ways) or wish.names or wish.conditions:
        return measures
    is_scaled = any(
        run.plan is not None
        and (run.plan.header.time_scale != 1 or run.plan.header.options.get("gap_caps_ns"))
        for way in ways
        for run in way.runs
    )
    return (
        *(measure for measure in measures if measure.basis.name in TRACE_BASES),
        # Gaps that were scaled or cut differ from recorded ones as they were told to.
        *(() if is_scaled else measures_from_names(TRACE_NAMES)),
    )


def _places(ways: Sequence[Way]) -> list[list[int]]:
    """Of each way, the places of its runs among those that are matched."""
    places, start = [], 0
    for way in ways:
        places.append(list(range(start, start + len(way.runs))))
        start += len(way.runs)
    return places


def _doubts(
    ways: Sequence[Way], plan: Sequence[OptionDifference], plans: Sequence[PlayedPlan]
) -> Iterator[Doubt]:
    if plan:
        yield Doubt(
            name="other_plan",
            what=f"the plans differ in {', '.join(dict.fromkeys(each.option for each in plan))}",
            cause="the runs were not given the same trace or options; what differs in the plan and what differs in the "
            "way cannot be told apart, and pairs are only of calls that both plans have",
            action="play both with the same trace, options and --seed",
        )
    for way in ways:
        for run in way.runs:
            reasons = reasons_of(run.doubts)
            if reasons:
                yield Doubt(
                    name="run_in_doubt",
                    what=f"{run.name}: {'; '.join(reasons)}",
                    cause="what its own report says",
                    action=f"see aitrace report {run.name}",
                )
        if way.left_out:
            yield Doubt(
                name="runs_left_out",
                what=f"{', '.join(way.left_out)} left out: cut, stopped, or still being played",
                cause="a part of a run is no repeat of a whole one",
                weighs=False,
            )
    for earlier, later in shared_texts(plans):
        yield Doubt(
            name="shared_texts",
            what=f"{later} sent the same texts as {earlier}",
            cause="both have one --text-seed: a cache that was not cleared in between knew the prompts",
            action="leave out --text-seed, or clear the cache between the runs",
        )


def _unequal_work(
    ways: Sequence[Way], matched: Matched, measures: Sequence[Measure], *, is_one_way: bool
) -> Iterator[Doubt]:
    """Ways of which a run has not the values that another has: what it lost is in no difference of times."""
    bases = [each.basis for each in measures if not each.basis.is_share]
    bases = [basis for basis in bases if basis.level == "call"] or bases
    places = _places(ways)
    # Runs of one way are all compared on the same calls, other ways only with the first.
    groups = [list(range(len(ways)))] if is_one_way else [[0, other] for other in range(1, len(ways))]
    for group in groups:
        if not bases or any(ways[way].is_recorded for way in group):
            continue
        runs = {place: run for way in group for place, run in zip(places[way], ways[way].runs, strict=True)}
        lacking, basis = max(
            ((lacking_of(matched, basis, list(runs)), basis) for basis in bases),
            key=lambda each: each[0].rows,
        )
        if lacking.rows > UNEQUAL_RATIO * lacking.of:
            lost, run = max(zip(lacking.by_run, runs.values(), strict=True), key=lambda each: each[0])
            has_repeats = len(runs) > 2
            yield Doubt(
                name="unequal_work",
                what=f"{lacking.rows:,} of {lacking.of:,} {basis.level}s have no {basis.name} in some run; {run.name} lacks "
                f"{'most, ' if has_repeats else ''}{lost:,}",
                cause="calls were refused, failed, or were lost with their session; all numbers are of what every run has, "
                "and make a way that lost more look better than it is",
                action="read complete_calls and lost_sessions first"
                + (", and leave out a run that lacks many" if has_repeats else ""),
            )


def _no_repeats(wish: Wish) -> Doubt:
    share = wish.setting.floor_ratio
    points = f"{100 * DEFAULT_FLOOR_SHARE:g} point{'' if DEFAULT_FLOOR_SHARE == 0.01 else 's'}"
    default = f"{100 * DEFAULT_FLOOR_RATIO:g} %, {points} of shares"
    floor = default if share is None else f"{100 * share:g} %"
    return Doubt(
        name="no_repeats",
        what=f"one run of each way: differences below {floor} count as noise",
        cause="the noise of earlier runs is in the intervals, but the machine may have been in another state"
        if wish.setting.noise
        else "how far two runs of one way are apart is not known, and a machine that was busy in one of them looks like a "
        "difference between the ways",
        action="repeat the runs"
        if wish.setting.noise
        else "repeat the runs, or give the noise of earlier ones with --noise",
        weighs=False,
    )
