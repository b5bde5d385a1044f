"""`lab ab` in exact mode: the same guest around both arms, runs paired by seed, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.compare import results
from lab.compare.plan import ArmPlan, ComparisonPlan, Plan
from lab.compare.requirements import check_guest
from lab.compare.results import AbResult, ArmResult, CaseResult, Clock, GuestShape, ResultEnvironment
from lab.compare.runs import Bench
from lab.compare.sampling import SeedRequest, Series, fill
from lab.core.errors import HostFailed
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests import costs, exact, initrd
from lab.guests import image as guest_image
from lab.guests.exact import Qemu
from lab.guests.plugin import load_instrument
from lab.guests.run import Arm
from lab.kernels import store
from lab.kernels.kernel import Kernel, common_machine
from lab.stats import multiple, verdict
from lab.stats.verdict import Comparison, Metric, Outcome
from lab.workloads import selection, spec
from lab.workloads.spec import Case, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactGuests:
    """The kernels and guests of a plan, and the series of their runs."""

    arms: tuple[Arm, ...]
    series: list[Series]
    environment: ResultEnvironment


def prepare(plan: Plan, folder: Path, work: Work) -> ExactGuests:
    """Build or fetch both kernels and the image, and describe the guests around them."""
    selection.require_unchanged(plan.files)
    qemu = exact.find_qemu(plan.qemu)
    return prepare_around(obtain_arms(plan, work), qemu, plan, folder, work.progress)


def prepare_around(
    arms: tuple[Arm, ...], qemu: Qemu, plan: ComparisonPlan, folder: Path, progress: Progress
) -> ExactGuests:
    """The guests of every workload around arms whose kernels are at hand."""
    machine, parameters = common_machine(*(arm.kernel for arm in arms)), exact.exact_machine()
    image = guest_image.obtain(progress)
    series, shapes = [], {}
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
        shapes[workload.name] = GuestShape.of(
            workload,
            cases,
            facts.settings,
            parameters.settings,
            vcpus=facts.vcpus,
            memory_mb=facts.memory_mb,
            initrd_sha256=facts.initrd_sha256,
            fingerprint=facts.fingerprint,
            model=facts.model,
        )
        series.append(Series(bench=replace(bench, fingerprint=facts.fingerprint), cases=cases))
    environment = ResultEnvironment.around(
        shapes,
        image[0].sha256,
        qemu=facts.qemu,
        machine=facts.machine,
        cpu=facts.cpu,
        shift=facts.shift,
        cmdline=parameters.cmdline,
        settings=parameters.settings,
        model=", ".join(dict.fromkeys(shape.model for shape in shapes.values())),
    )
    return ExactGuests(arms=arms, series=series, environment=environment)


def measure(plan: Plan, folder: Path, work: Work) -> AbResult:
    """Do what a plan says, in its result folder; what is already there is not done again."""
    clock, name = Clock(), results.reference(folder)
    guests = prepare(plan, folder, work)
    fill(guests.series, guests.arms, plan, lambda series: _undecided(series, guests, plan), work)
    if not all(series.seeds() for series in guests.series):
        raise HostFailed(
            "the budget was used up before one pair of guests had run",
            hint=f"give it more; go on by `lab ab --resume {name}`",
        )
    cases, overall = judge(guests.series, plan)
    base, test = map(arm_result, guests.arms)
    return results.finish(
        folder,
        plan,
        clock,
        AbResult,
        base=base,
        test=test,
        environment=guests.environment,
        seeds=sorted({seed for series in guests.series for seed in series.seeds()}),
        cases=cases,
        verdict=overall.verdict,
        reason=overall.reason,
        reproduce=f"lab replay {name}",
    )


def judge(series: Sequence[Series], plan: Plan) -> tuple[list[CaseResult], multiple.Overall]:
    """Compare every case of every series, and judge all of them together."""
    cases = [(one, case) for one in series for case in one.cases]
    compared = [_compare(one, case, plan) for one, case in cases]
    marked = iter(multiple.mark_secondary([c for comparisons in compared for c in comparisons]))
    compared = [[next(marked) for _ in comparisons] for comparisons in compared]
    verdicts = [
        multiple.case_verdict(f"{one.bench.workload.name}:{case.name}", comparisons)
        for (one, case), comparisons in zip(cases, compared, strict=True)
    ]
    overall = multiple.overall(verdicts, plan.alpha)
    judged = [
        CaseResult(
            workload=one.bench.workload.name,
            case=case.name,
            control=case.control,
            verdict=found.verdict,
            metrics=comparisons,
            guest_clock=one.bench.workload.primary.name if one.bench.instrument else None,
            holm=found.name in overall.survived if found.verdict.is_change else None,
        )
        for (one, case), comparisons, found in zip(cases, compared, verdicts, strict=True)
    ]
    return judged, overall


def _compare(one: Series, case: Case, plan: Plan) -> list[Comparison]:
    return [
        verdict.compare_metric(metric, base, test, threshold=plan.threshold, alpha=plan.alpha, exact=True)
        for metric in metrics_of(one.metrics(case), modelled=one.bench.instrument is not None)
        for _, base, test in [one.pairs(case, metric.name)]
    ]


def metrics_of(own: Sequence[spec.Metric], *, modelled: bool) -> list[Metric]:
    """Metrics to compare, the primary one first: modelled cycles where a model is run, else the workload's own."""
    return [
        *(costs.METRICS if modelled else ()),
        *(Metric(name=m.name, unit=m.unit, better=m.better, primary=m.primary and not modelled) for m in own),
    ]


def _undecided(one: Series, guests: ExactGuests, plan: Plan) -> SeedRequest:
    """The cases that more seeds could settle: unknown, or changed but not yet beyond chance over all cases."""
    cases, _ = judge(guests.series, plan)
    open_cases = {
        case.case
        for case in cases
        if case.workload == one.bench.workload.name and (case.verdict == Outcome.UNKNOWN or case.holm is False)
    }
    return SeedRequest(guests.arms, [case for case in one.cases if case.name in open_cases])


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
    """An arm as the document describes it. machine: the settings of every guest; None for exact mode's."""
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


def announce(plan: Plan, selected: Sequence[tuple[Workload, list[Case]]], work: Work) -> None:
    """Show what will run, and about how long it takes."""
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
