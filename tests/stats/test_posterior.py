"""The model of live mode's search against the same things computed another way."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from lab.bisection import acquisition
from lab.bisection.acquisition import Costs
from lab.stats import posterior
from lab.stats.posterior import NO_DRIFT, NO_LEVELS, Array, Belief, Drift, Image, OwnLevel, Reading, believe, whiten

ONE_DRIFT = (Drift(1.0, 0.7, 400.0),)


def covariance(at_s: Array, weights: Array, drift: Drift) -> Array:
    apart = np.abs(at_s[:, None] - at_s[None, :])
    out: Array = np.diag(1 / weights) + drift.ratio * np.exp(-apart / drift.memory_s)
    return out


def some_readings(commits: list[int], culprit: int, delta: float, noise: float) -> list[Reading]:
    chance = np.random.default_rng(3)
    order = chance.permutation(commits)
    return [Reading(int(c), 40.0 * i, delta * (c >= culprit) + noise * chance.normal()) for i, c in enumerate(order)]


def uniform(last: int) -> Array:
    prior = np.full(last + 1, 1 / last)
    prior[0] = 0
    return prior


# ---- the drift


def test_the_filter_is_the_inverse_covariance() -> None:
    chance = np.random.default_rng(1)
    columns, at_s = chance.normal(size=(25, 4)), np.cumsum(chance.exponential(90, 25))
    weights = chance.uniform(0.1, 1, 25)
    whitened = whiten(columns, at_s, weights, posterior.DRIFTS)
    forecast, left = whitened.ahead(170.0)
    for g, drift in enumerate(posterior.DRIFTS):
        v = covariance(at_s, weights, drift)
        now = drift.ratio * np.exp(-(at_s[-1] + 170.0 - at_s) / drift.memory_s)
        assert whitened.gram[g] == pytest.approx(columns.T @ np.linalg.solve(v, columns))
        assert whitened.log_det[g] == pytest.approx(np.linalg.slogdet(v)[1] / 2)
        assert forecast[g, 0] == pytest.approx(now @ np.linalg.solve(v, columns))
        assert left[g, 0, 0] == pytest.approx(drift.ratio - now @ np.linalg.solve(v, now))


def test_own_levels_are_a_part_of_the_covariance() -> None:
    chance = np.random.default_rng(4)
    booted = chance.permutation(np.repeat(np.arange(4), 6))
    images = (booted[:, None] == np.arange(4)).astype(float)
    columns = np.column_stack([chance.normal(size=24), images])
    at_s, weights, sizes = np.cumsum(chance.exponential(90, 24)), chance.uniform(0.1, 1, 24), np.array([0.0, 0.3, 2.0])
    whitened = whiten(columns, at_s, weights, posterior.DRIFTS).with_levels(sizes)
    forecast, left = whitened.ahead(170.0)
    assert whitened.levels == pytest.approx(np.repeat(sizes, len(posterior.DRIFTS)))
    for g, (size, drift) in enumerate((size, drift) for size in sizes for drift in posterior.DRIFTS):
        v = covariance(at_s, weights, drift) + size * images @ images.T
        now = drift.ratio * np.exp(-(at_s[-1] + 170.0 - at_s) / drift.memory_s)
        states = np.vstack([now, size * images.T])  # their covariances with the readings
        before = np.diag([drift.ratio, *[size] * 4])
        assert whitened.gram[g] == pytest.approx(columns.T @ np.linalg.solve(v, columns))
        assert whitened.log_det[g] == pytest.approx(np.linalg.slogdet(v)[1] / 2)
        assert forecast[g] == pytest.approx(states @ np.linalg.solve(v, columns))
        assert left[g] == pytest.approx(before - states @ np.linalg.solve(v, states.T))


def test_without_drift_nothing_needs_a_filter() -> None:
    chance = np.random.default_rng(2)
    columns, weights = chance.normal(size=(9, 3)), chance.uniform(0.1, 1, 9)
    quick, slow = posterior.weigh(columns, weights), whiten(columns, np.arange(9.0), weights, NO_DRIFT)
    assert quick.gram == pytest.approx(slow.gram) and quick.log_det == pytest.approx(slow.log_det)
    assert quick.forecast == pytest.approx(slow.forecast)


# ---- the posterior


def scale_of(readings: list[Reading]) -> float:
    """The scale of the prior on the noise: mean absolute deviation of the ends' boots from their medians, as an sd."""
    last = max(r.commit for r in readings)
    ends = [[r.value for r in readings if r.commit == end] for end in (0, last)]
    off = [abs(value - np.median(values)) for values in ends for value in values]
    return float(np.mean(off)) * math.sqrt(math.pi / 2)


def likelihood_by_integration(readings: list[Reading], above: int, drift: Drift) -> float:
    """Integrated over delta > 0 and the noise; over mu in closed form, the flat one-dimensional Gaussian."""
    at_s = np.array([r.at_s for r in readings])
    z, x = np.array([r.value for r in readings]), np.array([float(r.commit > above) for r in readings])
    v = covariance(at_s, np.ones(len(z)), drift)
    solved = np.linalg.solve(v, np.column_stack([np.ones(len(z)), x, z]))
    half_log_det = np.linalg.slogdet(v)[1] / 2

    def density(delta: float, log_s: float) -> float:
        s2, weight, left = math.exp(2 * log_s), solved[:, 0].sum(), z - delta * x
        solved_left = solved[:, 2] - delta * solved[:, 1]
        quad = left @ solved_left - solved_left.sum() ** 2 / weight
        # (s^2)^-(nu0 / 2 + 1) exp(-nu0 s0^2 / (2 s^2)), nu0 = 2, and d(s^2) = 2 s^2 d(log s)
        log_p = -(len(z) - 1) * log_s - half_log_det - math.log(weight) / 2 - quad / (2 * s2) - 4 * log_s + 2 * log_s
        return math.exp(log_p - scale_of(readings) ** 2 / s2)

    value, _ = integrate.dblquad(density, -4.0, 3.0, 0.0, 8.0, epsabs=0, epsrel=1e-5)
    return float(value)


@pytest.mark.long
@pytest.mark.parametrize("drift", [NO_DRIFT[0], ONE_DRIFT[0]])
def test_posterior_is_the_integral_over_all_that_is_unknown(drift: Drift) -> None:
    readings = some_readings([0, 0, 0, 4, 7, 7, 9, 9, 9], culprit=5, delta=0.8, noise=1.0)
    belief = believe(uniform(9), readings, 1, (drift._replace(weight=1.0),), NO_LEVELS, robust=False)
    gaps = [(0, 4), (4, 7), (7, 9)]
    mass = np.array([(high - low) * likelihood_by_integration(readings, low, drift) for low, high in gaps])
    assert belief.measured == (0, 4, 7, 9)
    assert belief.gaps == pytest.approx(mass / mass.sum(), abs=0.004)
    assert belief.gaps.max() < 0.9  # else it would be a test of nothing


def test_mass_follows_the_prior_within_a_gap() -> None:
    prior = np.array([0, 1, 0, 3, 2, 2, 2]) / 10
    belief = believe(prior, some_readings([0, 0, 3, 3, 6, 6], culprit=2, delta=3.0, noise=0.5), 1)
    assert belief.mass[2] == 0 and belief.mass[3] / belief.mass[1] == pytest.approx(3)
    assert belief.mass.sum() == pytest.approx(1) and belief.bad[[0, 6]] == pytest.approx([0, 1])
    assert np.all(np.diff(belief.bad) >= 0)
    assert belief.bad[3] == pytest.approx(belief.gaps[0])


def test_one_outlier_does_not_convict() -> None:
    readings = some_readings([0] * 12 + [9] * 12 + [4] * 6, culprit=9, delta=-2.0, noise=0.5)
    struck = [r._replace(value=r.value - 12) if i == 7 else r for i, r in enumerate(readings)]
    assert believe(uniform(9), struck, -1).noise < 0.8 < 1.5 < believe(uniform(9), struck, -1, robust=False).noise


def test_readings_without_any_spread() -> None:
    readings = [Reading(c, 10.0 * i, 0.3 * (c >= 4)) for i, c in enumerate([0, 8, 8, 0, 4, 3])]
    belief = believe(uniform(8), readings, 1)
    assert belief.gap(belief.best) == (3, 4) and belief.gaps[belief.best] > 0.99
    assert belief.noise == pytest.approx(0.01 * 0.3, rel=1e-3)


# ---- planning


def test_answer_bits_is_the_mutual_information() -> None:
    for chance in (0.5, 0.1, 0.93):
        for d in (0.3, 1.0, 4.0):

            def surprise(z: float, chance: float = chance, d: float = d) -> float:
                p = chance * stats.norm.pdf(z - d) + (1 - chance) * stats.norm.pdf(z)
                return -p * math.log2(p) if p > 0 else 0.0

            mixed, _ = integrate.quad(surprise, -9, 14, points=(0, d), limit=200)
            alone = math.log2(2 * math.pi * math.e) / 2
            assert acquisition.answer_bits(chance, np.array([d]))[0] == pytest.approx(mixed - alone, abs=2e-4)
    assert acquisition.answer_bits(0.5, np.array([0.0, 1e3])) == pytest.approx([0, 1], abs=1e-6)


def belief_of(commits: list[int], delta: float) -> Belief:
    readings = some_readings(commits, 20, delta, 1.0)
    return believe(uniform(max(commits)), readings, 1, ONE_DRIFT, NO_LEVELS, robust=False)


@pytest.mark.parametrize("levels", [NO_LEVELS, (OwnLevel(1.0, 0.4),)], ids=["", "own levels"])
@pytest.mark.parametrize("image", [Image(30), Image(47), Image(30, 1)], ids=["booted", "new", "new layout"])
def test_information_is_that_of_the_model_with_the_boots_added(image: Image, levels: tuple[OwnLevel, ...]) -> None:
    commits, commit = [0] * 6 + [64] * 6 + [30] * 2 + [12] * 5 + [33], image.commit
    readings = some_readings(commits, culprit=31, delta=1.5, noise=1.0)
    belief = believe(uniform(64), readings, 1, ONE_DRIFT, levels, robust=False)
    others = [c for c in belief.measured[1:-1] if c != commit and 0.01 <= belief.bad[c] <= 0.99]
    assert others
    label = float(belief.bad[commit] > 0.5)

    def row(c: int) -> list[float]:
        if c in others:
            return [0.0, 0.0, 0.0, *(float(c == o) for o in others)]
        bad = label if c == commit else float(belief.bad[c] > 0.5)
        return [1.0, bad, float(c == commit), *(0.0 for _ in others)]

    def offset_precision(
        rows: list[list[float]], at_s: list[float], sizes: list[float], parts: list[dict[Image, float]]
    ) -> float:
        x, images = np.array(rows), sorted({image for part in parts for image in part})
        z = np.array([[part.get(image, 0.0) for image in images] for part in parts])
        v = covariance(np.array(at_s), np.array(sizes), ONE_DRIFT[0]) + belief.whitened.levels[0] * z @ z.T
        precision = x.T @ np.linalg.solve(v, x)
        rest = np.delete(np.arange(len(precision)), 2)
        side = precision[2, rest]
        return float(precision[2, 2] - side @ np.linalg.solve(precision[np.ix_(rest, rest)], side))

    rows, at_s, sizes = [row(r.commit) for r in readings], [r.at_s for r in readings], [1.0] * len(readings)
    parts = [{r.image: 1.0} for r in readings]
    before = offset_precision(rows, at_s, sizes, parts) if commit in belief.boots else 0.0
    then = at_s[-1] + 120.0
    ends = [1.0, 0.5, *(0.0 for _ in range(1 + len(others)))]
    new = [{image: 1.0}, {Image(0): 0.5, Image(64): 0.5}]
    after = offset_precision([*rows, row(commit), ends], [*at_s, then, then], [*sizes, 3.0, 2.0], [*parts, *new])
    gained = acquisition.information(belief, image, 120.0, np.array([3.0]), np.array([2.0]))
    assert gained[0] == pytest.approx(after - before, rel=1e-4)


def test_boots_of_one_image_cannot_outweigh_its_own_level() -> None:
    """A commit whose image lies in the middle: many boots of it convict nobody, boots of other layouts do."""
    chance = np.random.default_rng(9)
    booted, value = [0, 8] * 8 + [4] * 40, {0: 0.0, 8: 1.0, 4: 0.7}
    readings = [Reading(c, 40.0 * i, value[c] + 0.1 * chance.normal()) for i, c in enumerate(booted)]
    sure = believe(uniform(8), readings, 1, NO_DRIFT, NO_LEVELS)
    unsure = believe(uniform(8), readings, 1, NO_DRIFT, (OwnLevel(1.0, 0.4),))
    assert sure.bad[4] > 0.999 and 0.5 < unsure.bad[4] < 0.9
    relaid = [Reading(4, 4000.0 + i, 1.1 + 0.1 * chance.normal(), 1 + i % 3) for i in range(6)]
    assert believe(uniform(8), [*readings, *relaid], 1, NO_DRIFT, (OwnLevel(1.0, 0.4),)).bad[4] > 0.93
    assert unsure.next_layout(4) == Image(4, 1)
    choice = acquisition.choose(unsure, Costs(1.0, 10.0), {0, 4, 8}, {1, 2, 3, 5, 6, 7}, layouts=True)
    assert choice is not None and choice.image == Image(4, 1) and choice.boots > 0


def test_readings_say_whether_images_have_levels_of_their_own() -> None:
    chance = np.random.default_rng(10)
    order = [c for _ in range(6) for c in chance.permutation([0, 2, 5, 9, 14, 20, 32])]

    def belief(own: float) -> Belief:
        level = {c: (c >= 20) + own * chance.normal() for c in {*order}}
        readings = [Reading(int(c), 40.0 * i, level[c] + 0.1 * chance.normal()) for i, c in enumerate(order)]
        return believe(uniform(32), readings, 1)

    assert belief(0.0).own_sd < 0.05
    assert 0.15 < belief(0.3).own_sd < 0.6


def test_a_dear_build_is_put_off_while_a_built_commit_is_open() -> None:
    belief = belief_of([0] * 8 + [64] * 8 + [32], delta=1.5)
    assert 0.1 < belief.bad[32] < 0.95
    assert acquisition.choose(belief, Costs(3000.0, 10.0), {0, 32, 64}, set()).image == Image(32)  # type: ignore[union-attr]
    certain = belief_of([0] * 8 + [64] * 8 + [32] * 12, delta=3.0)
    fresh = acquisition.choose(certain, Costs(120.0, 10.0), {0, 32, 64}, set())
    assert fresh is not None and fresh.image == Image(16) and fresh.boots > 0


def test_neighbours_of_what_does_not_build_are_avoided() -> None:
    belief = belief_of([0] * 8 + [64] * 8, delta=3.0)
    chosen = acquisition.choose(belief, Costs(120.0, 10.0), {0, 64}, {31, 32, 33})
    assert chosen is not None and 3 <= abs(chosen.image.commit - 32) <= 16


def test_bits_left_do_not_count_what_no_test_can_tell() -> None:
    belief = believe(uniform(4), [Reading(c, 0.0, float(c)) for c in (0, 0, 4, 4)], 1)
    assert acquisition.bits_left(belief, set()) == pytest.approx(2)
    assert acquisition.bits_left(belief, {2, 3}) == pytest.approx(0.25 * 2 + 0.75 * math.log2(4 / 3))
    assert acquisition.choose(belief, Costs(1.0, 1.0), {0, 4}, {1, 2, 3}) is None
