"""A host that never was: readings with the noise, drift, outliers and costs that live mode meets.

The unit of all values is sigma, the sd of one sample from one fresh boot. World draws from its own generator,
so a seed is a history, its culprit and its noise.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from lab.stats.posterior import Image


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What a simulated search meets; `effect` is the size of the change (0: the ends do not differ).

    Drift is an AR(1) in time, shared by all kernels. An outlier is a slow-down of outlier_scale |t3|. broken:
    share of commits that do not build, in runs of three on average. level_sd: of each image's own level, as its
    layout makes it.
    """

    commits: int = 128
    effect: float = 1.0
    boot_sd: float = 0.6
    sample_sd: float = 0.8
    drift_sd: float = 0.5
    drift_memory_s: float = 900.0
    outliers: float = 0.02
    outlier_scale: float = 4.0
    broken: float = 0.0
    level_sd: float = 0.0
    build_s: float = 120.0
    boot_s: float = 5.0
    sample_s: float = 5.0


class World:
    """One history with its culprit, and the clock of the host that measures it."""

    def __init__(self, noise: Noise, seed: tuple[int, ...]) -> None:
        self.noise = noise
        self._seed = seed
        self._random = np.random.default_rng(seed)
        self.culprit = int(self._random.integers(1, noise.commits + 1))
        self.broken = self._broken()
        self.now_s = 0.0
        self.built: set[Image] = set()
        self.builds = self.samples = 0
        self._drift = noise.drift_sd * self._random.standard_normal()
        self._drift_at_s = 0.0

    def _broken(self) -> frozenset[int]:
        share, inside, found = self.noise.broken, False, set()
        starts = share / (3 * (1 - share))
        for commit in range(1, self.noise.commits):
            inside = self._random.random() < (2 / 3 if inside else starts)
            if inside:
                found.add(commit)
        return frozenset(found)

    def build(self, image: Image) -> bool:
        """Build an image unless it was; whether there is a kernel to boot."""
        if image not in self.built:
            self.now_s += self.noise.build_s
            self.builds += 1
            if image.commit in self.broken:
                return False
            self.built.add(image)
        return True

    @cache  # noqa: B019 - a world lives as long as one search
    def level(self, image: Image) -> float:
        """An image's level: the change from its commit on, and what its layout makes by a chance of its own."""
        noise = self.noise
        own = np.random.default_rng((*self._seed, 2, *image)).standard_normal() if noise.level_sd else 0.0
        return float(noise.level_sd * own - (noise.effect if image.commit >= self.culprit else 0.0))

    def boot(self, image: Image) -> float:
        """Boot a built image afresh and take one sample."""
        noise, chance = self.noise, self._random
        self.now_s += noise.boot_s + noise.sample_s
        self.samples += 1
        value = noise.boot_sd * chance.standard_normal() + noise.sample_sd * chance.standard_normal()
        if chance.random() < noise.outliers:
            value -= noise.outlier_scale * float(abs(chance.standard_t(3)))
        return value + self._drifted() + self.level(image)

    def _drifted(self) -> float:
        kept = math.exp(-(self.now_s - self._drift_at_s) / self.noise.drift_memory_s)
        self._drift = kept * self._drift + self.noise.drift_sd * math.sqrt(1 - kept**2) * self._random.standard_normal()
        self._drift_at_s = self.now_s
        return self._drift
