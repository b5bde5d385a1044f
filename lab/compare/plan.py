"""Plans: everything that decides a measurement, resolved from the options of a command before any work begins."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Annotated, Any, Self

import msgspec

from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.core.records import Record
from lab.guests import exact, hardware
from lab.guests.live_machine import Accelerator
from lab.guests.run import GUEST_TIMEOUT_S
from lab.kernels import architecture, compilers, trees
from lab.kernels.kconfig import Needs
from lab.kernels.kernel import KernelSpec, resolve
from lab.stats import defaults
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=10_000_000)]


class LivePlan(Record, frozen=True, kw_only=True):
    """The live part of a plan.

    vcpus: of a guest; None for each workload's own, or with `mirror` the host's.
    nodes: NUMA nodes of a guest.
    duet: both arms run at once.
    perf: `perf stat` runs around every case.
    perf_record: boots of their own give a profile of both arms.
    seed: of the order of boots.
    """

    accelerator: Accelerator
    vcpus: Count | None = None
    mirror: bool = False
    nodes: Count | None = None
    duet: bool = False
    max_rounds: Count
    fixed_rounds: bool = False
    iterations: Count | None = None
    perf: bool = False
    perf_record: bool = False
    seed: int


class ArmPlan(Record, frozen=True, kw_only=True):
    """One arm as resolved."""

    spec: KernelSpec
    cc: str

    def is_like(self, other: ArmPlan) -> bool:
        """True of the same kernel under the same settings."""
        return self.cc == other.cc and is_alike(self.spec, other.spec)


def is_alike(one: KernelSpec, other: KernelSpec) -> bool:
    """True of two specs of the same kernel under the same settings, however they are written."""
    return (one.source, one.kconfig, one.settings) == (other.source, other.kconfig, other.settings)


class CommonPlan(Record, frozen=True, kw_only=True):
    """The common part of all plans: the guests, and the smallest change that counts.

    model, machine: of the cost model, `none` and None without one.
    files: the user's files that are cases, and their SHA-256.
    snapshots: guests of exact mode continue from a kept state if they can. No number depends on it.
    built_in: kernel options that are built in where the tree has them, beside those that the cases need.
    """

    schema: int = 1
    mode: str
    threshold: Share
    max_seeds: Count
    qemu: str
    guest_timeout_s: Seconds
    model: str = "none"
    machine: str | None = None
    files: dict[str, str] = msgspec.field(default_factory=dict)
    snapshots: bool = True
    live: LivePlan | None = None
    built_in: list[str] = msgspec.field(default_factory=list)

    def needs(self, selected: Iterable[tuple[Workload, Sequence[Case]]]) -> Needs:
        """The options that its kernels need built in for some cases."""
        own = Needs(optional=frozenset(self.built_in))
        return reduce(operator.or_, (workload.needs(cases) for workload, cases in selected), own)


class ComparisonPlan(CommonPlan, frozen=True, kw_only=True):
    """A plan of comparisons, with any arms.

    metric: the deciding one, if the user chose it: `cycles`, `instructions`, or the name of a metric.
    suite: the suite that named the workloads, if any. groups: its groups, with the full names of their cases.
    """

    workloads: list[str]
    alpha: Share
    seeds: Count
    fixed_seeds: bool
    metric: str | None = None
    suite: str | None = None
    groups: dict[str, list[str]] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, options: MeasureOptions, *, live: LivePlan | None = None, **more: Any) -> Self:
        """The plan of a command's options; `live` only in live mode. more: fields of this kind of plan alone."""
        return cls(
            **options.common(live),
            workloads=[selection.canonical(text) for text in options.workload],
            alpha=defaults.ALPHA,
            seeds=options.seeds or options.first_seeds,
            fixed_seeds=options.seeds is not None,
            metric=options.metric,
            suite=options.suite,
            groups=selection.suite(options.suite).cases() if options.suite else {},
            **more,
        )

    def seed_range(self, *, three_decide: bool) -> tuple[int, int]:
        """The fewest and the most seeds, unless the budget ends it. three_decide: so many are enough if equal."""
        if self.fixed_seeds:
            return self.seeds, self.seeds
        least = defaults.FIRST_LOOK_SEEDS if three_decide else defaults.MIN_PAIRS
        return min(least, self.max_seeds), max(self.max_seeds, self.seeds)

    @property
    def too_few(self) -> str:
        """The warning that so few seeds give no verdict but on equal kernels; empty if they are enough."""
        if self.live or not self.fixed_seeds or self.seeds >= defaults.MIN_PAIRS:
            return ""
        return (
            f"--seeds {self.seeds}: cases that differ end as unknown, because {defaults.MIN_PAIRS} seeds decide; "
            f"--seeds {defaults.MIN_PAIRS} gives verdicts"
        )

    def group_of(self, workload: Workload, case: Case) -> str:
        """The group of a case: the suite's, else the workload's own, if it has any."""
        name = f"{workload.name}:{case.name}"
        return next((group for group, names in self.groups.items() if name in names), case.group)


class Plan(ComparisonPlan, frozen=True, kw_only=True):
    """Everything that decides a comparison. The same plan gives the same numbers.

    certificate: base and test are one kernel, compared for a noise certificate of the host.
    robust: verdicts are looked at with other costs, too.
    """

    base: ArmPlan
    test: ArmPlan
    certificate: bool = False
    robust: bool = False

    @property
    def planned(self) -> dict[str, ArmPlan]:
        return {"base": self.base, "test": self.test}


class MeasureOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all measurements share, as a command line, a recipe or a night's plan gives them.

    suite: the suite whose cases `workload` selects. seeds: the exact number, None to go by the verdicts. metric: as in
    a plan.
    """

    workload: tuple[str, ...]
    suite: str | None = None
    mode: str = "exact"
    metric: str | None = None
    tree: str | None = None
    model: str = "auto"
    machine: str = hardware.DEFAULT
    threshold: float = defaults.THRESHOLD
    seeds: int | None = None
    first_seeds: int = defaults.SEEDS
    max_seeds: int = defaults.MAX_SEEDS
    cc: str = compilers.DEFAULT
    qemu: str = exact.QEMU
    guest_timeout: float = GUEST_TIMEOUT_S
    snapshot: bool = True

    def require(self) -> None:
        """Refuse tools that this host does not have, before hours of work."""
        contends = any(workload.contends for workload, _ in selection.select_all(self.workload))
        exact.find_qemu(self.qemu, contends=contends and self.mode == "exact")
        hardware.load(self.machine)
        compilers.identify(self.cc)

    def resolve(self, kernels: Iterable[str | KernelSpec], progress: Progress) -> list[KernelSpec]:
        """Kernels looked up in the tree. Notes name each commit that was taken in place of the requested one."""
        tree = trees.open_tree(self.tree, progress=progress) if self.tree else None
        specs = [resolve(one, tree, progress=progress) if isinstance(one, str) else one for one in kernels]
        for note in dict.fromkeys(spec.note for spec in specs if spec.note):
            progress.log_once(note)
        return specs

    def for_kernels(self, specs: Iterable[KernelSpec]) -> Self:
        """The options if guests of the kernels' architecture cannot be modelled: instructions decide.

        Those that can be on trial (arm64) are if `--model tlb` asks for it. `UserError` for another model, a metric of
        it, and for a machine of another architecture.
        """
        found = [architecture.load(name) for name in sorted({spec.architecture for spec in specs})]
        counted = next((guests for guests in found if not guests.modelled), None)
        if counted is None:
            for guests in found:
                hardware.require_architecture(self.machine, guests.name)
            return self
        if self.model == "tlb" and counted.experimental and len(found) == 1:
            machine = counted.experimental if self.machine == hardware.DEFAULT else self.machine
            hardware.require_architecture(machine, counted.name)
            return msgspec.structs.replace(self, machine=machine)
        if self.model not in {"auto", "count"} or self.metric == "cycles":
            raise UserError(
                f"{counted.name} guests have no cost model: their instructions are counted",
                hint="leave out --model and --metric; instructions decide"
                + (", or give --model tlb, which is experimental" if counted.experimental else ""),
            )
        return msgspec.structs.replace(self, model="count", metric=self.metric or "instructions")

    def common(self, live: LivePlan | None) -> dict[str, Any]:
        """The fields of `CommonPlan`."""
        model = "none" if live else self.model
        return {
            "mode": "live" if live else "exact",
            "threshold": self.threshold,
            "max_seeds": self.max_seeds,
            "qemu": self.qemu,
            "guest_timeout_s": self.guest_timeout,
            "model": model,
            "machine": self.machine if model not in {"none", "count"} else None,
            "files": selection.user_files(self.workload),
            "snapshots": self.snapshot,
            "live": live,
        }
