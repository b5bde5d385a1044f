"""`html` of a bisection: each change with its proof, and the range as pictures and a table.

The pictures have the commits from left to right, the old end first, and stand below each other.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from lab.bisection.answer import Answer, Culprit
from lab.compare import explain
from lab.core.git import short
from lab.core.text import visible
from lab.report import function_chart, plots, templates, wording
from lab.report.explain_text import unit_of
from lab.report.inputs import CommitStatus, RangeCommit, StoredBisection, stretches
from lab.report.plots import CHARACTERS, SIZE, Axis, Chart, Scale, Tick
from lab.report.wording import shown
from lab.stats.verdict import Comparison, numbers, percent

MOST_SUSPECTS = 300
"""Commits of a range that are named on the page; the JSON names all."""

MOST_ROWS = 2000
"""Rows of the table of commits; of a longer one the plots and the JSON have the rest."""

GLYPHS = {
    CommitStatus.OLD: "●", CommitStatus.NEW: "■", CommitStatus.NEITHER: "◆", CommitStatus.UNCLEAR: "?",
    CommitStatus.UNTESTABLE: "✕",
}  # fmt: skip
"""A shape for each word, so that no colour is needed."""

_NARROWEST = 3.0
_WIDEST = 45
"""Percent of a range that a culprit's name takes; the rest of it is cut off."""

_ROOM = 0.15  # above and below the changes, as a share of their span: a low lane's dots are large in it


def bisection(stored: StoredBisection) -> str:
    answer = stored.answer
    table = stretches(stored.commits)
    page = _Range(answer, stored.commits)
    rows = [page.row(stretch) for stretch in table[:MOST_ROWS]]
    return templates.fill(
        "bisection.html.j2",
        answer=answer,
        range=page,
        one=answer.one,
        short=short,
        unit_of=unit_of,
        tone=tone(answer),
        word=_word(answer),
        size=percent(effect.ratio) if (effect := _size(answer)) else "",
        changes=[_change(stored, change, f"change-{i}") for i, change in enumerate(answer.changes, 1)],
        rows=rows,
        chances=any(row["chance"] for row in rows),
        whys=any(row["why"] for row in rows),
        left_out=max(len(table) - MOST_ROWS, 0),
        commands=[visible(command) for command in _commands(answer)],
    )


# ---- the answer


def tone(answer: Answer) -> str:
    """The verdict by which the page colours the answer."""
    directions = [str(change.direction) for change in answer.changes if change.direction]
    if answer.outcome == "undecided":
        return "unknown"
    if not answer.changes:
        return "same"
    return "regression" if "regression" in directions else directions[0] if directions else "change"


def _word(answer: Answer) -> str:
    """The answer in a word or two: the kind of the changes, or the reason for none."""
    kinds = [_kind(change) for change in answer.changes]
    if not kinds or answer.outcome == "undecided":
        return str(answer.outcome)
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} changes"


def _kind(change: Culprit) -> str:
    return str(change.direction or "change")


def _size(answer: Answer) -> Comparison | None:
    """The change of the only culprit; of several, the change from end to end."""
    return wording.effect_of(answer.changes[0]) if len(answer.changes) == 1 else answer.ends


def _commands(answer: Answer) -> list[str]:
    """Commands that show, repeat and follow the bisection."""
    commands = [answer.repeat, f"lab report {answer.result}", f"lab bisect log {answer.result}"]
    for change in answer.changes:
        if change.proof and change.proof.result:
            commands += [f"lab report {change.proof.result}", f"lab replay {change.proof.result}"]
    return commands


# ---- a change


def _change(stored: StoredBisection, change: Culprit, name: str) -> dict[str, Any]:
    """The values in the template of one change."""
    titles = {place.candidate.id: place.candidate.title for place in stored.commits}
    suspects = change.suspects[:MOST_SUSPECTS]
    compared = list(_compared(stored.answer, change))
    proof = stored.proof(change)
    explanation = explain.remembered(proof.folder, proof.raw.cases[0]) if proof and proof.result.cases else None
    effect, strip = wording.effect_of(change), None
    if effect is not None and numbers(effect.base):
        label = (
            f"{effect.name} of {len(effect.base)} pairs: before it {shown(effect.base)}, "
            f"with it {shown(effect.test)} on average"
        )
        strip = plots.strip(effect.base, effect.test, label)
    return {
        "change": change,
        "id": name,
        "kind": _kind(change),
        "name": short(change.commit),
        "effect": effect,
        "strip": strip,
        "compared": compared,
        "scale": Scale.of([c for _, c in compared], stored.answer.threshold),
        "functions": function_chart.view(explanation, proof.result.cases[0]) if proof and explanation else None,
        # Each commit that may be the culprit, and why it is neither cleared nor convicted.
        "suspects": [(short(one), titles.get(one, ""), _why(stored.answer, change, one)) for one in suspects],
        "left_out": len(change.suspects) - len(suspects),
        "against": _against(stored.answer, change),
        "diff": "\n".join(change.hunks.diff) if change.hunks else "",
    }


def _against(answer: Answer, change: Culprit) -> str:
    """The kernel that a culprit was compared with."""
    if change.hunks:
        return "the newer end with the older one's hunks"
    return change.before if answer.kind == "packages" else "its parent"


def _compared(answer: Answer, change: Culprit) -> Iterator[tuple[str, Comparison]]:
    """Each comparison behind the answer, with its sides in words."""
    proof = change.proof
    if proof and proof.fresh is not None:
        yield f"{proof.fresh_runs}, against {_against(answer, change)}", proof.fresh
    elif change.effect is not None:
        yield f"the search itself, against {short(change.before)}", change.effect
    if proof and proof.applied is not None:
        yield f"the older end with them{proof.applied_beside}, against the older end", proof.applied
    if proof and proof.reverted is not None:
        yield "the newer end without it, against the newer end", proof.reverted


def _why(answer: Answer, change: Culprit, name: str) -> str:
    if name in change.untested:
        step = next((step for step in answer.path if step.commit == name), None)
        return step.decision if step else "could not be tested"
    return "the first that shows the change" if name == change.commit else "not measured"


# ---- the range as pictures and a table


class _Mark(NamedTuple):
    """A step of the path, placed in percent, with its number beside it."""

    x: float
    y: float
    glyph: str
    kind: str
    step: int


class _Label(NamedTuple):
    """A name at a place in percent. row: from above. left, width: its extent, in percent too, on a phone."""

    at: float
    text: str
    row: int
    left: float
    width: float


class _Range:
    """The commits of a bisection on a line."""

    def __init__(self, answer: Answer, commits: Sequence[RangeCommit]) -> None:
        self.answer, self.commits = answer, commits
        self.new = answer.ends.ratio if answer.ends else None  # the change of the new end against the old one
        self.path = sorted((p for p in commits if p.order is not None), key=lambda p: p.order or 0)
        stands = Counter(place.status for place in commits)
        self.counted = [(stand, stands[stand]) for stand in CommitStatus if stand in stands]

    def at(self, number: float) -> float:
        """The middle of a commit, in thousandths."""
        return round(SIZE * (number + 0.5) / len(self.commits), 1)

    def _box(self, first: int, last: int) -> tuple[float, float]:
        """Left and width of some neighbours, never too narrow to be seen."""
        left, right = SIZE * first / len(self.commits), SIZE * (last + 1) / len(self.commits)
        width = max(right - left, _NARROWEST)
        return min(left, SIZE - width), width

    def stand(self, stand: CommitStatus) -> str:
        """A commit's status, with the terms of the ends."""
        old, new = self.answer.terms
        return {CommitStatus.OLD: f"like {old}", CommitStatus.NEW: f"like {new}"}.get(stand, str(stand))

    def legend(self) -> list[tuple[str, str, str]]:
        """Class, shape and text of each status that is on the pictures."""
        return [(stand.style, GLYPHS.get(stand, "▬"), self.stand(stand)) for stand, _ in self.counted]

    def culprits(self) -> list[_Label]:
        """The culprits' names, to the right of them in the left half, else to the left; a row below if they collide."""
        labels: list[_Label] = []
        for place in filter(lambda place: place.culprit, self.commits):
            name, at = place.candidate.name, self.at(place.number) / 10
            width = min(100 * len(name) / CHARACTERS, _WIDEST)
            left = at if at < 50 else at - width
            taken = {one.row for one in labels if left <= one.left + one.width and one.left <= left + width}
            row = next(row for row in itertools.count() if row not in taken)
            labels.append(_Label(at, name, row, left, width))
        return labels

    def chances(self) -> Chart:
        """The probability of each commit to be a culprit, as bars."""
        parts = []
        for chance, group in groupby(self.commits, key=lambda place: place.chance):
            run = list(group)
            if chance > 0:
                left, width = self._box(run[0].number, run[-1].number)
                height = max(SIZE * chance, 10)
                parts.append(plots.rect("chance", left, SIZE - height, width, height))
        likely = sorted((p for p in self.commits if p.chance > 0), key=lambda p: -p.chance)[:5]
        chances = ", ".join(f"{p.candidate.name} {100 * p.chance:.3g} %" for p in likely)
        label = f"chance of being the culprit, by {self.answer.one}: {chances or 'none for any'}"
        return Chart(plots.picture(parts, label), [Tick(0, "100 %"), Tick(100, "0 %")])

    @cached_property
    def _levels(self) -> list[tuple[int, CommitStatus, float]]:
        """Number, status and log ratio against the old end of both ends and of the commits that have one."""
        ratios = [(p.number, p.status, p.step.ratio) for p in self.commits if p.step and p.step.ratio]
        ratios.insert(0, (0, CommitStatus.OLD, 1.0))
        if self.new:
            ratios.append((len(self.commits) - 1, self.commits[-1].status, self.new))
        return [(number, stand, math.log(ratio)) for number, stand, ratio in ratios]

    def levels(self) -> Chart:
        """Every measured commit by its change against the old end."""
        axis = Axis.of([level for _, _, level in self._levels], _ROOM)
        parts = [plots.path("zero", f"M0 {axis.at(0.0)}H{SIZE}")]
        for stand in CommitStatus:
            places = [f"{self.at(number)} {axis.at(level)}" for number, each, level in self._levels if each == stand]
            parts.append(plots.dots(f"dots of-{stand.style}", places))
        changes, step = plots.round_values(math.exp(axis.low) - 1, math.exp(axis.high) - 1, most=4)
        up = [Tick(axis.at(math.log1p(x)) / 10, plots.in_percent(1 + x, step)) for x in changes]
        measured = self.answer.measured
        label = f"change of {self.answer.counted(measured)} against the old end; numbers in the table"
        return Chart(plots.picture(parts, label), up)

    def marks(self) -> list[_Mark]:
        """Each step of the way, a row each."""
        rows = max(len(self.path), 1)
        return [
            _Mark(self.at(p.number) / 10, 100 * (i + 0.5) / rows, GLYPHS[p.status], p.status.style, p.order or 0)
            for i, p in enumerate(self.path)
        ]

    def steps(self) -> Chart:
        """The way from one measured commit to the next."""
        steps = "; ".join(f"{p.order}. {p.candidate.name}, {self.stand(p.status)}" for p in self.path[:40])
        way = plots.line("way", [f"{10 * mark.x:.1f} {10 * mark.y:.1f}" for mark in self.marks()])
        return Chart(plots.picture([way], f"path taken: {steps or 'nothing between the ends was measured'}"))

    def stands(self) -> Chart:
        """Every commit by its level: measured ones are high, inferred ones low."""
        parts = []
        for (stand, measured), group in groupby(self.commits, key=lambda place: (place.status, place.measured)):
            run = list(group)
            left, width = self._box(run[0].number, run[-1].number)
            height = SIZE if measured or stand == CommitStatus.SUSPECT else SIZE // 3
            parts.append(plots.rect(f"stand of-{stand.style}", left, SIZE - height, width, height))
        counts = ", ".join(f"{count} {self.stand(stand)}" for stand, count in self.counted)
        return Chart(plots.picture(parts, f"{self.answer.kind} from the old end to the new one: {counts}"))

    # ---- the table

    def row(self, stretch: Sequence[RangeCommit]) -> dict[str, Any]:
        """A row of the table: one commit, or a stretch of commits with the same status."""
        place, many, step = stretch[0], len(stretch), stretch[0].step
        is_end = place.number == len(self.commits) - 1
        count = self.answer.instructions if is_end else None
        same = f"same kernel as {short(step.same_as)}" if step and step.same_as else ""
        first, last = place.candidate, stretch[-1].candidate
        return {
            "number": place.number,
            "name": first.name if many == 1 else f"{first.name} to {last.name}",
            "title": first.title if many == 1 else f"{many} {self.answer.kind}, none of them measured",
            "stand": self._status(place),
            "filter": self.stand(place.status),
            "kind": place.status.style,
            "glyph": GLYPHS.get(place.status, "▬") if place.measured else "▬",
            "step": place.order,
            "ratio": self.new if is_end else step and step.ratio,
            "instructions": count.ratio if count else step and step.instructions,
            "chance": place.chance,
            "why": "; ".join(filter(None, [step.why, same])) if step else "",
            "culprit": place.culprit,
        }

    def _status(self, place: RangeCommit) -> str:
        if place.number in (0, len(self.commits) - 1):
            return f"the {self.answer.terms[0 if place.number == 0 else 1]} end"
        if place.step and (place.status not in (CommitStatus.OLD, CommitStatus.NEW) or self.answer.mode == "live"):
            return place.step.decision  # live mode's has how sure it is
        inferred = not place.measured and place.status not in (CommitStatus.SUSPECT, CommitStatus.OPEN)
        return self.stand(place.status) + (" (inferred)" if inferred else "")
