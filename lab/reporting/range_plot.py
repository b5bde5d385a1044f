"""The range of a bisection as pictures: chances, changes, the path taken, and how each commit stands.

All have the commits from left to right, the old end first, and stand below each other. As in `plots` they are
stretched, and have no words of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from lab.bisection.places import Place, Stand
from lab.reporting.plots import SIZE, Axis, Tick, drawn
from lab.stats.verdict import percent

CLASSES = {
    Stand.OLD: "old",
    Stand.NEW: "new",
    Stand.NEITHER: "neither",
    Stand.UNCLEAR: "unclear",
    Stand.UNTESTABLE: "untestable",
    Stand.SUSPECT: "suspect",
    Stand.OPEN: "open",
}
GLYPHS = {
    Stand.OLD: "●", Stand.NEW: "■", Stand.NEITHER: "◆", Stand.UNCLEAR: "?", Stand.UNTESTABLE: "✕",
}  # fmt: skip
"""A shape for each word, so that no colour is needed."""

_NARROWEST = 3.0
_ROOM = 0.15  # above and below the changes, of what they span: a low lane's dots are large in it


class Mark(NamedTuple):
    """A step of the path, placed in percent: its number is said beside it."""

    x: float
    y: float
    glyph: str
    kind: str
    step: int


class Range(NamedTuple):
    """The commits of a bisection on a line."""

    places: Sequence[Place]

    def at(self, number: float) -> float:
        """The middle of a commit, in thousandths."""
        return round(SIZE * (number + 0.5) / len(self.places), 1)

    def _box(self, first: int, last: int) -> tuple[float, float]:
        """Left and width of some neighbours, never too narrow to be seen."""
        left, right = SIZE * first / len(self.places), SIZE * (last + 1) / len(self.places)
        width = max(right - left, _NARROWEST)
        return round(min(left, SIZE - width), 1), round(width, 1)

    @property
    def path(self) -> list[Place]:
        """What was measured, in the order of measuring."""
        return sorted((p for p in self.places if p.step is not None), key=lambda p: p.step or 0)

    def chances(self, label: str) -> Markup:
        """How likely each commit is a culprit, as bars."""
        parts = []
        for chance, group in groupby(self.places, key=lambda place: place.chance):
            run = list(group)
            if chance > 0:
                left, width = self._box(run[0].number, run[-1].number)
                height = round(max(SIZE * chance, 10), 1)
                parts.append(f'<rect class="chance" x="{left}" y="{SIZE - height}" width="{width}" height="{height}"/>')
        return drawn(parts, label)

    def changes(self, label: str, new: float | None) -> Markup:
        """Every measured commit by its change against the old end; `new` is that of the new end."""
        axis = self.axis(new)
        zero = axis.at(0.0)
        parts = [f'<path class="zero" d="M0 {zero}H{SIZE}"/>']
        known = [(p.number, p.stand, p.told.ratio) for p in self.places if p.told and p.told.ratio]
        known = [(0, Stand.OLD, 1.0), *known]
        if new:
            known.append((len(self.places) - 1, self.places[-1].stand, new))
        for stand, name in CLASSES.items():
            dots = "".join(f"M{self.at(n)} {axis.at(math.log(ratio))}h0" for n, one, ratio in known if one == stand)
            parts += [f'<path class="dots of-{name}" d="{dots}"/>'] if dots else []
        return drawn(parts, label)

    def axis(self, new: float | None) -> Axis:
        """Of the changes against the old end, as logs of ratios."""
        ratios = [p.told.ratio for p in self.places if p.told and p.told.ratio]
        logs = [math.log(ratio) for ratio in (1.0, *ratios, *([new] if new else []))]
        room = _ROOM * (max(logs) - min(logs)) or 0.01
        return Axis(low=min(logs) - room, high=max(logs) + room)

    def ends(self, new: float | None) -> tuple[str, str]:
        """The labels at both ends of that axis."""
        axis = self.axis(new)
        return percent(math.exp(axis.high)), percent(math.exp(axis.low))

    def steps(self, label: str) -> Markup:
        """The way from one measured commit to the next, a row each."""
        rows = max(len(self.path), 1)
        places = [f"{self.at(p.number)} {round(SIZE * (i + 0.5) / rows, 1)}" for i, p in enumerate(self.path)]
        return drawn([f'<path class="way" d="M{"L".join(places)}"/>'] if places else [], label)

    def marks(self) -> Iterator[Mark]:
        """Each step of the way."""
        rows = max(len(self.path), 1)
        for i, place in enumerate(self.path):
            y = round(100 * (i + 0.5) / rows, 2)
            yield Mark(self.at(place.number) / 10, y, GLYPHS[place.stand], CLASSES[place.stand], place.step or 0)

    def stands(self, label: str) -> Markup:
        """Every commit by how it stands: what was measured is high, what follows from it is low."""
        parts = []
        for (stand, measured), group in groupby(self.places, key=lambda place: (place.stand, place.measured)):
            run = list(group)
            left, width = self._box(run[0].number, run[-1].number)
            height = SIZE if measured or stand == Stand.SUSPECT else SIZE // 3
            shape = f'x="{left}" y="{SIZE - height}" width="{width}" height="{height}"'
            parts.append(f'<rect class="stand of-{CLASSES[stand]}" {shape}/>')
        return drawn(parts, label)

    def culprits(self) -> list[Tick]:
        """Where the culprits are."""
        return [Tick(at=self.at(p.number) / 10, text=p.candidate.name) for p in self.places if p.culprit]
