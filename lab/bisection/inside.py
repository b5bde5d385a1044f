"""Which commits lie between two neighbouring packages: the tree that has both sources, and what to type."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from lab.bisection.history import Candidate, is_ancestor
from lab.bisection.plan import BisectPlan
from lab.core.errors import UserError
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


def way(old: str, new: str) -> Way | None:
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
    found = way(before.title, culprit.title)
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
