"""`html` of a bisection: what did it, where it may hide, how each commit of the range stands, and the proof."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from markupsafe import Markup

from lab.bisection.answer import Answer
from lab.bisection.places import Place, Stand, Stretch, stretches
from lab.core.text import visible
from lab.reporting import bisections, figures, template
from lab.reporting.bisection_change import ChangeView
from lab.reporting.bisections import Bisection, short
from lab.reporting.range_plot import CLASSES, GLYPHS, Range
from lab.results import interval, number
from lab.stats.verdict import percent

MOST_ROWS = 2000
"""Rows of the table of commits; of a longer one the plots and the JSON have the rest."""

_MOST_SEEDS = 24


class Row(NamedTuple):
    """A row of the table of commits: one commit, or a stretch of those that stand alike."""

    number: int
    name: str
    title: str
    stand: str
    filter: str
    kind: str
    glyph: str
    step: int | None
    ratio: float | None
    chance: float
    why: str
    culprit: bool


@dataclass(frozen=True, kw_only=True)
class BisectionView:
    """What the template shows of a bisection."""

    one: Bisection

    @property
    def answer(self) -> Answer:
        """The answer, safe to show."""
        return self.one.answer

    @property
    def sentence(self) -> str:
        """The answer in a sentence."""
        return bisections.sentence(self.answer)

    @cached_property
    def changes(self) -> list[ChangeView]:
        """All changes."""
        return [ChangeView(one=self.one, change=c, id=f"change-{i}") for i, c in enumerate(self.answer.changes, 1)]

    @cached_property
    def range(self) -> Range:
        """The range as pictures."""
        return Range(self.one.places)

    @property
    def new_ratio(self) -> float | None:
        """The new end against the old one."""
        return self.answer.ends.ratio if self.answer.ends else None

    @property
    def chances(self) -> Markup:
        """How likely each commit is the culprit."""
        likely = sorted((p for p in self.one.places if p.chance > 0), key=lambda p: -p.chance)[:5]
        words = ", ".join(f"{p.candidate.name} {100 * p.chance:.3g} %" for p in likely)
        return self.range.chances(f"chance of being the culprit, by commit: {words or 'none for any'}")

    @property
    def levels(self) -> Markup:
        """The changes that were measured."""
        words = f"{self.answer.measured} measured commits by their change against the old end; numbers in the table"
        return self.range.changes(words, self.new_ratio)

    @property
    def steps(self) -> Markup:
        """The path taken."""
        words = "; ".join(
            f"{p.step}. {p.candidate.name}, {self.stand(p.stand)}" for p in self.range.path[:40] if p.step is not None
        )
        return self.range.steps(f"path taken: {words or 'nothing between the ends was measured'}")

    @property
    def stands(self) -> Markup:
        """How each commit stands."""
        words = ", ".join(f"{count} {self.stand(stand)}" for stand, count in self.counted)
        return self.range.stands(f"commits from the old end to the new one: {words}")

    @property
    def counted(self) -> list[tuple[Stand, int]]:
        """How many commits stand how."""
        found = [place.stand for place in self.one.places]
        return [(stand, found.count(stand)) for stand in Stand if stand in found]

    def stand(self, stand: Stand) -> str:
        """How a commit stands, in the words that the ends were called by."""
        old, new = self.answer.words
        return {Stand.OLD: f"like {old}", Stand.NEW: f"like {new}"}.get(stand, str(stand))

    @property
    def legend(self) -> list[tuple[str, str, str]]:
        """Class, shape and word of all that is on the pictures."""
        return [(CLASSES[stand], GLYPHS.get(stand, "▬"), self.stand(stand)) for stand, _ in self.counted]

    @cached_property
    def rows(self) -> list[Row]:
        """The table of commits."""
        return [self._row(stretch) for stretch in stretches(self.one.places)][:MOST_ROWS]

    def _row(self, stretch: Stretch) -> Row:
        place = stretch.first
        many = len(stretch.places)
        names = place.candidate.name if many == 1 else f"{place.candidate.name} to {stretch.last.candidate.name}"
        return Row(
            number=place.number,
            name=names,
            title=place.candidate.title if many == 1 else f"{many} commits, none of them measured",
            stand=self._words(place),
            filter=self.stand(place.stand),
            kind=CLASSES[place.stand],
            glyph=GLYPHS.get(place.stand, "▬") if place.measured else "▬",
            step=place.step,
            ratio=self._ratio(place),
            chance=place.chance,
            why=self._why(place),
            culprit=place.culprit,
        )

    def _words(self, place: Place) -> str:
        if place.number in (0, len(self.one.places) - 1):
            return f"the {self.answer.words[0 if place.number == 0 else 1]} end"
        if place.told and (place.stand not in (Stand.OLD, Stand.NEW) or self.answer.mode == "live"):
            return place.told.decision  # live mode's has how sure it is
        inferred = not place.measured and place.stand not in (Stand.SUSPECT, Stand.OPEN)
        return self.stand(place.stand) + (" (inferred)" if inferred else "")

    def _ratio(self, place: Place) -> float | None:
        if place.number == len(self.one.places) - 1:
            return self.new_ratio
        return place.told.ratio if place.told else None

    def _why(self, place: Place) -> str:
        if place.told is None:
            return ""
        same = f"same kernel as {short(place.told.same_as)}" if place.told.same_as else ""
        return "; ".join(filter(None, [place.told.why, same]))

    @property
    def left_out(self) -> int:
        """Rows that the table has no room for."""
        return max(len(stretches(self.one.places)) - MOST_ROWS, 0)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was searched, and what was around it."""
        answer = self.answer
        searched = f"{answer.candidates} {answer.kind}" + (f" of the tree {answer.tree}" if answer.tree else "")
        searched += " (first parents only)" if answer.first_parent else ""
        searched += f" that touch {' '.join(answer.paths)}" if answer.paths else ""
        found = [
            ("searched", searched),
            ("workload", f"{answer.workload}:{answer.case}, {answer.metric} in {answer.unit}"),
            ("measured", f"{answer.measured} commits beside the ends; {len(answer.skipped)} could not be tested"),
            ("seeds a commit", ", ".join(map(str, answer.seeds[:_MOST_SEEDS]))),
            ("time", f"building {answer.build_s:.0f} s, measuring {answer.run_s:.0f} s"),
            ("started", answer.started),
            *self._posterior(),
        ]
        if (around := answer.environment) is not None:
            found += [
                ("fingerprint", around.fingerprint),
                ("mode", answer.mode),
                ("counted in", self._counted_in(around.model)),
                ("QEMU", around.qemu),
                ("machine", f"{around.machine}, {around.cpu}"),
                ("image", around.image),
                ("lab", around.lab),
            ]
        return [(name, words) for name, words in found if words]

    def _counted_in(self, model: str) -> str:
        if self.answer.mode == "live":
            return "real time"
        return "guest clock (instructions)" if model == "none" else f"modelled cycles ({model})"

    def _posterior(self) -> Iterator[tuple[str, str]]:
        """What live mode's search says beside the answer."""
        if (live := self.answer.live) is not None:
            yield "posterior", f"{live.outcome}, {bisections.share(live.probability)} sure"
            yield "boots", f"{live.boots} of {live.kernels} kernels"
            yield "noise", f"one boot's standard deviation is {100 * live.noise:.3g} %" if live.noise else ""

    @property
    def commands(self) -> list[str]:
        """How to see, repeat and follow it."""
        answer = self.answer
        found = [shlex.join(answer.reproduce), f"lab report {answer.result}", f"lab bisect log {answer.result}"]
        for change in answer.changes:
            if change.proof and change.proof.result:
                found += [f"lab report {change.proof.result}", f"lab replay {change.proof.result}"]
        return [visible(command) for command in found]


def render(one: Bisection) -> str:
    """The whole page."""
    view = BisectionView(one=one)
    return template.fill(
        "bisection.html.j2",
        view=view,
        answer=view.answer,
        tone=bisections.verdict_class(view.answer),
        figures=figures,
        interval=interval,
        percent=percent,
        number=number,
        short=short,
        share=bisections.share,
        fresh=bisections.fresh_words(view.answer),
    )
