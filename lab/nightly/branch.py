"""One branch in one night: fetched, measured against its baselines, judged.

What the history shows of a branch: the steps in its primary metrics, for the night to judge.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lab.compare import results
from lab.core.errors import BuildFailed, DiskFull, GuestFailed, HostFailed, LabError
from lab.core.progress import Progress
from lab.history import index, trends
from lab.history.database import opened
from lab.history.index import Label
from lab.history.trends import Change, Mode, Trend
from lab.kernels.trees import Tree
from lab.nightly import events as nightly_events
from lab.nightly import measure
from lab.nightly.bisect import Chase, Pursuit
from lab.nightly.context import BranchTonight
from lab.nightly.events import Baseline, BranchKey, EventSource, SeriesStep
from lab.nightly.measure import Broken
from lab.nightly.record import TipComparison, started_key, tip_comparison


def trend_steps(
    branch: BranchKey, least: float, database: str | None, progress: Progress
) -> tuple[list[SeriesStep], str]:
    """The steps of a branch of at least that size, and why there are none where the history does not work."""
    try:
        with opened(database) as base:
            index.catch_up(base, progress)
            with base.reading() as connection:
                seen = trends.branch_trends(connection, *branch, least=least)
    except LabError as error:
        return [], f"the history could not be looked at: {error.message}"
    return [_step(trend, change) for trend in seen if trend.series.better != "neither" for change in trend.changes], ""


def _step(trend: Trend, change: Change) -> SeriesStep:
    series = trend.series
    return SeriesStep(
        workload=series.workload, case=series.case, metric=series.metric, better=series.better,
        earliest=trend.points[change.earliest].night, latest=trend.points[change.latest].night,
        after=change.after, commit=change.commit, ratio=change.ratio, mode=series.mode,
    )  # fmt: skip


@dataclass(frozen=True)
class BranchWork:
    """What is done about a branch."""

    at: BranchTonight

    def do(self) -> None:
        """Fetch, measure, judge, bisect; a branch that fails does not stop the others."""
        at = self.at
        if at.now.state not in ("pending", "failed"):
            return
        try:
            tree = self._fetch()
            if at.now.tip == at.now.before:
                at.put(state="nothing new", why="")
                return
            self._measure(tree)
            self._judge(tree)
        except Broken as error:
            events = at.now.events or nightly_events.broken(self._setting(), at.around.memory, error.why)
            at.put(state="broken", why=error.why, events=events)
        except DiskFull:
            raise  # the others would fail as well; what was measured is kept
        except LabError as error:
            at.put(state="failed", why=error.message)
        if at.now.why:
            at.around.work.progress.log(f"{at.now.name} was not measured: {at.now.why}")

    def _fetch(self) -> Tree:
        """The tree, and its tip: the one that the night began with, if it did."""
        at, plan = self.at, self.at.plan
        tree = measure.update(plan.tree, plan.branch, at.around.work.progress)
        if not at.now.tip:
            tip = measure.tip(tree, plan.branch)
            before = at.around.memory.last_tip((plan.tree, plan.branch))
            at.put(tip=tip, before=before.commit if before else "", subject=tree.source.subject(tip))
            if before and tree.source.commit(before.commit) and not measure.is_behind(tree, before.commit, tip):
                at.put(forced=True)
                at.note(f"the branch was pushed anew: {before.commit[:12]} is not behind {tip[:12]}")
        return tree

    # ---- measuring

    def _measure(self, tree: Tree) -> None:
        """The tip in exact mode, then in live mode. What of that fails is said, and exact mode judges alone."""
        at, around = self.at, self.at.around
        measure.build(around.plan, tree, at.now.tip, around.work)
        self._measure_in("exact", tree)
        at.put(missed={})
        if around.live.accelerator is not None:
            try:
                self._measure_in("live", tree)
            except DiskFull:
                raise
            except LabError as error:
                at.put(missed={"live": error.message})
                at.note(f"live mode did not measure all: {error.message}")

    def _measure_in(self, mode: Mode, tree: Tree) -> None:
        """The tip against every baseline, each once; the first that works is the night's point."""
        for baseline in self._baselines(tree, mode):
            if all(one.commit != baseline.commit for one in self.at.now.measured_in(mode)):
                self._against(tree, baseline, mode)
        if not self.at.now.measured_in(mode):
            # Nothing to compare with, so far: the tip beside itself, for those that come after.
            self._against(tree, Baseline(commit=self.at.now.tip, names=("itself",)), mode)

    def _baselines(self, tree: Tree, mode: Mode) -> list[Baseline]:
        at, around = self.at, self.at.around
        release = measure.release(tree, at.now.tip, at.plan.releases)
        chosen = nightly_events.baselines(
            at.plan, around.memory, at.now.tip, release, around.night.date, around.plan.creep_days, mode
        )
        for one in chosen:
            if tree.source.commit(one.commit) is None:
                at.note(f"{one.commit[:12]} ({', '.join(one.names)}) is no longer in the tree")
        return [one for one in chosen if tree.source.commit(one.commit) is not None]

    def _against(self, tree: Tree, baseline: Baseline, mode: Mode) -> None:
        """One comparison. A baseline that cannot be measured any more is left out."""
        at, around = self.at, self.at.around
        if around.work.out_of_time:
            raise HostFailed(f"the night's budget of {around.plan.budget} is used up")
        if mode == "live" and around.live.out_of_time:
            raise HostFailed(f"its budget of {around.plan.live.budget} is used up")
        try:
            result = self._compare(tree, baseline, mode)
        except BuildFailed as error:
            at.note(f"{baseline.commit[:12]} ({', '.join(baseline.names)}) does not build: {error.message}")
        except GuestFailed as error:
            if mode == "live" or error.kind.blames != "kernel":
                raise
            if baseline.commit == at.now.tip:
                raise Broken(f"its guest fails: {error.message}") from error
            self._against(tree, Baseline(commit=at.now.tip, names=("itself",)), mode)
            at.note(f"{baseline.commit[:12]} ({', '.join(baseline.names)}) does not run: {error.message}")
        else:
            at.put(measured=[*at.now.measured, result])

    def _compare(self, tree: Tree, baseline: Baseline, mode: Mode) -> TipComparison:
        at, around = self.at, self.at.around
        known = at.now.started_in(mode).get(baseline.commit)
        folder = results.open_folder(known) if known else self._begun(tree, baseline, mode)
        words = f"{', '.join(baseline.names)}{' in live mode' if mode == 'live' else ''}"
        around.work.progress.log(f"{at.now.name}: {at.now.tip[:12]} against {words}")
        with around.live.spending() if mode == "live" else nullcontext(around.work) as work:
            result = measure.finish(folder, work, database=around.plan.database)
        return tip_comparison(result, baseline.names, baseline.commit)

    def _begun(self, tree: Tree, baseline: Baseline, mode: Mode) -> Path:
        """A folder for a comparison that nobody has begun."""
        at, around, plan = self.at, self.at.around, self.at.around.plan
        base, test = (measure.arm(tree, one, plan.cc, around.work.progress) for one in (baseline.commit, at.now.tip))
        accelerator = around.live.accelerator if mode == "live" else None
        label = Label(
            plan=plan.name, night=around.night.number, date=around.night.date, tree=at.plan.tree,
            branch=at.plan.branch, baseline=", ".join(baseline.names), trend=not at.now.started_in(mode),
        )  # fmt: skip
        folder = measure.begin(measure.plan_of(plan, at.plan, base, test, accelerator), label)
        at.put(started={**at.now.started, started_key(baseline.commit, mode): results.reference(folder)})
        return folder

    # ---- judging

    def _setting(self) -> EventSource:
        at, around = self.at, self.at.around
        return EventSource(
            plan=around.plan.name, night=around.night.number, date=around.night.date,
            branch=(at.plan.tree, at.plan.branch), tip=at.now.tip, threshold=around.plan.threshold,
            first=sum(len(one.events) for one in at.others) + 1,
        )  # fmt: skip

    def _judge(self, tree: Tree) -> None:
        """What is news, and whose doing it was."""
        at, around, where = self.at, self.at.around, self._setting()
        plan, memory = around.plan, around.memory
        steps, why = trend_steps(where.branch, plan.small, plan.database, around.work.progress)
        if why:
            at.note(why)
        found = nightly_events.mended(where, memory)
        where = replace(where, first=where.first + len(found))
        found += nightly_events.find_events(where, memory, at.now.measured, steps)
        chase = Chase(plan=plan, branch=at.plan, tree=tree, work=around.work, live=around.live)
        at.put(state="measured", why="", events=Pursuit(at, chase).told(found))
