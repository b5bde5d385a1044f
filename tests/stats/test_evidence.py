"""The sequential machinery against independent computations and against simulated nothing."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, stats

from lab.stats import evidence

ALPHA = 0.01


def bayes_factor_by_integration(n: int, t: float, g: float) -> float:
    """The same e-value from its definition: noncentral t likelihoods averaged over effects ~ N(0, g)."""
    spread = math.sqrt(g)
    centre = t / math.sqrt(n)
    prior = stats.norm(0, spread)

    def density(d: float) -> float:
        return float(stats.nct.pdf(t, n - 1, d * math.sqrt(n)) * prior.pdf(d))

    value, _ = integrate.quad(density, -6 * spread, 6 * spread, points=(0.0, centre), limit=200)
    return float(value / stats.t.pdf(t, n - 1))


@pytest.mark.parametrize(("n", "t"), [(2, 0.5), (4, 2.0), (6, -3.0), (12, 4.5), (40, 1.0)])
def test_e_value_is_the_mixture_of_bayes_factors(n: int, t: float) -> None:
    wanted = np.mean([bayes_factor_by_integration(n, t, g) for g in evidence.EFFECT_VARIANCES])
    assert math.exp(evidence.log_e(n, t)) == pytest.approx(wanted, rel=1e-4)


def test_e_value_from_data_follows_the_published_formula() -> None:
    x = [0.03, -0.01, 0.04, 0.02, 0.05, 0.01]
    n, mean, var = len(x), np.mean(x), np.var(x, ddof=1)
    r = n * mean**2 / ((n - 1) * var)
    wanted = np.mean([(1 + n * g) ** -0.5 * ((1 + r) / (1 + r / (1 + n * g))) ** (n / 2) for g in (0.1, 1.0, 10.0)])
    assert math.exp(evidence.log_evidence(evidence.moments(x))) == pytest.approx(float(wanted), rel=1e-12)


def test_e_value_does_not_overflow_and_is_bounded_by_its_limit() -> None:
    assert 2000 < evidence.log_e(5000, 1e6) <= evidence.log_e(5000, math.inf) < math.inf
    assert math.exp(evidence.log_e(4, math.inf)) == pytest.approx((1.4**1.5 + 5**1.5 + 41**1.5) / 3)


def test_critical_t_is_infinite_where_the_blocks_cannot_do_it() -> None:
    assert evidence.critical_t(1, ALPHA) == evidence.critical_t(4, ALPHA) == math.inf
    assert math.isfinite(evidence.critical_t(5, ALPHA)) and math.isfinite(evidence.critical_t(4, 0.05))


# ---- clipping


def test_clip_waits_for_eight_and_pulls_the_outlier_in() -> None:
    x = [0.0, 0.1, -0.1, 0.2, -0.2, 0.05, 9.0]
    assert evidence.clip(x) == x
    clipped = evidence.clip([*x, -0.05])
    assert clipped[:6] == x[:6]
    assert clipped[6] == pytest.approx(0.025 + 3.5 * 1.4826 * 0.1)


def test_clip_never_erases_what_differs_from_a_majority_of_ties() -> None:
    x = [0.0] * 6 + [0.3, 0.4, -0.2]
    assert evidence.clip(x) == x


# ---- always valid, by simulation


def test_looking_after_every_block_keeps_the_false_alarms_below_alpha_and_a_t_test_does_not() -> None:
    """2000 comparisons of nothing, of 60 blocks each."""
    runs = np.random.default_rng(20240607).standard_normal((2000, 60)).tolist()
    goal, critical = -math.log(ALPHA), {n: float(stats.t.ppf(1 - ALPHA / 2, n - 1)) for n in range(4, 61)}
    alarms = sum(any(evidence.log_evidence(evidence.noisy_moments(x[:n])) >= goal for n in critical) for x in runs)
    assert 0 < alarms <= ALPHA * len(runs)
    peeks = sum(any(abs(evidence.t_statistic(evidence.moments(x[:n]))) >= critical[n] for n in critical) for x in runs)
    assert peeks > 4 * ALPHA * len(runs)


# ---- the estimate


def test_hodges_lehmann_by_hand_and_by_counting_all_sign_patterns() -> None:
    x = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    averages = sorted((a + b) / 2 for i, a in enumerate(x) for b in x[i:])
    got = evidence.hodges_lehmann(x)
    assert got.value == averages[10]
    assert got.interval == (averages[0], averages[-1])  # P(T <= 0) = 1/64 <= .025 < 2/64 = P(T <= 1)
    assert evidence.hodges_lehmann(x[:5]).interval is None


def test_signed_rank_quantile_matches_enumeration_and_joins_its_approximation() -> None:
    n = 10
    sums = [sum(r for r in range(1, n + 1) if mask >> (r - 1) & 1) for mask in range(2**n)]
    wanted = max(k for k in range(56) if sum(s <= k for s in sums) <= 0.025 * 2**n)
    assert evidence._signed_rank_quantile(n, 0.025) == wanted
    exact, normal = evidence._signed_rank_quantile(50, 0.025), evidence._signed_rank_quantile(51, 0.025)
    assert exact is not None and normal is not None and 0 < normal - exact < 30


# ---- many tests


def test_holm_by_hand() -> None:
    assert evidence.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert evidence.holm([0.9, 0.6]) == [1.0, 1.0] and evidence.holm([]) == []
    # Of weights 3, 1, 1: p / w is .01, .02, .09, so 5 x .01, then 2 x .02 (not below the first), then 1 x .09.
    assert evidence.holm([0.03, 0.02, 0.09], [3.0, 1.0, 1.0]) == pytest.approx([0.05, 0.05, 0.09])
    assert evidence.holm([0.02, 0.09, 0.03], [1.0, 1.0, 3.0]) == pytest.approx([0.05, 0.09, 0.05])
    p = [0.2, 0.011, 0.03, 0.0004]
    assert evidence.holm(p, [0.25] * 4) == pytest.approx(evidence.holm(p))


def test_benjamini_hochberg_agrees_with_scipy() -> None:
    p = np.random.default_rng(2).random(40) ** 3
    assert evidence.benjamini_hochberg(p.tolist()) == pytest.approx(stats.false_discovery_control(p).tolist())


def test_statistics_never_import_the_heavy_libraries() -> None:
    code = "import sys, lab.stats.verdict; sys.exit(bool({'scipy', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- planned looks


@pytest.mark.parametrize(
    ("alpha", "looks", "constant"),
    [
        (0.05, 1, 1.960), (0.05, 2, 1.977), (0.05, 5, 2.040), (0.05, 10, 2.087), (0.05, 20, 2.126),
        (0.01, 2, 2.580), (0.01, 5, 2.621), (0.01, 10, 2.660), (0.01, 20, 2.695),
    ],
)  # fmt: skip
def test_the_constants_are_those_of_the_tables(alpha: float, looks: int, constant: float) -> None:
    """Jennison and Turnbull, table 2.3, whose looks begin with the first block."""
    assert evidence.crossing_probability(constant, looks, first=1) == pytest.approx(alpha, rel=3e-3)


def test_two_looks_are_a_normal_law_in_the_plane() -> None:
    """The sums of 6 and of 7 blocks, both inside +-c sqrt(7)."""
    for c in (0.5, 1.5, 2.6, 4.0):
        edge = c * math.sqrt(7)
        law = stats.multivariate_normal(cov=[[6, 6], [6, 7]])
        inside = law.cdf([edge, edge], lower_limit=[-edge, -edge])
        assert evidence.crossing_probability(c, 7) == pytest.approx(1 - inside, abs=1e-6)


def test_the_bound_is_below_that_of_endless_looks_and_joins_it() -> None:
    for c in (2.0, 2.7, 4.0, 8.0):
        chances = [evidence.crossing_probability(c, n) for n in (6, 20, 60, 200, 201)]
        assert chances == sorted(chances)
        assert 2 * stats.norm.sf(c) == pytest.approx(chances[0], rel=1e-6)
        assert chances[-1] == pytest.approx(4 * stats.norm.sf(c))
    assert evidence.crossing_probability(2.7, 200) == pytest.approx(evidence.crossing_probability(2.7, 201), rel=0.15)
    assert evidence.crossing_probability(0.0, 20) == 1.0


@pytest.mark.parametrize("freedom", [5, 9, 19, 39, 199])
@pytest.mark.parametrize("tail", [0.2, 0.025, 0.005, 1e-3, 1e-5, 1e-12])
def test_the_last_look_has_two_to_four_times_the_tail_of_t(freedom: int, tail: float) -> None:
    t, n = float(stats.t.isf(tail, freedom)), freedom + 1
    found = evidence.bound_p_value(n, t, n)
    assert 2 * tail * (1 - 1e-6) <= found <= min(1.0, 4 * tail)
    assert evidence.bound_p_value(n, -t, n) == found


def test_p_value_of_nothing_and_of_everything() -> None:
    assert evidence.bound_p_value(6, 0.0, 6) == 1.0 and evidence.bound_p_value(6, math.inf, 6) == 0.0
    falling = [evidence.bound_p_value(6, 10.0**k, 8) for k in range(9)]
    assert falling == sorted(falling, reverse=True)


def test_p_value_by_hand() -> None:
    """Of one look 2 (1 - Phi(z)): for z = 3 it is .0027. After a quarter of the blocks z counts half."""
    alone = float(stats.t.isf(stats.norm.sf(3.0), 5))
    assert evidence.bound_p_value(6, alone, 6) == pytest.approx(2 * 0.001349898, rel=1e-6)
    at_a_quarter = float(stats.t.isf(stats.norm.sf(4.0), 9))
    at_the_end = float(stats.t.isf(stats.norm.sf(2.0), 39))
    assert evidence.bound_p_value(10, at_a_quarter, 40) == pytest.approx(evidence.bound_p_value(40, at_the_end, 40))
    assert evidence.bound_p_value(10, -at_a_quarter, 40) == evidence.bound_p_value(10, at_a_quarter, 40)


def test_critical_t_round_trip() -> None:
    for n in (6, 7, 12, 24):
        t = evidence.bound_t(n, 24, ALPHA)
        assert evidence.bound_p_value(n, t, 24) == pytest.approx(ALPHA, rel=1e-9)
        assert evidence.bound_p_value(n, 0.999 * t, 24) > ALPHA
    # 4 (1 - Phi(c)) = .01 is 1 - Phi(c) = .0025: at the end of a long plan the critical t is the one with that tail.
    assert evidence.bound_t(300, 300, ALPHA) == pytest.approx(stats.t.isf(0.0025, 299), rel=1e-9)


@pytest.mark.parametrize("n", [1, 3, 5, 25, 100])
def test_it_says_nothing_before_six_blocks_and_beyond_the_plan(n: int) -> None:
    assert evidence.bound_p_value(n, 1e6, 24) == 1.0 and evidence.bound_t(n, 24, ALPHA) == math.inf
