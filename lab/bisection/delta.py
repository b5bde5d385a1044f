"""Delta debugging: the smallest part of a whole that does what the whole does (Zeller and Hildebrandt, 2002). Pure.

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


Test = Callable[[Sequence[T], int], Outcome]
"""Decides a part. It also gets an estimate of the tests that are left, this one included."""


def minimal(whole: Sequence[T], test: Test[T], likely: Collection[T] = ()) -> list[T]:
    """A part of which no element can be left out, though the whole does no more. The likeliest elements come first.

    likely: a part to try before all others. Halves are tried by themselves, smaller parts only by what is left
    without them: where many elements are needed together, one alone hardly ever builds.
    """
    left = list(whole)
    first = [element for element in left if element in likely]
    if 0 < len(first) < len(left) and test(first, 1 + tests_left(len(first))) is Outcome.CARRIES:
        left = first
    parts = 2
    while len(left) > 1:
        chunks = _split(left, min(parts, len(left)))
        smaller = _smaller(left, chunks, test)
        if smaller is not None:
            parts = 2 if len(chunks) == 2 else len(chunks) - 1
            left = smaller
        elif len(chunks) == len(left):
            break
        else:
            parts = 2 * len(chunks)
    return left


def _smaller(left: Sequence[T], chunks: Sequence[Sequence[T]], test: Test[T]) -> list[T] | None:
    """A half that carries, or what is left without one of more chunks; the least likely ones are left out first."""
    rest = [[element for element in left if element not in chunk] for chunk in reversed(chunks)]
    for number, part in enumerate(rest):
        others = len(rest) - number if len(chunks) > 2 else tests_left(len(part))
        if test(part, others) is Outcome.CARRIES:
            return part
    return None


def _split(elements: Sequence[T], parts: int) -> list[Sequence[T]]:
    cuts = [len(elements) * i // parts for i in range(parts + 1)]
    return [elements[low:high] for low, high in pairwise(cuts)]


def tests_left(size: int) -> int:
    """About how many tests find one element of so many."""
    return 1 + math.ceil(1.5 * math.log2(size)) if size > 1 else 1


def independent(losses: Mapping[T, float | None], whole: float, tolerance: float) -> list[list[T]]:
    """The elements of a minimal part in sets that do not depend on each other, the largest effect first.

    losses: the loss of effect without each element alone; None where that is undecided. whole: the effect of all.
    Elements whose losses add up to the whole are sets of their own. Else all of them need each other, as do those of
    which the rest cannot even be tested.
    """
    known = {element: loss for element, loss in losses.items() if loss is not None}
    if len(known) < len(losses) or abs(math.fsum(known.values()) - whole) > tolerance:
        return [list(losses)]
    return [[element] for element in sorted(known, key=lambda element: -abs(known[element]))]
