"""What the kernel did differently: counters ranked by how much they moved, each with its meaning in a line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from lab.core import paths, toml
from lab.core.records import Record
from lab.stats.verdict import Comparison

# The model counts the program and the kernel apart.
_SIDE = re.compile(r"^(?:user|kernel)[._]")

Line = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]


class Counter(Record, frozen=True, kw_only=True):
    """What a counter means, and where it is counted: a file of the kernel's source, or the lab's own model."""

    meaning: Line
    source: Line


class _File(Record, frozen=True, kw_only=True):
    """`reports/counters.toml`."""

    schema: int
    counter: dict[str, Counter]


class Mechanism(Record, frozen=True, kw_only=True):
    """A counter that moved: means of both arms over the seeds or blocks that both have.

    ratio: test / base, None from zero. meaning, source: empty for a counter that nobody has described.
    """

    name: str
    unit: str
    base: float
    test: float
    ratio: float | None
    meaning: str = ""
    source: str = ""


@cache
def counters(path: Path | None = None) -> Mapping[str, Counter]:
    """The known counters by name, from `reports/counters.toml`. `UserError` when the file is broken."""
    return toml.load(path or paths.room("reports") / "counters.toml", _File).counter


def mechanisms(comparisons: Iterable[Comparison], known: Mapping[str, Counter] | None = None) -> list[Mechanism]:
    """The counters among a case's comparisons that moved, the one that moved most first.

    A counter is what `counters.toml` knows and what has no better side; how fast a kernel is, is not why.
    """
    known = counters() if known is None else known
    moved = []
    for one in comparisons:
        about = known.get(one.name) or known.get(_SIDE.sub("", one.name))
        if one.primary or (about is None and one.better != "neither"):
            continue
        if (means := _means(one.base, one.test)) and means[0] != means[1]:
            moved.append(_mechanism(one, *means, about))
    return sorted(moved, key=lambda m: (-_distance(m), m.name))


def _means(base: Sequence[float | None], test: Sequence[float | None]) -> tuple[float, float] | None:
    """Means over the pairs of which both numbers are there; None without any."""
    pairs = [(b, t) for b, t in zip(base, test, strict=True) if b is not None and t is not None]
    if not pairs:
        return None
    return math.fsum(b for b, _ in pairs) / len(pairs), math.fsum(t for _, t in pairs) / len(pairs)


def _mechanism(one: Comparison, base: float, test: float, about: Counter | None) -> Mechanism:
    return Mechanism(
        name=one.name,
        unit=one.unit,
        base=base,
        test=test,
        ratio=test / base if base else None,
        meaning=about.meaning if about else "",
        source=about.source if about else "",
    )


def _distance(moved: Mechanism) -> float:
    """|log of (test + 1) / (base + 1)|: events are whole, so from 0 to 1 is less than from 10 to 400, yet finite."""
    return abs(math.log1p(max(moved.test, 0)) - math.log1p(max(moved.base, 0)))
