"""The posterior over a history: the probability of each commit to have changed the level of noisy readings.

Model of a reading (one boot of one image, in log units):

    z = mu + delta * [commit >= culprit] + u(image) + D(time) + noise

mu and delta are flat and integrated out, delta with the sign that the comparison of the ends found. The noise
variance s^2 is unknown (scaled inverse chi-square, by the scatter of the ends' boots). u is an image's own level, as
its layout makes it: normal, with a variance averaged over a grid (`OwnLevel`). D is the host's drift, averaged over
another (`Drift`). Given the culprit, both variances and the drift this is a linear Gaussian model; its marginal
likelihood, from generalised least squares with residual sum R (the prior's sum of squares in it), determinant d of the
normal equations and covariance s^2 V, is

    |V|^(-1/2)  d^(-1/2)  R^(-nu/2)  P(delta has the sign),   nu = nu0 + n - 2

Gelman et al., Bayesian Data Analysis (2013), chapter 14. Readings cannot tell commits between two neighbouring
measured ones apart, so there is one likelihood per gap; within it the mass follows the prior.

Drift is an Ornstein-Uhlenbeck process beside independent noise: a host gets warm, changes its clock or runs other work,
so readings minutes apart share an error that readings hours apart do not. D(t) has the variance `ratio` (in units of
the noise of one reading) and decays with exp(-dt / memory_s). Neither is known, so everything is computed for each pair
of a small grid. D is Markov, so a scalar Kalman filter whitens n readings in n steps; the covariance matrix would need
n^3: Harvey, Forecasting, Structural Time Series Models and the Kalman Filter (1989), section 3.4.

Own levels with a variance of r, in those units, make V + r Z Z' of V, Z the columns that tell the images apart. All
columns of the model are sums of those, so the inner products under V' follow from those under V (Woodbury):
A' V'^-1 B = A' V^-1 B - A' V^-1 Z r W Z' V^-1 B, W = (1 + r Z' V^-1 Z)^-1, and log |V'| = log |V| - log |W|. An image's
level u is estimated by r W Z' V^-1 B, with the variance r W: Searle, Casella, McCulloch, Variance Components (1992),
chapter 7.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.special import stdtr

from lab.stats.evidence import NO_SPREAD

Array = NDArray[np.float64]


class Drift(NamedTuple):
    """One kind of drift and how likely it is beforehand. memory_s matters only if ratio > 0."""

    weight: float
    ratio: float
    memory_s: float


NO_DRIFT = (Drift(1.0, 0.0, 1.0),)
DRIFTS = (
    Drift(0.1, 0.0, 1.0),
    *(Drift(0.15, ratio, memory_s) for ratio in (0.1, 0.4, 1.6) for memory_s in (300, 3000)),
)
"""None with weight .1, else a third to over all of the noise's sd, gone in five minutes or in most of an hour."""


class OwnLevel(NamedTuple):
    """One size of the images' own levels and how likely it is beforehand. sd: as a share of the change."""

    weight: float
    sd: float


NO_LEVELS = (OwnLevel(1.0, 0.0),)
LEVELS = (OwnLevel(0.95, 0.0), *(OwnLevel(0.05 / 3, sd) for sd in (0.1, 0.2, 0.4)))
"""Mostly none, else a tenth to two fifths of the change."""


def known_levels(sd: float) -> tuple[OwnLevel, ...]:
    """The sizes of own levels after an A/A of builds with that sd, as a share of the change; the usual ones after none.

    A few builds tell the sd within a factor of 1.6 or so.
    """
    return tuple(OwnLevel(weight, sd * factor) for weight, factor in _FACTORS) if sd > 0 else LEVELS


_FACTORS = ((0.25, 0.6), (0.5, 1.0), (0.25, 1.6))


@dataclass(frozen=True, kw_only=True)
class WhitenedReadings:
    """Inner products of columns of readings under each drift and own level, and the forecast of both.

    gram[g, i, j]: product of columns i and j under drift and own level g.
    log_det[g]: half the log determinant of the covariance.
    forecast[g, s, i]: the estimate of state s by column i; state 0 is D at the last reading, the others are the
    levels of the images.
    left[g, s, t]: the covariance of the states given it.
    ratios[g], memories_s[g]: of the drift.
    levels[g]: variance of the own levels.
    """

    gram: Array
    log_det: Array
    forecast: Array
    left: Array
    ratios: Array
    memories_s: Array
    levels: Array

    def ahead(self, seconds: float) -> tuple[Array, Array]:
        """`forecast` and `left` as they will be after so many seconds without a reading."""
        kept = np.ones(self.forecast.shape[:2])
        kept[:, 0] = np.exp(-seconds / self.memories_s)
        left = self.left * kept[:, :, None] * kept[:, None, :]
        left[:, 0, 0] += self.ratios * (1 - kept[:, 0] ** 2)
        return self.forecast * kept[:, :, None], left

    def with_levels(self, variances: Array) -> WhitenedReadings:
        """The same if each image has a level of its own: all columns but the first tell the images apart."""
        drifts, images = len(self.gram), self.gram.shape[1] - 1
        r = np.repeat(variances, drifts)
        gram, log_det, seen, left, ratios, memories_s = (
            np.concatenate([values] * len(variances))
            for values in (self.gram, self.log_det, self.forecast, self.left, self.ratios, self.memories_s)
        )
        w = np.linalg.inv(np.eye(images) + r[:, None, None] * gram[:, 1:, 1:])
        own = r[:, None, None] * w
        levels = own @ gram[:, 1:, :]
        drift = seen - seen[:, :, 1:] @ levels
        mixed = -seen[:, :, 1:] @ own
        return WhitenedReadings(
            gram=gram - gram[:, :, 1:] @ levels,
            log_det=log_det - np.linalg.slogdet(w)[1] / 2,
            forecast=np.concatenate([drift, levels], axis=1),
            left=np.block([[left - mixed @ seen[:, :, 1:].transpose(0, 2, 1), mixed], [mixed.transpose(0, 2, 1), own]]),
            ratios=ratios,
            memories_s=memories_s,
            levels=r,
        )

    def only(self, kinds: NDArray[np.int64]) -> WhitenedReadings:
        """The same under some of the kinds."""
        return WhitenedReadings(**{field.name: getattr(self, field.name)[kinds] for field in fields(self)})

    def summed(self, columns: Array) -> WhitenedReadings:
        """The same for sums of the columns; columns[i, j] is 1 if old column i is part of new column j."""
        return replace(self, gram=columns.T @ self.gram @ columns, forecast=self.forecast @ columns)


def weigh(columns: Array, weights: Array) -> WhitenedReadings:
    """The same for readings without drift: there is nothing to filter."""
    none = np.zeros(1)
    return WhitenedReadings(
        gram=(columns.T * weights @ columns)[None],
        log_det=-np.log(weights).sum(keepdims=True) / 2,
        forecast=np.zeros((1, 1, columns.shape[1])),
        left=np.zeros((1, 1, 1)),
        ratios=none,
        memories_s=np.ones(1),
        levels=none,
    )


def whiten(columns: Array, at_s: Array, weights: Array, drifts: tuple[Drift, ...]) -> WhitenedReadings:
    """Filter columns (one row per reading, in order of time) under each drift.

    weights: of each reading; 1 is a reading with the usual noise, 1/4 one with twice its sd. A clock that
    was set back between two readings counts as if it had stood still.
    """
    ratios = np.array([drift.ratio for drift in drifts])
    memories_s = np.array([drift.memory_s for drift in drifts])
    kept = np.exp(-np.maximum(np.diff(at_s, prepend=at_s[0]), 0.0)[:, None] / memories_s)
    fresh = ratios * (1 - kept**2)
    noise = 1 / weights
    spread, gain = np.empty_like(kept), np.empty_like(kept)
    left = ratios
    for i in range(len(columns)):
        before = kept[i] ** 2 * left + fresh[i]
        spread[i] = before + noise[i]
        gain[i] = before / spread[i]
        left = (1 - gain[i]) * before
    innovations = np.empty((len(columns), len(drifts), columns.shape[1]))
    forecast = np.zeros((len(drifts), columns.shape[1]))
    for row, keep, use, out in zip(columns, kept[:, :, None], gain[:, :, None], innovations, strict=True):
        forecast = keep * forecast
        np.subtract(row, forecast, out=out)
        forecast += use * out
    scaled = (innovations / np.sqrt(spread)[:, :, None]).transpose(1, 0, 2)
    return WhitenedReadings(
        gram=scaled.transpose(0, 2, 1) @ scaled,
        log_det=np.log(spread).sum(axis=0) / 2,
        forecast=forecast[:, None, :],
        left=left[:, None, None],
        ratios=ratios,
        memories_s=memories_s,
        levels=np.zeros(len(drifts)),
    )


NOISE_WORTH = 2.0
"""nu0: the prior on the noise variance weighs as much as so many readings that scatter as the ends' boots do."""

FAR = 2.5
"""Sds from the nearer level beyond which a reading is down-weighted."""

FINEST = 0.01
"""The noise is taken to be no smaller than this part of the change: then one boot tells, and zero has no log."""


class Image(NamedTuple):
    """A kernel to boot: a commit (0 is the old end), built with one of its layouts (0 is the usual one)."""

    commit: int
    layout: int = 0


class Reading(NamedTuple):
    """One boot: its image, its time (seconds on the host's clock), and the log of its metric."""

    commit: int
    at_s: float
    value: float
    layout: int = 0

    @property
    def image(self) -> Image:
        return Image(self.commit, self.layout)


@dataclass(frozen=True, kw_only=True)
class Belief:
    """The state of knowledge after the readings so far.

    measured: the commits that were measured, in order. gaps[i]: probability that the culprit lies above
    measured[i] and not above measured[i + 1]. mass[c]: probability that c is the culprit (mass[0] is 0).
    bad[c]: probability that c has the change in it. level, delta, noise: posterior means of mu, delta and of
    the sd of one reading, drift apart. own_sd: of the images' own levels. kinds: probabilities of drift and own level
    together. boots: how many readings each measured commit has. images: the booted ones, in order.
    """

    measured: tuple[int, ...]
    gaps: Array
    mass: Array
    bad: Array
    level: float
    delta: float
    noise: float
    own_sd: float
    kinds: Array
    boots: Counter[int]
    images: tuple[Image, ...]
    whitened: WhitenedReadings

    @cached_property
    def best(self) -> int:
        """The likeliest gap."""
        return int(self.gaps.argmax())

    def gap(self, i: int) -> tuple[int, int]:
        """The two measured commits around a gap."""
        return self.measured[i], self.measured[i + 1]

    def with_likely_kinds(self, rare: float) -> Belief:
        """The same without the kinds of drift and own level that are less likely than that."""
        kept = np.flatnonzero(self.kinds >= min(rare, self.kinds.max()))
        return replace(self, kinds=self.kinds[kept] / self.kinds[kept].sum(), whitened=self.whitened.only(kept))

    def next_layout(self, *commits: int) -> Image:
        """The first image of the first commit with a layout that none of the commits was booted with."""
        return Image(commits[0], 1 + max(image.layout for image in self.images if image.commit in commits))


def believe(
    prior: Array,
    readings: Sequence[Reading],
    sign: int,
    drifts: tuple[Drift, ...] = DRIFTS,
    levels: tuple[OwnLevel, ...] = LEVELS,
    *,
    robust: bool = True,
) -> Belief:
    """The posterior given all readings, in order of time. It depends on nothing else.

    prior[c]: weight of commit c as the culprit; prior[0] is 0. Both ends, 0 and the last, must have been
    measured at least twice. sign: of the change between them.
    """
    commits = np.array([reading.commit for reading in readings])
    at_s = np.array([reading.at_s for reading in readings])
    values = np.array([reading.value for reading in readings])
    low, high, sd = _first_levels(commits, values)
    finest = max(FINEST * abs(high - low), NO_SPREAD)
    sd = max(sd, finest)
    images = sorted({reading.image for reading in readings})
    number = {image: i for i, image in enumerate(images)}
    # One column per image: every hypothesis is a sum of these, so they are filtered only once. Values relative to one
    # level, because differences are taken of their squares.
    booted = np.array([number[reading.image] for reading in readings])
    columns = np.column_stack([values - low, booted[:, None] == np.arange(len(images))])
    posterior = partial(_posterior, prior, tuple(images), Counter(commits.tolist()), sign, finest, sd)
    weights = np.ones(len(values))
    if robust:
        weights = _weights(columns[:, 0], 0.0, high - low, sd)
        first = posterior(weigh(columns, weights), np.ones(1))
        weights = _weights(columns[:, 0], first.level, first.level + first.delta, first.noise)
    # The grid has shares of the change; covariances are in units of the noise.
    variances = np.array([(level.sd * (high - low) / sd) ** 2 for level in levels])
    kinds = np.outer([level.weight for level in levels], [drift.weight for drift in drifts]).ravel()
    belief = posterior(whiten(columns, at_s, weights, drifts).with_levels(variances), kinds)
    return replace(belief, level=belief.level + low)


def _first_levels(commits: Array, values: Array) -> tuple[float, float, float]:
    """Both levels and the sd around them from the ends alone: medians, which outliers do not move."""
    low, high = values[commits == 0], values[commits == commits.max()]
    levels = float(np.median(low)), float(np.median(high))
    off = np.concatenate([np.abs(low - levels[0]), np.abs(high - levels[1])])
    return *levels, math.sqrt(math.pi / 2) * float(off.mean())


def _weights(values: Array, one: float, other: float, sd: float) -> Array:
    """1 for readings within FAR sds of either level, falling with the square of the distance beyond."""
    off = np.minimum(np.abs(values - one), np.abs(values - other))
    return (FAR * sd / np.maximum(off, FAR * sd)) ** 2


def _posterior(
    prior: Array, images: tuple[Image, ...], boots: Counter[int], sign: int, finest: float, sd: float,
    by_image: WhitenedReadings, kinds: Array,
) -> Belief:  # fmt: skip
    """The posterior by readings under some kinds of drift and own level, each with a weight. sd: of the ends' boots."""
    commits = np.array([image.commit for image in images])
    measured = np.unique(commits)
    whitened = by_image.summed(block_diag(1.0, commits[:, None] == measured))
    fits = _fit(whitened, boots.total() - 2 + NOISE_WORTH, NOISE_WORTH * sd**2, sign, finest)
    before = np.cumsum(prior)[measured]
    gap_prior = np.diff(before)
    with np.errstate(divide="ignore"):  # a gap in which no commit can be the culprit has a log prior of -inf
        log_p = fits.log_likelihood + np.log(kinds)[:, None] + np.log(gap_prior)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    gaps = p.sum(axis=0)
    inside = np.repeat(gaps / np.where(gap_prior > 0, gap_prior, 1.0), np.diff(measured))
    mass = np.concatenate([[0.0], prior[1:] * inside])
    return Belief(
        measured=tuple(measured.tolist()),
        gaps=gaps,
        mass=mass,
        bad=np.minimum(np.cumsum(mass), 1.0),
        level=float((p * fits.level).sum()),
        delta=float((p * fits.delta).sum()),
        noise=math.sqrt(float((p * fits.variance).sum())),
        own_sd=math.sqrt(float((p * fits.variance * whitened.levels[:, None]).sum())),
        kinds=p.sum(axis=1),
        boots=boots,
        images=images,
        whitened=whitened,
    )


def shortest(mass: Array, measured: tuple[int, ...], wanted: float) -> tuple[int, int]:
    """The neighbouring measured commits closest together that have at least so much mass between them."""
    total = np.cumsum(mass)
    spans = [
        (high - low, low, high)
        for i, low in enumerate(measured)
        for high in measured[i + 1 :]
        if total[high] - total[low] >= wanted
    ]
    _, low, high = min(spans, default=(0, measured[0], measured[-1]))
    return low, high


class _Fits(NamedTuple):
    """Least squares under each kind of drift and own level (rows) and for each gap (columns)."""

    log_likelihood: Array
    level: Array
    delta: Array
    variance: Array


def _fit(whitened: WhitenedReadings, nu: float, known: float, sign: int, finest: float) -> _Fits:
    """Generalised least squares of z on (1, x), x = [commit is above the gap], for all gaps at once.

    known: the prior's sum of squares of the noise.
    """
    # above[:, i, j]: product of "from the i-th measured commit on" with "from the j-th on"; from the 0th on is all.
    above = _sums_from(_sums_from(whitened.gram[:, 1:, 1:], 1), 2)
    zz, z_above = whitened.gram[:, :1, 0], _sums_from(whitened.gram[:, 0, 1:], 1)
    z1, zx = z_above[:, :1], z_above[:, 1:]
    one, one_x = above[:, :1, 0], above[:, 0, 1:]
    xx = np.diagonal(above, axis1=1, axis2=2)[:, 1:]
    det = np.maximum(one * xx - one_x**2, 1e-300)
    delta = (one * zx - one_x * z1) / det
    level = (xx * z1 - one_x * zx) / det
    residue = np.maximum(zz - level * z1 - delta * zx + known, nu * finest**2)
    variance = residue / nu
    right_sign = stdtr(nu, sign * delta / np.sqrt(variance * one / det))
    log_likelihood = (
        np.log(np.maximum(right_sign, 1e-300)) - np.log(det) / 2 - nu / 2 * np.log(residue) - whitened.log_det[:, None]
    )
    return _Fits(log_likelihood, level, delta, variance)


def _sums_from(values: Array, axis: int) -> Array:
    """Sums from each place to the end of an axis."""
    return np.flip(np.flip(values, axis).cumsum(axis), axis)
