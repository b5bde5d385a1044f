"""Fetching a branch, building its tip, and comparing it: each comparison is a stored result like those of `lab ab`."""

from __future__ import annotations

from pathlib import Path

from lab.compare import exact as compare_exact
from lab.compare import live, live_guests, results
from lab.compare.plan import ArmPlan, MeasureOptions, Plan
from lab.compare.results import AbResult
from lab.core import records
from lab.core.errors import BuildFailed, HostFailed, UserError
from lab.core.executor import Work
from lab.core.process import CommandFailed
from lab.core.progress import Progress
from lab.guests.live_machine import Accelerator
from lab.history import remember
from lab.history.index import LABEL, Label
from lab.kernels import trees
from lab.kernels.kernel import resolve
from lab.kernels.trees import Tree
from lab.nightly.plan import BranchPlan, NightlyPlan
from lab.workloads import selection


class BrokenTip(Exception):
    """The tip does not build, or its guests fail: a finding, not an error of the night."""


def fetch(name: str, branch: str, progress: Progress) -> Tree:
    """The tree with the newest commits of a branch. Only a clone is fetched; other trees are used as they are."""
    tree = trees.open_tree(name, progress=progress)
    if tree.record.kind != "clone":
        return tree
    refs = f"refs/heads/{'*' if branch == 'HEAD' else branch}"
    progress.log_once(f"fetching {branch} of {tree.origin}")
    try:
        # Forced, to follow a branch that was pushed anew. Its old commits stay: the lab's trees collect no garbage.
        tree.repo.git("fetch", "--quiet", "--force", "--tags", "origin", f"+{refs}:{refs}")
    except CommandFailed as error:
        raise HostFailed(
            f"cannot fetch {branch} of {tree.origin}: {error.message}", hint="check the network, and the branch's name"
        ) from error
    return tree


def find_tip(tree: Tree, branch: str) -> str:
    """The commit that a branch is at."""
    for revision in (f"refs/heads/{branch}", branch):
        if (commit := tree.source.commit(revision)) is not None:
            return commit
    raise UserError(f"tree {tree.name} has no branch {branch}", hint="the plan's [[branch]] names it")


def last_release(tree: Tree, commit: str, pattern: str) -> str | None:
    """The last tagged release before a commit, release candidates excluded."""
    argv = ("describe", "--tags", "--abbrev=0", f"--match={pattern}", "--exclude=*-rc*")
    try:
        tag = tree.source.git(*argv, "--end-of-options", f"{commit}^")
    except CommandFailed:
        return None
    return tree.source.commit(f"refs/tags/{tag}")


def build(plan: NightlyPlan, branch: BranchPlan, tree: Tree, commit: str, work: Work) -> None:
    """Build a tip before anything is compared with it. Raises `BrokenTip` if it does not build."""
    try:
        needs = selection.needs_of(plan.workloads_of(branch))
        resolve_arm(tree, commit, plan.cc, work.progress).spec.obtain(work, cc=plan.cc, needs=needs)
    except BuildFailed as error:
        log = f" (log: {error.log})" if error.log else ""
        raise BrokenTip(f"it does not build: {error.message}{log}") from error


def resolve_arm(tree: Tree, commit: str, cc: str, progress: Progress) -> ArmPlan:
    """A commit as an arm of a comparison."""
    return ArmPlan(spec=resolve(commit, tree, progress=progress), cc=cc)


def comparison_plan(
    plan: NightlyPlan, branch: BranchPlan, base: ArmPlan, test: ArmPlan, accelerator: Accelerator | None
) -> Plan:
    """The plan of a comparison; with an accelerator, of live mode."""
    options = MeasureOptions(
        workload=plan.workloads_of(branch),
        suite=plan.suite_of(branch),
        model=plan.model,
        metric=plan.metric if accelerator is None else None,
        machine=plan.machine,
        threshold=plan.threshold,
        first_seeds=plan.seeds,
        max_seeds=plan.max_seeds,
        cc=plan.cc,
        qemu=plan.qemu,
        guest_timeout=plan.guest_timeout_s,
    )
    options.require()
    if accelerator is None:
        return Plan.of(options.for_kernels((base.spec, test.spec)), base=base, test=test)
    live = live_guests.plan(
        selection.select_all(options.workload), accelerator, plan.live.cpus, max_rounds=plan.live.rounds,
        iterations=plan.live.iterations, perf=accelerator == "kvm",
    )  # fmt: skip
    return Plan.of(options, live=live, base=base, test=test)


def begin(plan: Plan, label: Label | None = None) -> Path:
    """Create the folder of a comparison."""
    folder = results.new_folder(None)
    with results.claimed(folder):
        if label is not None:
            records.save(folder / LABEL, label)
        results.store_plan(folder, plan)
    return folder


def finish(folder: Path, work: Work, *, database: str | None) -> AbResult:
    """Measure the rest of a comparison; returns its result."""
    if (folder / "result.json").is_file():
        return results.load_result(folder)
    with results.claimed(folder):
        plan = results.load_plan(folder)
        measure = compare_exact.measure if plan.live is None else live.measure
        result = measure(plan, folder, work)
    remember(folder, work.progress, database)
    return result
