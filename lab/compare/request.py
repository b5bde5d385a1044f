"""A comparison as it is asked for: from options to a plan, checked before any work."""

from __future__ import annotations

from typing import Literal

import msgspec

from lab.compare import judge, live_guests
from lab.compare.plan import ArmPlan, LivePlan, MeasureOptions, Plan
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.guests import kvm, perf_stat
from lab.kernels import architecture, compilers
from lab.kernels.spec import for_architecture
from lab.stats import defaults
from lab.workloads import selection


class ComparisonRequest(MeasureOptions, frozen=True, kw_only=True):
    """The options of `lab ab` that a plan is made of."""

    base: str | None = None
    test: str | None = None
    arch: str | None = None
    mode: str = "exact"
    base_cc: str | None = None
    test_cc: str | None = None
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
        """The architectures asked for, each once; `UserError` for one that is not known."""
        names = [name for name in (self.arch or "").split(",") if name]
        return [architecture.load(name).name for name in dict.fromkeys(names)]


def plan_of(asked: ComparisonRequest, progress: Progress) -> Plan:
    """Resolve everything first, so that no option turns out wrong after hours."""
    asked = _contending(asked)
    if not asked.base or not asked.test:
        raise UserError("both --base and --test are needed", hint="e.g. --base v6.11 --test v6.12")
    asked.require()
    compiled_by = [cc or asked.cc for cc in (asked.base_cc, asked.test_cc)]
    for cc in compiled_by:
        compilers.identify(cc)
    if asked.mode != "live":
        require_metric(asked)
        if asked.robust:
            require_cycles(asked)
    texts = (asked.base, asked.test)
    for name in asked.architectures:
        texts = (for_architecture(texts[0], name), for_architecture(texts[1], name))
    specs = asked.resolve(texts, progress)
    for spec in specs:
        if asked.arch and spec.architecture not in asked.architectures:
            raise UserError(
                f"{spec.text} is of {spec.architecture}, and --arch asks for {asked.arch}",
                hint=f"use --arch {spec.architecture}, or give a kernel of {asked.arch}",
            )
    if asked.mode == "live":
        architecture.require_default("--mode live", [spec.architecture for spec in specs])
    base, test = (ArmPlan(spec=spec, cc=cc) for spec, cc in zip(specs, compiled_by, strict=True))
    return plan_around(asked, base, test, progress)


def _contending(asked: ComparisonRequest) -> ComparisonRequest:
    """The request whose workloads name their vCPUs (`contention@4`), where `--cpus` asks for guests of exact mode."""
    if asked.cpus is None or asked.mode != "exact":
        if isinstance(asked.cpus, tuple):
            raise UserError("several numbers of --cpus require --mode exact", hint="compare one after another")
        return asked
    numbers = asked.cpus if isinstance(asked.cpus, tuple) else (asked.cpus,)
    if 0 in numbers:
        raise UserError("--cpus host requires --mode live", hint="name a number")
    texts = tuple(text for name in asked.workload for text in selection.on_cpus(name, numbers))
    return msgspec.structs.replace(asked, workload=texts, cpus=None)


def plan_around(asked: ComparisonRequest, base: ArmPlan, test: ArmPlan, progress: Progress) -> Plan:
    """The plan of a request whose arms are resolved; `UserError` if its mode or its model cannot measure them."""
    asked = asked.for_kernels((base.spec, test.spec))
    return Plan.of(asked, live=_live_plan(asked, progress), base=base, test=test, robust=asked.robust)


def require_metric(asked: MeasureOptions) -> None:
    """Refuse a metric that one of the workloads does not have under its model."""
    for workload, _ in selection.select_all(asked.workload):
        judge.require_metric(asked.metric, workload, modelled=workload.model_for(asked.model) != "none")


def require_cycles(asked: MeasureOptions) -> None:
    """Refuse `--robust` where no verdict can rest on costs."""
    modelled = [workload.model_for(asked.model) != "none" for workload, _ in selection.select_all(asked.workload)]
    if asked.metric == "instructions" or not any(modelled):
        raise UserError(
            "--robust: no modelled cycles decide, so no cost can turn a verdict",
            hint="leave it out, or have cycles decide (--model tlb, --metric cycles)",
        )


def _live_plan(asked: ComparisonRequest, progress: Progress) -> LivePlan | None:
    """The plan of live mode, refused if this host cannot do it; None for exact mode."""
    if asked.mode != "live":
        numbers = {"cpus": asked.cpus, "numa": asked.numa, "rounds": asked.rounds, "iterations": asked.iterations}
        given = {name: value is not None for name, value in numbers.items()}
        given |= {"accel": asked.accel != "auto", "duet": asked.duet}
        given |= {"perf": asked.perf is not None, "perf-record": asked.perf_record}
        if refused := [name for name, is_given in given.items() if is_given]:
            raise UserError(f"--{refused[0]} requires --mode live", hint="exact mode is the default, and does without")
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
