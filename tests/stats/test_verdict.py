"""Verdicts on measurements whose answer is known."""

import math
from itertools import pairwise

import numpy as np
import pytest

from lab.stats import evidence, verdict
from lab.stats.verdict import Comparison, Metric, Outcome, compare_metric

SPEED = Metric(name="throughput", unit="op/s", better="higher", primary=True)
FAULTS = Metric(name="faults", unit="", better="lower")
COUNT = Metric(name="thp_fault_alloc", unit="", better="neither")


def noisy(shift: float, sd: float, n: int, seed: int) -> tuple[list[float], list[float]]:
    """n pairs around 1000 whose log ratios have the given mean and sd."""
    rng = np.random.default_rng(seed)
    base = 1000 * np.exp(rng.normal(0, 0.1, n))
    return base.tolist(), (base * np.exp(rng.normal(shift, sd, n))).tolist()


def live(shift: float, sd: float, n: int, seed: int = 1) -> Comparison:
    return compare_metric(SPEED, *noisy(shift, sd, n, seed), exact=False)


# ---- without noise


NEARLY = [1000.0 + 0.1 * (k % 5) for k in range(18)]
WIDE = [1000 * math.exp(v) for v in (-0.1, 0.1, -0.08, 0.08, -0.05, 0.05, 0.02, -0.02)]
UP = [1000 * math.exp(0.012 + v) for v in (-0.01, 0.01, -0.008, 0.008, -0.005, 0.005, 0.002, -0.002)]
THERE = [100.0, 230.0, 310.0, 400.0]


@pytest.mark.parametrize(("exact", "base", "test", "word", "more", "reason"), [
    (True, [5, 7, 9], [5, 7, 9], "same", None, "equal in every pair"),
    (True, [5, 7], [5, 7], "unknown", 1, "equal so far, 3 seeds decide"),
    (False, [5, 7, 9], [5, 7, 9], "unknown", 15, "equal so far, 18 rounds decide"),
    (False, [5, 7, 9] * 6, [5, 7, 9] * 6, "same", None, "equal in every pair"),
    (False, THERE, [v / 2 for v in THERE], "unknown", 2, "significant, but 4 of 6 rounds"),
    (False, [1000] * 17, NEARLY[:17], "unknown", 1, "the same so far, 18 rounds decide"),
    (False, [1000] * 18, NEARLY, "same", None, "differs by 0.0 %, below threshold"),
    (True, [1000] * 6, NEARLY[:6], "same", None, "interval inside ±2 %"),
    (False, [1000] * 8, WIDE, "unknown", 242, "interval wider than ±2 %"),
    (False, [1000] * 8, UP, "unknown", 13, "interval straddles +2 %"),
    (False, [0] * 9, [200] * 9, "unknown", None, "zeros have no ratio, and the values carry noise"),
    (True, [0, 4, 0], [2, 0, 2], "unknown", None, "zeros have no ratio, and the pairs disagree on the direction"),
    (True, [0, 0], [2, 2], "unknown", 1, "too few, 3 seeds decide"),
    (True, [0, 5, 7], [1, 6, 8], "unknown", 8, "up in every pair, with zeros, which 11 seeds prove"),
    (True, [0, 5, 7] * 4, [1, 6, 8] * 4, "regression", None, "up in every pair, with zeros"),
    (True, [0, 5000, 5000], [1, 5001, 5001], "same", None, "differs by 0.0 %, below threshold"),
    (True, [0, 0, 5], [0, 0, 5], "same", None, "equal in every pair"),
    (True, [0, 0, 0], [0, 0, 0], "same", None, "equal in every pair"),
    (True, [0, 9, 9], [0, 18, 18], "unknown", 1, "too few: 2 seeds; 1 of 3 seeds left out: 0 in both arms"),
])  # fmt: skip
def test_words_their_reasons_and_the_pairs_that_are_missing(
    exact: bool, base: list[float], test: list[float], word: str, more: int | None, reason: str
) -> None:
    got = compare_metric(FAULTS, base, test, exact=exact)
    assert (got.verdict, got.more_blocks, got.reason) == (word, more, reason)


def test_equal_numbers_have_a_ratio_unless_they_are_zeros() -> None:
    two, three, none = (compare_metric(SPEED, values, values, exact=True) for values in ([5, 7], [5, 7, 9], [0, 0, 0]))
    assert (three.ratio, three.interval, three.p_value, three.method) == (1.0, (1.0, 1.0), 1.0, "values")
    assert two.interval is None and (none.ratio, none.interval) == (None, None)


def test_signs_of_pairs_with_zeros_are_weighed() -> None:
    three, twelve = (compare_metric(FAULTS, [0, 5, 7] * n, [1, 6, 8] * n, exact=True).p_value for n in (1, 4))
    assert (three, twelve) == (pytest.approx(0.5), pytest.approx(13 / 2**12))


def test_seeds_with_zero_in_both_arms_are_left_out() -> None:
    got = compare_metric(FAULTS, [0, 100, 100, 0, 100], [0, 200, 200, 0, 200], exact=True)
    assert (got.verdict, got.ratio, got.base) == (Outcome.REGRESSION, pytest.approx(2.0), [0, 100, 100, 0, 100])
    assert got.reason == "the same change in every pair; 2 of 5 seeds left out: 0 in both arms"


@pytest.mark.parametrize(
    ("better", "factor", "wanted"),
    [
        ("higher", 0.61, Outcome.REGRESSION), ("higher", 1.5, Outcome.IMPROVEMENT), ("higher", 0.99, Outcome.SAME),
        ("lower", 0.61, Outcome.IMPROVEMENT), ("lower", 50.0, Outcome.REGRESSION), ("neither", 50.0, None),
    ],
)  # fmt: skip
def test_equal_ratios_are_decided_by_their_value(better: verdict.Better, factor: float, wanted: Outcome | None) -> None:
    base = [100.0, 230.0, 310.0]
    metric = Metric(name="m", unit="", better=better, primary=True)
    got = compare_metric(metric, base, [b * factor for b in base], exact=True)
    assert (got.verdict, got.evidence, got.mde) == (wanted, evidence.EVIDENCE_CAP, 0.0)
    assert (got.ratio, got.interval) == (pytest.approx(factor), pytest.approx((factor, factor)))


def test_seeds_that_differ_a_little_need_as_many_as_blocks() -> None:
    base = [1000.0, 1010.0, 990.0, 1005.0, 1003.0, 998.0]
    test = [610.0, 611.0, 612.0, 609.0, 611.0, 610.0]
    six = compare_metric(SPEED, base, test, exact=True)
    assert six.verdict == Outcome.REGRESSION and six.interval is not None
    assert six.interval[0] < 0.61 < six.interval[1] < 0.98
    three = compare_metric(SPEED, base[:3], test[:3], exact=True)
    assert (three.verdict, three.more_blocks) == (Outcome.UNKNOWN, 3)


def test_exact_numbers_are_never_clipped_live_ones_are() -> None:
    base = [1000.0] * 10
    test = [1050.1, 1049.9, 1050.2, 1049.8, 1050.0, 1050.1, 1049.9, 1050.3, 1050.0, 1500.0]
    assert compare_metric(SPEED, base, test, exact=False).verdict == Outcome.IMPROVEMENT
    assert compare_metric(SPEED, base, test, exact=True).verdict == Outcome.UNKNOWN


def test_kernels_are_not_the_same_but_for_outliers() -> None:
    """One boot of eighteen takes twice as long: pulled in, all is the same; as it is, the mean may be off by 10 %."""
    base, test = [1000.0] * 18, [1000.0 + 0.1 * (k % 5) for k in range(17)] + [500.0]
    got = compare_metric(SPEED, base, test, exact=False)
    assert got.verdict == Outcome.UNKNOWN
    assert got.reason == "the same but for outliers, with which the interval leaves ±2 %"
    assert got.interval is not None and 0.98 < got.interval[0] < got.interval[1] < 1.02
    assert compare_metric(SPEED, [*base, 1000.0], [1000.1, *test[:-1], 999.9], exact=False).verdict == Outcome.SAME


# ---- with noise


def test_clear_change_and_its_direction() -> None:
    got = live(-0.3, 0.03, 12)
    assert (got.verdict, got.reason) == (Outcome.REGRESSION, "beyond threshold")
    assert live(0.3, 0.03, 12).verdict == Outcome.IMPROVEMENT
    assert got.p_value == pytest.approx(10 ** -(got.evidence or 0))
    assert got.interval is not None and got.ratio is not None and got.interval[0] < got.ratio < got.interval[1]


def test_a_real_change_below_the_threshold_is_the_same_and_said_to_be_real() -> None:
    got = live(-0.005, 0.001, 20)
    assert got.verdict == Outcome.SAME and got.p_value < 0.01
    assert got.reason == f"differs by {verdict.percent(got.ratio)}, below threshold"


def test_fewer_than_min_blocks_never_make_a_direction() -> None:
    got = live(-0.5, 0.001, 5)
    assert (got.verdict, got.more_blocks) == (Outcome.UNKNOWN, 1)
    assert live(-0.5, 0.001, 6).verdict == Outcome.REGRESSION
    for n in (1, 2, 3, 4):
        few = live(-0.5, 0.001, n)
        assert few.verdict == Outcome.UNKNOWN and (few.more_blocks or 0) > 0


def test_noise_is_unknown_and_the_blocks_it_asks_for_settle_it() -> None:
    settled = asked = 0
    for seed in range(60):
        base, test = noisy(0.0, 0.02, 400, seed)
        first = compare_metric(SPEED, base[:8], test[:8], exact=False)
        if first.verdict != Outcome.UNKNOWN:
            continue
        assert first.more_blocks is not None and first.more_blocks > 0
        asked += 1
        looks = [8 + first.more_blocks // 2, 8 + first.more_blocks, 8 + 2 * first.more_blocks]
        words = [compare_metric(SPEED, base[:n], test[:n], exact=False).verdict for n in looks]
        settled += any(word != Outcome.UNKNOWN for word in words)
    assert asked > 40
    assert settled > 0.8 * asked


def test_equivalence_is_found_with_the_blocks_it_takes_and_not_claimed_at_the_margin() -> None:
    margin = math.log1p(0.02)
    same = [live(0.0, margin, 40, seed).verdict == Outcome.SAME for seed in range(80)]
    wrong = [live(-margin, margin, 40, seed).verdict == Outcome.SAME for seed in range(80)]
    assert np.mean(same) > 0.8 and np.mean(wrong) < 0.03


@pytest.mark.parametrize("shifts", [(-0.3, -0.2), (-0.2, -0.3)])
def test_beside_a_changed_control_what_holds_with_and_without_it_is_said(shifts: tuple[float, float]) -> None:
    plain, adjusted = (live(shift, 0.03, 12) for shift in shifts)
    found = verdict.adjust(plain, adjusted, verdict.SharedNoise("control", [], moved=True))
    assert found.verdict == plain.verdict == adjusted.verdict == Outcome.REGRESSION
    assert plain.interval is not None and adjusted.interval is not None
    lows, highs = zip(plain.interval, adjusted.interval, strict=True)
    assert found.interval == (min(lows), max(highs))
    assert found.p_value == max(plain.p_value, adjusted.p_value) > min(plain.p_value, adjusted.p_value)


def test_mde_is_a_fraction_that_shrinks_with_blocks() -> None:
    sizes = [live(0.0, 0.02, n).mde for n in (5, 6, 12, 60)]
    assert sizes[0] is None
    assert all(a is not None and b is not None and a > b > 0 for a, b in pairwise(sizes[1:]))


@pytest.mark.parametrize(
    ("cycles", "without", "wanted"),
    [
        (1.1, 1.021, Outcome.REGRESSION), (1.1, 1.019, Outcome.UNKNOWN), (1.1, 0.9, Outcome.UNKNOWN),
        (0.9, 0.979, Outcome.IMPROVEMENT), (0.9, 0.981, Outcome.UNKNOWN), (0.9, 1.1, Outcome.UNKNOWN),
        (1.01, 1.1, Outcome.SAME),
    ],
)  # fmt: skip
def test_starts_of_strings_carry_no_change_across_the_threshold(cycles: float, without: float, wanted: Outcome) -> None:
    found, other = (
        compare_metric(FAULTS, [1000.0] * 6, [1000.0 * ratio] * 6, exact=True) for ratio in (cycles, without)
    )
    assert verdict.beside_strings(found, other, 0.02).verdict == wanted


# ---- values that have no ratio


def test_a_counter_from_zero_has_no_ratio_and_a_direction() -> None:
    got = compare_metric(FAULTS, [0, 0, 0], [200, 210, 190], exact=True)
    assert (got.ratio, got.interval, got.verdict) == (None, None, Outcome.REGRESSION)
    assert (got.method, got.evidence) == ("values", evidence.EVIDENCE_CAP)
    back = compare_metric(FAULTS, [200, 210, 190], [0, 0, 0], exact=True)
    assert (back.ratio, back.verdict) == (0.0, Outcome.IMPROVEMENT)
    assert compare_metric(COUNT, [0, 0, 0], [200, 210, 190], exact=True).verdict is None


@pytest.mark.parametrize("bad", [math.nan, 0.0])
def test_a_round_without_a_ratio_is_left_out_if_that_is_harmless(bad: float) -> None:
    base, test = noisy(-0.3, 0.03, 16, 1)
    whole = compare_metric(SPEED, base[1:], test[1:], exact=False)
    got = compare_metric(SPEED, [bad, *base[1:]], test, exact=False)
    assert (got.verdict, got.ratio, got.interval) == (Outcome.REGRESSION, whole.ratio, whole.interval)
    assert (len(got.base), got.base[0]) == (16, None if math.isnan(bad) else 0.0)
    assert got.reason == "beyond threshold; 1 of 16 rounds left out: no ratio"
    assert (got.remark, whole.remark) == ("1 of 16 rounds left out: no ratio", "")
    both = compare_metric(SPEED, [bad, *base[1:]], [*test[:-1], bad], exact=False)
    assert both.reason == "beyond threshold; 2 of 16 rounds left out: no ratio"
    # Of one arm alone, or of more rounds than one in eight, it may be what the kernel does.
    one_arm = compare_metric(SPEED, base, [bad, bad, *test[2:]], exact=False)
    many = compare_metric(SPEED, [bad, *base[1:-1], bad], [*test[:-2], bad, bad], exact=False)
    few = compare_metric(SPEED, [bad, *base[1:7]], test[:7], exact=False)
    for one in (one_arm, many, few):
        assert (one.verdict, one.method) == (Outcome.UNKNOWN, "none" if math.isnan(bad) else "values")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_values_that_cannot_be_compared_are_unknown_with_a_reason(bad: float) -> None:
    got = compare_metric(SPEED, [1.0, 2.0, 3.0], [1.0, bad, 3.0], exact=True)
    assert (got.verdict, got.method, got.ratio) == (Outcome.UNKNOWN, "none", None)
    assert got.reason


# ---- in words


@pytest.mark.parametrize(
    ("ratio", "wanted"),
    [
        (0.618, "-38.2 %"), (1.382, "+38.2 %"), (1.0, "0.0 %"), (0.9999, "0.0 %"), (0.0, "-100.0 %"),
        (10.9, "+990.0 %"), (14.06, "x14.1"), (1460.3, "x1460"), (1.01e304, "x1e+304"), (None, "n/a"),
    ],
)  # fmt: skip
def test_percent(ratio: float | None, wanted: str) -> None:
    assert verdict.percent(ratio) == wanted
