"""One change that a bisection found, as its page shows it: effect, proof, suspects, functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from markupsafe import Markup

from lab import explain
from lab.bisection.answer import Found
from lab.reporting import bisections, figures, flames, plots
from lab.reporting.bisections import Bisection, effect_of, short
from lab.reporting.plots import Scale
from lab.reporting.stored import Report
from lab.results import number
from lab.stats.verdict import Comparison


class Compared(NamedTuple):
    """A comparison as the page shows it: what of, the numbers, its row of the forest plot."""

    name: str
    comparison: Comparison
    plot: Markup | None


MOST_SUSPECTS = 300
"""Of a range, so many commits are named here; the JSON names all."""


@dataclass(frozen=True, kw_only=True)
class ChangeView:
    """What the template shows of one change."""

    one: Bisection
    change: Found
    id: str

    @property
    def word(self) -> str:
        """What kind of change it is."""
        return str(self.change.direction or "change")

    @property
    def effect(self) -> Comparison | None:
        """How much it changed."""
        return effect_of(self.change)

    @cached_property
    def scale(self) -> Scale:
        """One scale for all that was compared."""
        found = [c for _, c in self._comparisons()]
        ratios = [ratio for c in found for ratio in ([c.ratio] if c.ratio else []) + list(c.interval or ())]
        return Scale.of(ratios, self.one.answer.threshold)

    @property
    def compared(self) -> list[Compared]:
        """What was compared, with its row of the forest plot."""
        return [
            Compared(name, c, plots.interval(self.scale, c.ratio, c.interval) if c.ratio else None)
            for name, c in self._comparisons()
        ]

    def _comparisons(self) -> Iterator[tuple[str, Comparison]]:
        proof = self.change.proof
        if proof and proof.fresh is not None:
            yield f"{bisections.fresh_words(self.one.answer)}, against its parent", proof.fresh
        elif self.change.effect is not None:
            yield f"the search itself, against {short(self.change.before)}", self.change.effect
        if proof and proof.reverted is not None:
            yield "the newer end without it, against the newer end", proof.reverted

    @property
    def name(self) -> str:
        """The commit's short name."""
        return short(self.change.commit)

    @property
    def strip(self) -> Markup | None:
        """Every sample of the effect, before it and with it."""
        if (effect := self.effect) is None or not figures.numbers(effect.base):
            return None
        label = (
            f"{effect.name} of {len(effect.base)} pairs: before it {figures.shown(effect.base)}, "
            f"with it {figures.shown(effect.test)} on average"
        )
        return plots.strip(effect.base, effect.test, label)

    @property
    def ends(self) -> tuple[str, str]:
        """The labels at both ends of the samples' axis."""
        effect = self.effect
        axis = plots.axis_of(effect.base, effect.test) if effect else plots.axis_of([])
        return number(axis.high), number(axis.low)

    @cached_property
    def stored(self) -> Report | None:
        """The stored comparison with its parent."""
        return self.one.proof(self.change)

    @cached_property
    def flame(self) -> dict[str, Any] | None:
        """The differential flame graph, if the comparison was explained."""
        if self.stored is None or not self.stored.result.cases:
            return None
        found = explain.remembered(self.stored.folder, self.stored.raw.cases[0])
        return flames.view(found, self.stored.result.cases[0], self.stored.result) if found else None

    @property
    def suspects(self) -> list[tuple[str, str, str]]:
        """Of a range: each commit that may be the culprit, its title, and why it is neither cleared nor convicted."""
        titles = {place.candidate.id: place.candidate.title for place in self.one.places}
        return [(short(name), titles.get(name, ""), self._why(name)) for name in self.change.among[:MOST_SUSPECTS]]

    @property
    def left_out(self) -> int:
        """Suspects that are not named."""
        return max(len(self.change.among) - MOST_SUSPECTS, 0)

    def _why(self, name: str) -> str:
        if name in self.change.untested:
            step = next((step for step in self.one.answer.path if step.commit == name), None)
            return step.decision if step else "could not be tested"
        return "the first that shows the change" if name == self.change.commit else "not measured"
