"""From two neighbouring packages to the commits between them: where those are, and what to type.

It is only said, not done: such commits are built with the lab's kconfig and without what the distributor's package
adds, so whether they show the change has to be measured anew, at both ends.
"""

from __future__ import annotations

import re
import shlex

from lab import trees
from lab.bisection.history import Candidate, is_ancestor
from lab.bisection.plan import BisectPlan
from lab.errors import UserError

_UPSTREAM = re.compile(r"(?:\d+:)?(\d+\.\d+(?:\.\d+)?)(?:~(rc\d+))?")
_STABLE = "https://git.kernel.org/pub/scm/linux/kernel/git/stable/linux.git"


def way_on(plan: BisectPlan, before: Candidate, culprit: Candidate) -> str:
    """What to do to get from two packages, whose titles are their versions, to a commit."""
    pairs = list(zip(_revisions(before.title), _revisions(culprit.title), strict=False))
    if not pairs:
        return f"{before.title} and {culprit.title} do not say which kernels they were made from"
    for record in trees.list_trees():
        for old, new in pairs:
            if _connected(record.name, old, new):
                return _command(plan, record.name, old, new)
    old, new = pairs[-1]
    if old == new:
        return f"both were made from {old}: it is in what the distributor changed"
    add = shlex.join(["lab", "tree", "add", _STABLE, "--name", "stable"])
    return f"no tree known here leads from {old} to {new}; {add}; {_command(plan, 'stable', old, new)}"


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


def _command(plan: BisectPlan, tree: str, old: str, new: str) -> str:
    words = ["lab", "bisect", "--old", old, "--new", new, "--tree", tree, "-w", plan.selection]
    words += ["--metric", plan.metric] if plan.metric else []
    return shlex.join(words)
