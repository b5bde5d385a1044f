"""The trees of a plan: what is new in them, and which commits of theirs are releases."""

from __future__ import annotations

from lab.bisection.history import is_ancestor
from lab.core.errors import HostFailed, UserError
from lab.core.git import Repo
from lab.core.locks import Progress
from lab.core.process import CommandFailed
from lab.kernels import trees
from lab.kernels.trees import Tree


def update(name: str, branch: str, progress: Progress) -> Tree:
    """A tree with the newest of a branch. The default tree and a user's own checkout are taken as they are."""
    tree = trees.open_tree(name, progress=progress)
    if tree.record.kind != "clone":
        return tree
    words = ["fetch", "--quiet", "--force", "--tags", "origin"]
    if branch != "HEAD":
        # Forced: a branch that was pushed anew is followed; what it was at stays, as the lab's trees collect nothing.
        words.append(f"+refs/heads/{branch}:refs/heads/{branch}")
    else:
        words.append("+refs/heads/*:refs/heads/*")
    progress(f"fetching {branch} of {tree.origin}", None)
    try:
        tree.repo.git(*words)
    except CommandFailed as error:
        raise HostFailed(
            f"cannot fetch {branch} of {tree.origin}: {error.message}", hint="check the network, and the branch's name"
        ) from error
    return tree


def tip(tree: Tree, branch: str) -> str:
    """The commit that a branch is at."""
    for revision in (f"refs/heads/{branch}", branch):
        if (commit := tree.source.commit(revision)) is not None:
            return commit
    raise UserError(f"tree {tree.name} has no branch {branch}", hint="the plan's [[branch]] names it")


def release(tree: Tree, commit: str, pattern: str) -> str | None:
    """The last release before a commit, by its tag; candidates for one are none."""
    words = ("describe", "--tags", "--abbrev=0", f"--match={pattern}", "--exclude=*-rc*")
    try:
        tag = tree.source.git(*words, "--end-of-options", f"{commit}^")
    except CommandFailed:
        return None
    return tree.source.commit(f"refs/tags/{tag}")


def is_behind(tree: Tree, old: str, new: str) -> bool:
    """Whether a branch moved on from one commit to another, and was not pushed anew."""
    return is_ancestor(tree.source, old, new)


def meeting(repo: Repo, one: str, other: str) -> str | None:
    """The last commit that two have in common."""
    try:
        return repo.git("merge-base", one, other) or None
    except CommandFailed:
        return None
