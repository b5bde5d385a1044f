"""Delta debugging: the smallest part of a whole that has the whole's effect (Zeller and Hildebrandt, 2002). Pure.

A part may be undecided: its kernel does not build, boot or survive. It is then neither kept nor left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


class Outcome(Enum):
    """The outcome of a test: the part carries the effect of the whole, lacks it, or the test could not decide."""

    CARRIES = "carries"
    LACKS = "lacks"
    UNDECIDED = "undecided"


MOST_UNDECIDED = 4
"""After so many undecided tests in a row, parts of that size are taken to need each other."""

Test = Callable[[Sequence[T], int], Outcome]
"""Decides a part. It also gets an estimate of the tests that are left, this one included."""


def minimal(whole: Sequence[T], test: Test[T], likely: Collection[T] = ()) -> list[T]:
    """A part with the effect of the whole that needs each of its elements. The likeliest elements come first.

    likely: a part to try before all others. Halves are left out, then smaller parts; single elements if halves are
    undecided, because a mix without few elements builds more often. Undecided ones are tried again when others are
    gone.
    """
    left = list(whole)
    first = [element for element in left if element in likely]
    if 0 < len(first) < len(left) and test(first, 1 + tests_left(len(first))) is Outcome.CARRIES:
        left = first
    chunks = _split(left, 2)
    while len(left) > 1 and chunks:
        kept, undecided = _swept(left, chunks, test)
        if len(chunks) == 2 and len(kept) < len(left):
            chunks = _split(kept, 2)
        elif max(map(len, chunks)) > 1:
            chunks = _split(kept, len(kept) if undecided else min(2 * len(chunks), len(kept)))
        else:
            chunks = undecided if len(kept) < len(left) else []
        left = kept
    return left


def _swept(left: Sequence[T], chunks: Sequence[Sequence[T]], test: Test[T]) -> tuple[list[T], list[Sequence[T]]]:
    """Leave out every chunk that can be left out, the least likely ones first; the rest, and the undecided chunks."""
    kept, streak = list(left), 0
    undecided: list[Sequence[T]] = []
    for number, chunk in enumerate(reversed(chunks)):
        rest = [element for element in kept if element not in chunk]
        if not rest or streak == MOST_UNDECIDED:
            break
        outcome = test(rest, len(chunks) - number if len(chunks) > 2 else tests_left(len(rest)))
        if outcome is Outcome.CARRIES:
            kept = rest
        elif outcome is Outcome.UNDECIDED:
            undecided.insert(0, chunk)
        streak = streak + 1 if outcome is Outcome.UNDECIDED else 0
    return kept, undecided


def _split(elements: Sequence[T], parts: int) -> list[Sequence[T]]:
    cuts = [len(elements) * i // parts for i in range(parts + 1)]
    return [elements[low:high] for low, high in pairwise(cuts)]


def tests_left(size: int) -> int:
    """About how many tests find one element of so many."""
    return 1 + math.ceil(1.5 * math.log2(size)) if size > 1 else 1


def independent(losses: Mapping[T, float], whole: float, tolerance: float) -> list[list[T]]:
    """The elements of a minimal part in sets that do not depend on each other, the largest effect first.

    losses: the loss of effect without each element alone. whole: the effect of all. Elements whose losses add up to the
    whole are sets of their own; else all of them need each other.
    """
    if abs(math.fsum(losses.values()) - whole) > tolerance:
        return [list(losses)]
    return [[element] for element in sorted(losses, key=lambda element: -abs(losses[element]))]
