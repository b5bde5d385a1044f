"""The verdict on paired measurements of two kernels: for each metric, each case, and all together.

Everything is on log ratios test/base, and reported as ratios. A verdict is never "not significant, so the same": `same`
needs an interval inside +-threshold, a change an interval without 0 and an estimate beyond the threshold, and
everything else is `unknown`. docs/verdict.md has the table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec

from lab.core.records import Record
from lab.core.text import plural
from lab.stats import evidence
from lab.stats.defaults import ALPHA, FIRST_LOOK_ROUNDS, FIRST_LOOK_SEEDS, MIN_PAIRS, SAME_ROUNDS, THRESHOLD
from lab.stats.sequential import Interval, SequentialTest

ROUNDING = 1e-9
"""Log ratios that close to the threshold are on it."""

_RESTS_ON_MODEL = "rests on the model"

LEFT_OUT_ONE_IN = 8
"""At most one round in so many may be left out because it has no ratio."""


class Outcome(StrEnum):
    """The four words of a verdict."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SAME = "same"
    UNKNOWN = "unknown"

    @property
    def is_change(self) -> bool:
        return self in (Outcome.REGRESSION, Outcome.IMPROVEMENT)


Better = Literal["higher", "lower", "neither"]


class Metric(Record, frozen=True, kw_only=True):
    """The quantity that a number measures. better: `neither` for counters, which explain and get no verdict."""

    name: str
    unit: str
    better: Better
    primary: bool = False


class Comparison(Record, frozen=True, kw_only=True):
    """One metric of both arms, its change and its verdict.

    base, test: one number per block or seed, paired, as measured (None if it was not a finite number).
    ratio: exp of the mean log ratio as tested (live mode: outliers clipped from 8 blocks on); ratio of the means if a
    zero forbids logs; None if all of base is 0. interval: always-valid, 1 - alpha, as ratios.
    estimate: Hodges-Lehmann ratio with its 95 % interval for this look alone. verdict: None for metrics without a
    better side. evidence: log10 of the e-value, 300 if infinite, None if there is none.
    p_value: valid at every look; min(1, 1/E), or the value by a planned number of rounds. reason: one short
    phrase. more_blocks: how many would settle an `unknown`, None if not known. mde: the change, as a fraction
    (.01 is 1 %), that this design finds with 80 % chance.
    method: `e-value`, `planned` (that, and the test of a planned number of rounds), `values` (decided without
    noise: equal, without spread, or zeros) or `none`.
    exploratory: a secondary metric. survived: whether it passed Benjamini-Hochberg, None before that.
    """

    name: str
    unit: str
    better: Better
    primary: bool
    base: list[float | None]
    test: list[float | None]
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    estimate: float | None = None
    estimate_interval: tuple[float, float] | None = None
    verdict: Outcome | None
    evidence: float | None = None
    p_value: float = 1.0
    reason: str
    more_blocks: int | None = None
    mde: float | None = None
    method: Literal["e-value", "planned", "values", "none"]
    exploratory: bool = False
    survived: bool | None = None

    @property
    def is_change(self) -> bool:
        return self.verdict is not None and self.verdict.is_change

    @property
    def contradiction(self) -> str:
        """The first thing in which the comparison contradicts itself; empty if it does not."""
        if len(self.base) != len(self.test):
            return f"{self.name} has {len(self.base)} numbers of base and {len(self.test)} of test"
        if self.interval is not None and self.interval[0] > self.interval[1]:
            return f"the interval of {self.name} ends before it begins"
        if self.is_change and self.ratio is not None and self.better != "neither":
            worse = self.ratio > 1 if self.better == "lower" else self.ratio < 1
            if worse != (self.verdict == Outcome.REGRESSION):
                return f"{self.name} is called {self.verdict}, and moved by {percent(self.ratio)}"
        return ""

    @property
    def rests_on_model(self) -> bool:
        """True of modelled cycles that the count of instructions contradicts, or that hang on the starts of strings."""
        return self.verdict == Outcome.UNKNOWN and self.reason.endswith(_RESTS_ON_MODEL)

    @property
    def interval_text(self) -> str:
        """The interval for people; `exact` if all pairs say the same; empty without one."""
        if self.interval is None:
            return ""
        low, high = self.interval
        return f"[{percent(low)}, {percent(high)}]" if low != high else "exact"

    @property
    def remark(self) -> str:
        """The part of the reason about values that the test left out or took off; empty if it used all as measured."""
        return self.reason.partition("; ")[2]

    def unknown(self, reason: str, more_blocks: int | None = None) -> Comparison:
        """The comparison with its word taken back."""
        return msgspec.structs.replace(self, verdict=Outcome.UNKNOWN, reason=reason, more_blocks=more_blocks)

    def undecided(self, pair: str) -> str:
        """The reason of an `unknown`, and how many pairs more would settle it. pair: a seed or a round."""
        return (
            f"{self.reason}, about {plural(self.more_blocks, f'more {pair}')} would settle it"
            if self.more_blocks
            else self.reason
        )


class SharedNoise(NamedTuple):
    """The noise that each round has in common with a control, which no change is expected of.

    noise: in logs, of every round.
    moved: True if the control itself may have changed, so that the noise may hold a change.
    """

    control: str
    noise: Sequence[float]
    moved: bool

    def taken_off(self, values: Sequence[float]) -> list[float]:
        """The values of each round without it."""
        return [value * math.exp(-noise) for value, noise in zip(values, self.noise, strict=True)]


class _Rules(NamedTuple):
    """A metric, and how it is judged."""

    metric: Metric
    threshold: float
    alpha: float
    min_blocks: int
    exact: bool
    planned: int | None

    @property
    def sequential_test(self) -> SequentialTest:
        return SequentialTest(self.alpha, self.planned, self.exact)

    @property
    def band(self) -> Interval:
        return band(self.threshold)

    def is_small(self, log_ratio: float) -> bool:
        """True of a change that is not beyond the threshold."""
        return self.band[0] <= log_ratio <= self.band[1]

    @property
    def equal_from(self) -> int:
        """The number of pairs from which on equal numbers decide."""
        return FIRST_LOOK_SEEDS if self.exact else SAME_ROUNDS

    @property
    def same_from(self) -> int:
        """The number of pairs from which on numbers with spread can be the same."""
        return FIRST_LOOK_ROUNDS if self.exact else SAME_ROUNDS

    def side(self, sign: float) -> Outcome:
        """The word for a change up or down."""
        return Outcome.IMPROVEMENT if (sign > 0) == (self.metric.better == "higher") else Outcome.REGRESSION

    def pairs(self, n: int) -> str:
        """n pairs, in the mode's word for a pair."""
        return plural(n, "seed" if self.exact else "round")


def band(threshold: float) -> Interval:
    """The changes that are not beyond a threshold, in logs."""
    low = math.log1p(-threshold) if threshold < 1 else -math.inf
    return low - ROUNDING, math.log1p(threshold) + ROUNDING


class _Finding(NamedTuple):
    verdict: Outcome
    reason: str
    more_blocks: int | None = None


# ---- one metric


def compare_metric(
    metric: Metric,
    base: Sequence[float],
    test: Sequence[float],
    *,
    threshold: float = THRESHOLD,
    alpha: float = ALPHA,
    min_blocks: int = MIN_PAIRS,
    planned: int | None = None,
    exact: bool,
) -> Comparison:
    """Compare base[k] with test[k], the summaries of block or seed k, and decide.

    threshold: a relative change has to be larger than this to count. alpha: chance of a wrong `regression` or
    `improvement` over all looks. min_blocks: pairs needed for those two words. planned: pairs that were
    planned; 0: they will be; None: nothing is planned (see `lab.stats.sequential`). exact: numbers come from exact
    mode, so they carry no noise and nothing is clipped.

    Pairs without a ratio are left out if that is harmless: seeds with 0 in both arms, and at most one round in eight
    with a 0 or no number, with at most one more in one arm than in the other.
    """
    rules = _Rules(metric, threshold, alpha, min_blocks, exact, planned)
    return _compare_usable(base, test, rules) if base else _no_comparison(base, test, rules, "no measurements")


def compare_again(
    compared: Comparison, base: Sequence[float], test: Sequence[float], *, threshold: float, alpha: float
) -> Comparison:
    """Compare other exact numbers of the same runs in the place of a primary metric's."""
    metric = Metric(name=compared.name, unit=compared.unit, better=compared.better, primary=True)
    return compare_metric(metric, base, test, threshold=threshold, alpha=alpha, exact=True)


def adjust(plain: Comparison, adjusted: Comparison, shared: SharedNoise) -> Comparison:
    """The comparison without the shared noise; if the control may have changed, a word that holds with it too.

    plain, adjusted: of the plain values, and of the values from `SharedNoise.taken_off`.
    """
    if adjusted.method == "none" or plain.method == "none":
        return plain
    if not shared.moved:
        reason = f"{adjusted.reason}; adjusted by {shared.control}"
        return msgspec.structs.replace(adjusted, test=plain.test, reason=reason)
    agree = plain.verdict == adjusted.verdict
    return msgspec.structs.replace(
        plain,
        interval=_hull(plain.interval, adjusted.interval),
        p_value=max(plain.p_value, adjusted.p_value),
        verdict=plain.verdict if agree or plain.verdict is None else Outcome.UNKNOWN,
        reason=plain.reason if agree else f"{shared.control} changed too, and says something else of this case",
    )


def _hull(one: Interval | None, other: Interval | None) -> Interval | None:
    """The interval from the lower to the higher end of both."""
    if one is None or other is None:
        return None
    return min(one[0], other[0]), max(one[1], other[1])


def _compare_usable(base: Sequence[float], test: Sequence[float], rules: _Rules) -> Comparison:
    """Compare all pairs, or those with a ratio if the others may be left out."""
    pairs = list(zip(base, test, strict=True))
    kept = [pair for pair in pairs if not _has_no_ratio(pair, rules)]
    left_out = len(pairs) - len(kept)
    equal = all(b == t for b, t in pairs)
    if equal or not left_out or not kept or not (rules.exact or _is_harmless(pairs, left_out)):
        return _compare_pairs(base, test, rules)
    found = _compare_pairs([b for b, _ in kept], [t for _, t in kept], rules)
    why = "0 in both arms" if rules.exact else "no ratio"
    return msgspec.structs.replace(
        found,
        base=_as_stored(base),
        test=_as_stored(test),
        reason=f"{found.reason}; {left_out} of {rules.pairs(len(pairs))} left out: {why}",
    )


def _has_no_ratio(pair: tuple[float, float], rules: _Rules) -> bool:
    """True of a pair that may be left out: 0 in both arms, in live mode also a 0 or no number in one."""
    return not any(pair) if rules.exact else not all(value and math.isfinite(value) for value in pair)


def _is_harmless(pairs: Sequence[tuple[float, float]], left_out: int) -> bool:
    """True if so few rounds have no ratio, and of both arms alike, that the others speak for all."""
    missing = [sum(not (value and math.isfinite(value)) for value in arm) for arm in zip(*pairs, strict=True)]
    return left_out <= len(pairs) // LEFT_OUT_ONE_IN and abs(missing[0] - missing[1]) <= 1


def _compare_pairs(base: Sequence[float], test: Sequence[float], rules: _Rules) -> Comparison:
    values = [*base, *test]
    if not all(map(math.isfinite, values)):
        return _no_comparison(base, test, rules, "a value is not a number")
    if all(b == t for b, t in zip(base, test, strict=True)):
        return _compare_equal(base, test, rules)
    if min(values) < 0:
        return _no_comparison(base, test, rules, "a negative value has no ratio")
    if min(values) == 0:
        return _compare_zeros(base, test, rules)
    return _compare_ratios(base, test, rules)


def _comparison(
    base: Sequence[float], test: Sequence[float], rules: _Rules, found: _Finding, **more: Any
) -> Comparison:
    """The Comparison of a finding; a metric without a better side gets no verdict."""
    metric, judged = rules.metric, rules.metric.better != "neither"
    return Comparison(
        **msgspec.structs.asdict(metric),
        base=_as_stored(base),
        test=_as_stored(test),
        verdict=found.verdict if judged else None,
        reason=found.reason,
        more_blocks=found.more_blocks if judged else None,
        exploratory=not metric.primary,
        **more,
    )


def _as_stored(values: Sequence[float]) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values]


def numbers(values: Sequence[float | None]) -> list[float]:
    """The stored values that are numbers."""
    return [value for value in values if value is not None]


def _no_comparison(base: Sequence[float], test: Sequence[float], rules: _Rules, why: str) -> Comparison:
    return _comparison(base, test, rules, _Finding(Outcome.UNKNOWN, why), method="none")


def _compare_equal(base: Sequence[float], test: Sequence[float], rules: _Rules) -> Comparison:
    """All pairs equal to the last digit: `same` as soon as there are enough. 0/0 has no ratio."""
    n = len(base)
    found = _Finding(Outcome.SAME, "equal in every pair")
    if n < rules.equal_from:
        found = _Finding(Outcome.UNKNOWN, f"equal so far, {rules.pairs(rules.equal_from)} decide", rules.equal_from - n)
    one = 1.0 if any(base) else None
    width = (1.0, 1.0) if one and n >= rules.equal_from else None
    weight = _weight(evidence.log_evidence(evidence.moments([0.0] * n)))
    return _comparison(
        base, test, rules, found, ratio=one, interval=width, estimate=one, estimate_interval=width,
        mde=0.0 if width else None, method="values", **weight,
    )  # fmt: skip


def _compare_zeros(base: Sequence[float], test: Sequence[float], rules: _Rules) -> Comparison:
    """Counters with a zero, which makes logs impossible: exact numbers decide by their common direction.

    Evidence: infinite if one whole arm is 0 (all ratios are the same infinity), else that of n equal signs.
    """
    n, signs = len(base), {(t > b) - (t < b) for b, t in zip(base, test, strict=True)}
    sign = signs.pop() if len(signs) == 1 else 0
    ratio = sum(test) / sum(base) if any(base) else None
    weight: dict[str, Any] = {}
    if sign and rules.exact:
        whole = n >= FIRST_LOOK_SEEDS and not (any(base) and any(test))
        weight = _weight(math.inf if whole else _log_e_of_signs(n))
    found = _judge_zeros(n, sign, ratio, weight.get("p_value", 1.0), rules)
    return _comparison(base, test, rules, found, ratio=ratio, method="values", **weight)


def _log_e_of_signs(n: int) -> float:
    """The evidence in n equal signs, `2^n / (n + 1)`: the chance of heads mixed over uniformly."""
    return n * math.log(2) - math.log(n + 1)


def _judge_zeros(n: int, sign: int, ratio: float | None, p_value: float, rules: _Rules) -> _Finding:
    if not rules.exact:
        return _Finding(Outcome.UNKNOWN, "zeros have no ratio, and the values carry noise")
    if not sign:
        return _Finding(Outcome.UNKNOWN, "zeros have no ratio, and the pairs disagree on the direction")
    if n < FIRST_LOOK_SEEDS:
        return _Finding(Outcome.UNKNOWN, f"too few, {rules.pairs(FIRST_LOOK_SEEDS)} decide", FIRST_LOOK_SEEDS - n)
    if ratio and rules.is_small(math.log(ratio)):
        return _Finding(Outcome.SAME, f"differs by {percent(ratio)}, below threshold")
    direction = f"{'up' if sign > 0 else 'down'} in every pair, with zeros"
    if p_value > rules.alpha:
        needed = next(k for k in itertools.count(n) if _log_e_of_signs(k) >= -math.log(rules.alpha))
        return _Finding(Outcome.UNKNOWN, f"{direction}, which {rules.pairs(needed)} prove", needed - n)
    return _Finding(rules.side(sign), direction)


def _compare_ratios(base: Sequence[float], test: Sequence[float], rules: _Rules) -> Comparison:
    """All values positive, not all pairs equal: the e-value on log ratios, or the values without spread."""
    x = [math.log(t) - math.log(b) for b, t in zip(base, test, strict=True)]
    test_ = rules.sequential_test
    m, p_value = test_.moments(x), test_.p_value(x)
    bounds, whole = test_.interval(x), test_._replace(exact=True).interval(x)
    located = evidence.hodges_lehmann(x)
    flat = m.sd == 0 and rules.exact and m.n >= FIRST_LOOK_SEEDS
    resolved = test_.detectable_effect(m.n, m.sd) if m.n >= rules.min_blocks else None
    return _comparison(
        base,
        test,
        rules,
        _judge_flat(m, rules) if flat else _judge(m, p_value, bounds, whole, rules),
        ratio=_exp(m.mean),
        interval=_ratios(bounds),
        estimate=_exp(located.value),
        estimate_interval=_ratios(located.interval),
        mde=0.0 if flat else None if resolved is None else _exp(resolved) - 1,
        method="values" if flat else "e-value" if rules.planned is None else "planned",
        **{**_weight(evidence.log_evidence(m)), "p_value": p_value},
    )


def _judge_flat(m: evidence.Moments, rules: _Rules) -> _Finding:
    """Exact numbers with one and the same ratio on every seed: the value decides."""
    if rules.is_small(m.mean):
        return _Finding(Outcome.SAME, f"differs by {percent(_exp(m.mean))}, below threshold")
    return _Finding(rules.side(m.mean), "the same change in every pair")


def _judge(
    m: evidence.Moments, p_value: float, bounds: Interval | None, whole: Interval | None, rules: _Rules
) -> _Finding:
    """The word by the table of docs/verdict.md. whole: the interval without any outlier pulled in."""
    if m.n < FIRST_LOOK_ROUNDS or bounds is None:
        return _unknown(m, f"too few: {rules.pairs(m.n)}", rules)
    low, high = bounds
    apart, small = low > 0 or high < 0, rules.is_small(m.mean)
    if small and rules.is_small(low) and rules.is_small(high):
        if m.n < rules.same_from:
            return _unknown(m, f"the same so far, {rules.pairs(rules.same_from)} decide", rules)
        if whole is None or not (rules.is_small(whole[0]) and rules.is_small(whole[1])):
            return _unknown(m, f"the same but for outliers, with which the interval leaves {_within(rules)}", rules)
        below = f"differs by {percent(_exp(m.mean))}, below threshold"
        return _Finding(Outcome.SAME, below if apart else f"interval inside {_within(rules)}")
    if small or not apart or p_value > rules.alpha:
        return _unknown(m, _straddles(low, high, rules), rules)
    if m.n < rules.min_blocks:
        return _unknown(m, f"significant, but {m.n} of {rules.pairs(rules.min_blocks)}", rules)
    beyond = not rules.is_small(low) and not rules.is_small(high)
    return _Finding(rules.side(m.mean), "beyond threshold" if beyond else "significant, may be below threshold")


def _unknown(m: evidence.Moments, reason: str, rules: _Rules) -> _Finding:
    if m.n < 2:
        return _Finding(Outcome.UNKNOWN, reason, (FIRST_LOOK_SEEDS if rules.exact else FIRST_LOOK_ROUNDS) - m.n)
    if rules.exact and m.sd == 0:
        return _Finding(Outcome.UNKNOWN, reason, FIRST_LOOK_SEEDS - m.n)
    more = rules.sequential_test.blocks_to_settle(
        m, band=rules.band, min_blocks=rules.min_blocks, fewest=rules.same_from
    )
    return _Finding(Outcome.UNKNOWN, reason, more)


def _straddles(low: float, high: float, rules: _Rules) -> str:
    if low < rules.band[0] and high > rules.band[1]:
        return f"interval wider than {_within(rules)}"
    return f"interval straddles {'+' if high > rules.band[1] else '-'}{_plain(rules.threshold)}"


def _within(rules: _Rules) -> str:
    return f"±{_plain(rules.threshold)}"


def _weight(log_e: float) -> dict[str, Any]:
    """Fields of the evidence: log10 E, capped, and p = min(1, 1/E)."""
    return {"evidence": min(log_e / math.log(10), evidence.EVIDENCE_CAP), "p_value": evidence.p_value(log_e)}


def _exp(x: float) -> float:
    return math.exp(max(-700.0, min(x, 700.0)))


def _ratios(bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if bounds is None else (_exp(bounds[0]), _exp(bounds[1]))


# ---- modelled cycles beside the count of instructions

COUNT_SHARE = 0.5
"""Of the threshold: the smallest change of an instruction count that contradicts the modelled cycles."""


def beside_count(cycles: Comparison, count: Comparison, threshold: float) -> Comparison:
    """The comparison of modelled cycles; `unknown` if the instructions certainly changed the other way.

    Such a verdict would rest on the costs in the model alone. count: of the same share of the same runs.
    """
    if not cycles.is_change or not cycles.ratio or not count.ratio or count.interval is None:
        return cycles
    fewer = cycles.ratio > 1
    apart = count.interval[1] < 1 if fewer else count.interval[0] > 1
    low, high = band(COUNT_SHARE * threshold)
    if not apart or low <= math.log(count.ratio) <= high:
        return cycles
    return cycles.unknown(f"model {percent(cycles.ratio)}, {count_remark(count)}: {_RESTS_ON_MODEL}")


def beside_strings(cycles: Comparison, without: Comparison, threshold: float) -> Comparison:
    """The comparison of modelled cycles; `unknown` if the starts of strings take it across the threshold.

    without: of the same runs, with string instructions that begin at no cost.
    """
    if not cycles.is_change or not cycles.ratio or not without.ratio:
        return cycles
    low, high = band(threshold)
    change = math.log(without.ratio)
    if change > high if cycles.ratio > 1 else change < low:
        return cycles
    there = f"{percent(without.ratio)} without the starts of strings"
    return cycles.unknown(f"model {percent(cycles.ratio)}, {there}: {_RESTS_ON_MODEL}")


def count_remark(count: Comparison) -> str:
    """The change of an instruction count, by name."""
    return f"instructions {percent(count.ratio)}"


# ---- in words


def distance(ratio: float | None, *, none: float = 0.0) -> float:
    """The distance of a ratio from 1 on either side, |log ratio|; `none` if there is no ratio, or it is 0."""
    return abs(math.log(ratio)) if ratio else none


def primary_of(comparisons: Iterable[Comparison]) -> Comparison:
    """The comparison that a case's verdict is about."""
    return next(comparison for comparison in comparisons if comparison.primary)


def percent(ratio: float | None) -> str:
    """A ratio for people: `-38.2 %`, `0.0 %`, up to `+999.9 %`; then `x14.1`, `x1500`, `x2e+09`; None is `n/a`."""
    if ratio is None:
        return "n/a"
    change = round(100 * (ratio - 1), 1)
    if change >= 1000:
        return f"x{ratio:{'.1f' if ratio < 100 else '.0f' if ratio < 1e6 else '.0e'}}"
    return f"{change:+.1f} %" if change else "0.0 %"


def _plain(threshold: float) -> str:
    return f"{100 * threshold:g} %"
