"""From a regression to its commit: a bisection of the case that lost most, then what else that commit explains."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lab import ab, results, workloads
from lab.bisection import answer as answers
from lab.bisection import conclude, recipes, session
from lab.bisection import history as histories
from lab.bisection.answer import Answer, Found
from lab.bisection.asking import Asked, plan_for
from lab.errors import LabError
from lab.history.hook import remember
from lab.nightly import fetching, measuring
from lab.nightly.night import CaseMoved, Culprit, Event
from lab.nightly.planfile import BranchPlan, NightlyPlan
from lab.progress import Meter
from lab.trees import Tree
from lab.verdict import Outcome


@dataclass(frozen=True, kw_only=True)
class Chase:
    """What a bisection needs to know of the night around it. deadline: on the monotonic clock."""

    plan: NightlyPlan
    branch: BranchPlan
    tree: Tree
    jobs: int
    deadline: float | None
    meter: Meter

    @property
    def out_of_time(self) -> bool:
        """Whether the night's budget is used up."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def begin(self, event: Event) -> Path:
        """A new bisection of the case that lost most, between the event's two commits."""
        worst = max(event.cases, key=loss)
        old = event.base
        if not fetching.is_behind(self.tree, old, event.test):
            # Pushed anew: what was measured is on another line; the two part after this.
            old = fetching.meeting(self.tree.source, old, event.test) or old
        asked_for = [workloads.canonical(text) for text in self.plan.workloads_of(self.branch)]
        chosen = workloads.only(asked_for, worst.workload, worst.case)
        asked = Asked(
            good=old, bad=event.test, workload=chosen, tree=self.tree.name, threshold=self.plan.threshold,
            model=self.plan.model, machine=self.plan.machine, cc=self.plan.cc, qemu=self.plan.qemu,
            guest_timeout=self.plan.guest_timeout_s,
        )  # fmt: skip
        words = ["lab", "bisect", "--good", old, "--bad", event.test, "--tree", self.tree.name, "-w", chosen]
        recipe = recipes.Recipe(schema=1, workload="")
        made = plan_for(asked, recipe, ("good", "bad"), (old, event.test), words, self.meter.news)
        folder = results.new_folder(None)
        with results.claimed(folder):
            session.create(folder, made, histories.commits(made.old.spec, made.new.spec))
        return folder

    def finish(self, folder: Path) -> Answer | None:
        """The answer of a bisection, as far as the budget goes; None where there is none yet."""
        if (folder / answers.FILE).is_file():
            return answers.load(folder)
        if self.out_of_time:
            return None
        with results.claimed(folder):
            found = conclude.conclude(
                session.load(folder), jobs=self.jobs, deadline=self.deadline, meter=self.meter
            )  # fmt: skip
        remember(folder, self.meter, self.plan.database)
        return found

    def explained(self, event: Event, culprit: str) -> set[tuple[str, str]]:
        """The cases that the culprit itself makes worse: it is measured against its parent in all of the workload."""
        chosen = {case.workload for case in event.cases}
        asked = {text for text in self.plan.workloads_of(self.branch) if workloads.select(text)[0].name in chosen}
        base, test = (
            measuring.arm(self.tree, spec, self.plan.cc, self.meter) for spec in (f"{culprit}^", culprit)
        )  # fmt: skip
        one = replace(self.branch, workloads=tuple(sorted(asked)))
        compared = measuring.plan_of(self.plan, one, base, test)
        folder = results.new_folder(None)
        with results.claimed(folder):
            results.store_plan(folder, compared)
            result = ab.measure(compared, folder, jobs=self.jobs, deadline=None, meter=self.meter)
        remember(folder, self.meter, self.plan.database)
        return {(case.workload, case.case) for case in result.cases if case.verdict == Outcome.REGRESSION}


def loss(case: CaseMoved) -> float:
    """How much a case lost."""
    return abs(math.log(case.ratio)) if case.ratio else math.inf


def culprit_of(answer: Answer) -> Culprit | None:
    """What a bisection named, for the worse; of several the one that did most."""
    worse = [one for one in answer.changes if one.direction != Outcome.IMPROVEMENT]
    if not answer.named or not worse:
        return None
    one = max(worse, key=_effect)
    return Culprit(
        commit=one.commit, title=one.title, author=one.author, among=len(one.among), outcome=answer.outcome,
        bisection=answer.result, proof=one.proof.result if one.proof else None,
    )  # fmt: skip


def _effect(one: Found) -> float:
    return abs(math.log(one.effect.ratio)) if one.effect and one.effect.ratio else 0.0


def split(event: Event, explained: set[tuple[str, str]]) -> tuple[Event, Event | None]:
    """An event with the cases that its culprit explains, and one with the rest, if there is any."""
    mine = [case for case in event.cases if case.key in explained]
    rest = [case for case in event.cases if case.key not in explained]
    if not mine or not rest:
        return event, None
    return replace(event, cases=mine), replace(event, cases=rest, culprit=None)


def merged(events: Sequence[Event]) -> list[Event]:
    """Events of one culprit as one: a commit that slows two workloads down is one piece of news."""
    found: dict[str, Event] = {}
    for event in events:
        culprit = event.culprit
        key = f"{event.kind} {culprit.commit}" if culprit and culprit.among == 1 else event.id
        known = found.get(key)
        found[key] = replace(known, cases=[*known.cases, *event.cases]) if known else event
    return list(found.values())


def failed(error: LabError) -> str:
    """Why an event has no culprit."""
    return f"not bisected: {error.message}"
