"""The check of a workload: its file, its files in the guest, and on request one case of it in a real guest.

A program may choose its own amount of work by the clock. In exact mode the clock is a count of instructions, so such a
program does less if each instruction costs more, and its numbers per operation are of another mix. Two guests whose
clocks run at different rates show it: a fixed amount of work is the same in both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from lab.compare import runs
from lab.compare.runs import Bench, GuestRun, Run
from lab.core import paths, process, records
from lab.core.errors import GuestFailed, LabError, UserError, suggestion
from lab.core.executor import Work
from lab.core.records import Record
from lab.guests import exact, initrd
from lab.guests import image as guest_image
from lab.guests.image import Image
from lab.guests.plugin import load_instrument
from lab.guests.run import Arm, RunningGuests
from lab.kernels import architecture, files
from lab.kernels.kernel import common_machine, resolve
from lab.kernels.spec import MOUNT
from lab.workloads import selection
from lab.workloads.spec import HUGE_PAGE_MIB, Case, Workload

_SLOWER = 2
"""An instruction of the second guest takes four times as long: two powers of two."""

_OPERATIONS_APART = 0.01
_INSTRUCTIONS_APART = 0.1
"""For a program that counts no operations: waiting and starting differ a little with the rate of the clock."""


class WorkloadCheck(Record, frozen=True, kw_only=True):
    """A sound workload. slice_mb: the size of its guest's root. metrics: the numbers of the case that ran.

    clocked: the case does as much work as the clock lets it; None if it was not run.
    """

    workload: str
    cases: int
    vcpus: int
    slice_mb: float
    case: str | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    clocked: bool | None = None


class WorkCounts(NamedTuple):
    """The work that a case did: operations, None if nothing counts them, and the program's own instructions."""

    operations: float | None
    instructions: float

    @classmethod
    def of(cls, run: Run, workload: Workload, case: Case) -> WorkCounts:
        """The counts of a guest that ran under a model."""
        metrics = run.metrics(case.name)
        counted = metrics.get("counted_operations", 1.0)
        marked = "cycles_p50" in metrics
        return cls(counted if marked or workload.operations else None, metrics.get("user_instructions", 0.0) * counted)

    def differs(self, other: WorkCounts) -> bool:
        """True if the two are not the same amount of work."""
        if self.operations is not None and other.operations is not None:
            return _apart(self.operations, other.operations) > _OPERATIONS_APART
        return _apart(self.instructions, other.instructions) > _INSTRUCTIONS_APART

    def __str__(self) -> str:
        """The count that tells."""
        if self.operations is not None:
            return f"{self.operations:,.0f} operations"
        return f"{self.instructions:,.0f} instructions"


def _apart(one: float, other: float) -> float:
    return abs(one - other) / max(one, other) if max(one, other) else 0.0


class _FixedWork(Record, frozen=True, kw_only=True):
    """A memo: the error of the first case whose work follows the clock, empty if none does."""

    clocked: str


def check(ref: str, *, run: str | None, timeout_s: float, work: Work) -> WorkloadCheck:
    """Read a workload, compile its program and collect its files; `LabError` names the first fault.

    run: a kernel spec; its guest runs the workload's smallest case.
    """
    workload, cases = selection.select(ref)
    spec = resolve(run, progress=work.progress) if run else None
    if spec and MOUNT in dict(spec.settings):
        raise UserError(f"{spec.text}: a workload is checked without {MOUNT}", hint="leave the setting out")
    guests = spec.architecture if spec else architecture.DEFAULT
    image = guest_image.obtain(work.progress, packages=workload.packages, guests=guests)
    check_guest(workload, cases, [], image)
    packed = initrd.pack_initrd(image, workload)
    size = round(packed.stat().st_size / (1 << 20), 1)
    sound = WorkloadCheck(workload=workload.name, cases=len(cases), vcpus=workload.vcpus, slice_mb=size)
    if spec is None or not cases:
        return sound
    case = min(cases, key=lambda case: case.memory_mb or 0)
    arm = Arm(name="check", kernel=spec.obtain(work, needs=workload.needs([case])), settings=dict(spec.settings))
    check_guest(workload, [case], [arm], image)
    check_parameters(arm)
    folder = paths.cache_dir("checks") / workload.name
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    bench = Bench(
        qemu=exact.find_qemu(guests=architecture.load(guests)),
        machine=common_machine(arm.kernel),
        workload=workload,
        packed_root=packed,
        timeout_s=timeout_s,
        folder=folder,
        instrument=load_instrument(None, "count"),
        parameters=exact.exact_machine(guests),
    )
    with work.progress.task("running", 2) as task:
        first, second = _at_two_rates(bench, arm, [case], lambda: task.advance())
    for run_ in (first, second):
        if (failed := runs.failure_of(bench, run_, case)) is not None:
            raise failed
    counts = [WorkCounts.of(run, workload, case) for run in (first, second)]
    clocked = counts[0].differs(counts[1])
    if clocked and not workload.clocked:
        raise _clocked(workload, case, *counts)
    outcome = first.report.case(case.name)
    metrics = outcome.metrics if outcome else {}
    return msgspec.structs.replace(sound, case=case.name, clocked=clocked, metrics=metrics)


def _at_two_rates(
    bench: Bench, arm: Arm, cases: Sequence[Case], advance: Callable[[], None] = lambda: None
) -> tuple[Run, Run]:
    """The runs of two guests, the second one with a slower machine."""
    parameters = bench.parameters
    slower = msgspec.structs.replace(parameters, shift=parameters.shift + _SLOWER)
    found = []
    for bench_ in (bench, dataclasses.replace(bench, parameters=slower)):
        found.append(runs.measure(GuestRun(bench=bench_, arm=arm, seed=1, cases=cases), RunningGuests()))
        advance()
    return found[0], found[1]


def _clocked(workload: Workload, case: Case, first: WorkCounts, second: WorkCounts) -> UserError:
    shift = exact.exact_machine().shift
    return UserError(
        f"{workload.name}:{case.name} does as much work as the clock lets it: {first} where an instruction takes "
        f"{1 << shift} ns, {second} where it takes {1 << (shift + _SLOWER)}",
        hint="give it a fixed number of operations; or measure it as it is, by --clocked for a command, or by "
        "clocked = true in its workload.toml",
    )


def require_fixed_work(bench: Bench, cases: Sequence[Case], arm: Arm) -> None:
    """Refuse a workload of the user's whose work follows the clock; asked once for each workload and program.

    Only a cost model sees it. The lab's own workloads are known.
    """
    workload = bench.workload
    if bench.instrument is None or workload.clocked or selection.is_shipped(workload):
        return
    together = workload.by_guest(cases)[0]
    key = records.digest([records.file_digest(bench.packed_root), *(workload.command(case) for case in together)])
    memo = paths.cache_dir("checks") / f"work-{key[:24]}.json"
    known = records.find(memo, _FixedWork)
    if known is None:
        known = _FixedWork(clocked=_found_clocked(bench, together, arm))
        records.save(memo, known)
    if said := known.clocked:
        message, _, hint = said.partition("\n")
        raise UserError(message, hint=hint)


def _found_clocked(bench: Bench, cases: Sequence[Case], arm: Arm) -> str:
    """The error of the first case whose work follows the clock; a case that fails says nothing of that."""
    with process.scratch("", paths.cache_dir("checks")) as folder:
        (folder / "runs").mkdir()
        try:
            both = _at_two_rates(dataclasses.replace(bench, folder=folder), arm, cases)
        except GuestFailed:
            return ""
    for case in cases:
        if any(runs.failure_of(bench, run, case) for run in both):
            continue
        first, second = (WorkCounts.of(run, bench.workload, case) for run in both)
        if first.differs(second):
            error = _clocked(bench.workload, case, first, second)
            return f"{error.message}\n{error.hint}"
    return ""


# --- needs of a workload, before anything boots ---


def check_guest(workload: Workload, cases: Sequence[Case], arms: Sequence[Arm], image: tuple[Image, Path]) -> None:
    """Refuse memory, huge pages, kconfig or names of cases that cannot work, by a `UserError`."""
    for case in cases:
        workload.require_memory(case)
        _require_name(workload, case, image[1] / "root")
    for arm in arms:
        _require_hugepages(workload, arm)
        _require_kconfig(workload, cases, arm)


def _require_hugepages(workload: Workload, arm: Arm) -> None:
    wanted = int(workload.guest_settings({}, arm.settings).get("hugepages", "0"))
    if wanted * HUGE_PAGE_MIB >= workload.memory_mb:
        raise UserError(
            f"{arm.name} arm ({arm.kernel.spec.text}): {wanted} huge pages are {wanted * HUGE_PAGE_MIB} MiB, "
            f"and a guest of workload {workload.name} has {workload.memory_mb} MiB in all",
            hint="reserve fewer",
        )


def _require_kconfig(workload: Workload, cases: Sequence[Case], arm: Arm) -> None:
    have = arm.kernel.configuration() if workload.kconfig else None
    if have is None:
        return
    for option in workload.kconfig:
        value = have.get(option, "n")
        if value in ("n", "m") and workload.is_used(option, cases):
            how = "a module, which no guest loads," if value == "m" else "not set"
            own = arm.kernel.spec.tree_source is not None
            build = f"add it with %{option}=y" if own else "this kernel is built already: build one from a tree"
            raise UserError(
                f"workload {workload.name} needs {option}, which is {how} in {arm.kernel.spec.text}",
                hint=f"{build}, or leave the workload out",
            )


def check_parameters(arm: Arm) -> None:
    """Refuse a parameter that the kernel does not know, by a `UserError`.

    Those of a file system's module are not looked for: they are not in the kernel's image.
    """
    vmlinux = arm.kernel.vmlinux
    for key in arm.settings:
        name = key.removeprefix("cmdline.")
        if vmlinux is None or name == key or ("." in name and MOUNT in arm.settings):
            continue
        if not files.has_parameter(vmlinux, name):
            raise UserError(
                f"{arm.name} arm ({arm.kernel.spec.text}): nothing in this kernel is called {name}, "
                f"so {key} has no effect",
                hint=files.similar_parameters(vmlinux, name) or "leave it out, or choose a kernel that has it",
            )


def _require_name(workload: Workload, case: Case, root: Path) -> None:
    """The program must know a case that was made up on the spot, if it can list its cases."""
    if not workload.case_names or any(known == case for known in workload.cases):
        return
    try:
        known = initrd.run_inside(root, workload.program, workload.case_names).split()
    except (LabError, initrd.MissingFile):
        return  # this machine cannot run the guest's programs; the guest will report the error
    if case.name not in known:
        raise UserError(
            f"workload {workload.name} has no case {case.name!r}",
            hint=suggestion(case.name, known) or f"`{' '.join([workload.program, *workload.case_names])}` lists them",
        )
