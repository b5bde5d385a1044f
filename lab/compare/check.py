"""The check of a workload: its file, its files in the guest, and on request one case of it in a real guest."""

from __future__ import annotations

from pathlib import Path

import msgspec

from lab.compare import runs
from lab.compare.requirements import check_guest
from lab.compare.runs import Bench, GuestRun
from lab.core import paths
from lab.core.executor import Work
from lab.core.records import Record
from lab.guests import exact, initrd
from lab.guests import image as guest_image
from lab.guests.run import Arm, RunningGuests
from lab.kernels.kernel import Kernel, common_machine, resolve
from lab.workloads import selection
from lab.workloads.spec import Case, Workload


class WorkloadCheck(Record, frozen=True, kw_only=True):
    """A sound workload. slice_mb: the size of its guest's root. metrics: those of the case that ran."""

    workload: str
    cases: int
    slice_mb: float
    case: str | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict)


def check(ref: str, *, run: str | None, timeout_s: float, work: Work) -> WorkloadCheck:
    """Read a workload, compile its program and collect its files; `LabError` names the first fault.

    run: a kernel spec; its guest runs the workload's smallest case.
    """
    workload, cases = selection.select(ref)
    image = guest_image.obtain(work.progress)
    check_guest(workload, cases, [], image)
    packed = initrd.pack_initrd(image, workload)
    size = round(packed.stat().st_size / (1 << 20), 1)
    if run is None or not cases:
        return WorkloadCheck(workload=workload.name, cases=len(cases), slice_mb=size)
    case = smallest(cases)
    arm = Arm(name="check", kernel=_kernel(run, work), settings=dict(resolve(run).settings))
    check_guest(workload, [case], [arm], image)
    folder = paths.cache_dir("checks") / workload.name
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    with work.progress.task("running", 1) as task:
        metrics = _run(workload, case, arm, packed, folder, timeout_s)
        task.advance()
    return WorkloadCheck(workload=workload.name, cases=len(cases), slice_mb=size, case=case.name, metrics=metrics)


def smallest(cases: list[Case]) -> Case:
    """The case with the least `memory_mb`, or else the first case."""
    return min(cases, key=lambda case: case.memory_mb or 0)


def _kernel(spec: str, work: Work) -> Kernel:
    return resolve(spec, progress=work.progress).obtain(work)


def _run(workload: Workload, case: Case, arm: Arm, packed: Path, folder: Path, timeout_s: float) -> dict[str, float]:
    bench = Bench(
        qemu=exact.find_qemu(),
        machine=common_machine(arm.kernel),
        workload=workload,
        packed_root=packed,
        timeout_s=timeout_s,
        folder=folder,
    )
    return runs.measure(GuestRun(bench=bench, arm=arm, seed=1, cases=[case]), RunningGuests()).metrics(case.name)
