"""`lab ab`: two arms, the same guest around both, paired by seed, judged."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from lab import __version__
from lab.compare import results
from lab.compare.plan import ArmPlan, ComparisonPlan, Plan
from lab.compare.requirements import check_guest
from lab.compare.results import AbResult, ArmResult, CaseResult, GuestShape, ResultEnvironment
from lab.compare.runs import Bench
from lab.compare.sampling import Series, Wanted, fill
from lab.core import records
from lab.core.errors import HostFailed
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests import costs, exact, initrd
from lab.guests import image as guest_image
from lab.guests.exact import Environment, Qemu
from lab.guests.image import Image
from lab.guests.plugin import load_instrument
from lab.guests.run import Arm
from lab.kernels import store
from lab.kernels.kernel import Kernel, common_machine
from lab.stats import multiple, verdict
from lab.stats.verdict import Comparison, Metric, Outcome
from lab.workloads import selection, spec
from lab.workloads.spec import Case, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that a plan needs, at hand: kernels, guests, and the series that runs go into."""

    arms: tuple[Arm, ...]
    series: list[Series]
    environment: ResultEnvironment


def prepare(plan: Plan, folder: Path, work: Work) -> Prepared:
    """Build or fetch both kernels and the image, and describe the guests around them."""
    selection.require_unchanged(plan.files)
    qemu = exact.find_qemu(plan.qemu)
    return prepare_around(obtain_arms(plan, work), qemu, plan, folder, work.progress)


def prepare_around(
    arms: tuple[Arm, ...], qemu: Qemu, plan: ComparisonPlan, folder: Path, progress: Progress
) -> Prepared:
    """The guests around arms whose kernels are at hand."""
    machine = common_machine(*(arm.kernel for arm in arms))
    image = guest_image.obtain(progress)
    series = []
    shapes = {}
    for workload, cases in selection.select_all(plan.workloads):
        check_guest(workload, cases, arms, image)
        bench = Bench(
            qemu=qemu,
            machine=machine,
            workload=workload,
            packed_root=initrd.pack_initrd(image, workload),
            timeout_s=plan.guest_timeout_s,
            folder=folder,
            instrument=load_instrument(plan.machine, model_of(plan.model, workload)),
        )
        facts = bench.environment()
        shapes[workload.name] = _shape(facts, workload, cases)
        series.append(Series(bench=replace(bench, fingerprint=facts.fingerprint), cases=cases))
    return Prepared(arms=arms, series=series, environment=_environment(facts, shapes, image[0]))


def measure(plan: Plan, folder: Path, work: Work) -> AbResult:
    """Do what a plan says, in its result folder; what is already there is not done again."""
    started, clock = datetime.now(UTC), time.monotonic()
    ready = prepare(plan, folder, work)
    series = ready.series
    fill(series, ready.arms, plan, lambda one: Wanted(ready.arms, _undecided(one, series, plan)), work)
    name = results.reference(folder)
    if not all(one.seeds() for one in series):
        raise HostFailed(
            "the budget was used up before one pair of guests had run",
            hint=f"give it more; go on by `lab ab --resume {name}`",
        )
    cases, overall = judge(series, plan)
    result = AbResult(
        mode=plan.mode,
        threshold=plan.threshold,
        alpha=plan.alpha,
        base=arm_result(ready.arms[0]),
        test=arm_result(ready.arms[1]),
        environment=ready.environment,
        seeds=sorted({seed for one in series for seed in one.seeds()}),
        cases=cases,
        verdict=overall.verdict,
        reason=overall.reason,
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 3),
        result=name,
        reproduce=f"lab replay {name}",
    )
    records.save(folder / "result.json", result)
    return result


def judge(series: Sequence[Series], plan: Plan) -> tuple[list[CaseResult], multiple.Overall]:
    """Every case of every series compared, and the verdict over all of them."""
    compared = [(one, case, _compare(one, case, plan)) for one in series for case in one.cases]
    marked = iter(multiple.mark_secondary([c for _, _, comparisons in compared for c in comparisons]))
    compared = [(one, case, [next(marked) for _ in comparisons]) for one, case, comparisons in compared]
    verdicts = [
        multiple.case_verdict(f"{one.bench.workload.name}:{case.name}", comparisons)
        for one, case, comparisons in compared
    ]
    overall = multiple.overall(verdicts, plan.alpha)
    cases = [
        CaseResult(
            workload=one.bench.workload.name,
            case=case.name,
            control=case.control,
            verdict=found.verdict,
            metrics=comparisons,
            guest_clock=one.bench.workload.primary.name if one.bench.instrument else None,
            holm=found.name in overall.survived if found.verdict.is_change else None,
        )
        for (one, case, comparisons), found in zip(compared, verdicts, strict=True)
    ]
    return cases, overall


def _compare(one: Series, case: Case, plan: Plan) -> list[Comparison]:
    return [
        verdict.compare_metric(metric, base, test, threshold=plan.threshold, alpha=plan.alpha, exact=True)
        for metric in metrics_of(one.metrics(case), modelled=one.bench.instrument is not None)
        for _, base, test in [one.pairs(case, metric.name)]
    ]


def metrics_of(own: Sequence[spec.Metric], *, modelled: bool) -> list[Metric]:
    """What is compared, the primary one first: modelled cycles where a model is run, else the workload's own."""
    return [
        *(costs.METRICS if modelled else ()),
        *(Metric(name=m.name, unit=m.unit, better=m.better, primary=m.primary and not modelled) for m in own),
    ]


def _undecided(one: Series, series: Sequence[Series], plan: Plan) -> list[Case]:
    """Cases that more seeds could settle: unknown, or changed but not yet beyond chance over all cases."""
    cases, _ = judge(series, plan)
    open_cases = {
        case.case
        for case in cases
        if case.workload == one.bench.workload.name and (case.verdict == Outcome.UNKNOWN or case.holm is False)
    }
    return [case for case in one.cases if case.name in open_cases]


def obtain_arms(plan: Plan, work: Work) -> tuple[Arm, Arm]:
    """Both arms with their kernels, built or fetched."""
    plans = {"base": plan.base, "test": plan.test}
    base, test = work.map(lambda name: obtain_arm(name, plans[name], work), list(plans))
    return base, test


def obtain_arm(name: str, plan: ArmPlan, work: Work) -> Arm:
    """An arm of a plan with its kernel at hand: from the store, built, or fetched."""
    kernel = plan.spec.obtain(work, cc=plan.cc)
    return Arm(name=name, kernel=kernel, settings=dict(plan.spec.settings))


def arm_result(arm: Arm, machine: Mapping[str, str] | None = None) -> ArmResult:
    """An arm as the document describes it. machine: the settings of every guest, exact mode's without."""
    kernel: Kernel = arm.kernel
    source = kernel.spec.tree_source
    build = store.find(kernel.key) if source else None
    return ArmResult(
        spec=kernel.spec.text,
        commit=kernel.commit,
        release=kernel.release,
        build=kernel.key,
        subject=source.subject if source else None,
        compiler=build.inputs.compiler if build else None,
        settings={**(exact.exact_machine().settings if machine is None else machine), **arm.settings},
        note=kernel.spec.note,
    )


def model_of(asked: str, workload: Workload) -> str:
    """The cost model that a workload is measured with: the one asked for, or its own (`auto`)."""
    return workload.model if asked == "auto" else asked


def _shape(facts: Environment, workload: Workload, cases: Sequence[Case]) -> GuestShape:
    machine = exact.exact_machine()
    return GuestShape(
        settings={name: value for name, value in facts.settings.items() if machine.settings.get(name) != value},
        cmdline=list(workload.cmdline),
        env=facts.env,
        setup=list(workload.setup),
        commands={case.name: workload.command(case) for case in cases},
        vcpus=facts.vcpus,
        memory_mb=facts.memory_mb,
        initrd_sha256=facts.initrd_sha256,
        fingerprint=facts.fingerprint,
        model=facts.model,
    )


def _environment(facts: Environment, shapes: dict[str, GuestShape], image: Image) -> ResultEnvironment:
    return ResultEnvironment(
        fingerprint=records.digest({name: shape.fingerprint for name, shape in shapes.items()})[:16],
        qemu=facts.qemu,
        machine=facts.machine,
        cpu=facts.cpu,
        shift=facts.shift,
        cmdline=exact.exact_machine().cmdline,
        settings=exact.exact_machine().settings,
        image=image.sha256,
        lab=__version__,
        guests=shapes,
        model=", ".join(dict.fromkeys(shape.model for shape in shapes.values())),
    )


def announce(plan: Plan, selected: Sequence[tuple[Workload, list[Case]]], work: Work) -> None:
    """Say what will be run and about how long that takes, before it starts."""
    cases = sum(len(chosen) for _, chosen in selected)
    guests = 2 * plan.seeds * sum(len(workload.by_guest(chosen)) for workload, chosen in selected)
    seconds = guests * guest_seconds(2 * plan.seeds * cases / guests) / work.jobs
    work.progress.log(
        f"{cases} cases, {plan.seeds} seeds: {guests} guests, {work.jobs} at a time, about {seconds:.0f} s"
    )


def guest_seconds(cases: float) -> float:
    """About how long one guest with so many cases takes.

    Typical of two cores without KVM; the bar knows better after the first guest.
    """
    return 0.8 + 0.15 * cases
