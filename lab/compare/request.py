"""From the options of a command to a plan: everything resolved and checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from lab.compare import judge, live_guests
from lab.compare.plan import ArmPlan, CommonPlan, LivePlan, MeasureOptions, Plan
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.guests import kvm, perf_stat
from lab.kernels import architecture, compilers
from lab.kernels.kernel import KernelSpec, require_one_architecture
from lab.kernels.spec import for_architecture
from lab.stats import defaults
from lab.workloads import selection

P = TypeVar("P", bound=CommonPlan)


class Request(MeasureOptions, Generic[P], frozen=True, kw_only=True):
    """The options that a plan of any kind is made of."""

    arch: str | None = None
    accel: Literal["auto", "kvm", "tcg"] = "auto"
    cpus: int | tuple[int, ...] | None = None
    numa: int | None = None
    duet: bool = False
    rounds: int | None = None
    max_rounds: int = defaults.MAX_ROUNDS
    iterations: int | None = None
    perf: bool | None = None
    perf_record: bool = False
    robust: bool = False

    @property
    def architectures(self) -> list[str]:
        """The requested architectures, each once; `UserError` for an unknown one."""
        names = [name for name in (self.arch or "").split(",") if name]
        return [architecture.load(name).name for name in dict.fromkeys(names)]

    @property
    def kernels(self) -> Sequence[str | KernelSpec]:
        """The requested kernels, in the order in which `plan` takes them."""
        raise NotImplementedError

    def plan(self, specs: Sequence[KernelSpec], live: LivePlan | None) -> P:
        raise NotImplementedError


class ComparisonRequest(Request[Plan], frozen=True, kw_only=True):
    """The options of a comparison of two kernels. certificate: it is one kernel, to see how much this host scatters."""

    base: str | KernelSpec | None = None
    test: str | KernelSpec | None = None
    base_cc: str | None = None
    test_cc: str | None = None
    certificate: bool = False

    @property
    def kernels(self) -> Sequence[str | KernelSpec]:
        if not self.base or not self.test:
            raise UserError("both --base and --test are needed", hint="e.g. --base v6.11 --test v6.12")
        return self.base, self.test

    def require(self) -> None:
        """Refuse tools that this host does not have, the compilers of both arms included."""
        super().require()
        for cc in filter(None, (self.base_cc, self.test_cc)):
            compilers.identify(cc)

    def plan(self, specs: Sequence[KernelSpec], live: LivePlan | None) -> Plan:
        compiled_by = [cc or self.cc for cc in (self.base_cc, self.test_cc)]
        base, test = (ArmPlan(spec=spec, cc=cc) for spec, cc in zip(specs, compiled_by, strict=True))
        return Plan.of(self, live=live, base=base, test=test, robust=self.robust, certificate=self.certificate)


def plan_of(asked: Request[P], progress: Progress) -> P:
    """Resolve everything first, so that no option turns out wrong after hours."""
    asked, kernels = _contending(asked), asked.kernels
    asked.require()
    if asked.mode != "live":
        require_metric(asked)
    for name in asked.architectures:
        kernels = [for_architecture(text, name) if isinstance(text, str) else text for text in kernels]
    specs = asked.resolve(kernels, progress)
    for spec in specs:
        if asked.arch and spec.architecture not in asked.architectures:
            raise UserError(
                f"{spec.text} is of {spec.architecture}, and --arch asks for {asked.arch}",
                hint=f"use --arch {spec.architecture}, or give a kernel of {asked.arch}",
            )
    require_one_architecture((spec.text, spec.architecture) for spec in specs)
    if asked.mode == "live":
        architecture.require_default("--mode live", [spec.architecture for spec in specs])
    asked = asked.for_kernels(specs)
    return asked.plan(specs, _live_plan(asked, progress))


def _contending(asked: Request[P]) -> Request[P]:
    """The request whose workloads name their vCPUs (`contention@4`), if `--cpus` asks for guests of exact mode."""
    if asked.cpus is None or asked.mode != "exact":
        if isinstance(asked.cpus, tuple):
            raise UserError("several numbers of --cpus require --mode exact", hint="compare one after another")
        return asked
    numbers = asked.cpus if isinstance(asked.cpus, tuple) else (asked.cpus,)
    if 0 in numbers:
        raise UserError("--cpus host requires --mode live", hint="name a number")
    texts = tuple(text for name in asked.workload for text in selection.on_cpus(name, numbers))
    return msgspec.structs.replace(asked, workload=texts, cpus=None)


def require_metric(asked: Request[P]) -> None:
    """Refuse a metric that a workload does not have under its model, and `--robust` if no verdict can rest on costs."""
    modelled = False
    for workload, _ in selection.select_all(asked.workload):
        judge.metric_of(workload, asked.metric, modelled=(own := workload.model_for(asked.model) != "none"))
        modelled |= own
    if asked.robust and (asked.metric == "instructions" or not modelled):
        raise UserError(
            "--robust: no modelled cycles decide, so no cost can turn a verdict",
            hint="leave it out, or have cycles decide (--model tlb, --metric cycles)",
        )


def _live_plan(asked: Request[P], progress: Progress) -> LivePlan | None:
    """The plan of live mode, refused if this host cannot do it; None for exact mode."""
    if asked.mode != "live":
        for name in ("cpus", "numa", "rounds", "iterations", "accel", "duet", "perf", "perf_record"):
            if getattr(asked, name) not in (None, False, "auto"):
                option = name.replace("_", "-")
                raise UserError(f"--{option} requires --mode live", hint="exact mode is the default, and does without")
        return None
    selected = selection.select_all(asked.workload)
    modelled = {
        "seeds": bool(asked.seeds),
        "metric": bool(asked.metric),
        "robust": asked.robust,
        "model": asked.model not in ("auto", "none"),
    }
    if refused := [name for name, is_given in modelled.items() if is_given]:
        raise UserError(
            f"--{refused[0]} requires --mode exact: live mode measures real time",
            hint="in live mode it is --rounds" if refused[0] == "seeds" else "leave one of them out",
        )
    accelerator = kvm.accelerator(asked.accel, asked.qemu, progress, guest_timeout_s=asked.guest_timeout)
    return live_guests.plan(
        selected,
        accelerator,
        asked.cpus if isinstance(asked.cpus, int) else None,
        nodes=asked.numa,
        duet=asked.duet,
        max_rounds=asked.rounds or asked.max_rounds,
        fixed_rounds=asked.rounds is not None,
        iterations=asked.iterations,
        perf=perf_stat.by_default(accelerator) if asked.perf is None else asked.perf,
        perf_record=asked.perf_record,
    )
