"""Tips of a branch: of a tree's branch, or the packages of a suite, one after the other; built and compared.

Each comparison is a stored result like those of `lab ab`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from lab.bisection.commit_range import is_ancestor
from lab.compare import result_folders
from lab.compare.comparison import measure
from lab.compare.plan import ArmPlan, Plan
from lab.compare.request import ComparisonRequest, plan_of
from lab.compare.results import AbResult
from lab.core import records
from lab.core.errors import BuildFailed, HostFailed, UserError
from lab.core.executor import Work
from lab.core.process import CommandFailed
from lab.core.progress import Progress
from lab.guests.live_machine import Accelerator
from lab.history import remember
from lab.history.index import LABEL, Label
from lab.kernels import archives, trees
from lab.kernels.archives import PackageRecord
from lab.kernels.kernel import KernelSpec, resolve
from lab.nightly.plan import BranchPlan, NightlyPlan
from lab.workloads import selection


class TreeTips:
    """The commits of a branch. Only a clone is fetched; other trees are used as they are."""

    def __init__(self, branch: BranchPlan, progress: Progress) -> None:
        self.branch = branch
        self.tree = trees.open_tree(branch.tree, progress=progress)
        if self.tree.record.kind == "clone":
            self._fetch(progress)

    def _fetch(self, progress: Progress) -> None:
        name, origin = self.branch.branch, self.tree.origin
        refs = f"refs/heads/{'*' if name == 'HEAD' else name}"
        progress.log_once(f"fetching {name} of {origin}")
        try:
            # Forced, to follow a force-pushed branch. Its old commits stay: the lab's trees collect no garbage.
            self.tree.repo.git("fetch", "--quiet", "--force", "--tags", "origin", f"+{refs}:{refs}")
        except CommandFailed as error:
            raise HostFailed(
                f"cannot fetch {name} of {origin}: {error.message}", hint="check the network, and the branch's name"
            ) from error

    def newest(self) -> str:
        for revision in (f"refs/heads/{self.branch.branch}", self.branch.branch):
            if (commit := self.tree.source.commit(revision)) is not None:
                return commit
        raise UserError(
            f"tree {self.tree.name} has no branch {self.branch.branch}", hint="the plan's [[branch]] names it"
        )

    def subject(self, tip: str) -> str:
        return self.tree.source.subject(tip)

    def has(self, tip: str) -> bool:
        """True while the kernel can still be had."""
        return self.tree.source.commit(tip) is not None

    def is_behind(self, before: str, tip: str) -> bool:
        """True if a kernel comes before another one, or is it."""
        return is_ancestor(self.tree.source, before, tip)

    def last_release(self, tip: str) -> str | None:
        """The last tagged release before a commit, release candidates excluded."""
        argv = ("describe", "--tags", "--abbrev=0", f"--match={self.branch.releases}", "--exclude=*-rc*")
        try:
            tag = self.tree.source.git(*argv, "--end-of-options", f"{tip}^")
        except CommandFailed:
            return None
        return self.tree.source.commit(f"refs/tags/{tag}")

    def arm(self, tip: str, cc: str, progress: Progress) -> ArmPlan:
        return ArmPlan(spec=resolve(self.branch.for_guests(tip), self.tree, progress=progress), cc=cc)


class PackageTips:
    """The packages of a suite, by version: `deb:trixie-backports/*`. The lists are fetched again."""

    tree = None  # without commits, no step is bisected

    def __init__(self, branch: BranchPlan, progress: Progress) -> None:
        asked = archives.asked(branch.packages)
        assert asked is not None  # noqa: S101  (a plan's are checked)
        self.branch, self.progress = branch, progress
        self._word, self._archive, self._pattern = asked
        self._archive.refresh(progress)

    @cached_property
    def _offered(self) -> dict[str, str]:
        """The version of each package, the oldest first, by the package at its version."""
        offered = self._archive.offered(self._pattern, self.progress, guests=self.branch.arch)
        return {package.label: package.version for package in offered}

    def newest(self) -> str:
        if not self._offered:
            raise UserError(f"no package is like {self.branch.key[1]}", hint="`lab kernel list --available` shows all")
        return [*self._offered][-1]

    def subject(self, tip: str) -> str:
        return tip.partition("=")[0]

    def has(self, tip: str) -> bool:
        """True for a package that a suite offers, or that was downloaded."""
        return tip in self._offered or self._source(tip).folder.is_dir()

    def is_behind(self, before: str, tip: str) -> bool:
        versions = [one.partition("=")[2] for one in (before, tip)]
        return self._archive.in_order(versions) == versions

    def last_release(self, tip: str) -> str | None:
        """The newest package of the release before a package's: of 7.1 before one of 7.2."""
        version = tip.partition("=")[2]
        series = version.split(".")[:2]
        older = [
            label
            for label, other in self._offered.items()
            if other.split(".")[:2] != series and self._archive.in_order([other, version])[0] == other
        ]
        return older[-1] if older else None

    def arm(self, tip: str, cc: str, progress: Progress) -> ArmPlan:
        text = self.branch.for_guests(f"{self._word}:{self.subject(tip)}")
        return ArmPlan(spec=KernelSpec(text=text, source=self._source(tip)), cc=cc)

    def _source(self, tip: str) -> PackageRecord:
        return self._archive.labelled(tip, self.branch.arch)


Tips = TreeTips | PackageTips
"""A line of kernels, each with an id: a commit, or a package at a version."""


def fetch(branch: BranchPlan, progress: Progress) -> Tips:
    """The line of a branch as it is now."""
    return PackageTips(branch, progress) if branch.packages else TreeTips(branch, progress)


class BrokenTip(Exception):
    """The tip does not build, or its guests fail: a finding, not an error of the night."""


def build_tip(plan: NightlyPlan, branch: BranchPlan, tips: Tips, tip: str, work: Work) -> None:
    """Build a tip before anything is compared with it. Raises `BrokenTip` if it does not build."""
    try:
        needs = selection.needs_of(plan.workloads_of(branch))
        tips.arm(tip, plan.cc, work.progress).spec.obtain(work, cc=plan.cc, needs=needs)
    except BuildFailed as error:
        log = f" (log: {error.log})" if error.log else ""
        raise BrokenTip(f"it does not build: {error.message}{log}") from error


def comparison_plan(
    plan: NightlyPlan, branch: BranchPlan, base: ArmPlan, test: ArmPlan, accelerator: Accelerator | None
) -> Plan:
    """The plan of a comparison; with an accelerator, of live mode."""
    mode: dict[str, Any] = {"mode": "exact", "metric": plan.metric, "model": plan.model, "machine": plan.machine}
    if accelerator is not None:
        mode = {"mode": "live", "accel": accelerator, "cpus": plan.live.cpus, "max_rounds": plan.live.rounds,
                "iterations": plan.live.iterations}  # fmt: skip
    asked = ComparisonRequest(
        base=base.spec,
        test=test.spec,
        workload=plan.workloads_of(branch),
        suite=plan.suite_of(branch),
        threshold=plan.threshold,
        first_seeds=plan.seeds,
        max_seeds=plan.max_seeds,
        cc=plan.cc,
        qemu=plan.qemu,
        guest_timeout=plan.guest_timeout_s,
        **mode,
    )
    return plan_of(asked, Progress())


def begin_comparison(plan: Plan, label: Label | None = None) -> Path:
    folder = result_folders.new_folder(None)
    with result_folders.claimed(folder):
        if label is not None:
            records.save(folder / LABEL, label)
        result_folders.store_plan(folder, plan)
    return folder


def finish_comparison(folder: Path, work: Work, *, database: str | None) -> AbResult:
    """Measure the rest of a comparison; returns its result."""
    if result_folders.is_finished(folder):
        return result_folders.load_result(folder)
    with result_folders.claimed(folder):
        plan = result_folders.load_plan(folder)
        result = measure(plan, folder, work)
    remember(folder, work.progress, database)
    return result
