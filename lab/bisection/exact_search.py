"""The search itself: which commit to measure next, and what the measurements say so far. Pure.

Every measured commit is on a *level*: 0 is the old end's, further ones are numbered as they are met. A commit is
*explained* when its level is what its nearest measured ancestors lead to expect. One that is not has a change among
the commits behind it that are not behind those ancestors. Measuring one in the middle of them halves their number.
So one rule finds a culprit, a second change on another level, and a fix after the culprit; and since all of it
follows from the readings alone, a search goes on from a journal as if it had never stopped.

How evenly each commit of a range would split it, and how likely it is that it can be tested at all. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property


def ancestor_counts(parents: Sequence[Sequence[int]], among: Sequence[int]) -> dict[int, int]:
    """How many of the commits are behind each of them, itself included.

    Sets as the bits of integers, let go of as soon as no child needs them: tens of thousands take a second.
    """
    place = {one: i for i, one in enumerate(among)}
    waiting = dict.fromkeys(among, 0)
    for one in among:
        for parent in parents[one]:
            if parent in waiting:
                waiting[parent] += 1
    sets: dict[int, int] = {}
    counts = {}
    for one in among:
        bits = 1 << place[one]
        for parent in parents[one]:
            if parent in sets:
                bits |= sets[parent]
                waiting[parent] -= 1
                if not waiting[parent]:
                    del sets[parent]
        counts[one] = bits.bit_count()
        sets[one] = bits
    return counts


def testable_chances(among: Sequence[int], skipped: Set[int]) -> list[float]:
    """The chance of each to be testable, by how far it is from what was skipped: what breaks stays broken a while.

    Each further skip in the same stretch doubles the length that a broken stretch is thought to have, so a long
    one is left behind in few steps.
    """
    marks = [i for i, one in enumerate(among) if one in skipped]
    if not marks:
        return [1.0] * len(among)
    reach = 2.0 ** min(len(marks), 30)
    distance = _distances(len(among), marks)
    return [d / (d + reach) for d in distance]


def _distances(size: int, marks: Sequence[int]) -> list[int]:
    """How far each place is from the nearest mark."""
    found = [size] * size
    for order in (range(size), range(size - 1, -1, -1)):
        last = None
        marked = set(marks)
        for i in order:
            last = i if i in marked else last
            if last is not None:
                found[i] = min(found[i], abs(i - last))
    return found


OLD = -1
"""The old end, and everything behind it: never measured again, level 0."""

_TRIES_A_DOUBLING = 2
"""How many more commits of a stretch are tried, when it is twice as long. With one, scattered failures end a search."""


@dataclass(frozen=True)
class Graph:
    """Commits as numbers, parents before children; a parent outside the range is OLD."""

    parents: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def new(self) -> int:
        """The new end."""
        return len(self.parents) - 1

    @cached_property
    def is_line(self) -> bool:
        """Whether each commit has one parent, the one before it."""
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
    """What is known. levels: of the measured commits. skipped: those that could not be tested.

    effects: log of the value of each level over the old end's; needed only where merges bring levels together.
    tolerance: how far from the sum of its parents' effects a merge may be, in those units.
    """

    levels: Mapping[int, int]
    skipped: Set[int] = frozenset()
    effects: Mapping[int, float] = field(default_factory=dict)
    tolerance: float = 0.0

    def level(self, commit: int) -> int:
        """The level of a measured commit, or of the old end."""
        return 0 if commit == OLD else self.levels[commit]

    def effect(self, level: int) -> float:
        """How far a level is from the old end's."""
        return self.effects.get(level, 0.0 if level == 0 else math.inf)


@dataclass(frozen=True)
class Change:
    """A place where the level changes.

    at: the measured commit that shows it. among: the commits one of which did it, `at` itself last; more than one
    when the others could not be tested, or are still to be measured. before: the commit to compare `at` with.
    """

    at: int
    suspects: tuple[int, ...]
    before: int

    def open(self, readings: Readings) -> list[int]:
        """Those that are worth measuring.

        Once as many were skipped as a stretch of this length is worth, what lies between two skipped ones is given
        up. What is left are the ways to both edges of the stretch, which are halved.
        """
        left = [one for one in self.suspects if one != self.at and one not in readings.skipped]
        skipped = [one for one in self.suspects if one in readings.skipped]
        if len(skipped) < _TRIES_A_DOUBLING * math.log2(len(self.suspects)):
            return left
        return [one for one in left if not skipped[0] < one < skipped[-1]]


def changes(graph: Graph, readings: Readings) -> list[Change]:
    """All changes that the readings show, in the order of the history."""
    found: list[Change] = []
    for commit in sorted(readings.levels):
        among, nearest = _interval(graph, readings, commit)
        if not _explained(graph, readings, commit, nearest) and not _summed(graph, readings, commit, nearest, found):
            found.append(Change(at=commit, suspects=tuple(sorted(among)), before=_reference(readings, commit, nearest)))
    return found


def next_commit(graph: Graph, readings: Readings) -> int | None:
    """What to measure next; None when nothing more can be learned. The largest change comes first."""
    return next(iter(next_commits(graph, readings, 1)), None)


def next_commits(graph: Graph, readings: Readings, count: int) -> list[int]:
    """What to measure next, up to so many commits at once; none when nothing more can be learned.

    They split the largest change into equal parts, one more than there are of them. What its commits do not use up
    goes to the change after it.
    """
    todo = [change for change in changes(graph, readings) if change.open(readings)]
    chosen: list[int] = []
    for change in sorted(todo, key=lambda change: _size(readings, change), reverse=True):
        if len(chosen) == count:
            break
        left = [one for one in change.open(readings) if one not in chosen]
        for one in split(graph, readings, change, min(count - len(chosen), len(left))):
            chosen += [one] if one not in chosen else []
    return chosen


def after(graph: Graph, readings: Readings, commit: int) -> list[int]:
    """What would be next if that commit turned out like what comes before it, and like what comes after it."""
    found: list[int] = []
    for change in changes(graph, readings):
        if commit in change.suspects:
            for level in (readings.level(change.before), readings.level(change.at)):
                told = Readings(
                    {**readings.levels, commit: level}, readings.skipped, readings.effects, readings.tolerance
                )
                following = next_commit(graph, told)
                found += [following] if following is not None and following not in found else []
    return found


def steps_left(graph: Graph, readings: Readings) -> int:
    """About how many measurements are still needed."""
    return sum(
        math.ceil(math.log2(len(change.open(readings)) + 1))
        for change in changes(graph, readings)
        if change.open(readings)
    )


def widest_gap(graph: Graph, readings: Readings) -> int | None:
    """The commit in the middle of the longest stretch without a measurement, for ends that are alike."""
    known = sorted({OLD, *readings.levels, graph.new})
    gaps = [
        [one for one in range(low + 1, high) if one not in readings.skipped] for low, high in itertools.pairwise(known)
    ]
    widest = max(gaps, key=len, default=[])
    return _away_from_skipped(widest, readings) if widest else None


def widest_gaps(graph: Graph, readings: Readings, count: int) -> list[int]:
    """Up to so many commits for ends that are alike, each chosen as if those before it had been found alike, too."""
    chosen: list[int] = []
    while len(chosen) < count:
        told = Readings({**readings.levels, **dict.fromkeys(chosen, 0)}, readings.skipped)
        if (one := widest_gap(graph, told)) is None:
            break
        chosen.append(one)
    return chosen


def _away_from_skipped(gap: Sequence[int], readings: Readings) -> int:
    size = len(gap)
    chances = testable_chances(gap, readings.skipped)
    return gap[max(range(size), key=lambda i: (min(i + 1, size - i) * chances[i], -i))]


def _interval(graph: Graph, readings: Readings, commit: int) -> tuple[set[int], set[int]]:
    """The commits behind one that are not behind a measured ancestor, and those nearest measured ancestors."""
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
    covered = graph.behind(met)
    among = reached - covered
    further = graph.behind(parent for one in met for parent in graph.parents[one])
    nearest_ones = met - further
    if any(OLD in graph.parents[one] for one in among):
        nearest_ones.add(OLD)
    return among, nearest_ones


def _explained(graph: Graph, readings: Readings, commit: int, nearest: set[int]) -> bool:
    """Whether a commit's level is what its nearest measured ancestors lead to expect.

    Several ancestors meet in a merge. As in a merge of texts, a side that is as the common ancestor was brings
    nothing; where more than one side brings something, their effects add up.
    """
    levels = {readings.level(one) for one in nearest}
    if len(levels) == 1:
        return readings.level(commit) in levels
    base = _common_level(graph, readings, nearest)
    brought = levels - {base}
    if len(brought) == 1:
        return readings.level(commit) in brought
    start = readings.effect(base)
    expected = start + sum(readings.effect(level) - start for level in brought)
    here = readings.effect(readings.level(commit))
    return math.isfinite(expected) and abs(here - expected) <= readings.tolerance


def _summed(graph: Graph, readings: Readings, commit: int, nearest: set[int], found: Sequence[Change]) -> bool:
    """Whether what was brought by the culprits behind a commit adds up to what it shows; asked of merges only.

    Branches that were merged to and fro have no one common ancestor, but each culprit is behind a commit or not.
    """
    if len({readings.level(one) for one in nearest}) == 1:
        return False
    reach = graph.behind([commit])
    brought = (
        readings.effect(readings.level(change.at)) - readings.effect(readings.level(change.before))
        for change in found
        if len(change.suspects) == 1 and change.at in reach
    )
    expected, here = math.fsum(brought), readings.effect(readings.level(commit))
    return math.isfinite(expected) and abs(here - expected) <= readings.tolerance


def _common_level(graph: Graph, readings: Readings, nearest: set[int]) -> int:
    """The level of the newest measured commit that is behind all of them."""
    if OLD in nearest:
        return 0
    common = set.intersection(*(graph.behind([one]) for one in nearest))
    return readings.level(max((one for one in common if one in readings.levels), default=OLD))


def _reference(readings: Readings, commit: int, nearest: set[int]) -> int:
    """The ancestor to tell a change against: the one least like it, since a likeness would have explained it."""
    here = readings.effect(readings.level(commit))
    return max(nearest, key=lambda one: (abs(readings.effect(readings.level(one)) - here), -one))


def _size(readings: Readings, change: Change) -> tuple[float, int]:
    here = readings.effect(readings.level(change.at))
    return abs(here - readings.effect(readings.level(change.before))), -change.at


def split(graph: Graph, readings: Readings, change: Change, count: int) -> list[int]:
    """The commits that split a change's commits best into equal parts, of those that may well be testable.

    One is as git has it: of its ancestors among them and the others, the smaller part is to be as large as possible.
    With more of them, each is to have its share of the ancestors. Near commits that could not be tested, others
    probably cannot either.
    """
    among, open_ones = change.suspects, set(change.open(readings))
    weights = ancestor_counts(graph.parents, among)
    chances = dict(zip(among, testable_chances(among, readings.skipped), strict=True))
    size = len(among)
    chosen: list[int] = []
    for part in range(1, count + 1):
        behind, ahead = part, count + 1 - part

        def evenness(one: int, behind: int = behind, ahead: int = ahead) -> tuple[float, int]:
            return min(weights[one] * ahead, (size - weights[one]) * behind) * chances[one], -one

        chosen.append(max((one for one in among if one in open_ones and one not in chosen), key=evenness))
    return sorted(chosen)
