"""`lab nightly run`: one night from the fetch to the events, saved after every piece of work to continue from."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime

from filelock import FileLock, Timeout
from msgspec.structs import replace

from lab.cluster import connect
from lab.core import records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.nightly import branch, events, record
from lab.nightly.context import BranchContext, NightContext
from lab.nightly.plan import NightlyPlan
from lab.nightly.record import BranchNight, Night


def today() -> str:
    """The date of tonight's night."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def run(plan: NightlyPlan, work: Work) -> tuple[Night, bool]:
    """Run the rest of tonight's night; returns it, and False if it was finished before."""
    lock = FileLock(record.plan_dir(plan.name) / ".lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"another lab nightly is at work on the plan {plan.name}", hint="`lab nightly status` shows its progress"
        ) from None
    with held:
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
            branch.run(BranchContext(context, index))
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
