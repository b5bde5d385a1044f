"""The guests of exact mode around arms: root, cost model and fingerprint of every workload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lab.compare import check
from lab.compare.matrix_results import MatrixPlan
from lab.compare.measurement import Measurement
from lab.compare.plan import ComparisonPlan, Plan
from lab.compare.results import GuestShape, ResultEnvironment
from lab.compare.runs import Bench
from lab.compare.sampling import Series
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests import exact, hardware, initrd
from lab.guests import image as guest_image
from lab.guests.exact import Qemu
from lab.guests.plugin import load_instrument
from lab.guests.run import Arm
from lab.kernels import alternatives, architecture
from lab.kernels.architecture import MachineType
from lab.kernels.kernel import common_machine
from lab.workloads.spec import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactGuests:
    """The guests of a plan around its arms, and the series of their runs."""

    arms: tuple[Arm, ...]
    series: list[Series]
    environment: ResultEnvironment


def prepare(plan: Plan | MatrixPlan, folder: Path, work: Work) -> ExactGuests:
    """Build or fetch every kernel once, and the image, and describe the guests around them."""
    planned = plan.planned
    measurement = Measurement.of(plan, folder, next(iter(planned.values())).spec)
    guests = prepare_around(measurement, measurement.arms(planned, work), work.progress)
    require_fixed_work(guests)
    return guests


def require_fixed_work(guests: ExactGuests) -> None:
    """Refuse workloads whose work follows the clock, before anything is measured."""
    for one in guests.series:
        check.require_fixed_work(one.bench, one.cases, guests.arms[0])


def name_refused_features(qemu: Qemu, machine: str | None, progress: Progress) -> None:
    """Name the features that a machine file of the user's asks for and QEMU lacks. The lab's own files ask for none."""
    guest = hardware.load(machine).guest if machine and machine not in hardware.names(None) else None
    if guest and (refused := alternatives.features(exact.cpuid(qemu, guest.cpu).refused)):
        progress.log_once(f"QEMU {qemu.version} lacks {', '.join(sorted(refused))} of {machine}: guests run without")


def prepare_around(measurement: Measurement, arms: tuple[Arm, ...], progress: Progress) -> ExactGuests:
    """The guests of every workload around arms whose kernels are at hand."""
    plan, qemu = measurement.plan, measurement.qemu
    machine = common_machine(*(arm.kernel for arm in arms))
    parameters = exact.exact_machine(measurement.architecture.name)
    if measurement.architecture.modelled:
        name_refused_features(qemu, plan.machine, progress)
    series, shapes, images = [], {}, []
    for root in measurement.roots(arms, progress):
        workload, cases = root.workload, root.cases
        bench = _bench(workload, root.packed, machine, qemu, plan, measurement.folder)
        facts = bench.environment()
        shapes[workload.name] = GuestShape.of(
            workload,
            cases,
            parameters.settings,
            vcpus=facts.vcpus,
            memory_mb=facts.memory_mb,
            initrd_sha256=facts.initrd_sha256,
            fingerprint=facts.fingerprint,
            model=facts.model if bench.modelled else "none",
        )
        bench, names = replace(bench, fingerprint=facts.fingerprint), [case.name for case in cases]
        series.append(Series(bench=bench, cases=cases, windows=dict.fromkeys(names, bench.windows)))
        images.append(root.image)
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
    workload: Workload, packed_root: Path, machine: MachineType, qemu: Qemu, plan: ComparisonPlan, folder: Path
) -> Bench:
    """The guests of a workload, without their fingerprint."""
    parameters = exact.exact_machine(architecture.of_machine(machine).name)
    model = workload.model_for(plan.model)
    turns_only = workload.contends and model == "none" and plan.model == "auto"
    instrument = load_instrument(plan.machine, "tlb" if turns_only else model)
    if workload.contends:
        if instrument is None:
            raise UserError(f"{workload.name}: vCPUs that contend need a cost model", hint="leave out --model none")
        parameters = parameters.for_contention(workload.vcpus)
        instrument = instrument.contending(parameters.contention.quantum if parameters.contention else 0)
    return Bench(
        qemu=qemu,
        machine=machine,
        workload=workload,
        packed_root=packed_root,
        timeout_s=plan.guest_timeout_s,
        folder=folder,
        instrument=instrument,
        parameters=parameters,
        snapshots=plan.snapshots,
        turns_only=turns_only,
    )


def fingerprint_of(
    workload: Workload, machine: MachineType, qemu: Qemu, plan: ComparisonPlan, progress: Progress
) -> str:
    """The fingerprint of a workload's guests on a kind of machine, with any kernel."""
    image = guest_image.obtain(progress, packages=workload.packages, guests=architecture.of_machine(machine).name)
    return _bench(workload, initrd.pack_initrd(image, workload), machine, qemu, plan, Path()).environment().fingerprint
