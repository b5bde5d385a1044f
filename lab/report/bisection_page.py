"""`html` of a bisection: what did it, where it may hide, how each commit of the range stands, and the proof.

One change that a bisection found, as its page shows it: effect, proof, suspects, functions.

The range of a bisection as pictures: chances, changes, the path taken, and how each commit stands.

All have the commits from left to right, the old end first, and stand below each other. As in `plots` they are
stretched, and have no words of their own.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from markupsafe import Markup

from lab.bisection.answer import Answer, Found
from lab.bisection.commit_status import Place, Stand, Stretch, stretches
from lab.compare import explain
from lab.core.text import number, visible
from lab.report import inputs, page, svg, wording
from lab.report.inputs import Bisection, Report, effect_of, short
from lab.report.svg import SIZE, Axis, Scale, Tick, drawn
from lab.stats.verdict import Comparison, percent


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
            Compared(name, c, svg.interval(self.scale, c.ratio, c.interval) if c.ratio else None)
            for name, c in self._comparisons()
        ]

    def _comparisons(self) -> Iterator[tuple[str, Comparison]]:
        proof = self.change.proof
        if proof and proof.fresh is not None:
            yield f"{inputs.fresh_words(self.one.answer)}, against its parent", proof.fresh
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
        if (effect := self.effect) is None or not wording.numbers(effect.base):
            return None
        label = (
            f"{effect.name} of {len(effect.base)} pairs: before it {wording.shown(effect.base)}, "
            f"with it {wording.shown(effect.test)} on average"
        )
        return svg.strip(effect.base, effect.test, label)

    @property
    def ends(self) -> tuple[str, str]:
        """The labels at both ends of the samples' axis."""
        effect = self.effect
        axis = svg.axis_of(effect.base, effect.test) if effect else svg.axis_of([])
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
        return page.view(found, self.stored.result.cases[0], self.stored.result) if found else None

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
        return inputs.sentence(self.answer)

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
            yield "posterior", f"{live.outcome}, {inputs.share(live.probability)} sure"
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
    return page.fill(
        "bisection.html.j2",
        view=view,
        answer=view.answer,
        tone=inputs.verdict_class(view.answer),
        figures=wording,
        percent=percent,
        number=number,
        short=short,
        share=inputs.share,
        fresh=inputs.fresh_words(view.answer),
    )
