"""`html` of a bisection: each change with its proof, and the range as pictures and a table.

The pictures have the commits from left to right, the old end first, and stand below each other. As all `plots` they
are stretched, and have no text of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from lab.bisection.answer import Answer, Culprit
from lab.bisection.commit_status import CommitStatus, RangeCommit, Stretch, stretches
from lab.compare import explain
from lab.compare.results import numbers
from lab.core.git import short
from lab.core.text import visible
from lab.report import function_chart, page, plots, wording
from lab.report.function_chart import Functions
from lab.report.inputs import StoredBisection, StoredComparison
from lab.report.plots import SIZE, Axis, Scale, Tick, drawn
from lab.report.wording import shown
from lab.stats.verdict import Comparison, percent

# ---- changes

MOST_SUSPECTS = 300
"""Commits of a range that are named on the page; the JSON names all."""


@dataclass(frozen=True, kw_only=True)
class ChangeView:
    """The values in the template of one change."""

    stored: StoredBisection
    change: Culprit
    id: str

    @property
    def kind(self) -> str:
        """`regression`, `improvement` or `change`."""
        return str(self.change.direction or "change")

    @property
    def effect(self) -> Comparison | None:
        """The size of the change."""
        return wording.effect_of(self.change)

    @cached_property
    def scale(self) -> Scale:
        """One scale for all comparisons."""
        return Scale.of([c for _, c in self.compared], self.stored.answer.threshold)

    @cached_property
    def compared(self) -> list[tuple[str, Comparison]]:
        """Each comparison behind the answer, with its sides in words."""
        compared, proof = [], self.change.proof
        if proof and proof.fresh is not None:
            compared.append((f"{proof.fresh_runs}, against its parent", proof.fresh))
        elif self.change.effect is not None:
            compared.append((f"the search itself, against {short(self.change.before)}", self.change.effect))
        if proof and proof.reverted is not None:
            compared.append(("the newer end without it, against the newer end", proof.reverted))
        return compared

    @property
    def name(self) -> str:
        """The commit's short name."""
        return short(self.change.commit)

    @property
    def strip(self) -> Markup | None:
        """Every sample of the effect, before it and with it."""
        if (effect := self.effect) is None or not numbers(effect.base):
            return None
        label = (
            f"{effect.name} of {len(effect.base)} pairs: before it {shown(effect.base)}, "
            f"with it {shown(effect.test)} on average"
        )
        return plots.strip(effect.base, effect.test, label)

    @property
    def ticks(self) -> list[Tick]:
        """The labels of the samples' axis."""
        return plots.axis_of(*((self.effect.base, self.effect.test) if self.effect else ())).ticks()

    @cached_property
    def proof(self) -> StoredComparison | None:
        """The stored comparison with its parent."""
        return self.stored.proof(self.change)

    @cached_property
    def functions(self) -> Functions | None:
        """The functions that differ most, if the comparison was explained."""
        if self.proof is None or not self.proof.result.cases:
            return None
        explanation = explain.remembered(self.proof.folder, self.proof.raw.cases[0])
        return function_chart.view(explanation, self.proof.result.cases[0]) if explanation else None

    @property
    def suspects(self) -> list[tuple[str, str, str]]:
        """Each commit of a range that may be the culprit, its title, and why it is neither cleared nor convicted."""
        titles = {place.candidate.id: place.candidate.title for place in self.stored.commits}
        return [(short(name), titles.get(name, ""), self._why(name)) for name in self.change.suspects[:MOST_SUSPECTS]]

    @property
    def left_out(self) -> int:
        """Suspects that are not named."""
        return max(len(self.change.suspects) - MOST_SUSPECTS, 0)

    def _why(self, name: str) -> str:
        if name in self.change.untested:
            step = next((step for step in self.stored.answer.path if step.commit == name), None)
            return step.decision if step else "could not be tested"
        return "the first that shows the change" if name == self.change.commit else "not measured"


# ---- the range as pictures

CLASSES = {
    CommitStatus.OLD: "old",
    CommitStatus.NEW: "new",
    CommitStatus.NEITHER: "neither",
    CommitStatus.UNCLEAR: "unclear",
    CommitStatus.UNTESTABLE: "untestable",
    CommitStatus.SUSPECT: "suspect",
    CommitStatus.OPEN: "open",
}
GLYPHS = {
    CommitStatus.OLD: "●", CommitStatus.NEW: "■", CommitStatus.NEITHER: "◆", CommitStatus.UNCLEAR: "?",
    CommitStatus.UNTESTABLE: "✕",
}  # fmt: skip
"""A shape for each word, so that no colour is needed."""

_NARROWEST = 3.0
_ROOM = 0.15  # above and below the changes, of what they span: a low lane's dots are large in it


class Mark(NamedTuple):
    """A step of the path, placed in percent, with its number beside it."""

    x: float
    y: float
    glyph: str
    kind: str
    step: int


@dataclass(frozen=True)
class Range:
    """The commits of a bisection on a line. new: the change of the new end against the old one."""

    commits: Sequence[RangeCommit]
    new: float | None

    def at(self, number: float) -> float:
        """The middle of a commit, in thousandths."""
        return round(SIZE * (number + 0.5) / len(self.commits), 1)

    def _box(self, first: int, last: int) -> tuple[float, float]:
        """Left and width of some neighbours, never too narrow to be seen."""
        left, right = SIZE * first / len(self.commits), SIZE * (last + 1) / len(self.commits)
        width = max(right - left, _NARROWEST)
        return round(min(left, SIZE - width), 1), round(width, 1)

    @cached_property
    def path(self) -> list[RangeCommit]:
        """The measured commits, in the order of measuring."""
        return sorted((p for p in self.commits if p.order is not None), key=lambda p: p.order or 0)

    def chances(self, label: str) -> Markup:
        """The probability of each commit to be a culprit, as bars."""
        parts = []
        for chance, group in groupby(self.commits, key=lambda place: place.chance):
            run = list(group)
            if chance > 0:
                left, width = self._box(run[0].number, run[-1].number)
                height = round(max(SIZE * chance, 10), 1)
                parts.append(f'<rect class="chance" x="{left}" y="{SIZE - height}" width="{width}" height="{height}"/>')
        return drawn(parts, label)

    def changes(self, label: str) -> Markup:
        """Every measured commit by its change against the old end."""
        axis = self._axis
        parts = [f'<path class="zero" d="M0 {axis.at(0.0)}H{SIZE}"/>']
        for stand, name in CLASSES.items():
            levels = [(number, level) for number, each, level in self._levels if each == stand]
            dots = "".join(f"M{self.at(number)} {axis.at(level)}h0" for number, level in levels)
            parts += [f'<path class="dots of-{name}" d="{dots}"/>'] if dots else []
        return drawn(parts, label)

    @cached_property
    def _levels(self) -> list[tuple[int, CommitStatus, float]]:
        """Number, status and log ratio against the old end of both ends and of the commits that have one."""
        ratios = [(p.number, p.status, p.step.ratio) for p in self.commits if p.step and p.step.ratio]
        ratios.insert(0, (0, CommitStatus.OLD, 1.0))
        if self.new:
            ratios.append((len(self.commits) - 1, self.commits[-1].status, self.new))
        return [(number, stand, math.log(ratio)) for number, stand, ratio in ratios]

    @property
    def _axis(self) -> Axis:
        logs = [level for _, _, level in self._levels]
        room = _ROOM * (max(logs) - min(logs)) or 0.01
        return Axis(low=min(logs) - room, high=max(logs) + room)

    @property
    def ticks(self) -> list[Tick]:
        """Labels of the changes' axis, at round changes."""
        axis = self._axis
        low, high = math.exp(axis.low) - 1, math.exp(axis.high) - 1
        changes, step = plots.round_values(low, high, most=4)
        return [Tick(at=axis.at(math.log1p(x)) / 10, text=plots.in_percent(1 + x, step)) for x in changes]

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
            yield Mark(self.at(place.number) / 10, y, GLYPHS[place.status], CLASSES[place.status], place.order or 0)

    def stands(self, label: str) -> Markup:
        """Every commit by how it stands: what was measured is high, what follows from it is low."""
        parts = []
        for (stand, measured), group in groupby(self.commits, key=lambda place: (place.status, place.measured)):
            run = list(group)
            left, width = self._box(run[0].number, run[-1].number)
            height = SIZE if measured or stand == CommitStatus.SUSPECT else SIZE // 3
            shape = f'x="{left}" y="{SIZE - height}" width="{width}" height="{height}"'
            parts.append(f'<rect class="stand of-{CLASSES[stand]}" {shape}/>')
        return drawn(parts, label)

    def culprits(self) -> list[Tick]:
        """The places of the culprits."""
        return [Tick(at=self.at(p.number) / 10, text=p.candidate.name) for p in self.commits if p.culprit]


MOST_ROWS = 2000
"""Rows of the table of commits; of a longer one the plots and the JSON have the rest."""

_MOST_SEEDS = 24


# ---- the page


class Row(NamedTuple):
    """A row of the table of commits: one commit, or a stretch of commits with the same status."""

    number: int
    name: str
    title: str
    stand: str
    filter: str
    kind: str
    glyph: str
    step: int | None
    ratio: float | None
    instructions: float | None
    chance: float
    why: str
    culprit: bool


@dataclass(frozen=True, kw_only=True)
class BisectionView:
    """The values in the template of a bisection."""

    stored: StoredBisection

    @property
    def answer(self) -> Answer:
        """The answer, safe to show."""
        return self.stored.answer

    @cached_property
    def changes(self) -> list[ChangeView]:
        """All changes."""
        return [
            ChangeView(stored=self.stored, change=c, id=f"change-{i}") for i, c in enumerate(self.answer.changes, 1)
        ]

    @cached_property
    def range(self) -> Range:
        """The range as pictures."""
        return Range(self.stored.commits, self.answer.ends.ratio if self.answer.ends else None)

    @property
    def chances(self) -> Markup:
        """The probability of each commit to be the culprit."""
        likely = sorted((p for p in self.stored.commits if p.chance > 0), key=lambda p: -p.chance)[:5]
        chances = ", ".join(f"{p.candidate.name} {100 * p.chance:.3g} %" for p in likely)
        return self.range.chances(f"chance of being the culprit, by commit: {chances or 'none for any'}")

    @property
    def levels(self) -> Markup:
        """The changes that were measured."""
        return self.range.changes(
            f"{self.answer.measured} measured commits by their change against the old end; numbers in the table"
        )

    @property
    def steps(self) -> Markup:
        """The path taken."""
        steps = "; ".join(f"{p.order}. {p.candidate.name}, {self.stand(p.status)}" for p in self.range.path[:40])
        return self.range.steps(f"path taken: {steps or 'nothing between the ends was measured'}")

    @property
    def stands(self) -> Markup:
        """The status of each commit."""
        counts = ", ".join(f"{count} {self.stand(stand)}" for stand, count in self.counted)
        return self.range.stands(f"commits from the old end to the new one: {counts}")

    @property
    def counted(self) -> list[tuple[CommitStatus, int]]:
        """The number of commits of each status."""
        stands = Counter(place.status for place in self.stored.commits)
        return [(stand, stands[stand]) for stand in CommitStatus if stand in stands]

    def stand(self, stand: CommitStatus) -> str:
        """A commit's status, with the terms of the ends."""
        old, new = self.answer.terms
        return {CommitStatus.OLD: f"like {old}", CommitStatus.NEW: f"like {new}"}.get(stand, str(stand))

    @property
    def legend(self) -> list[tuple[str, str, str]]:
        """Class, shape and text of each status that is on the pictures."""
        return [(CLASSES[stand], GLYPHS.get(stand, "▬"), self.stand(stand)) for stand, _ in self.counted]

    @cached_property
    def _stretches(self) -> list[Stretch]:
        return stretches(self.stored.commits)

    @cached_property
    def rows(self) -> list[Row]:
        """The table of commits."""
        return [self._row(stretch) for stretch in self._stretches[:MOST_ROWS]]

    @property
    def left_out(self) -> int:
        """Rows that the table has no room for."""
        return max(len(self._stretches) - MOST_ROWS, 0)

    def _row(self, stretch: Stretch) -> Row:
        place = stretch.first
        many = len(stretch.commits)
        names = place.candidate.name if many == 1 else f"{place.candidate.name} to {stretch.last.candidate.name}"
        return Row(
            number=place.number,
            name=names,
            title=place.candidate.title if many == 1 else f"{many} commits, none of them measured",
            stand=self._status(place),
            filter=self.stand(place.status),
            kind=CLASSES[place.status],
            glyph=GLYPHS.get(place.status, "▬") if place.measured else "▬",
            step=place.order,
            ratio=self._ratio(place),
            instructions=self._instructions(place),
            chance=place.chance,
            why=self._why(place),
            culprit=place.culprit,
        )

    def _status(self, place: RangeCommit) -> str:
        if place.number in (0, len(self.stored.commits) - 1):
            return f"the {self.answer.terms[0 if place.number == 0 else 1]} end"
        if place.step and (place.status not in (CommitStatus.OLD, CommitStatus.NEW) or self.answer.mode == "live"):
            return place.step.decision  # live mode's has how sure it is
        inferred = not place.measured and place.status not in (CommitStatus.SUSPECT, CommitStatus.OPEN)
        return self.stand(place.status) + (" (inferred)" if inferred else "")

    def _ratio(self, place: RangeCommit) -> float | None:
        if place.number == len(self.stored.commits) - 1:
            return self.range.new
        return place.step.ratio if place.step else None

    def _instructions(self, place: RangeCommit) -> float | None:
        if place.number == len(self.stored.commits) - 1 and self.answer.instructions:
            return self.answer.instructions.ratio
        return place.step.instructions if place.step else None

    def _why(self, place: RangeCommit) -> str:
        if place.step is None:
            return ""
        same = f"same kernel as {short(place.step.same_as)}" if place.step.same_as else ""
        return "; ".join(filter(None, [place.step.why, same]))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The range that was searched, and its environment."""
        answer = self.answer
        tree = f" of the tree {answer.tree}" if answer.tree else ""
        facts = [
            ("searched", f"{answer.candidates} {answer.kind}{tree}{wording.limits(answer)}"),
            ("workload", f"{answer.workload}:{answer.case}, {answer.metric} in {answer.unit}"),
            ("measured", f"{answer.measured} commits beside the ends; {len(answer.skipped)} could not be tested"),
            ("seeds a commit", ", ".join(map(str, answer.seeds[:_MOST_SEEDS]))),
            ("time", f"building {answer.build_s:.0f} s, measuring {answer.run_s:.0f} s"),
            ("started", answer.started),
            *self._posterior(),
        ]
        if (around := answer.environment) is not None:
            facts += [
                ("fingerprint", around.fingerprint),
                ("mode", answer.mode),
                ("counted in", wording.answer_counted_in(answer)),
                ("QEMU", around.qemu),
                ("machine", f"{around.machine}, {around.cpu}"),
                ("image", around.image),
                ("lab", around.lab),
            ]
        return [(name, text) for name, text in facts if text]

    def _posterior(self) -> Iterator[tuple[str, str]]:
        """The end of live mode's search."""
        if (live := self.answer.live) is not None:
            yield "posterior", f"{live.outcome}, {wording.share(live.probability)} sure"
            yield "boots", f"{live.boots} of {live.kernels} kernels"
            yield "noise", f"one boot's standard deviation is {100 * live.noise:.3g} %" if live.noise else ""
            yield "layouts", f"images differ by {100 * live.layouts:.3g} % (sd) by layout" if live.layouts else ""

    @property
    def commands(self) -> list[str]:
        """Commands that show, repeat and follow the bisection."""
        answer = self.answer
        commands = [answer.repeat, f"lab report {answer.result}", f"lab bisect log {answer.result}"]
        for change in answer.changes:
            if change.proof and change.proof.result:
                commands += [f"lab report {change.proof.result}", f"lab replay {change.proof.result}"]
        return [visible(command) for command in commands]

    @property
    def tone(self) -> str:
        """The verdict by which the page colours the answer."""
        directions = [str(change.direction) for change in self.answer.changes if change.direction]
        if self.answer.outcome == "undecided":
            return "unknown"
        if not self.answer.changes:
            return "same"
        return "regression" if "regression" in directions or not directions else directions[0]

    @property
    def word(self) -> str:
        """The answer in a word or two: the kind of the changes, or why there is none."""
        kinds = [view.kind for view in self.changes]
        if not kinds or self.answer.outcome == "undecided":
            return str(self.answer.outcome)
        return kinds[0] if len(kinds) == 1 else f"{len(kinds)} changes"

    @property
    def size(self) -> str:
        """The change of the only culprit; of several, the change from end to end."""
        effect = self.changes[0].effect if len(self.changes) == 1 else self.answer.ends
        return percent(effect.ratio) if effect else ""


def bisection(stored: StoredBisection) -> str:
    """The whole page."""
    view = BisectionView(stored=stored)
    return page.fill("bisection.html.j2", view=view, answer=view.answer, short=short)
