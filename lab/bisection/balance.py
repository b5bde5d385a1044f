"""How evenly each commit of a range would split it, and how likely it is that it can be tested at all. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set


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


def chances(among: Sequence[int], skipped: Set[int]) -> list[float]:
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
