"""The search of exact mode: the commit to measure next, and the changes that the measurements show. Pure.

Every measured commit is on a *level*: 0 is the old end's, further ones are numbered as they are met. A commit is
*explained* when its level follows from its nearest measured ancestors. Behind an unexplained commit, and not behind
those ancestors, some commit made a change. Measuring one in the middle of them halves their number. So one rule finds a
culprit, a second change on another level, and a fix after the culprit; and since all of it follows from the readings
alone, a search continues from a journal as if it had never stopped.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

OLD = -1
"""The old end, and everything behind it: never measured again, level 0."""

_TRIES_A_DOUBLING = 2
"""The extra tries in a stretch of twice the length. With one, scattered failures end a search."""


@dataclass(frozen=True)
class Graph:
    """Commits as numbers, parents before children; a parent outside the range is OLD."""

    parents: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def new(self) -> int:
        return len(self.parents) - 1

    @cached_property
    def is_line(self) -> bool:
        """True if each commit has one parent, the one before it."""
        return all(parents == (i - 1,) for i, parents in enumerate(self.parents))

    def behind(self, starts: Iterable[int]) -> set[int]:
        """All ancestors of some commits within the range, themselves included."""
        todo = [start for start in starts if start != OLD]
        if self.is_line:
            return set(range(max(todo, default=OLD) + 1))
        seen = set(todo)
        while todo:
            for parent in self.parents[todo.pop()]:
                if parent != OLD and parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
        return seen


@dataclass(frozen=True)
class Readings:
    """The measurements so far.

    levels: those of the measured commits. skipped: commits that could not be tested. effects: the log of each level's
    value over the old end's; needed only if merges bring levels together.
    tolerance: the greatest distance of a merge from the sum of its parents' effects, in those units.
    """

    levels: Mapping[int, int]
    skipped: Set[int] = frozenset()
    effects: Mapping[int, float] = field(default_factory=dict)
    tolerance: float = 0.0

    def level(self, commit: int) -> int:
        """The level of a measured commit, or of the old end."""
        return 0 if commit == OLD else self.levels[commit]

    def level_effect(self, level: int) -> float:
        """The effect of a level; infinite if it is not known."""
        return self.effects.get(level, 0.0 if level == 0 else math.inf)

    def effect(self, commit: int) -> float:
        return self.level_effect(self.level(commit))

    def has_effect(self, commit: int, expected: float) -> bool:
        """True if a commit's effect is the expected one, within the tolerance."""
        return math.isfinite(expected) and abs(self.effect(commit) - expected) <= self.tolerance


@dataclass(frozen=True)
class Change:
    """A change of level.

    at: the measured commit on the new level, last of the suspects.
    suspects: the commits that may have caused it. The others are untestable or not measured yet.
    before: the commit to compare `at` with.
    """

    at: int
    suspects: tuple[int, ...]
    before: int

    def open(self, readings: Readings) -> list[int]:
        """The suspects that are worth measuring.

        After too many skips for the length of the stretch, it drops the commits between two skipped ones. The rest
        leads to both edges of the stretch, and is halved.
        """
        left = [commit for commit in self.suspects if commit != self.at and commit not in readings.skipped]
        skipped = [commit for commit in self.suspects if commit in readings.skipped]
        if len(skipped) < _TRIES_A_DOUBLING * math.log2(len(self.suspects)):
            return left
        return [commit for commit in left if not skipped[0] < commit < skipped[-1]]


# ---- levels of readings


def changes(graph: Graph, readings: Readings) -> list[Change]:
    """All changes that the readings show, in the order of the history."""
    found: list[Change] = []
    for commit in sorted(readings.levels):
        suspects, nearest = _interval(graph, readings, commit)
        if not _explained(graph, readings, commit, nearest) and not _summed(graph, readings, commit, nearest, found):
            found.append(Change(commit, tuple(sorted(suspects)), before=_least_like(readings, commit, nearest)))
    return found


def _interval(graph: Graph, readings: Readings, commit: int) -> tuple[set[int], set[int]]:
    """The commits behind a commit that are not behind a measured ancestor, and those nearest measured ancestors."""
    if graph.is_line:
        nearest = next((one for one in range(commit - 1, OLD, -1) if one in readings.levels), OLD)
        return set(range(nearest + 1, commit + 1)), {nearest}
    reached, met, todo = {commit}, set[int](), [commit]
    while todo:
        for parent in graph.parents[todo.pop()]:
            if parent in readings.levels:
                met.add(parent)
            elif parent != OLD and parent not in reached:
                reached.add(parent)
                todo.append(parent)
    suspects = reached - graph.behind(met)
    further = graph.behind(parent for ancestor in met for parent in graph.parents[ancestor])
    old = {OLD} if any(OLD in graph.parents[suspect] for suspect in suspects) else set()
    return suspects, (met - further) | old


def _explained(graph: Graph, readings: Readings, commit: int, nearest: set[int]) -> bool:
    """True if a commit's level follows from its nearest measured ancestors.

    Several ancestors meet in a merge. As in a merge of texts, a side that equals the common ancestor brings nothing; if
    several sides bring something, their effects add up.
    """
    levels = {readings.level(ancestor) for ancestor in nearest}
    if len(levels) == 1:
        return readings.level(commit) in levels
    base = _common_level(graph, readings, nearest)
    brought = levels - {base}
    if len(brought) == 1:
        return readings.level(commit) in brought
    start = readings.level_effect(base)
    return readings.has_effect(commit, start + sum(readings.level_effect(level) - start for level in brought))


def _summed(graph: Graph, readings: Readings, commit: int, nearest: set[int], found: Sequence[Change]) -> bool:
    """True for a merge whose effect is the sum of the culprits' behind it.

    Branches that were merged to and fro have no one common ancestor, but each culprit is behind a commit or not.
    """
    if len({readings.level(ancestor) for ancestor in nearest}) == 1:
        return False
    reach = graph.behind([commit])
    culprits = (change for change in found if len(change.suspects) == 1 and change.at in reach)
    brought = (readings.effect(change.at) - readings.effect(change.before) for change in culprits)
    return readings.has_effect(commit, math.fsum(brought))


def _common_level(graph: Graph, readings: Readings, nearest: set[int]) -> int:
    """The level of the newest measured commit that is behind all of them."""
    if OLD in nearest:
        return 0
    common = set.intersection(*(graph.behind([ancestor]) for ancestor in nearest))
    return readings.level(max((commit for commit in common if commit in readings.levels), default=OLD))


def _least_like(readings: Readings, commit: int, nearest: set[int]) -> int:
    """The ancestor to compare a change with: the one least like it, since a likeness would have explained it."""
    here = readings.effect(commit)
    return max(nearest, key=lambda ancestor: (abs(readings.effect(ancestor) - here), -ancestor))


# ---- the next commits


def next_commit(graph: Graph, readings: Readings) -> int | None:
    """The commit to measure next; None when nothing more can be learned. The largest change comes first."""
    return next(iter(next_commits(graph, readings, 1)), None)


def next_commits(graph: Graph, readings: Readings, count: int) -> list[int]:
    """Up to so many commits to measure next, at once; none when nothing more can be learned.

    They split the largest change into equal parts, one more than there are of them. Measurements that its commits do
    not use go to the change after it.
    """
    todo = [change for change in changes(graph, readings) if change.open(readings)]
    chosen: list[int] = []
    for change in sorted(todo, key=lambda change: _size(readings, change), reverse=True):
        if len(chosen) == count:
            break
        left = [commit for commit in change.open(readings) if commit not in chosen]
        parts = split(graph, readings, change, min(count - len(chosen), len(left)))
        chosen += [commit for commit in parts if commit not in chosen]
    return chosen


def _size(readings: Readings, change: Change) -> tuple[float, int]:
    return abs(readings.effect(change.at) - readings.effect(change.before)), -change.at


def split(graph: Graph, readings: Readings, change: Change, count: int) -> list[int]:
    """The suspects that split a change best into equal parts, among the commits that are likely testable.

    One is chosen as git does: of its ancestors among them and the others, the smaller part is to be as large as
    possible. With more of them, each is to have its share of the ancestors. Near commits that could not be tested,
    others probably cannot either.
    """
    suspects, left = change.suspects, set(change.open(readings))
    weights = ancestor_counts(graph.parents, suspects)
    chances = dict(zip(suspects, testable_chances(suspects, readings.skipped), strict=True))
    size = len(suspects)
    chosen: list[int] = []
    for part in range(1, count + 1):
        behind, ahead = part, count + 1 - part

        def evenness(commit: int, behind: int = behind, ahead: int = ahead) -> tuple[float, int]:
            return min(weights[commit] * ahead, (size - weights[commit]) * behind) * chances[commit], -commit

        chosen.append(max((commit for commit in suspects if commit in left), key=evenness))
        left.remove(chosen[-1])
    return sorted(chosen)


def ancestor_counts(parents: Sequence[Sequence[int]], among: Sequence[int]) -> dict[int, int]:
    """The number of ancestors of each commit among them, itself included.

    Sets as the bits of integers, let go of as soon as no child needs them: tens of thousands take a second.
    """
    place = {commit: i for i, commit in enumerate(among)}
    waiting = dict.fromkeys(among, 0)
    for commit in among:
        for parent in parents[commit]:
            if parent in waiting:
                waiting[parent] += 1
    sets: dict[int, int] = {}
    counts = {}
    for commit in among:
        bits = 1 << place[commit]
        for parent in parents[commit]:
            if parent in sets:
                bits |= sets[parent]
                waiting[parent] -= 1
                if not waiting[parent]:
                    del sets[parent]
        counts[commit] = bits.bit_count()
        sets[commit] = bits
    return counts


def testable_chances(commits: Sequence[int], skipped: Set[int]) -> list[float]:
    """The chance of each to be testable, by its distance from the skipped ones: a break stays for a while.

    Each further skip in the same stretch doubles the length that a broken stretch is thought to have, so a long
    one is left behind in few steps.
    """
    marks = [i for i, commit in enumerate(commits) if commit in skipped]
    if not marks:
        return [1.0] * len(commits)
    reach = 2.0 ** min(len(marks), 30)
    neighbours = (marks[max(bisect_left(marks, i) - 1, 0) :][:2] for i in range(len(commits)))
    distances = (min(abs(i - mark) for mark in near) for i, near in enumerate(neighbours))
    return [distance / (distance + reach) for distance in distances]


def after(graph: Graph, readings: Readings, commit: int) -> list[int]:
    """The commits that would be next if this one were like the commit before the change, and like the one after it."""
    found: list[int] = []
    for change in changes(graph, readings):
        if commit in change.suspects:
            for level in (readings.level(change.before), readings.level(change.at)):
                following = next_commit(graph, replace(readings, levels={**readings.levels, commit: level}))
                found += [following] if following is not None and following not in found else []
    return found


def steps_left(graph: Graph, readings: Readings) -> int:
    """The number of measurements that are still needed, roughly."""
    counts = (len(change.open(readings)) for change in changes(graph, readings))
    return sum(math.ceil(math.log2(count + 1)) for count in counts)


def widest_gaps(graph: Graph, readings: Readings, count: int) -> list[int]:
    """The middles of up to so many stretches without a measurement, the longest first; for ends that are alike."""
    chosen: list[int] = []
    while len(chosen) < count:
        known = sorted({OLD, *readings.levels, *chosen, graph.new})
        stretches = (range(low + 1, high) for low, high in itertools.pairwise(known))
        widest = max(([c for c in stretch if c not in readings.skipped] for stretch in stretches), key=len)
        if not widest:
            break
        chosen.append(widest[(len(widest) - 1) // 2])
    return chosen
