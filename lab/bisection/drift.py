"""Taking a host's slow drift out of readings: an Ornstein-Uhlenbeck process beside independent noise.

A host gets warm, moves its clock, runs something else: readings taken minutes apart share an error that those
taken hours apart do not. D(t) has variance `ratio` (in units of the noise of one reading) and is forgotten at
the rate exp(-dt / memory_s). Neither is known, so everything is computed for each pair of a small grid.

D is Markov, so a scalar Kalman filter whitens n readings in n steps, where the covariance matrix would need
n^3: Harvey, Forecasting, Structural Time Series Models and the Kalman Filter (1989), section 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Drift(NamedTuple):
    """One kind of drift and how likely it is beforehand. memory_s matters only where ratio > 0."""

    weight: float
    ratio: float
    memory_s: float


NO_DRIFT = (Drift(1.0, 0.0, 1.0),)
DRIFTS = (
    Drift(0.1, 0.0, 1.0),
    *(Drift(0.15, ratio, memory_s) for ratio in (0.1, 0.4, 1.6) for memory_s in (300, 3000)),
)
"""None with weight .1, else a third to over all of the noise's sd, gone in five minutes or in most of an hour."""


@dataclass(frozen=True, kw_only=True)
class Whitened:
    """Inner products of columns of readings under each drift, and what the readings say of the drift now.

    gram[g, i, j]: product of columns i and j under drift g. log_det[g]: half the log determinant of the
    covariance. forecast[g, i]: what column i says D is at the last reading; left[g]: D's variance given it.
    """

    gram: Array
    log_det: Array
    forecast: Array
    left: Array
    ratios: Array
    memories_s: Array

    def ahead(self, seconds: float) -> tuple[Array, Array]:
        """`forecast` and `left` as they will be after so many seconds without a reading."""
        kept = np.exp(-seconds / self.memories_s)
        return self.forecast * kept[:, None], kept**2 * self.left + self.ratios * (1 - kept**2)


def weigh(columns: Array, weights: Array) -> Whitened:
    """The same for readings without drift, where there is nothing to filter."""
    none = np.zeros(1)
    return Whitened(
        gram=(columns.T * weights @ columns)[None],
        log_det=-np.log(weights).sum(keepdims=True) / 2,
        forecast=np.zeros((1, columns.shape[1])),
        left=none,
        ratios=none,
        memories_s=np.ones(1),
    )


def whiten(columns: Array, at_s: Array, weights: Array, drifts: tuple[Drift, ...]) -> Whitened:
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
    return Whitened(
        gram=scaled.transpose(0, 2, 1) @ scaled,
        log_det=np.log(spread).sum(axis=0) / 2,
        forecast=forecast,
        left=left,
        ratios=ratios,
        memories_s=memories_s,
    )
