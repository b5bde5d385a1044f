"""The choice of the next boots by the expected information about the culprit per second.

A choice is some boots of one image and some of the ends. Whether the commit has the change is one bit, known with
probability F; boots show it with the separation D, the change in sds of the remaining uncertainty. Their expected bits
are those of a noisy yes/no question, and a missing build costs its time. Boots of the ends pin down the level, and the
drift, against which the commit is read. If images have levels of their own, more boots of one image tell less and
less about its commit; another layout of it tells more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from lab.stats.posterior import Array, Belief, Image

OPEN = 0.004
"""A measured commit is worth more boots while both answers are likelier than this."""

BOOTS = (0, 1, 2, 3, 4, 6, 9, 14)
END_BOOTS = (0, 1, 2, 4, 7)

_SETTLED = 0.01
_RARE = 0.02  # kinds of drift and own level that are less likely do not change the choice
_FEWEST = 6
_NEVER = 1e6  # the variance of boots that are not made


class Costs(NamedTuple):
    """The seconds of a build, and of one boot with its samples."""

    build_s: float
    boot_s: float


class Choice(NamedTuple):
    """Numbers of boots of an image and of both ends together, and the bits per second expected from them."""

    image: Image
    boots: int
    end_boots: int
    bits_per_s: float


def choose(
    belief: Belief, costs: Costs, built: Collection[int], untestable: Collection[int], *, layouts: bool = False
) -> Choice | None:
    """The best choice; None when no commit is left whose boots could tell anything.

    layouts: whether commits can be built with another layout.
    """
    belief = belief.with_likely_kinds(_RARE)
    pairs = [(b, r) for b in BOOTS for r in END_BOOTS if b + r >= _fewest(belief)]
    boots, end_boots = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    best: Choice | None = None
    for image, chance in candidates(belief, built, untestable, layouts=layouts):
        known = image in belief.images
        build_s = 0.0 if known or image in {Image(commit) for commit in built} else costs.build_s
        gained = information(belief, image, build_s, boots, end_boots)
        separation = np.sqrt(gained) * abs(belief.delta) / belief.noise
        bits = chance * answer_bits(float(belief.bad[image.commit]), separation)
        rates = bits / (build_s + (boots + end_boots) * costs.boot_s)
        if not known:  # without a boot of its own nothing is learnt, and the build would be for nothing
            rates[boots == 0] = 0.0
        i = int(rates.argmax())
        if rates[i] > (best.bits_per_s if best else 0.0):
            best = Choice(image, *pairs[i], float(rates[i]))
    return best


def _fewest(belief: Belief) -> int:
    """The fewest boots that show something: one if the change is plain, six if it drowns in noise."""
    plain = (belief.delta / belief.noise) ** 2
    return min(_FEWEST, max(1, round(2 / plain))) if plain > 0 else _FEWEST


def candidates(
    belief: Belief, built: Collection[int], untestable: Collection[int], *, layouts: bool = False
) -> list[tuple[Image, float]]:
    """The images worth booting, each with its chance to be testable.

    These are all images of measured commits that are still open, with a new layout of each if there can be one, and of
    the other commits the built one and the new one that halve best.
    """
    last = belief.measured[-1]
    chances = buildable(last, untestable)
    halving = np.minimum(belief.bad, 1 - belief.bad) * chances
    halving[[*belief.measured, *untestable]] = 0.0
    ready = np.zeros(last + 1, dtype=bool)
    ready[list(built)] = True
    still_open = {c for c in belief.measured if 0 < c < last and OPEN < belief.bad[c] < 1 - OPEN}
    found = [(image, 1.0) for image in belief.images if image.commit in still_open]
    if layouts:
        found += [(belief.next_layout(commit), 1.0) for commit in sorted(still_open)]
    for group in (np.where(ready, halving, 0.0), np.where(ready, 0.0, halving)):
        commit = int(group.argmax())
        if group[commit] > 0:
            found.append((Image(commit), float(chances[commit])))
    return found


def buildable(last: int, untestable: Collection[int]) -> Array:
    """The chance of each commit to be testable: a broken build stays in the tree for a few commits."""
    commits, chances = np.arange(last + 1), np.ones(last + 1)
    for broken in untestable:
        chances *= 1 - 0.67 * np.exp(-np.abs(commits - broken) / 3)
    return chances


def bits_left(belief: Belief, untestable: Collection[int]) -> float:
    """The bits still missing until no measurement can say more.

    No measurement tells an untestable commit from the next testable one.
    """
    commits = np.arange(belief.measured[-1] + 1)
    testable = np.setdiff1d(commits, list(untestable))
    mass = np.bincount(np.searchsorted(testable, commits), belief.mass)
    some = mass[mass > 0]
    return float(-(some * np.log2(some)).sum())


# ---- the information in boots


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def answer_bits(chance: float, separation: Array) -> Array:
    """The expected bits about a yes/no question from one normal reading.

    chance: of "yes" beforehand. separation: distance of the two means in sds. It is the mutual information
    `F E[-log2(F + (1 - F) / L)] + (1 - F) E[-log2(F L' + 1 - F)]`, L and L' the likelihood ratios under each.
    """
    d = np.minimum(separation, 12.0)[:, None]
    yes, no = np.exp(-d * _NODES - d**2 / 2), np.exp(d * _NODES - d**2 / 2)
    bits = -chance * np.log2(chance + (1 - chance) * yes) - (1 - chance) * np.log2(chance * no + 1 - chance)
    return np.maximum(bits @ _WEIGHTS, 0.0)


def information(belief: Belief, image: Image, wait_s: float, boots: Array, end_boots: Array) -> Array:
    """The precision that boots of an image add to its commit's level relative to the expected level.

    It is in units of 1/noise^2, for each pair of (boots of it, boots of the ends), made wait_s from now, averaged over
    the kinds of drift and own level. Commits whose label is open have levels of their own, so they are not a reference.
    """
    design = _design(belief, image.commit)
    known = design.T @ belief.whitened.gram[:, 1:, 1:] @ design
    forecast, left = belief.whitened.ahead(wait_s)
    label = float(belief.bad[image.commit] > 0.5)
    rows = np.zeros((2, design.shape[1]))
    rows[0, :3], rows[1, :2] = (1.0, label, 1.0), (1.0, 0.5)
    shared = _shared(belief, image)
    rows = rows - shared @ forecast[:, :, 1:] @ design
    # Least squares does not mind the order: first drop the levels of other open commits, ...
    core, others = known[:, :3, :3], known[:, 3:, 3:]
    noise = shared @ left @ shared.T
    if image not in belief.images:
        noise[:, 0, 0] += belief.whitened.levels
    if others.shape[1]:
        solved = np.linalg.solve(others, known[:, 3:, :3])
        core = core - known[:, :3, 3:] @ solved
        rows_other = rows[:, :, 3:]
        noise = noise + rows_other @ np.linalg.solve(others, rows_other.transpose(0, 2, 1))
        rows = rows[:, :, :3] - rows_other @ solved
    # ... then add the boots, two more rows whose errors have the drift in common.
    own_noise = np.zeros((len(boots), 2, 2))
    own_noise[:, 0, 0] = 1 / np.maximum(boots, 1 / _NEVER)
    own_noise[:, 1, 1] = 1 / np.maximum(end_boots, 1 / _NEVER)
    inverse = np.linalg.inv(noise[:, None] + own_noise)
    after = core[:, None] + rows.transpose(0, 2, 1)[:, None] @ inverse @ rows[:, None]
    before = _last_given_rest(core)[:, None] if image.commit in belief.boots else 0.0
    gained = _last_given_rest(after) - before
    return np.maximum(belief.kinds @ gained, 0.0)


def _shared(belief: Belief, image: Image) -> Array:
    """The parts of drift and of the images' own levels in a boot of an image, and in one of the ends."""
    shared = np.zeros((2, 1 + len(belief.images)))
    shared[:, 0] = 1.0
    if image in belief.images:
        shared[0, 1 + belief.images.index(image)] = 1.0
    for end in (belief.measured[0], belief.measured[-1]):
        shared[1, 1 + belief.images.index(Image(end))] = 0.5
    return shared


def _design(belief: Belief, commit: int) -> Array:
    """Columns (level, delta, offset of `commit`, one for each other open commit) over the measured commits."""
    inner = belief.measured[1:-1]
    others = [c for c in inner if c != commit and _SETTLED <= belief.bad[c] <= 1 - _SETTLED]
    place = {c: 3 + i for i, c in enumerate(others)}
    design = np.zeros((len(belief.measured), 3 + len(others)))
    for row, c in zip(design, belief.measured, strict=True):
        if c in place:
            row[place[c]] = 1.0
        else:
            row[:3] = 1.0, float(belief.bad[c] > 0.5), float(c == commit)
    return design


def _last_given_rest(precision: Array) -> Array:
    """The offset's precision in a 3 x 3 precision matrix over (level, delta, offset), the others unknown."""
    a, b, d = precision[..., 0, 0], precision[..., 0, 1], precision[..., 1, 1]
    u, v = precision[..., 0, 2], precision[..., 1, 2]
    return precision[..., 2, 2] - (d * u * u - 2 * b * u * v + a * v * v) / (a * d - b * b)
