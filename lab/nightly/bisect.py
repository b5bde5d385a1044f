"""From a regression to its commit: a bisection of the case that lost most, then what else that commit explains.

From what is news to whose doing it was: each event with its culprit, each culprit told once.

What a bisection says of an event, in the words of a night. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lab.bisection import answer, commit_range, conclude, request, session
from lab.bisection.answer import Answer
from lab.bisection.answer import Culprit as Change
from lab.bisection.request import BisectRequest
from lab.compare import exact, live, results
from lab.core.errors import DiskFull, LabError, UserError
from lab.core.executor import Work
from lab.core.git import Repo
from lab.core.process import CommandFailed
from lab.history import remember
from lab.history.trends import Mode
from lab.kernels.trees import Tree
from lab.nightly import measure as nightly_measure
from lab.nightly.context import BranchContext, LiveBudget
from lab.nightly.plan import BranchPlan, NightlyPlan
from lab.nightly.record import CaseChange, CaseName, Culprit, Event
from lab.stats.verdict import Outcome, distance, percent
from lab.workloads import selection


@dataclass(frozen=True, kw_only=True)
class Chase:
    """What a bisection needs to know of the night around it."""

    plan: NightlyPlan
    branch: BranchPlan
    tree: Tree
    work: Work
    live: LiveBudget

    def out_of_time(self, mode: Mode) -> bool:
        """Whether the night's budget is used up, or live mode's."""
        return self.work.out_of_time or (mode == "live" and self.live.out_of_time)

    def begin(self, event: Event) -> Path:
        """A new bisection of the case that lost most, between the event's two commits."""
        worst = worst_of(event)
        old = event.base
        if not commit_range.is_ancestor(self.tree.source, old, event.test):
            # Pushed anew: what was measured is on another line; the two part after this.
            old = _merge_base(self.tree.source, old, event.test) or old
        asked_for = [selection.canonical(text) for text in self.plan.workloads_of(self.branch)]
        chosen = selection.only(asked_for, worst.workload, worst.case)
        # A step, and the parts of a creep, may be smaller than what a single night tells.
        threshold = self.plan.threshold if event.kind == "regression" else self.plan.smallest_step
        wanted = BisectRequest(
            good=old, bad=event.test, workload=chosen, tree=self.tree.name, threshold=threshold,
            machine=self.plan.machine, cc=self.plan.cc, qemu=self.plan.qemu, guest_timeout=self.plan.guest_timeout_s,
            model=self.plan.model if worst.mode == "exact" else None,
        )  # fmt: skip
        words = ["lab", "bisect", "--good", old, "--bad", event.test, "--tree", self.tree.name, "-w", chosen]
        words += ["--threshold", f"{threshold:g}"]
        if worst.mode == "live":
            wanted, more = self._in_live_mode(wanted)
            words += more
        made, history = request.plan(wanted, words, self.work.progress)
        folder = results.new_folder(None)
        with results.claimed(folder):
            session.create(folder, made, history)
        return folder

    def _in_live_mode(self, wanted: BisectRequest) -> tuple[BisectRequest, list[str]]:
        """The search of live mode instead, and the words for it."""
        if self.live.accelerator is None:
            raise UserError("this host no longer measures in live mode")
        own, accel = self.plan.live, self.live.accelerator
        words = ["--mode", "live", "--accel", accel]
        words += ["--cpus", str(own.cpus)] if own.cpus else []
        words += ["--iterations", str(own.iterations)] if own.iterations else []
        return replace(wanted, mode="live", accel=accel, cpus=own.cpus, iterations=own.iterations), words

    def finish(self, folder: Path) -> Answer | None:
        """The answer of a bisection, as far as the budget goes; None where there is none yet."""
        if (folder / answer.FILE).is_file():
            return answer.load(folder)
        begun = session.load(folder)
        mode: Mode = "exact" if begun.plan.live is None else "live"
        if self.out_of_time(mode):
            return None
        with results.claimed(folder), self.live.spend() if mode == "live" else nullcontext(self.work) as work:
            found = conclude.conclude(begun, work)
        remember(folder, self.work.progress, self.plan.database)
        return found

    def explained(self, event: Event, culprit: str) -> set[CaseName]:
        """The cases that the culprit itself makes worse: it is measured against its parent in all of the workload.

        In live mode also those that it may make worse, as far as the rounds tell.
        """
        mode = worst_of(event).mode
        chosen = {case.workload for case in event.cases}
        asked = {text for text in self.plan.workloads_of(self.branch) if selection.select(text)[0].name in chosen}
        base, test = (
            nightly_measure.resolve_arm(self.tree, spec, self.plan.cc, self.work.progress)
            for spec in (f"{culprit}^", culprit)
        )
        one = replace(self.branch, workloads=tuple(sorted(asked)))
        accelerator = self.live.accelerator if mode == "live" else None
        compared = nightly_measure.comparison_plan(self.plan, one, base, test, accelerator)
        folder = results.new_folder(None)
        with (
            results.claimed(folder),
            self.live.spend() if mode == "live" else nullcontext(self.work.until(None)) as work,
        ):
            results.store_plan(folder, compared)
            measure = exact.measure if mode == "exact" else live.measure
            result = measure(compared, folder, work)
        remember(folder, self.work.progress, self.plan.database)
        wanted = (Outcome.REGRESSION,) if mode == "exact" else (Outcome.REGRESSION, Outcome.UNKNOWN)
        return {(case.workload, case.case) for case in result.cases if case.verdict in wanted}


def _merge_base(repo: Repo, one: str, other: str) -> str | None:
    """The last commit that two have in common."""
    try:
        return repo.git("merge-base", one, other) or None
    except CommandFailed:
        return None


def worst_of(event: Event) -> CaseChange:
    """The case to bisect: in exact mode, which is sure of every commit, if that saw the event."""
    mode = event.modes[0]
    return max((case for case in event.cases if case.mode == mode), key=loss)


def loss(case: CaseChange) -> float:
    """How much a case lost."""
    return distance(case.ratio, none=math.inf)


def split(event: Event, explained: set[CaseName]) -> tuple[Event, Event | None]:
    """An event with the cases that its culprit explains, and one with the rest, if there is any."""
    mine = [case for case in event.cases if case.name in explained]
    rest = [case for case in event.cases if case.name not in explained]
    if not mine or not rest:
        return event, None
    return replace(event, cases=mine), replace(event, cases=rest, culprit=None)


_MOST_SHARES = 5


def culprit_of(answer: Answer) -> Culprit | None:
    """What a bisection named, for the worse; of several the one that did most."""
    worse = [one for one in answer.changes if one.direction != Outcome.IMPROVEMENT]
    if not answer.named or not worse:
        return None
    return _culprit(max(worse, key=_effect), answer)


def _culprit(one: Change, answer: Answer) -> Culprit:
    return Culprit(
        commit=one.commit, title=one.title, author=one.author, among=len(one.suspects), outcome=answer.outcome,
        bisection=answer.result, proof=one.proof.result if one.proof else None, ratio=_ratio(one),
    )  # fmt: skip


def _ratio(one: Change) -> float | None:
    """What a change did: by fresh numbers, where there are some."""
    fresh = one.proof.fresh if one.proof else None
    measured = fresh or one.effect
    return measured.ratio if measured else None


def _effect(one: Change) -> float:
    return distance(_ratio(one))


def crept(event: Event, answer: Answer, known: Mapping[str, Event], least: float) -> Event:
    """A creep with all that had a part in it; that may be nobody, or many, of which some were told of before.

    known: commits and the events that told of them. least: smaller parts were not looked for.
    """
    worse = sorted((one for one in answer.changes if one.direction != Outcome.IMPROVEMENT), key=_effect, reverse=True)
    if not worse:
        return nameless(event, answer)
    named = [_culprit(one, answer) for one in worse if one.is_single and one.commit not in known and answer.named]
    shares = ", ".join(_share(one, known) for one in worse[:_MOST_SHARES])
    if len(worse) > _MOST_SHARES:
        shares += f" and {len(worse) - _MOST_SHARES} more"
    whole = percent(answer.ends.ratio if answer.ends else None)
    rest = "" if answer.named else f" ({answer.reason})"
    text = f"bisected in {answer.result}: of {whole}, {shares}{rest}; parts below {100 * least:g} % were not looked for"
    return replace(event, culprit=named[0] if named else None, also=named[1:], text=text)


def _share(one: Change, known: Mapping[str, Event]) -> str:
    told = f", told of as {known[one.commit].id}" if one.is_single and one.commit in known else ""
    where = (
        f"by {one.commit[:12]}{told}" if one.is_single else f"among {len(one.suspects)} commits up to {one.commit[:12]}"
    )
    return f"{percent(_ratio(one))} {where}"


def nameless(event: Event, answer: Answer) -> Event:
    """An event whose bisection named nobody."""
    text = f"bisected in {answer.result}: {answer.outcome}, {answer.reason}"
    if event.kind == "step" and event.modes == ("live",) and answer.outcome == "no culprit":
        # Points of other nights were measured by a host that may have changed since; these two, side by side.
        return replace(event, kind="unfounded", text=f"{event.text}; side by side its two commits are alike: {text}")
    return replace(event, text=text)


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


@dataclass(frozen=True)
class Pursuit:
    """The bisections of one branch in one night."""

    at: BranchContext
    chase: Chase

    def told(self, found: Sequence[Event]) -> list[Event]:
        """The events as they are told: with their culprits, those of one culprit as one."""
        chased: list[Event] = []
        for event in found:
            wanted = self.chase.plan.bisect and event.kind in ("regression", "creep", "step")
            chased += self._chased(event) if wanted else [event]
        return [self._known_elsewhere(event) for event in merged(chased)]

    def _chased(self, event: Event) -> list[Event]:
        """An event with its culprit; what that one does not explain is chased by itself."""
        at = self.at
        try:
            name = f"{event.id} {' '.join(sorted(case.shown for case in event.cases))}"
            if (known := at.record.bisections.get(name)) is None:
                if self.chase.out_of_time(worst_of(event).mode):
                    return [self._too_late(event)]
                folder = self.chase.begin(event)
                at.update(bisections={**at.record.bisections, name: results.reference(folder)})
            else:
                folder = results.open_folder(known)
            return self._concluded(event, folder)
        except DiskFull:
            raise  # the night stops, and this bisection goes on when there is room
        except LabError as error:
            return [replace(event, text=failed(error))]

    def _concluded(self, event: Event, folder: Path) -> list[Event]:
        answer = self.chase.finish(folder)
        if answer is None:
            return [self._too_late(event)]
        if event.kind == "creep":
            return [crept(event, answer, self._culprits(), self.chase.plan.smallest_step)]
        culprit = culprit_of(answer)
        if culprit is None:
            return [nameless(event, answer)]
        event = replace(event, culprit=culprit)
        mode = worst_of(event).mode
        if len(event.names) == 1 or culprit.among > 1 or (mode == "live" and self.chase.out_of_time(mode)):
            return [event]
        try:
            explained = self.chase.explained(event, culprit.commit)
        except DiskFull:
            raise
        except LabError as error:
            return [replace(event, text=f"what else the culprit explains was not measured: {error.message}")]
        mine, rest = split(event, explained)
        return [mine, *(self._chased(replace(rest, id=f"{rest.id}b")) if rest else [])]

    def _too_late(self, event: Event) -> Event:
        budget = "live mode's" if not self.chase.out_of_time("exact") else "the night's"
        return replace(event, text=f"not bisected: {budget} budget is used up")

    # ---- what was told of before

    def _known_elsewhere(self, event: Event) -> Event:
        """A culprit that was told of on another branch of the tree, or by another machine, is not told again."""
        if event.kind != "regression" or event.culprit is None:
            return event
        if event.culprit.among == 1 and (told := self.at.night.team.culprits.get(event.culprit.commit)):
            return replace(event, kind="known", text=f"the culprit of {told}")
        other = self._culprits().get(event.culprit.commit)
        if other is None or other.branch == self.at.plan.branch:
            return event
        return replace(event, kind="known", closes=other.id, text=f"the culprit of {other.id}, on this branch too")

    def _culprits(self) -> dict[str, Event]:
        """The commits of the tree that are known to have done something, on other branches this very night too."""
        tree = self.at.plan.tree
        events = [event for one in self.at.others if one.tree == tree for event in one.events]
        tonight = {culprit.commit: event for event in events for culprit in event.culprits}
        return self.at.night.state.culprits(tree) | tonight
