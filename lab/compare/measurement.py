"""A measurement: a plan's cases and tools, looked up once, the common part of both modes' guests, and exact mode's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from msgspec.structs import replace as replace_fields

from lab.compare import check
from lab.compare.boots import GuestSetup
from lab.compare.check import check_guest, check_parameters
from lab.compare.matrix_results import MatrixPlan
from lab.compare.plan import ArmPlan, ComparisonPlan, Plan
from lab.compare.results import GuestShape, ResultEnvironment
from lab.compare.runs import Bench
from lab.compare.sampling import Chosen, Series
from lab.core import records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests import exact, file_systems, hardware, initrd
from lab.guests import image as guest_image
from lab.guests.exact import Qemu
from lab.guests.image import Image
from lab.guests.plugin import load_instrument
from lab.guests.run import Arm
from lab.kernels import alternatives, architecture
from lab.kernels.architecture import Architecture, MachineType
from lab.kernels.kconfig import Needs
from lab.kernels.kernel import KernelSpec, common_machine
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

G = TypeVar("G", Bench, GuestSetup)


class Root(NamedTuple):
    """The root of a workload's guests. workload: with the mounts of its arms' settings."""

    workload: Workload
    cases: Sequence[Case]
    image: Image
    packed: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A plan with all that is looked up once, before any work: cases, architecture, QEMU.

    folder: for the records of the guests.
    selected: every workload with its cases.
    """

    plan: ComparisonPlan
    folder: Path
    selected: Chosen
    architecture: Architecture
    qemu: Qemu

    @classmethod
    def of(cls, plan: ComparisonPlan, folder: Path, spec: KernelSpec, qemu: Qemu | None = None) -> Self:
        """The measurement of a plan. spec: of any of its kernels. qemu: None for the QEMU that the plan names.

        Raises `UserError` if a file of the user's has changed since the plan was made, `HostFailed` without QEMU.
        """
        selection.require_unchanged(plan.files)
        own, selected = architecture.load(spec.architecture), selection.select_all(plan.workloads)
        contends = plan.mode == "exact" and any(workload.contends for workload, _ in selected)
        return cls(
            plan=plan,
            folder=folder,
            selected=selected,
            architecture=own,
            qemu=qemu or exact.find_qemu(plan.qemu, own, contends=contends),
        )

    @property
    def needs(self) -> Needs:
        """The options that its kernels need built in."""
        return self.plan.needs(self.selected)

    def arms(self, planned: Mapping[str, ArmPlan], work: Work) -> tuple[Arm, ...]:
        """Arms with their kernels at hand, from the store, built, or fetched. planned: by the names of the arms."""
        kernels = {_kernel_of(arm): arm for arm in planned.values()}
        obtained = work.map(lambda arm: arm.spec.obtain(work, cc=arm.cc, needs=self.needs), list(kernels.values()))
        found = dict(zip(kernels, obtained, strict=True))
        return tuple(
            Arm(name=name, kernel=replace(found[_kernel_of(arm)], spec=arm.spec), settings=dict(arm.spec.settings))
            for name, arm in planned.items()
        )

    def roots(self, arms: Sequence[Arm], progress: Progress, extra: Sequence[str] = ()) -> Iterator[Root]:
        """The root of every workload's guests; `UserError` if an arm's kernel cannot run it. extra: more programs."""
        for arm in arms:
            check_parameters(arm)
        for chosen, cases in self.selected:
            workload = file_systems.mounted(chosen, arms)
            image = guest_image.obtain(progress, packages=workload.packages, guests=self.architecture.name)
            check_guest(workload, cases, arms, image)
            packed = replace_fields(workload, extra_files=(*workload.extra_files, *extra)) if extra else workload
            yield Root(workload, cases, image[0], initrd.pack_initrd(image, packed))


def fitted(guests: G, arm: Arm, progress: Progress) -> G:
    """The guests as a kernel needs them that they were not made for; `UserError` if it cannot have them."""
    workload = file_systems.with_modules(guests.workload, arm)
    if workload is guests.workload:
        return guests
    own = architecture.of_machine(guests.machine).name
    image = guest_image.obtain(progress, packages=workload.packages, guests=own)
    return replace(guests, workload=workload, packed_root=initrd.pack_initrd(image, workload))


def _kernel_of(arm: ArmPlan) -> str:
    """A key that arms with the same kernel share, whatever their settings."""
    return records.digest([arm.spec.source, arm.spec.kconfig, arm.cc])


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
        bench = _bench(workload, root.packed, machine, qemu, plan, measurement.folder).with_fingerprint()
        shapes[workload.name] = GuestShape.of(
            workload,
            cases,
            parameters.settings,
            vcpus=workload.vcpus,
            memory_mb=workload.memory_mb,
            initrd_sha256=bench.root_digest,
            fingerprint=bench.fingerprint,
            model=bench.instrument.identity if bench.instrument and bench.modelled else "none",
        )
        windows = dict.fromkeys((case.name for case in cases), bench.windows)
        series.append(Series(bench=bench, cases=cases, windows=windows))
        images.append(root.image)
    environment = ResultEnvironment.around(
        shapes,
        guest_image.digest_of(images),
        qemu=qemu.version,
        machine=str(machine),
        cpu=bench.guest({}).cpu,
        shift=bench.parameters.shift,
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
    instrument = instrument and instrument.of(workload.name)
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
    bench = _bench(workload, initrd.pack_initrd(image, workload), machine, qemu, plan, Path())
    return bench.with_fingerprint().fingerprint
