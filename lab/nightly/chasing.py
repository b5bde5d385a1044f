"""From a regression to its commit: a bisection of the case that lost most, then what else that commit explains."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lab.bisection import answer, conclude, history, recipes, session
from lab.bisection.answer import Answer
from lab.bisection.asking import Asked, plan_for
from lab.compare import exact, live, results
from lab.core.errors import UserError
from lab.core.progress import Meter
from lab.history.hook import remember
from lab.kernels.trees import Tree
from lab.nightly import fetching, measuring
from lab.nightly.livemode import LiveAllowance
from lab.nightly.night import CaseMoved, CaseName, Event, Mode
from lab.nightly.planfile import BranchPlan, NightlyPlan
from lab.stats.verdict import Outcome
from lab.workloads import selection


@dataclass(frozen=True, kw_only=True)
class Chase:
    """What a bisection needs to know of the night around it. deadline: on the monotonic clock."""

    plan: NightlyPlan
    branch: BranchPlan
    tree: Tree
    jobs: int
    deadline: float | None
    live: LiveAllowance
    meter: Meter

    def out_of_time(self, mode: Mode) -> bool:
        """Whether the night's budget is used up, or live mode's."""
        late = self.deadline is not None and time.monotonic() > self.deadline
        return late or (mode == "live" and self.live.out_of_time)

    def begin(self, event: Event) -> Path:
        """A new bisection of the case that lost most, between the event's two commits."""
        worst = worst_of(event)
        old = event.base
        if not fetching.is_behind(self.tree, old, event.test):
            # Pushed anew: what was measured is on another line; the two part after this.
            old = fetching.meeting(self.tree.source, old, event.test) or old
        asked_for = [selection.canonical(text) for text in self.plan.workloads_of(self.branch)]
        chosen = selection.only(asked_for, worst.workload, worst.case)
        # A step, and the parts of a creep, may be smaller than what a single night tells.
        threshold = self.plan.threshold if event.kind == "regression" else self.plan.small
        asked = Asked(
            good=old, bad=event.test, workload=chosen, tree=self.tree.name, threshold=threshold,
            machine=self.plan.machine, cc=self.plan.cc, qemu=self.plan.qemu, guest_timeout=self.plan.guest_timeout_s,
            model=self.plan.model if worst.mode == "exact" else None,
        )  # fmt: skip
        words = ["lab", "bisect", "--good", old, "--bad", event.test, "--tree", self.tree.name, "-w", chosen]
        words += ["--threshold", f"{threshold:g}"]
        if worst.mode == "live":
            asked, more = self._in_live_mode(asked)
            words += more
        recipe = recipes.Recipe(schema=1, workload="")
        made = plan_for(asked, recipe, ("good", "bad"), (old, event.test), words, self.meter.news)
        folder = results.new_folder(None)
        with results.claimed(folder):
            found = history.commits(made.old.spec, made.new.spec, first_parent=made.live is not None)
            session.create(folder, made, found)
        return folder

    def _in_live_mode(self, asked: Asked) -> tuple[Asked, list[str]]:
        """The search of live mode instead, and the words for it."""
        if self.live.accelerator is None:
            raise UserError("this host no longer measures in live mode")
        own, accel = self.plan.live, self.live.accelerator
        words = ["--mode", "live", "--accel", accel]
        words += ["--cpus", str(own.cpus)] if own.cpus else []
        words += ["--iterations", str(own.iterations)] if own.iterations else []
        return replace(asked, mode="live", accel=accel, cpus=own.cpus, iterations=own.iterations), words

    def finish(self, folder: Path) -> Answer | None:
        """The answer of a bisection, as far as the budget goes; None where there is none yet."""
        if (folder / answer.FILE).is_file():
            return answer.load(folder)
        begun = session.load(folder)
        mode: Mode = "exact" if begun.plan.live is None else "live"
        if self.out_of_time(mode):
            return None
        with results.claimed(folder), self.live.spending() if mode == "live" else nullcontext(self.deadline) as until:
            found = conclude.conclude(begun, jobs=self.jobs, deadline=until, meter=self.meter)
        remember(folder, self.meter, self.plan.database)
        return found

    def explained(self, event: Event, culprit: str) -> set[CaseName]:
        """The cases that the culprit itself makes worse: it is measured against its parent in all of the workload.

        In live mode also those that it may make worse, as far as the rounds tell.
        """
        mode = worst_of(event).mode
        chosen = {case.workload for case in event.cases}
        asked = {text for text in self.plan.workloads_of(self.branch) if selection.select(text)[0].name in chosen}
        base, test = (
            measuring.arm(self.tree, spec, self.plan.cc, self.meter) for spec in (f"{culprit}^", culprit)
        )  # fmt: skip
        one = replace(self.branch, workloads=tuple(sorted(asked)))
        accelerator = self.live.accelerator if mode == "live" else None
        compared = measuring.plan_of(self.plan, one, base, test, accelerator)
        folder = results.new_folder(None)
        with results.claimed(folder), self.live.spending() if mode == "live" else nullcontext(None) as until:
            results.store_plan(folder, compared)
            measure = exact.measure if mode == "exact" else live.measure
            result = measure(compared, folder, jobs=self.jobs, deadline=until, meter=self.meter)
        remember(folder, self.meter, self.plan.database)
        wanted = (Outcome.REGRESSION,) if mode == "exact" else (Outcome.REGRESSION, Outcome.UNKNOWN)
        return {(case.workload, case.case) for case in result.cases if case.verdict in wanted}


def worst_of(event: Event) -> CaseMoved:
    """The case to bisect: in exact mode, which is sure of every commit, if that saw the event."""
    mode = event.modes[0]
    return max((case for case in event.cases if case.mode == mode), key=loss)


def loss(case: CaseMoved) -> float:
    """How much a case lost."""
    return abs(math.log(case.ratio)) if case.ratio else math.inf


def split(event: Event, explained: set[CaseName]) -> tuple[Event, Event | None]:
    """An event with the cases that its culprit explains, and one with the rest, if there is any."""
    mine = [case for case in event.cases if case.name in explained]
    rest = [case for case in event.cases if case.name not in explained]
    if not mine or not rest:
        return event, None
    return replace(event, cases=mine), replace(event, cases=rest, culprit=None)
