"""The plan of a night, `nightly.toml`: branches, workloads, baselines and budgets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from lab.core.records import Record
from lab.core.text import seconds_of
from lab.core.toml import PlanName, TomlFile
from lab.guests import exact, hardware
from lab.guests.costs import Basis
from lab.guests.run import GUEST_TIMEOUT_S, Mode
from lab.kernels import architecture, archives, compilers
from lab.kernels.spec import for_architecture
from lab.nightly.record import BranchKey
from lab.stats import defaults
from lab.workloads import selection

Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
BaselineName = Literal["yesterday", "last-good", "release", "creep"]
BASELINES: tuple[BaselineName, ...] = ("yesterday", "last-good", "release", "creep")


class BranchPlan(Record, frozen=True, kw_only=True):
    """One branch, or with `packages` the packages of a suite: `deb:trixie-backports/*`.

    arch: of the guests. workloads, suite: replace those of the plan. releases: a pattern of git for the tags of
    releases.
    """

    packages: Annotated[
        str, msgspec.Meta(pattern=r"^([a-z]+:[a-z-]+/\S+)?\Z", description="packages such as deb:trixie/*")
    ] = ""
    tree: str = "default"
    branch: str = "HEAD"
    arch: str = architecture.DEFAULT
    workloads: tuple[str, ...] = ()
    suite: str | None = None
    baselines: tuple[BaselineName, ...] = BASELINES
    releases: str = "v[0-9]*"

    @property
    def key(self) -> BranchKey:
        return ("packages" if self.packages else self.tree), self.for_guests(self.packages or self.branch)

    @property
    def name(self) -> str:
        return "/".join(self.key)

    def for_guests(self, revision: str) -> str:
        """The spec of a revision of the branch for its guests."""
        return revision if self.arch == architecture.DEFAULT else for_architecture(revision, self.arch)


class LiveOptions(Record, frozen=True, kw_only=True):
    """The table `[live]`, for plans with live mode.

    budget: of a night's live comparisons and bisections, within the budget of the night. rounds: the most of a
    comparison. accel: tcg is not a default, because it measures an emulator. iterations, cpus: as in `lab ab`.
    """

    budget: str = "2h"
    rounds: Annotated[int, msgspec.Meta(ge=6)] = 20
    accel: Literal["kvm", "tcg"] = "kvm"
    iterations: Annotated[int, msgspec.Meta(ge=1)] | None = None
    cpus: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @property
    def budget_s(self) -> float:
        return seconds_of(self.budget) or 0.0


class NightlyPlan(Record, frozen=True, kw_only=True):
    """A plan. Missing keys have the defaults of `lab ab`.

    suite: the suite to measure instead of workloads. metric: as in `lab ab`, of exact mode. budget: of a
    whole night. modes: `live` adds live mode if the host supports it. bisect: False leaves regressions without a
    culprit. creep_days: the age of the tip that slow losses are measured against. cluster, share: for builds and
    exact mode, as in `lab ab`.
    """

    schema: Literal[1]
    name: PlanName = ""
    branch: list[BranchPlan]
    workloads: tuple[str, ...] = ("alloc-burst",)
    suite: str | None = None
    threshold: Share = defaults.THRESHOLD
    seeds: Annotated[int, msgspec.Meta(ge=3)] = defaults.SEEDS
    max_seeds: Annotated[int, msgspec.Meta(ge=6)] = defaults.MATRIX_MAX_SEEDS
    budget: str = "8h"
    bisect: bool = True
    creep_days: Annotated[int, msgspec.Meta(ge=2)] = 30
    modes: tuple[Mode, ...] = ("exact",)
    live: LiveOptions = LiveOptions()
    model: Literal["auto", "none", "tlb", "full"] = "auto"
    metric: Basis | None = None
    machine: str = hardware.DEFAULT
    cc: str = compilers.DEFAULT
    qemu: str = exact.QEMU
    guest_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = GUEST_TIMEOUT_S
    database: str | None = None
    cluster: str | None = None
    share: str | None = None

    @property
    def budget_s(self) -> float:
        return seconds_of(self.budget) or 0.0

    @property
    def smallest_step(self) -> float:
        """The smallest step of the history or part of a creep that counts. Many nights show more than one does."""
        return self.threshold / 2

    def workloads_of(self, branch: BranchPlan) -> tuple[str, ...]:
        """The workloads of a branch, or the selections of its suite."""
        suite = self.suite_of(branch)
        return selection.suite(suite).selections if suite else branch.workloads or self.workloads

    def suite_of(self, branch: BranchPlan) -> str | None:
        """The suite of a branch; None if workloads are named."""
        return None if branch.workloads else branch.suite or self.suite


def load(path: Path) -> NightlyPlan:
    """Read and check a plan. `UserError` names the file and line of a mistake."""
    file = TomlFile(path)
    if not isinstance(branches := file.values.get("branch"), list) or not branches:
        hint = "add one, with tree = and branch = below it"
        raise file.error("a plan needs at least one [[branch]]", "branch", hint=hint)
    plan = file.convert(NightlyPlan)
    if not plan.name:
        plan = msgspec.structs.replace(plan, name=re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._") or "plan")
    _check(file, plan)
    return plan


def _check(file: TomlFile, plan: NightlyPlan) -> None:
    """Check the rules that types do not express: workloads exist, time spans are readable, no branch is named twice."""
    for span, key in ((plan.budget, ("budget",)), (plan.live.budget, ("live", "budget"))):
        if not seconds_of(span):
            raise file.error(f"budget: {span!r} is not a time span", *key, hint="write 40m, 6h or 1h30m")
    if "exact" not in plan.modes:
        raise file.error("modes: exact is always measured", "modes", hint='write modes = ["exact", "live"]')
    if "live" in file.values and "live" not in plan.modes:
        raise file.error("[live] requires live among the modes", "live", hint='write modes = ["exact", "live"]')
    if plan.metric == "cycles" and plan.model == "none":
        raise file.error("metric: nothing counts cycles without a model", "metric", hint='write model = "auto"')
    if plan.cluster is not None and plan.share is None:
        raise file.error("cluster: it requires a share", "cluster", hint='e.g. share = "/net/lab"')
    if plan.max_seeds < plan.seeds:
        raise file.error(f"max_seeds: {plan.max_seeds} is less than seeds, {plan.seeds}", "max_seeds")
    for number, branch in enumerate(plan.branch):
        if branch.packages and archives.asked(branch.packages) is None:
            raise file.error(
                f"packages: no archive is called {branch.packages.partition(':')[0]!r}", "branch", number, "packages",
                hint=f"there is {', '.join(archives.ARCHIVES)}",
            )  # fmt: skip
        if branch.packages and {"tree", "branch", "releases"} & file.values["branch"][number].keys():
            raise file.error(
                "packages: they are not of a tree", "branch", number, "packages", hint="leave tree and branch out"
            )
        with file.naming("branch", number, "arch"):
            architecture.load(branch.arch)
        if branch.arch != architecture.DEFAULT and "live" in plan.modes:
            raise file.error(
                f"arch: live mode has no guests of {branch.arch}", "branch", number, "arch",
                hint="give the branch a plan of its own, of exact mode",
            )  # fmt: skip
    names = [branch.name for branch in plan.branch]
    for number, branch in enumerate(plan.branch):
        if branch.name in names[:number]:
            raise file.error(f"{branch.name} is named twice", "branch", number, "branch")
    _check_workloads(file, plan.workloads if "workloads" in file.values else (), plan.suite)
    for number, branch in enumerate(plan.branch):
        _check_workloads(file, branch.workloads, branch.suite, "branch", number)
    for option, check in (("machine", hardware.load), ("cc", compilers.identify), ("qemu", exact.find_qemu)):
        with file.naming(option):
            check(getattr(plan, option))


def _check_workloads(file: TomlFile, names: tuple[str, ...], suite: str | None, *table: str | int) -> None:
    if suite is not None and names:
        raise file.error("suite: it is given instead of workloads", *table, "suite", hint="leave one of them out")
    with file.naming(*table, "workloads" if suite is None else "suite"):
        for text in names:
            selection.select(text)
        if names:
            selection.select_all(names)
        if suite is not None:
            selection.suite(suite)
