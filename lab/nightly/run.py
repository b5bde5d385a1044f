"""`lab nightly run`: one night from the fetch to the events, saved after every piece of work to continue from.

On a branch, the night measures the tip against the baselines, finds the events, and bisects.
"""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from lab.cluster import connect
from lab.compare import result_folders
from lab.core import locks, paths, records
from lab.core.errors import BuildFailed, DiskFull, GuestFailed, HostFailed, LabError
from lab.core.executor import Work
from lab.guests.run import Mode
from lab.history import index, trends
from lab.history.database import opened
from lab.history.index import Label
from lab.nightly import events, record, tips
from lab.nightly.bisect import CulpritSearch
from lab.nightly.context import BranchContext, NightContext
from lab.nightly.events import Baseline, EventSource, SeriesStep
from lab.nightly.plan import NightlyPlan
from lab.nightly.record import BranchNight, Night, short, started_key, tip_comparison
from lab.nightly.tips import BrokenTip, Tips


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def run(plan: NightlyPlan, work: Work) -> tuple[Night, bool]:
    """Run the rest of tonight's night; returns it, and False if it was finished before."""
    busy = f"another lab nightly is at work on the plan {plan.name}"
    with locks.alone(paths.data_dir("nightly", plan.name) / ".lock", busy, "`lab nightly status` shows its progress"):
        return _run(plan, work)


def _run(plan: NightlyPlan, work: Work) -> tuple[Night, bool]:
    nights = record.load_all(plan.name)
    date = today()
    tonight = events.next_night(nights, date)
    if tonight is None:
        return next(night for night in reversed(nights) if night.date == date and night.finished), False
    number, begun = tonight
    if not begun:  # a night that cannot be read keeps its number
        number = max(number, *(int(path.stem) + 1 for path in record.files(plan.name)), 1)
    earlier = nights[:-1] if begun else nights
    if begun and [one.key for one in nights[-1].branches] == [one.key for one in plan.branch]:
        night = nights[-1]
        work.progress.log(f"night {number} ({date}) continues where it stopped")
    else:
        night = _new_night(plan, number, date, earlier)
        work.progress.log(f"night {number} ({date}) of {plan.name}: {len(plan.branch)} branches")
    for old in earlier:
        if not old.finished:
            record.save(replace(old, finished=records.now(), outcome=old.outcome or "interrupted"))
    with connect(plan.cluster, plan.share, work.progress) as executor:
        work = dataclasses.replace(work, deadline=time.monotonic() + plan.budget_s, executor=executor)
        context = NightContext(plan, night, earlier, work)
        for index in range(len(plan.branch)):
            run_branch(BranchContext(context, index))
        branches = context.record.branches
        context.update(
            outcome=events.night_outcome(branches, still_open=len(context.state_after.unacknowledged)),
            # Branches that failed because of this machine are tried again when the night is run again.
            finished="" if any(one.state == "failed" for one in branches) else records.now(),
        )
    return context.record, True


def _new_night(plan: NightlyPlan, number: int, date: str, earlier: list[Night]) -> Night:
    last = max((night.date for night in earlier), default="")
    notes = [f"the clock went back: it says {date}, and a night before was {last}"] if date < last else []
    if lost := record.unread(plan.name, earlier):
        notes.append(f"{', '.join(lost)} cannot be read: its findings may be reported again")
    branches = [BranchNight(tree=branch.key[0], branch=branch.key[1]) for branch in plan.branch]
    return Night(
        plan=plan.name, number=number, date=date, started=records.now(), notes=notes, branches=branches
    )  # fmt: skip


def run_branch(branch: BranchContext) -> None:
    """Do the rest of the work on a branch. An error is stored, and does not stop the other branches."""
    if branch.record.state not in ("pending", "failed"):
        return
    try:
        line = _fetch(branch)
        if branch.record.tip == branch.record.before:
            branch.update(state="nothing new", why="")
        else:
            _measure(branch, line)
            _judge(branch, line)
    except BrokenTip as error:
        found = branch.record.events or events.broken(_source(branch), branch.night.state, str(error))
        branch.update(state="broken", why=str(error), events=found)
    except DiskFull:
        raise  # the other branches would fail too; finished comparisons are stored
    except LabError as error:
        branch.update(state="failed", why=error.message)
    if branch.record.why:
        branch.night.work.progress.log(f"{branch.record.name} was not measured: {branch.record.why}")


def _fetch(branch: BranchContext) -> Tips:
    """Fetch the branch, and set its tip unless this night did so before."""
    line = tips.fetch(branch.plan, branch.night.work.progress)
    if not branch.record.tip:
        tip = line.newest()
        last = branch.night.state.last_tip(branch.plan.key)
        before = last.commit if last else ""
        branch.update(tip=tip, before=before, subject=line.subject(tip))
        if before and line.has(before) and not line.is_behind(before, tip):
            branch.update(forced=True)
            branch.note(f"the branch was pushed anew: {short(before)} is not behind {short(tip)}")
    return line


# ---- measuring


def _measure(branch: BranchContext, line: Tips) -> None:
    """Measure the tip in exact mode, then in live mode. If live mode fails, exact mode's results stand alone."""
    night = branch.night
    tips.build_tip(night.plan, branch.plan, line, branch.record.tip, night.work)
    _measure_mode(branch, line, "exact")
    branch.update(missed={})
    if night.live.accelerator is not None:
        try:
            _measure_mode(branch, line, "live")
        except DiskFull:
            raise
        except LabError as error:
            branch.update(missed={"live": error.message})
            branch.note(f"live mode did not measure all: {error.message}")


def _measure_mode(branch: BranchContext, line: Tips, mode: Mode) -> None:
    """Measure the tip against every baseline, each once. The first that works gives the night's point."""
    for baseline in _baselines(branch, line, mode):
        if all(comparison.commit != baseline.commit for comparison in branch.record.measured_in(mode)):
            _measure_against(branch, line, baseline, mode)
    if not branch.record.measured_in(mode):
        # Nothing to compare with yet: the tip against itself gives later nights their point.
        _measure_against(branch, line, Baseline(commit=branch.record.tip, names=("itself",)), mode)


def _baselines(branch: BranchContext, line: Tips, mode: Mode) -> list[Baseline]:
    night, tip = branch.night, branch.record.tip
    release = line.last_release(tip)
    available = []
    for baseline in events.baselines(
        branch.plan, night.state, tip, release, night.record.date, night.plan.creep_days, mode
    ):
        if line.has(baseline.commit):
            available.append(baseline)
        else:
            branch.note(f"{baseline.shown} is no longer {'in the tree' if line.tree else 'offered'}")
    return available


def _measure_against(branch: BranchContext, line: Tips, baseline: Baseline, mode: Mode) -> None:
    """Run one comparison. A baseline that can no longer be built or booted is left out."""
    night, tip = branch.night, branch.record.tip
    if night.out_of_time("exact"):
        raise HostFailed(f"the night's budget of {night.plan.budget} is used up")
    if night.out_of_time(mode):
        raise HostFailed(f"its budget of {night.plan.live.budget} is used up")
    started = branch.record.started_in(mode).get(baseline.commit)
    try:
        folder = result_folders.open_folder(started) if started else _begin(branch, line, baseline, mode)
        branch.log(f"{short(tip)} against {', '.join(baseline.names)}{' in live mode' if mode == 'live' else ''}")
        with night.spend(mode) as work:
            result = tips.finish_comparison(folder, work, database=night.plan.database)
    except BuildFailed as error:
        branch.note(f"{baseline.shown} does not build: {error.message}")
    except GuestFailed as error:
        if mode == "live" or error.kind.blames != "kernel":
            raise
        if baseline.commit == tip:
            raise BrokenTip(f"its guest fails: {error.message}") from error
        _measure_against(branch, line, Baseline(commit=tip, names=("itself",)), mode)
        branch.note(f"{baseline.shown} does not run: {error.message}")
    else:
        for case in result.failed:
            branch.note(f"against {baseline.shown}, {case.name} {case.failed}")
            if case.failed and case.failed.kind.blames == "kernel" and "test" in case.failed.arms:
                raise BrokenTip(f"its guest fails: {case.failed.message}")
        comparison = tip_comparison(result, baseline.names, baseline.commit)
        branch.update(measured=[*branch.record.measured, comparison])


def _begin(branch: BranchContext, line: Tips, baseline: Baseline, mode: Mode) -> Path:
    night = branch.night
    base, test = (
        line.arm(commit, night.plan.cc, night.work.progress) for commit in (baseline.commit, branch.record.tip)
    )
    plan = tips.comparison_plan(night.plan, branch.plan, base, test, night.accelerator(mode))
    label = Label(
        plan=night.plan.name, night=night.record.number, date=night.record.date, tree=branch.plan.key[0],
        branch=branch.plan.key[1], baseline=", ".join(baseline.names), trend=not branch.record.started_in(mode),
    )  # fmt: skip
    folder = tips.begin_comparison(plan, label)
    branch.update(
        started={**branch.record.started, started_key(baseline.commit, mode): result_folders.reference(folder)}
    )
    return folder


# ---- judging


def _judge(branch: BranchContext, line: Tips) -> None:
    """Find the events of the tip, and bisect them."""
    source, state = _source(branch), branch.night.state
    found = events.mended(source, state)
    source = replace(source, first=source.first + len(found))
    found += events.find_events(source, state, branch.record.measured, _history_steps(branch))
    if line.tree is not None:
        found = CulpritSearch(branch, line.tree).run(found)
    branch.update(state="measured", why="", events=found)


def _source(branch: BranchContext) -> EventSource:
    night = branch.night
    return EventSource(
        plan=night.plan.name, night=night.record.number, date=night.record.date, branch=branch.plan.key,
        tip=branch.record.tip, threshold=night.plan.threshold,
        first=sum(len(other.events) for other in branch.others) + 1,
    )  # fmt: skip


def _history_steps(branch: BranchContext) -> list[SeriesStep]:
    """The steps that the history shows in the branch; none, and a note, if the history does not work."""
    plan = branch.night.plan
    try:
        with opened(plan.database) as base:
            index.catch_up(base, branch.night.work.progress)
            with base.reading() as connection:
                found = trends.branch_trends(connection, *branch.plan.key, least=plan.smallest_step)
    except LabError as error:
        branch.note(f"the history could not be looked at: {error.message}")
        return []
    return [
        SeriesStep(
            workload=trend.series.workload, case=trend.series.case, metric=trend.series.metric,
            better=trend.series.better, mode=trend.series.mode, earliest=trend.points[change.earliest].night,
            latest=trend.points[change.latest].night, after=change.after, commit=change.commit, ratio=change.ratio,
        )
        for trend in found
        if trend.series.better != "neither"
        for change in trend.changes
    ]  # fmt: skip
