"""Pure: whether a cache forgot by age or by what was computed since, told from what it kept and what it lost.

Each part of a prompt that a cache could have had is a case: kept or lost, so many seconds after its last use, so many
distinct tokens of others later. A rule puts a border on one of the two, or on both, and is judged by its balanced
accuracy: the mean of the share of kept tokens on its near side and of lost tokens on its far side. 0.5 is chance.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from aitrace.quantiles import MIN_CLUSTERS
from reports.stats import Floats, Ints

MIN_SCORE = 0.8
"""Balanced accuracy from which on a rule explains the losses."""
MIN_CASES = 10
"""Cases of each kind, kept and lost, that a rule rests on at least."""
_GAIN_OF_TWO = 0.03
"""What a rule of two borders must be better than one of one border to be believed."""
_BINS = 128
_PAIR_BINS = 64
_DRAWS = 200
_MAX_GROUPS = 500
_SEED = 0

RuleKind = Literal["age", "amount", "either", "undecided", "none", "few"]
"""What explains the losses: the age; the amount; one or the other, at work together; both alike, so that they cannot be
told apart; neither; or there are too few cases to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """Parts of prompts, one entry each."""

    is_lost: npt.NDArray[np.bool_]
    """Whether it was lost."""
    tokens: Floats
    """Its size."""
    age_s: Floats
    """Seconds since its last use."""
    amount_tokens: Floats
    """Distinct tokens that a cache must have room for to have it."""
    session: Ints
    """Number of the session of the run that asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Where one variable parts kept from lost best."""

    at: float
    """The border; what is above it is lost by the rule."""
    kept: float
    """Next value below it that occurs."""
    lost: float
    """Next value above it that occurs."""
    score: float
    """Balanced accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule:
    """What explains the losses of a run."""

    kind: RuleKind
    """The explanation."""
    age_s: Border | None
    """Border on the age, whether or not it is the explanation; None with too few cases."""
    amount_tokens: Border | None
    """Border on the amount."""
    pair_score: float | None
    """Balanced accuracy of the best rule of two borders; None with too few cases."""
    pair: tuple[float, float] | None
    """Its borders, s and tokens."""
    kept_cases: int
    """Cases that were kept."""
    lost_cases: int
    """Cases that were lost."""
    sessions: int
    """Sessions that they are of."""


def loss_rule(cases: Cases) -> LossRule:
    """The simplest rule that explains what was lost."""
    lost = int(cases.is_lost.sum())
    kept, sessions = cases.is_lost.size - lost, np.unique(cases.session).size
    if min(kept, lost) < MIN_CASES or sessions < MIN_CLUSTERS:
        return LossRule(
            kind="few",
            age_s=None,
            amount_tokens=None,
            pair_score=None,
            pair=None,
            kept_cases=kept,
            lost_cases=lost,
            sessions=sessions,
        )
    age, amount = (best_border(cases, values) for values in (cases.age_s, cases.amount_tokens))
    pair_score, pair = _best_pair(cases)
    return LossRule(
        kind=_kind(cases, age.score, amount.score, pair_score),
        age_s=age,
        amount_tokens=amount,
        pair_score=pair_score,
        pair=pair,
        kept_cases=kept,
        lost_cases=lost,
        sessions=sessions,
    )


def best_border(cases: Cases, values: Floats) -> Border:
    """The border on these values with the highest balanced accuracy."""
    distinct, place = np.unique(values, return_inverse=True)
    kept = np.bincount(place, cases.tokens * ~cases.is_lost, distinct.size).cumsum()
    lost = np.bincount(place, cases.tokens * cases.is_lost, distinct.size).cumsum()
    scores = (kept / kept[-1] + 1 - lost / lost[-1]) / 2
    best = int(scores.argmax())
    low = float(distinct[best])
    high = float(distinct[min(best + 1, distinct.size - 1)])
    middle = float(np.sqrt(low * high)) if low > 0 else (low + high) / 2
    return Border(at=middle, kept=low, lost=high, score=float(scores[best]))


def _kind(cases: Cases, age: float, amount: float, pair: float) -> RuleKind:
    best = max(age, amount)
    if pair >= MIN_SCORE and pair - best >= _GAIN_OF_TWO:
        return "either"
    if best < MIN_SCORE:
        return "none"
    if min(age, amount) < MIN_SCORE:
        return "age" if age > amount else "amount"
    low, high = _difference(cases)
    if low <= 0 <= high:
        return "undecided"
    return "age" if low > 0 else "amount"


def _difference(cases: Cases) -> tuple[float, float]:
    """95 % interval of the score of the age less that of the amount, by bootstrap over sessions."""
    _, members = np.unique(cases.session, return_inverse=True)
    groups = min(int(members.max()) + 1, _MAX_GROUPS)
    rng = np.random.default_rng(_SEED)
    drawn = rng.multinomial(groups, np.full(groups, 1 / groups), size=_DRAWS).astype(np.float64)
    age, amount = (
        _drawn_scores(cases, values, members % groups, drawn) for values in (cases.age_s, cases.amount_tokens)
    )
    low, high = np.quantile(age - amount, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


def _drawn_scores(cases: Cases, values: Floats, group: Ints, drawn: Floats) -> Floats:
    """Score of the best border of each draw."""
    bins = _binned(values, _BINS)
    cumulated = []
    for wanted in (~cases.is_lost, cases.is_lost):
        weights = np.zeros((drawn.shape[1], _BINS + 1))
        np.add.at(weights, (group[wanted], bins[wanted]), cases.tokens[wanted])
        cumulated.append((drawn @ weights).cumsum(axis=1))
    kept, lost = (sums / np.maximum(sums[:, -1:], 1e-9) for sums in cumulated)
    best: Floats = ((kept + 1 - lost) / 2).max(axis=1)
    return best


def _best_pair(cases: Cases) -> tuple[float, tuple[float, float]]:
    """Score and borders of the best rule that calls lost what is above one of two borders."""
    ages, age_edges = _binned(cases.age_s, _PAIR_BINS), _edges(cases.age_s, _PAIR_BINS)
    amounts = _binned(cases.amount_tokens, _PAIR_BINS)
    amount_edges = _edges(cases.amount_tokens, _PAIR_BINS)
    near = []
    for wanted in (~cases.is_lost, cases.is_lost):
        weights = np.zeros((_PAIR_BINS + 1, _PAIR_BINS + 1))
        np.add.at(weights, (ages[wanted], amounts[wanted]), cases.tokens[wanted])
        sums = weights.cumsum(axis=0).cumsum(axis=1)
        near.append(sums / sums[-1, -1])
    scores = (near[0] + 1 - near[1]) / 2
    age, amount = np.unravel_index(int(scores.argmax()), scores.shape)
    return float(scores[age, amount]), (_upper(age_edges, int(age)), _upper(amount_edges, int(amount)))


def _edges(values: Floats, bins: int) -> Floats:
    edges: Floats = np.unique(np.quantile(values, np.linspace(0, 1, bins), method="inverted_cdf"))
    return edges


def _binned(values: Floats, bins: int) -> Ints:
    """Number of the first edge that each value does not exceed."""
    return np.searchsorted(_edges(values, bins), values, side="left").astype(np.int64)


def _upper(edges: Floats, place: int) -> float:
    return float(edges[min(place, edges.size - 1)])
