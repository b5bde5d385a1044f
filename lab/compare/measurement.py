"""A measurement: a plan's cases and tools, looked up once, and the common part of both modes' guests."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from msgspec.structs import replace as replace_fields

from lab.compare.boots import GuestSetup
from lab.compare.check import check_guest, check_parameters
from lab.compare.plan import ArmPlan, ComparisonPlan
from lab.compare.runs import Bench
from lab.core import records
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests import exact, file_systems, initrd
from lab.guests import image as guest_image
from lab.guests.exact import Qemu
from lab.guests.image import Image
from lab.guests.run import Arm
from lab.kernels import architecture
from lab.kernels.architecture import Architecture
from lab.kernels.kconfig import NOTHING, Needs
from lab.kernels.kernel import KernelSpec
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
    selected: Sequence[tuple[Workload, Sequence[Case]]]
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
        return reduce(operator.or_, (workload.needs(cases) for workload, cases in self.selected), NOTHING)

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
            yield Root(workload, cases, image[0], initrd.pack_initrd(image, _with(workload, extra)))


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


def _with(workload: Workload, extra: Sequence[str]) -> Workload:
    """A workload with more programs of the image in its guest's root."""
    return replace_fields(workload, extra_files=(*workload.extra_files, *extra)) if extra else workload
