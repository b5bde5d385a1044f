"""`lab nightly run`: one night from the fetch to the news, saved after every piece of work so that it can go on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from msgspec.structs import replace

from lab import results
from lab.errors import BuildFailed, GuestFailed, HostFailed, LabError, UserError
from lab.history.entries import Label
from lab.nightly import chasing, deciding, fetching, looking, measuring, night
from lab.nightly.chasing import Chase
from lab.nightly.deciding import Baseline, Setting
from lab.nightly.measuring import Broken
from lab.nightly.memory import Memory, remember
from lab.nightly.night import BranchNight, Event, Measured, Night
from lab.nightly.planfile import BranchPlan, NightlyPlan
from lab.progress import Meter
from lab.trees import Tree


def today() -> str:
    """The date that a night goes by."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def run(plan: NightlyPlan, *, jobs: int, meter: Meter) -> tuple[Night, bool]:
    """Tonight's work, as far as it was not done yet; the night, and whether anything was left to do."""
    lock = FileLock(night.plan_dir(plan.name) / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"another lab nightly is at work on the plan {plan.name}", hint="`lab nightly status` shows how far it is"
        ) from None
    try:
        return _run(plan, jobs, meter)
    finally:
        lock.release()


def _run(plan: NightlyPlan, jobs: int, meter: Meter) -> tuple[Night, bool]:
    nights = night.load_all(plan.name)
    date = today()
    found = deciding.night_to_do([(one.number, one.date, bool(one.finished)) for one in nights], date)
    if found is None:
        return next(one for one in reversed(nights) if one.date == date and one.finished), False
    number, begun = found
    if begun and (left := _branches(nights[-1], plan)) is not None:
        tonight, earlier = replace(nights[-1], branches=left), nights[:-1]
        meter.say(f"night {number} ({date}) goes on where it stopped")
    else:
        earlier = nights[:-1] if begun else nights
        tonight = Night(
            plan=plan.name, number=number, date=date, started=_now(), notes=_notes(earlier, date),
            branches=[BranchNight(tree=one.tree, branch=one.branch) for one in plan.branch],
        )  # fmt: skip
        meter.say(f"night {number} ({date}) of {plan.name}: {len(plan.branch)} branches")
    _close(earlier)
    work = _Night(plan=plan, night=tonight, earlier=earlier, jobs=jobs, meter=meter)
    return work.do(), True


def _branches(begun: Night, plan: NightlyPlan) -> list[BranchNight] | None:
    """What is there of a night that was begun; None where the plan has other branches by now."""
    same = [(one.tree, one.branch) for one in begun.branches] == [(one.tree, one.branch) for one in plan.branch]
    return begun.branches if same else None


def _notes(earlier: list[Night], date: str) -> list[str]:
    last = max((one.date for one in earlier), default="")
    return [f"the clock went back: it says {date}, and a night before was {last}"] if date < last else []


def _close(earlier: list[Night]) -> None:
    """Nights that nobody will go on with say so."""
    for one in earlier:
        if not one.finished:
            night.save(replace(one, finished=_now(), outcome=one.outcome or "interrupted"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass
class _Night:
    """A night at work. Whatever changes is saved at once."""

    plan: NightlyPlan
    night: Night
    earlier: list[Night]
    jobs: int
    meter: Meter
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.plan.budget_s
        self.save()

    @property
    def memory(self) -> Memory:
        """What was known before this night."""
        return remember(self.earlier, night.load_acks())

    def save(self) -> None:
        night.save(self.night)

    def do(self) -> Night:
        """All branches, then the night's name."""
        for place, one in enumerate(self.plan.branch):
            _BranchWork(self, place, one).do()
        failed = [one for one in self.night.branches if one.state == "failed"]
        after = remember([*self.earlier, self.night], night.load_acks())
        self.night = replace(
            self.night,
            outcome=deciding.outcome(self.night.branches, still_open=len(after.minded)),
            # What failed by this machine's doing is tried again when the night is run again.
            finished="" if failed else _now(),
        )
        self.save()
        return self.night


@dataclass
class _BranchWork:
    """One branch in one night."""

    around: _Night
    place: int
    plan: BranchPlan

    @property
    def now(self) -> BranchNight:
        return self.around.night.branches[self.place]

    def put(self, **changes: object) -> None:
        """Change what is known of the branch, and keep it."""
        branches = list(self.around.night.branches)
        branches[self.place] = replace(self.now, **changes)
        self.around.night = replace(self.around.night, branches=branches)
        self.around.save()

    def note(self, text: str) -> None:
        """Something that the reader should know."""
        if text not in self.now.notes:
            self.put(notes=[*self.now.notes, text])
        self.around.meter.say(f"{self.now.name}: {text}")

    def do(self) -> None:
        """Fetch, measure, judge, bisect; a branch that fails does not stop the others."""
        if self.now.state not in ("pending", "failed"):
            return
        try:
            tree = self._fetch()
            if self.now.tip == self.now.before:
                self.put(state="nothing new", why="")
                return
            self._measure(tree)
            self._judge(tree)
        except Broken as error:
            events = self.now.events or deciding.broken(self._setting(), self.around.memory, error.why)
            self.put(state="broken", why=error.why, events=events)
        except LabError as error:
            self.put(state="failed", why=error.message)
        if self.now.why:
            self.around.meter.say(f"{self.now.name} was not measured: {self.now.why}")

    def _fetch(self) -> Tree:
        """The tree, and its tip: the one that the night began with, if it did."""
        tree = fetching.update(self.plan.tree, self.plan.branch, self.around.meter.news)
        if not self.now.tip:
            tip = fetching.tip(tree, self.plan.branch)
            before = self.around.memory.before((self.plan.tree, self.plan.branch))
            self.put(tip=tip, before=before.commit if before else "", subject=tree.source.subject(tip))
            if before and tree.source.commit(before.commit) and not fetching.is_behind(tree, before.commit, tip):
                self.put(forced=True)
                self.note(f"the branch was pushed anew: {before.commit[:12]} is not behind {tip[:12]}")
        return tree

    # ---- measuring

    def _measure(self, tree: Tree) -> None:
        """The tip against every baseline, each once; the first that works is the night's point."""
        measuring.build(self.around.plan, tree, self.now.tip, self.around.jobs, self.around.meter)
        for baseline in self._baselines(tree):
            if all(one.commit != baseline.commit for one in self.now.measured):
                self._against(tree, baseline)
        if not self.now.measured:
            # Nothing to compare with, so far: the tip beside itself, for those that come after.
            self._against(tree, Baseline(commit=self.now.tip, names=("itself",)))

    def _baselines(self, tree: Tree) -> list[Baseline]:
        release = fetching.release(tree, self.now.tip, self.plan.releases)
        chosen = deciding.baselines(
            self.plan, self.around.memory, self.now.tip, release, self.around.night.date, self.around.plan.creep_days
        )
        for one in chosen:
            if tree.source.commit(one.commit) is None:
                self.note(f"{one.commit[:12]} ({', '.join(one.names)}) is no longer in the tree")
        return [one for one in chosen if tree.source.commit(one.commit) is not None]

    def _against(self, tree: Tree, baseline: Baseline) -> None:
        """One comparison. A baseline that cannot be measured any more is left out."""
        if time.monotonic() > self.around.deadline:
            raise HostFailed(f"the night's budget of {self.around.plan.budget} is used up")
        try:
            result = self._compare(tree, baseline)
        except BuildFailed as error:
            self.note(f"{baseline.commit[:12]} ({', '.join(baseline.names)}) does not build: {error.message}")
        except GuestFailed as error:
            if not measuring.is_kernels_doing(error):
                raise
            if baseline.commit == self.now.tip:
                raise Broken(f"its guest fails: {error.message}") from error
            self._against(tree, Baseline(commit=self.now.tip, names=("itself",)))
            self.note(f"{baseline.commit[:12]} ({', '.join(baseline.names)}) does not run: {error.message}")
        else:
            self.put(measured=[*self.now.measured, result])

    def _compare(self, tree: Tree, baseline: Baseline) -> Measured:
        plan, around = self.around.plan, self.around
        known = self.now.started.get(baseline.commit)
        if known is None:
            base, test = (measuring.arm(tree, one, plan.cc, around.meter) for one in (baseline.commit, self.now.tip))
            label = Label(
                plan=plan.name, night=around.night.number, date=around.night.date, tree=self.plan.tree,
                branch=self.plan.branch, baseline=", ".join(baseline.names), trend=not self.now.started,
            )  # fmt: skip
            folder = measuring.begin(measuring.plan_of(plan, self.plan, base, test), label)
            self.put(started={**self.now.started, baseline.commit: results.reference(folder)})
        else:
            folder = results.open_folder(known)
        around.meter.say(f"{self.now.name}: {self.now.tip[:12]} against {', '.join(baseline.names)}")
        result = measuring.finish(
            folder, jobs=around.jobs, deadline=around.deadline, meter=around.meter, database=plan.database
        )
        return measuring.measured(result, baseline.names, baseline.commit)

    # ---- judging

    def _setting(self) -> Setting:
        others = [one for place, one in enumerate(self.around.night.branches) if place != self.place]
        return Setting(
            plan=self.around.plan.name, night=self.around.night.number, date=self.around.night.date,
            branch=(self.plan.tree, self.plan.branch), tip=self.now.tip, threshold=self.around.plan.threshold,
            first=sum(len(one.events) for one in others) + 1,
        )  # fmt: skip

    def _judge(self, tree: Tree) -> None:
        """What is news, and whose doing it was."""
        plan, memory, where = self.around.plan, self.around.memory, self._setting()
        steps, why = looking.steps(where.branch, plan.threshold, plan.database, self.around.meter)
        if why:
            self.note(why)
        found = [*deciding.mended(where, memory)]
        found += deciding.news(replace(where, first=where.first + len(found)), memory, self.now.measured, steps)
        chase = Chase(
            plan=plan, branch=self.plan, tree=tree, jobs=self.around.jobs, deadline=self.around.deadline,
            meter=self.around.meter,
        )  # fmt: skip
        chased: list[Event] = []
        for event in found:
            chased += self._chase(chase, event) if plan.bisect and event.kind in ("regression", "step") else [event]
        known = memory.culprits(self.plan.tree) | self._tonights_culprits()
        events = [_known_elsewhere(event, known, where) for event in chasing.merged(chased)]
        self.put(state="measured", why="", events=events)

    def _tonights_culprits(self) -> dict[str, Event]:
        """What other branches of the tree had this very night."""
        others = [one for place, one in enumerate(self.around.night.branches) if place != self.place]
        events = [event for one in others if one.tree == self.plan.tree for event in one.events]
        return {event.culprit.commit: event for event in events if event.culprit and event.culprit.among == 1}

    def _chase(self, chase: Chase, event: Event) -> list[Event]:
        """An event with its culprit; what that one does not explain is chased by itself."""
        try:
            name = f"{event.id} {' '.join(sorted(f'{case.workload}:{case.case}' for case in event.cases))}"
            if (known := self.now.bisections.get(name)) is None:
                if chase.out_of_time:
                    return [replace(event, text="not bisected: the night's budget is used up")]
                folder = chase.begin(event)
                self.put(bisections={**self.now.bisections, name: results.reference(folder)})
            else:
                folder = results.open_folder(known)
            return self._told(chase, event, folder)
        except LabError as error:
            return [replace(event, text=chasing.failed(error))]

    def _told(self, chase: Chase, event: Event, folder: Path) -> list[Event]:
        answer = chase.finish(folder)
        if answer is None:
            return [replace(event, text="not bisected: the night's budget is used up")]
        culprit = chasing.culprit_of(answer)
        if culprit is None:
            return [replace(event, text=f"bisected in {answer.result}: {answer.outcome}, {answer.reason}")]
        event = replace(event, culprit=culprit)
        if len(event.cases) == 1 or culprit.among > 1:
            return [event]
        mine, rest = chasing.split(event, chase.explained(event, culprit.commit))
        return [mine, *(self._chase(chase, replace(rest, id=f"{rest.id}b")) if rest else [])]


def _known_elsewhere(event: Event, known: dict[str, Event], where: Setting) -> Event:
    """A culprit that was told of on another branch of the tree is not told again."""
    if event.kind != "regression" or event.culprit is None:
        return event
    other = known.get(event.culprit.commit)
    if other is None or other.branch == where.branch[1]:
        return event
    return replace(event, kind="known", closes=other.id, text=f"the culprit of {other.id}, on this branch too")
