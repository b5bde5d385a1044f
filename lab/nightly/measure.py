"""Measuring a tip: each comparison a stored result like any of `lab ab`, gone on with if the night was interrupted.

The trees of a plan: what is new in them, and which commits of theirs are releases.
"""

from __future__ import annotations

from pathlib import Path

from lab.bisection.commit_range import is_ancestor
from lab.compare import exact as compare_exact
from lab.compare import live, results
from lab.compare.plan import ArmPlan, MeasureOptions, Plan
from lab.compare.results import AbResult
from lab.core import records
from lab.core.errors import BuildFailed, HostFailed, UserError
from lab.core.executor import Work
from lab.core.git import Repo
from lab.core.process import CommandFailed
from lab.core.progress import Progress
from lab.guests.live_machine import Accelerator
from lab.history import remember
from lab.history.index import LABEL, Label
from lab.kernels import kernel, resolve, trees
from lab.kernels.trees import Tree
from lab.nightly import context
from lab.nightly.plan import BranchPlan, NightlyPlan


class Broken(Exception):
    """Not an error of the night: the tip does not build, or does not survive. `why` says more."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def arm(tree: Tree, commit: str, cc: str, progress: Progress) -> ArmPlan:
    """A commit as an arm."""
    return ArmPlan(spec=resolve.resolve(commit, tree, progress=progress), cc=cc)


def build(plan: NightlyPlan, tree: Tree, commit: str, work: Work) -> None:
    """Build a tip, so that a failure is known to be its own."""
    try:
        kernel.obtain(arm(tree, commit, plan.cc, work.progress).spec, work, cc=plan.cc)
    except BuildFailed as error:
        log = f" (log: {error.log})" if error.log else ""
        raise Broken(f"it does not build: {error.message}{log}") from error


def plan_of(
    plan: NightlyPlan, one: BranchPlan, base: ArmPlan, test: ArmPlan, accelerator: Accelerator | None = None
) -> Plan:
    """A comparison as the plan wants it: in live mode, with an accelerator."""
    options = MeasureOptions(
        workload=plan.workloads_of(one),
        model=plan.model,
        machine=plan.machine,
        threshold=plan.threshold,
        first_seeds=plan.seeds,
        max_seeds=plan.max_seeds,
        cc=plan.cc,
        qemu=plan.qemu,
        guest_timeout=plan.guest_timeout_s,
    )
    options.require()
    live = context.plan_of(plan, options.workload, accelerator) if accelerator else None
    return Plan.of(options, live=live, base=base, test=test)


def begin(plan: Plan, label: Label) -> Path:
    """A folder for a comparison, that says what it is for."""
    folder = results.new_folder(None)
    with results.claimed(folder):
        records.save(folder / LABEL, label)
        results.store_plan(folder, plan)
    return folder


def finish(folder: Path, work: Work, *, database: str | None) -> AbResult:
    """A comparison's result, measured as far as it was not yet."""
    if (folder / "result.json").is_file():
        return results.load_result(folder)
    with results.claimed(folder):
        plan = results.load_plan(folder)
        measure = compare_exact.measure if plan.live is None else live.measure
        result = measure(plan, folder, work)
    remember(folder, work.progress, database)
    return result


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
    progress.log_once(f"fetching {branch} of {tree.origin}")
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
