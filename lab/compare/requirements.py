"""Needs of a workload in its guest, checked before anything boots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.core.errors import LabError, UserError, suggestion
from lab.guests import initrd
from lab.guests.image import Image
from lab.guests.run import Arm
from lab.kernels.kernel import Kernel
from lab.workloads.spec import HUGE_PAGE_MIB, Case, Workload


def check_guest(workload: Workload, cases: Sequence[Case], arms: Sequence[Arm], image: tuple[Image, Path]) -> None:
    """Refuse what cannot work: memory, huge pages, kconfig options, names of cases. `UserError` says which."""
    for case in cases:
        workload.require_memory(case)
        _require_name(workload, case, image[1] / "root")
    for arm in arms:
        _require_hugepages(workload, arm)
        _require_kconfig(workload, arm)


def _require_hugepages(workload: Workload, arm: Arm) -> None:
    wanted = int(workload.guest_settings({}, arm.settings).get("hugepages", "0"))
    if wanted * HUGE_PAGE_MIB >= workload.memory_mb:
        raise UserError(
            f"{arm.name} arm ({arm.kernel.spec.text}): {wanted} huge pages are {wanted * HUGE_PAGE_MIB} MiB, "
            f"and a guest of workload {workload.name} has {workload.memory_mb} MiB in all",
            hint="reserve fewer",
        )


def _require_kconfig(workload: Workload, arm: Arm) -> None:
    have = arm.kernel.configuration() if workload.kconfig else None
    if have is None:
        return
    for option in workload.kconfig:
        value = have.get(option, "n")
        if value in ("n", "m"):
            how = "a module, which no guest loads," if value == "m" else "not set"
            raise UserError(
                f"workload {workload.name} needs {option}, which is {how} in {arm.kernel.spec.text}",
                hint=_what_to_do(arm.kernel, option),
            )


def _what_to_do(kernel: Kernel, option: str) -> str:
    if kernel.spec.source.is_buildable:
        return f"add it with %{option}=y, or leave the workload out"
    return "this kernel is built already: build one from a tree, or leave the workload out"


def _require_name(workload: Workload, case: Case, root: Path) -> None:
    """A case that was made up on the spot must be one that the program knows, where the program can list them."""
    if not workload.case_names or any(known == case for known in workload.cases):
        return
    try:
        known = initrd.run_inside(root, workload.program, workload.case_names).split()
    except (LabError, initrd.MissingFile):
        return  # this machine cannot run the guest's programs; the guest will say what is wrong
    if case.name not in known:
        raise UserError(
            f"workload {workload.name} has no case {case.name!r}",
            hint=suggestion(case.name, known) or f"`{' '.join([workload.program, *workload.case_names])}` lists them",
        )
