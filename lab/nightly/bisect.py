"""The bisections of a branch in one night: finds the culprit of each event, and reports each culprit once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lab.bisection import answer, request, search, session
from lab.bisection.answer import Answer, Culprit
from lab.bisection.commit_range import is_ancestor, merge_base
from lab.bisection.request import BisectRequest
from lab.compare import result_folders
from lab.compare.plan import ArmPlan
from lab.core.errors import DiskFull, LabError, UserError
from lab.guests.run import Mode
from lab.history import remember
from lab.kernels.kernel import resolve
from lab.kernels.trees import Tree
from lab.nightly import tips
from lab.nightly.context import BranchContext
from lab.nightly.record import HARMFUL, CaseChange, CaseName, Event, EventCulprit
from lab.report.wording import effect_of
from lab.stats.verdict import Outcome, distance, percent
from lab.workloads import selection

_MOST_SHARES = 5


@dataclass(frozen=True)
class CulpritSearch:
    """Bisects the events of a branch, within the budgets."""

    branch: BranchContext
    tree: Tree

    def run(self, events: Sequence[Event]) -> list[Event]:
        """The events with their culprits; events with the same culprit become one."""
        bisected: list[Event] = []
        for event in events:
            wanted = self.branch.night.plan.bisect and event.kind in HARMFUL
            bisected += self._bisect(event) if wanted else [event]
        return [self._mark_known(event) for event in _merge(bisected)]

    def _bisect(self, event: Event) -> list[Event]:
        """The event with its culprit, and another event for the cases that this culprit does not explain."""
        bisections = self.branch.record.bisections
        name = f"{event.id} {' '.join(sorted(case.shown for case in event.cases))}"
        try:
            if name in bisections:
                folder = result_folders.open_folder(bisections[name])
            elif self.branch.night.out_of_time(_worst_case(event).mode):
                return [self._without_time(event)]
            else:
                folder = self._begin(event)
                self.branch.update(bisections={**bisections, name: result_folders.reference(folder)})
            return self._conclude(event, folder)
        except DiskFull:
            raise  # the night stops, and the bisection continues when there is space
        except LabError as error:
            return [replace(event, text=f"not bisected: {error.message}")]

    def _begin(self, event: Event) -> Path:
        """Create the bisection of the case that lost most, between the event's two commits."""
        plan, worst = self.branch.night.plan, _worst_case(event)
        good = event.base
        if not is_ancestor(self.tree.source, good, event.test):
            # After a forced push the measured commit is on the old line: search from the point at which the new line
            # leaves it.
            good = merge_base(self.tree.source, good, event.test) or good
        workloads = [selection.canonical(text) for text in plan.workloads_of(self.branch.plan)]
        workload = selection.only(workloads, worst.workload, worst.case)
        # A step, and the parts of a creep, may be smaller than the changes that one night shows.
        threshold = plan.threshold if event.kind == "regression" else plan.smallest_step
        good, bad = map(self.branch.plan.for_guests, (good, event.test))
        wanted = BisectRequest(
            good=good, bad=bad, workload=workload, tree=self.tree.name, threshold=threshold,
            machine=plan.machine, cc=plan.cc, qemu=plan.qemu, guest_timeout=plan.guest_timeout_s,
            model=plan.model if worst.mode == "exact" else None,
            metric=plan.metric if worst.mode == "exact" else None,
        )  # fmt: skip
        argv = ["lab", "bisect", "--good", good, "--bad", bad, "--tree", self.tree.name, "-w", workload]
        argv += ["--threshold", f"{threshold:g}"]
        argv += ["--metric", plan.metric] if plan.metric and worst.mode == "exact" else []
        if worst.mode == "live":
            if (accelerator := self.branch.night.live.accelerator) is None:
                raise UserError("this host no longer measures in live mode")
            live = plan.live
            wanted = replace(wanted, mode="live", accel=accelerator, cpus=live.cpus, iterations=live.iterations)
            argv += ["--mode", "live", "--accel", accelerator]
            argv += ["--cpus", str(live.cpus)] if live.cpus else []
            argv += ["--iterations", str(live.iterations)] if live.iterations else []
        bisection, commits = request.plan(wanted, argv, self.branch.night.work.progress)
        folder = result_folders.new_folder(None)
        with result_folders.claimed(folder):
            session.create(folder, bisection, commits)
        return folder

    def _conclude(self, event: Event, folder: Path) -> list[Event]:
        """Finish a bisection, and put its answer into the event."""
        answer = self._finish(folder)
        if answer is None:
            return [self._without_time(event)]
        if event.kind == "creep":
            return [_with_shares(event, answer, self._known_culprits(), self.branch.night.plan.smallest_step)]
        worse = _worse(answer)
        if not answer.named or not worse:
            return [_without_culprit(event, answer)]
        culprit = _event_culprit(worse[0], answer)
        event = replace(event, culprit=culprit)
        mode = _worst_case(event).mode
        if len(event.names) == 1 or culprit.among > 1 or (mode == "live" and self.branch.night.out_of_time(mode)):
            return [event]
        try:
            names = self.explained(event, culprit.commit)
        except DiskFull:
            raise
        except LabError as error:
            return [replace(event, text=f"it was not measured whether the culprit explains more: {error.message}")]
        explained = [case for case in event.cases if case.name in names]
        rest = [case for case in event.cases if case.name not in names]
        if not explained or not rest:
            return [event]
        other = replace(event, id=f"{event.id}b", cases=rest, culprit=None)
        return [replace(event, cases=explained), *self._bisect(other)]

    def _finish(self, folder: Path) -> Answer | None:
        """The answer of a bisection; None if the budget does not suffice to continue it."""
        if (folder / answer.FILE).exists():
            return answer.load(folder)
        night, found = self.branch.night, session.load(folder)
        mode: Mode = "exact" if found.plan.live is None else "live"
        if night.out_of_time(mode):
            return None
        with result_folders.claimed(folder), night.spend(mode) as work:
            result = search.conclude(found, work)
        remember(folder, night.work.progress, night.plan.database)
        return result

    def explained(self, event: Event, culprit: str) -> set[CaseName]:
        """The cases that a culprit makes worse: all cases of the event's workloads are measured against its parent.

        In live mode, cases that the rounds leave undecided count too.
        """
        night, mode = self.branch.night, _worst_case(event).mode
        names = {case.workload for case in event.cases}
        selections = night.plan.workloads_of(self.branch.plan)
        workloads = {text for text in selections if selection.select(text)[0].name in names}
        base, test = (
            ArmPlan(spec=resolve(spec, self.tree, progress=night.work.progress), cc=night.plan.cc)
            for spec in map(self.branch.plan.for_guests, (f"{culprit}^", culprit))
        )
        branch = replace(self.branch.plan, workloads=tuple(sorted(workloads)))
        folder = tips.begin_comparison(tips.comparison_plan(night.plan, branch, base, test, night.accelerator(mode)))
        # In exact mode the night's budget does not count: without this comparison the event would name too many cases.
        with night.live.spend() if mode == "live" else nullcontext(night.work.until(None)) as work:
            result = tips.finish_comparison(folder, work, database=night.plan.database)
        counted = (Outcome.REGRESSION,) if mode == "exact" else (Outcome.REGRESSION, Outcome.UNKNOWN)
        return {(case.workload, case.case) for case in result.cases if case.verdict in counted}

    def _without_time(self, event: Event) -> Event:
        budget = "the night's" if self.branch.night.out_of_time("exact") else "live mode's"
        return replace(event, text=f"not bisected: {budget} budget is used up")

    def _mark_known(self, event: Event) -> Event:
        """The event as `known` if another branch of the tree reported its culprit."""
        if event.kind != "regression" or event.culprit is None:
            return event
        known = self._known_culprits().get(event.culprit.commit)
        if known is None or known.branch == self.branch.plan.key[1]:
            return event
        return replace(event, kind="known", closes=known.id, text=f"the culprit of {known.id}, on this branch too")

    def _known_culprits(self) -> dict[str, Event]:
        """The culprits in this tree that earlier nights or other branches of this night reported."""
        tree = self.branch.plan.tree
        events = [event for other in self.branch.others if other.tree == tree for event in other.events]
        tonight = {culprit.commit: event for event in events for culprit in event.culprits}
        return self.branch.night.state.culprits(tree) | tonight


def _worst_case(event: Event) -> CaseChange:
    """The case to bisect: the largest loss, in exact mode if that shows the event, because it has no noise."""
    cases = (case for case in event.cases if case.mode == event.modes[0])
    return max(cases, key=lambda case: distance(case.ratio, none=math.inf))


def _merge(events: Sequence[Event]) -> list[Event]:
    """Events with the same culprit as one: a commit that slows two workloads down is one piece of news."""
    merged: dict[str, Event] = {}
    for event in events:
        culprit = event.culprit
        key = f"{event.kind} {culprit.commit}" if culprit and culprit.among == 1 else event.id
        first = merged.get(key)
        merged[key] = replace(first, cases=[*first.cases, *event.cases]) if first else event
    return list(merged.values())


# ---- the answer of a bisection


def _worse(answer: Answer) -> list[Culprit]:
    """The changes for the worse, the largest first."""
    worse = [change for change in answer.changes if change.direction != Outcome.IMPROVEMENT]
    return sorted(worse, key=lambda change: distance(_ratio(change)), reverse=True)


def _ratio(change: Culprit) -> float | None:
    effect = effect_of(change)
    return effect.ratio if effect else None


def _event_culprit(change: Culprit, answer: Answer) -> EventCulprit:
    return EventCulprit(
        commit=change.commit, title=change.title, author=change.author, among=len(change.suspects),
        outcome=answer.outcome, bisection=answer.result, proof=change.proof.result if change.proof else None,
        ratio=_ratio(change),
    )  # fmt: skip


def _without_culprit(event: Event, answer: Answer) -> Event:
    text = f"bisected in {answer.result}: {answer.outcome}, {answer.reason}"
    if event.kind == "step" and event.modes == ("live",) and answer.outcome == "no culprit":
        # The history compares nights, between which the host may have changed; the bisection compares side by side.
        return replace(event, kind="unfounded", text=f"{event.text}; side by side its two commits are alike: {text}")
    return replace(event, text=text)


def _with_shares(event: Event, answer: Answer, known: Mapping[str, Event], least: float) -> Event:
    """A creep with the commits that contributed to it: one, several or none that stands out.

    known: culprits that were reported before, which are named and not reported again. least: smaller contributions
    were not searched for.
    """
    worse = _worse(answer)
    if not worse:
        return _without_culprit(event, answer)
    new = [change for change in worse if change.is_single and change.commit not in known and answer.named]
    culprits = [_event_culprit(change, answer) for change in new]
    shares = ", ".join(_share(change, known) for change in worse[:_MOST_SHARES])
    if len(worse) > _MOST_SHARES:
        shares += f" and {len(worse) - _MOST_SHARES} more"
    whole = percent(answer.ends.ratio if answer.ends else None)
    rest = "" if answer.named else f" ({answer.reason})"
    text = f"bisected in {answer.result}: of {whole}, {shares}{rest}; parts below {100 * least:g} % were not looked for"
    return replace(event, culprit=culprits[0] if culprits else None, also=culprits[1:], text=text)


def _share(change: Culprit, known: Mapping[str, Event]) -> str:
    commit = change.commit[:12]
    if not change.is_single:
        return f"{percent(_ratio(change))} among {len(change.suspects)} commits up to {commit}"
    told = f", told of as {known[change.commit].id}" if change.commit in known else ""
    return f"{percent(_ratio(change))} by {commit}{told}"
