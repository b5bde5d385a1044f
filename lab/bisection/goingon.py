"""From two neighbouring packages into the commits between them: a bisection of its own, in the outer one's folder.

Commits are built with the lab's kconfig and without what the distributor's package adds, so both ends are measured
anew, and have to show the change again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lab.bisection import asking, inside, session
from lab.bisection.answer import FILE, Answer, Found
from lab.bisection.asking import Asked
from lab.bisection.inside import Way
from lab.bisection.journal import safe_name
from lab.bisection.plan import BisectPlan
from lab.bisection.session import PLAN, Session
from lab.core.errors import BuildFailed, GuestFailed, Undecided, UserError
from lab.core.executor import over
from lab.core.progress import Meter

Conclude = Callable[[Session], Answer]


def go_on(
    outer: Session, answer: Answer, conclude: Conclude, *, deadline: float | None, meter: Meter
) -> tuple[Answer, bool]:
    """The answer, each change of packages with what a search between their sources' revisions found; and whether that
    is all, or some of it is left to be gone on with.

    conclude: does what is left of a session.
    """
    if outer.history.kind != "packages" or not outer.plan.inside:
        return answer, True
    gone_on = [_gone_on(outer, one, conclude, deadline, meter) for one in answer.changes]
    return replace(answer, changes=[one for one, _ in gone_on]), all(whole for _, whole in gone_on)


def _gone_on(
    outer: Session, one: Found, conclude: Conclude, deadline: float | None, meter: Meter
) -> tuple[Found, bool]:
    history = outer.history
    before, culprit = (history[history.number(name)] for name in (one.before, one.commit))
    way = inside.way(before.title, culprit.title) if one.settled else None
    if way is None:
        return one, True
    if over(deadline):
        return one, False
    meter.say(f"going on between {way.old} and {way.new} of tree {way.tree}")
    place = outer.folder / "inside" / safe_name(one.commit)
    try:
        found = conclude(_session(outer.plan, way, place, meter))
    except (UserError, Undecided, BuildFailed, GuestFailed) as error:
        said = f"{way}: {error.message}; again by hand: {inside.command(outer.plan, way)}"
        # Undecided is what the budget was too short for; the others would be the same again.
        return replace(one, inside=said), not isinstance(error, Undecided)
    said = f"{way}: {_in_words(found)} (lab report {found.result})"
    return replace(one, inside=said, inside_result=found.result), (place / FILE).exists()


def _session(plan: BisectPlan, way: Way, folder: Path, meter: Meter) -> Session:
    """The inner search, begun or as far as it came."""
    if (folder / PLAN).exists():
        return session.load(folder)
    live = plan.live
    ends: Any = dict(zip(plan.words, (way.old, way.new), strict=True))
    asked = Asked(
        **ends,
        tree=way.tree,
        workload=plan.selection,
        metric=plan.metric,
        mode=plan.mode,
        confidence=plan.confidence,
        threshold=plan.threshold,
        seeds=plan.seeds,
        max_seeds=plan.max_seeds,
        probe=plan.probes,
        model=None if live else plan.model,
        machine=plan.machine,
        cc=plan.new.cc,
        qemu=plan.qemu,
        guest_timeout=plan.guest_timeout_s,
        speculate=plan.speculate,
        accel=live.accelerator if live else "auto",
        cpus=live.vcpus if live else None,
        iterations=live.iterations if live else None,
    )
    made, history = asking.plan(asked, inside.words(plan, way), meter.news)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    return session.create(folder, made, history)


def _in_words(found: Answer) -> str:
    if not found.changes:
        return f"{found.outcome}: {found.reason}"
    titles = {step.commit: step.title for step in found.path} | {found.new.id: found.new.title}
    return f"{found.outcome}: {', '.join(_change(one, titles[one.commit]) for one in found.changes)}"


def _change(one: Found, title: str) -> str:
    return f'{one.direction or "change"} {"by" if one.settled else "at or before"} {one.commit[:12]} ("{title}")'
