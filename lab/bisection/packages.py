"""From two neighbouring packages into the commits between them: a bisection of its own, in the outer one's folder.

Commits are built with the lab's kconfig and without what the distributor's package adds, so both ends are measured
anew, and have to show the change again.

Which commits lie between two neighbouring packages: the tree that has both sources, and what to type.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from lab.bisection import request, session
from lab.bisection.answer import FILE, Answer, Found
from lab.bisection.commit_range import Candidate, is_ancestor
from lab.bisection.journal import safe_name
from lab.bisection.plan import BisectPlan
from lab.bisection.request import Asked
from lab.bisection.session import PLAN, Session
from lab.core.errors import BuildFailed, GuestFailed, Undecided, UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.kernels import trees

_UPSTREAM = re.compile(r"(?:\d+:)?(\d+\.\d+(?:\.\d+)?)(?:~(rc\d+))?")
_STABLE = "https://git.kernel.org/pub/scm/linux/kernel/git/stable/linux.git"


class Way(NamedTuple):
    """A tree, and the revisions in it that two packages were made from."""

    tree: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.old} to {self.new} in tree {self.tree}"


def way_between(old: str, new: str) -> Way | None:
    """The way between the sources of two versions, in the first tree that has both."""
    for record in trees.list_trees():
        for first, last in _pairs(old, new):
            if _connected(record.name, first, last):
                return Way(record.name, first, last)
    return None


def way_on(plan: BisectPlan, before: Candidate, culprit: Candidate) -> str:
    """What to do to get from two packages, whose titles are their versions, to a commit."""
    pairs = _pairs(before.title, culprit.title)
    if not pairs:
        return f"{before.title} and {culprit.title} do not say which kernels they were made from"
    found = way_between(before.title, culprit.title)
    if found is not None:
        return command(plan, found)
    old, new = pairs[-1]
    if old == new:
        return f"both were made from {old}: it is in what the distributor changed"
    add = shlex.join(["lab", "tree", "add", _STABLE, "--name", "stable"])
    return f"no tree known here leads from {old} to {new}; {add}; {command(plan, Way('stable', old, new))}"


def _pairs(old: str, new: str) -> list[tuple[str, str]]:
    return list(zip(_revisions(old), _revisions(new), strict=False))


def _revisions(version: str) -> list[str]:
    """Tags of a package's source: the distributor's own, as the default tree has it, and upstream's."""
    found = _UPSTREAM.match(version)
    if found is None:
        return []
    upstream = "-".join(part for part in found.groups() if part)
    return ["debian/" + version.replace("~", "_").replace(":", "%"), f"v{upstream}"]


def _connected(tree: str, old: str, new: str) -> bool:
    """Whether a tree leads from one revision to another. One whose checkout is gone does not."""
    try:
        repo = trees.open_tree(tree).source
    except UserError:
        return False
    first, last = repo.commit(old), repo.commit(new)
    return first is not None and last is not None and first != last and is_ancestor(repo, first, last)


def command(plan: BisectPlan, way: Way) -> str:
    """The command line of the search between two revisions."""
    return shlex.join(words(plan, way))


def words(plan: BisectPlan, way: Way) -> list[str]:
    """The same, word by word."""
    found = ["lab", "bisect", "--old", way.old, "--new", way.new, "--tree", way.tree, "-w", plan.selection]
    found += ["--metric", plan.metric] if plan.metric else []
    return found + (["--mode", "live"] if plan.live else [])


Conclude = Callable[[Session, Work], Answer]


def go_on(outer: Session, answer: Answer, conclude: Conclude, work: Work) -> tuple[Answer, bool]:
    """The answer, each change of packages with what a search between their sources' revisions found; and whether that
    is all, or some of it is left to be gone on with.

    conclude: does what is left of a session.
    """
    if outer.history.kind != "packages" or not outer.plan.inside:
        return answer, True
    gone_on = [_gone_on(outer, one, conclude, work) for one in answer.changes]
    return replace(answer, changes=[one for one, _ in gone_on]), all(whole for _, whole in gone_on)


def _gone_on(outer: Session, one: Found, conclude: Conclude, work: Work) -> tuple[Found, bool]:
    history = outer.history
    before, culprit = (history[history.number(name)] for name in (one.before, one.commit))
    way = way_between(before.title, culprit.title) if one.settled else None
    if way is None:
        return one, True
    if work.out_of_time:
        return one, False
    work.progress.log(f"going on between {way.old} and {way.new} of tree {way.tree}")
    place = outer.folder / "inside" / safe_name(one.commit)
    try:
        found = conclude(_session(outer.plan, way, place, work.progress), work)
    except (UserError, Undecided, BuildFailed, GuestFailed) as error:
        said = f"{way}: {error.message}; again by hand: {command(outer.plan, way)}"
        # Undecided is what the budget was too short for; the others would be the same again.
        return replace(one, inside=said), not isinstance(error, Undecided)
    said = f"{way}: {_in_words(found)} (lab report {found.result})"
    return replace(one, inside=said, inside_result=found.result), (place / FILE).exists()


def _session(plan: BisectPlan, way: Way, folder: Path, progress: Progress) -> Session:
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
    made, history = request.plan(asked, words(plan, way), progress)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    return session.create(folder, made, history)


def _in_words(found: Answer) -> str:
    if not found.changes:
        return f"{found.outcome}: {found.reason}"
    titles = {step.commit: step.title for step in found.path} | {found.new.id: found.new.title}
    return f"{found.outcome}: {', '.join(_change(one, titles[one.commit]) for one in found.changes)}"


def _change(one: Found, title: str) -> str:
    return f'{one.direction or "change"} {"by" if one.settled else "at or before"} {one.commit[:12]} ("{title}")'
