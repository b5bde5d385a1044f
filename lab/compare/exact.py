"""`lab ab` in exact mode: the same guest around both arms, runs paired by seed, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import replace as replace_fields

from lab.compare import check, estimates, result_folders, robustness, runs, sampling, state
from lab.compare.check import check_guest
from lab.compare.plan import ArmPlan, ComparisonPlan, MeasureOptions, Plan
from lab.compare.result_folders import Clock
from lab.compare.results import (
    AbResult,
    ArmResult,
    CaseResult,
    FailedCase,
    GuestShape,
    ResultEnvironment,
    SweepPoint,
)
from lab.compare.runs import Bench
from lab.compare.sampling import SeedRequest, Series, fill
from lab.core.errors import HostFailed, UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.core.text import from_to, plural
from lab.guests import costs, exact, file_systems, hardware, initrd
from lab.guests import image as guest_image
from lab.guests.exact import Qemu
from lab.guests.hardware import Machine
from lab.guests.plugin import load_instrument
from lab.guests.run import Arm
from lab.kernels import alternatives, architecture, symbols
from lab.kernels.architecture import MachineType
from lab.kernels.kconfig import Needs
from lab.kernels.kernel import Kernel, KernelSpec, common_machine
from lab.stats import multiple, verdict
from lab.stats.defaults import FIRST_LOOK_SEEDS, MIN_PAIRS
from lab.stats.sequential import SequentialTest
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
    qemu = exact.find_qemu(plan.qemu, architecture.load(plan.base.spec.architecture))
    guests = prepare_around(obtain_arms(plan, work), qemu, plan, folder, work.progress)
    require_fixed_work(guests)
    return guests


def require_metric(asked: str | None, workload: Workload, *, modelled: bool) -> None:
    """Refuse cycles as what decides where no model counts any."""
    if asked == "cycles" and not modelled:
        raise UserError(
            f"--metric cycles: {workload.name} has no cost model, so nothing counts cycles",
            hint="leave it out, or give --model tlb",
        )


def require_cycles(asked: MeasureOptions) -> None:
    """Refuse `--robust` where no verdict can rest on costs."""
    modelled = [model_of(asked.model, workload) != "none" for workload, _ in selection.select_all(asked.workload)]
    if asked.metric == "instructions" or not any(modelled):
        raise UserError(
            "--robust: no modelled cycles decide, so no cost can turn a verdict",
            hint="leave it out, or have cycles decide (--model tlb, --metric cycles)",
        )


def require_fixed_work(guests: ExactGuests) -> None:
    """Refuse workloads whose work follows the clock, before anything is measured."""
    for one in guests.series:
        check.require_fixed_work(one.bench, one.cases, guests.arms[0])


def name_refused_features(qemu: Qemu, machine: str | None, progress: Progress) -> None:
    """Say which features a machine file of the user's asks for and QEMU lacks. Those of the lab ask for none."""
    guest = hardware.load(machine).guest if machine and machine not in hardware.names(None) else None
    if guest and (refused := alternatives.features(exact.cpuid(qemu, guest.cpu).refused)):
        progress.log_once(f"QEMU {qemu.version} lacks {', '.join(sorted(refused))} of {machine}: guests run without")


def prepare_around(
    arms: tuple[Arm, ...], qemu: Qemu, plan: ComparisonPlan, folder: Path, progress: Progress
) -> ExactGuests:
    """The guests of every workload around arms whose kernels are at hand."""
    machine = common_machine(*(arm.kernel for arm in arms))
    guests = architecture.of_machine(machine)
    parameters = exact.exact_machine(guests.name)
    if guests.modelled:
        name_refused_features(qemu, plan.machine, progress)
    series, shapes, images = [], {}, []
    for chosen, cases in selection.select_all(plan.workloads):
        workload = file_systems.mounted(chosen, arms)
        image = guest_image.obtain(progress, packages=workload.packages, guests=guests.name)
        images.append(image[0])
        check_guest(workload, cases, arms, image)
        bench = _bench(workload, image, machine, qemu, plan, folder)
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
        series.append(
            Series(
                bench=replace(bench, fingerprint=facts.fingerprint),
                cases=cases,
                windows=dict.fromkeys((case.name for case in cases), bench.windows),
            )
        )
    environment = ResultEnvironment.around(
        shapes,
        guest_image.digest_of(images),
        qemu=facts.qemu,
        machine=facts.machine,
        cpu=facts.cpu,
        shift=facts.shift,
        cmdline=parameters.cmdline,
        settings=parameters.settings,
        model=", ".join(dict.fromkeys(shape.model for shape in shapes.values())),
    )
    return ExactGuests(arms=arms, series=series, environment=environment)


def _bench(
    workload: Workload,
    image: tuple[guest_image.Image, Path],
    machine: MachineType,
    qemu: Qemu,
    plan: ComparisonPlan,
    folder: Path,
) -> Bench:
    """The guests of a workload, without their fingerprint."""
    return Bench(
        qemu=qemu,
        machine=machine,
        workload=workload,
        packed_root=initrd.pack_initrd(image, workload),
        timeout_s=plan.guest_timeout_s,
        folder=folder,
        instrument=load_instrument(plan.machine, model_of(plan.model, workload)),
        parameters=exact.exact_machine(architecture.of_machine(machine).name),
        snapshots=plan.snapshots,
    )


def bench_for(bench: Bench, arm: Arm, progress: Progress) -> Bench:
    """The guests of a kernel that is none of those they were prepared for; `UserError` if it cannot have them."""
    workload = file_systems.with_modules(bench.workload, arm)
    if workload is bench.workload:
        return bench
    guests = architecture.of_machine(bench.machine).name
    image = guest_image.obtain(progress, packages=workload.packages, guests=guests)
    return replace(bench, workload=workload, packed_root=initrd.pack_initrd(image, workload))


def fingerprint_of(
    workload: Workload, machine: MachineType, qemu: Qemu, plan: ComparisonPlan, progress: Progress
) -> str:
    """The fingerprint of a workload's guests on a kind of machine, whichever kernel they boot."""
    image = guest_image.obtain(progress, packages=workload.packages, guests=architecture.of_machine(machine).name)
    return _bench(workload, image, machine, qemu, plan, Path()).environment().fingerprint


def measure(plan: Plan, folder: Path, work: Work) -> AbResult:
    """Do what a plan says, in its result folder; what is already there is not done again."""
    clock, name = Clock(), result_folders.reference(folder)
    guests = prepare(plan, folder, work)
    fill(guests.series, guests.arms, plan, lambda series: _undecided(series, guests, plan), work, loss="case")
    _require_one(guests.series)
    if not all(series.seeds() for series in guests.series):
        raise HostFailed(
            "the budget was used up before one pair of guests had run",
            hint=f"give it more; go on by `lab ab --resume {name}`",
        )
    cases, overall = judge(guests.series, plan)
    cases = _with_code_remarks(cases, guests.series, work.progress)
    if plan.robust:

        def elsewhere(ref: str, machine: Machine) -> list[Series]:
            return _one_seed_on(ref, machine, guests, plan, folder, work)

        cases = robustness.judged(cases, guests.series, plan, elsewhere, work)
    base, test = map(arm_result, guests.arms)
    return result_folders.finish(
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
        metric=plan.metric,
        suite=plan.suite,
        reproduce=f"lab replay {name}",
        remarks=_boot_remarks(guests),
    )


def _one_seed_on(ref: str, machine: Machine, guests: ExactGuests, plan: Plan, folder: Path, work: Work) -> list[Series]:
    """The runs of one seed on another modelled machine."""
    other = replace_fields(plan, machine=ref, seeds=1, max_seeds=1, fixed_seeds=True)
    place = folder / "machines" / machine.name
    (place / "runs").mkdir(parents=True, exist_ok=True)
    around = prepare_around(guests.arms, guests.series[0].bench.qemu, other, place, work.progress)
    fill(around.series, guests.arms, other, lambda _: SeedRequest((), ()), work, loss="case")
    return around.series


def _with_code_remarks(cases: list[CaseResult], series: Sequence[Series], progress: Progress) -> list[CaseResult]:
    """The cases, with a line where the program's own code differs between the arms or the seeds."""
    found = {
        (one.bench.workload.name, case.name): code_remarks(one, case, progress)
        for one in series
        if one.bench.instrument
        for case in one.cases
    }
    return [
        replace_fields(case, notes=[*case.notes, *found.get((case.workload, case.case), [])])
        if not case.failed
        else case
        for case in cases
    ]


def code_remarks(one: Series, case: Case, progress: Progress, arms: tuple[str, str] = ("base", "test")) -> list[str]:
    """The lines about the program's own code in a case."""
    base, test = (
        {seed: value for seed, value in one.values(arm, case, "user_instructions").items() if math.isfinite(value)}
        for arm in arms
    )
    apart, ends = state.odd_code(base, test)
    if not apart and not ends:
        return []
    tables = _program_symbols(one.bench.workload, architecture.of_machine(one.bench.machine).name, progress)

    def code(arm: str, seed: int) -> state.Code:
        name = runs.run_name(one.bench.workload, arm, seed, [case])
        blocks = runs.user_code(one.bench.folder, name).get(case.name, [])
        return state.code_of(one.done[name], case.name, blocks, tables)

    lines = [state.arms_remark(code(arms[0], seed), code(arms[1], seed)) for seed in apart]
    return lines + ([state.seeds_remark(*(code(arms[0], seed) for seed in ends))] if ends else [])


_PROGRAMS = 0x555555554000
"""The address of position-independent programs under `norandmaps`."""


def _program_symbols(workload: Workload, guests: str, progress: Progress) -> list[symbols.SymbolTable]:
    """The functions of a workload's program at either address; none if it has no names."""
    own = initrd.own_files(workload, guests).get(workload.program)
    image = guest_image.obtain(progress, packages=workload.packages, guests=guests)
    program = own or image[1] / "root" / workload.program.lstrip("/")
    try:
        return [symbols.from_elf(program, bias=bias) for bias in (0, _PROGRAMS)]
    except UserError:
        return []


def _boot_remarks(guests: ExactGuests) -> list[str]:
    """The differences between the guests of both arms, by the first seed of each workload; each line once."""
    asked = [name for arm in guests.arms for name in arm.settings]
    lines: list[str] = []
    for one in guests.series:
        for case in one.cases:
            base, test = (one.runs_of(arm, case) for arm in ("base", "test"))
            if shared := base.keys() & test.keys():
                lines += state.boot_remarks(base[min(shared)], test[min(shared)], asked)
    return list(dict.fromkeys(lines))


def _require_one(series: Sequence[Series]) -> None:
    """Raise the first error if every case failed: nothing is left to judge."""
    failures = [one.failures(case) for one in series for case in one.cases]
    if all(failures):
        raise next(iter(failures[0].values()))


def judge(series: Sequence[Series], plan: Plan) -> tuple[list[CaseResult], multiple.Overall]:
    """Compare every case of every series, and judge all of them together; a case that failed is left out."""
    cases = [(one, case) for one in series for case in one.cases]
    failed = [FailedCase.of(found, one.bench.folder) if (found := one.failures(case)) else None for one, case in cases]
    compared = [_compare(one, case, plan, why) for (one, case), why in zip(cases, failed, strict=True)]
    marked = iter(multiple.mark_secondary([c for comparisons in compared for c in comparisons]))
    compared = [[next(marked) for _ in comparisons] for comparisons in compared]
    verdicts = [
        multiple.case_verdict(f"{one.bench.workload.name}:{case.name}", comparisons, control=case.control)
        for (one, case), comparisons in zip(cases, compared, strict=True)
    ]
    judged_cases = [found for found, why in zip(verdicts, failed, strict=True) if why is None]
    overall = with_losses(multiple.overall(judged_cases, plan.alpha), failed)
    survived = [found.name in overall.survived if found.verdict.is_change else None for found in verdicts]
    test = SequentialTest(plan.alpha / max(1, len(judged_cases)), exact=True)
    judged = [
        CaseResult(
            workload=one.bench.workload.name,
            case=case.name,
            group=plan.group_of(one.bench.workload, case),
            control=case.control,
            verdict=Outcome.UNKNOWN if holm is False else found.verdict,
            metrics=multiple.withdraw_primary(comparisons, test) if holm is False else comparisons,
            guest_clock=one.bench.workload.primary.name if one.bench.instrument else None,
            holm=holm,
            failed=why,
            sweep=SweepPoint.of(one.bench.workload, case),
            notes=[]
            if why
            else [
                *_unseen_remarks(one.bench.workload, case),
                *count_remarks(verdict.primary_of(comparisons), sampling.count_beside(comparisons)),
                *state.case_remarks(case.name, *(one.runs_of(arm, case) for arm in ("base", "test"))),
            ],
        )
        for (one, case), comparisons, found, why, holm in zip(cases, compared, verdicts, failed, survived, strict=True)
    ]
    return judged, overall


def with_losses(overall: multiple.Overall, failed: Sequence[FailedCase | None]) -> multiple.Overall:
    """The verdict, with the numbers of the cases that it is not about. failed: of each case, why."""
    for word in ("failed", "unsupported"):
        if lost := sum(why is not None and why.word == word for why in failed):
            overall = replace_fields(
                overall, reason=f"{overall.reason}; {lost} of {plural(len(failed), 'case')} {word}"
            )
    return overall


def _unseen_remarks(workload: Workload, case: Case) -> list[str]:
    """A line where the case is about something that exact mode cannot see."""
    names = workload.unseen_in(case)
    return [f"unseen: {', '.join(names)}"] if names else []


# ---- one case


def _compare(one: Series, case: Case, plan: Plan, failed: FailedCase | None) -> list[Comparison]:
    known = metrics_of(one.bench.workload, one.metrics(case), modelled=one.bench.instrument is not None, by=plan.metric)
    if failed is not None:
        return [verdict.compare_metric(metric, [], [], exact=True) for metric in known]
    compared = [
        verdict.compare_metric(metric, base, test, threshold=plan.threshold, alpha=plan.alpha, exact=True)
        for metric in known
        for _, base, test in [one.pairs(case, metric.name)]
    ]
    primary = sampling.weigh_case(verdict.primary_of(compared), sampling.count_beside(compared), one, case, plan)
    primary = sampling.weigh_strings(primary, one, case, plan)
    return [primary if c.primary else c for c in compared]


def count_remarks(primary: Comparison, count: Comparison | None) -> list[str]:
    """A line where modelled cycles are the same and the instructions are not."""
    moved = count is not None and primary.verdict == Outcome.SAME and count.is_change
    return [verdict.count_remark(count)] if count and moved else []


def metrics_of(
    workload: Workload, own: Sequence[spec.Metric], *, modelled: bool, by: str | None = None
) -> list[Metric]:
    """Metrics to compare: modelled ones first, the one that decides among them, where a model is run; then own ones.

    by: what decides, if it is cycles or instructions; the name of a metric leaves the workload's own choice.
    """
    basis: costs.Basis = "instructions" if by == "instructions" else "cycles"
    return [
        *(costs.metrics_of(workload.measures, workload.center, basis) if modelled else ()),
        *(Metric(name=m.name, unit=m.unit, better=m.better, primary=m.primary and not modelled) for m in own),
    ]


def _undecided(one: Series, guests: ExactGuests, plan: Plan) -> SeedRequest:
    """The cases that more seeds could settle."""
    cases, _ = judge(guests.series, plan)
    open_cases = {
        case.case
        for case in cases
        if case.workload == one.bench.workload.name and not case.failed
        if case.verdict == Outcome.UNKNOWN
        if sampling.can_be_settled(case.primary, plan.max_seeds)
    }
    return SeedRequest(guests.arms, [case for case in one.cases if case.name in open_cases])


def obtain_arms(plan: Plan, work: Work) -> tuple[Arm, Arm]:
    """Both arms with their kernels, built or fetched."""
    plans = {"base": plan.base, "test": plan.test}
    needs = selection.needs_of(plan.workloads)
    base, test = work.map(lambda name: obtain_arm(name, plans[name], needs, work), list(plans))
    return base, test


def obtain_arm(name: str, plan: ArmPlan, needs: Needs, work: Work) -> Arm:
    """An arm of a plan with its kernel at hand: from the store, built, or fetched. needs: the workloads' options."""
    kernel = plan.spec.obtain(work, cc=plan.cc, needs=needs)
    return Arm(name=name, kernel=kernel, settings=dict(plan.spec.settings))


def arm_result(arm: Arm, machine: Mapping[str, str] | None = None) -> ArmResult:
    """An arm as the document describes it. machine: the settings of every guest; None for exact mode's."""
    kernel: Kernel = arm.kernel
    source = kernel.spec.tree_source
    own = exact.exact_machine(kernel.architecture).settings
    return ArmResult(
        spec=kernel.spec.text,
        tree=source.tree if source else None,
        commit=kernel.commit,
        release=kernel.release,
        build=kernel.key,
        subject=source.subject if source else None,
        compiler=kernel.compiler(),
        settings={**(own if machine is None else machine), **arm.settings},
        note=kernel.spec.note,
    )


def model_of(asked: str, workload: Workload) -> str:
    """The cost model that a workload is measured with: the one asked for, or its own (`auto`)."""
    return workload.model if asked == "auto" else asked


def announce(plan: Plan, selected: Sequence[tuple[Workload, list[Case]]], work: Work) -> None:
    """Show what will run, and about how long it takes."""
    least, most = seeds_of(plan, three_decide=plan.base.is_like(plan.test))
    low, high = (
        sum(
            guest_seconds(workload, together, arm.spec, plan, seeds)
            for workload, cases in selected
            for together in workload.by_guest(cases)
            for arm in (plan.base, plan.test)
        )
        for seeds in (least, most)
    )
    guests = 2 * sum(len(workload.by_guest(cases)) for workload, cases in selected)
    cases = sum(len(chosen) for _, chosen in selected)
    work.progress.log(
        f"{plural(cases, 'case')}, {from_to(least, most)} seed{'s' * (most > 1)}: "
        f"{estimates.announced(f'{from_to(guests * least, guests * most)} guests', low, high, work)}"
    )


def seeds_of(plan: ComparisonPlan, *, three_decide: bool) -> tuple[int, int]:
    """The fewest and the most seeds of a plan, unless its budget ends it."""
    if plan.fixed_seeds:
        return plan.seeds, plan.seeds
    return min(FIRST_LOOK_SEEDS if three_decide else MIN_PAIRS, plan.max_seeds), max(plan.max_seeds, plan.seeds)


def guest_seconds(
    workload: Workload, cases: Sequence[Case], spec: KernelSpec, plan: ComparisonPlan, count: int
) -> float:
    """About how long so many guests of a kernel with these cases take."""
    model = model_of(plan.model, workload)
    return estimates.guest_seconds(workload, cases, count, built=spec.source.is_buildable, model=model)
