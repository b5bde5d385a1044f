"""Arms that are the same guest, although their specs differ: found before anything boots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.guests.exact import ExactMachine
from lab.guests.live_machine import LiveMachine
from lab.guests.run import overridden
from lab.kernels.kernel import KernelSpec
from lab.kernels.spec import MOUNT, READ_BACK
from lab.workloads.spec import Workload

Machine = ExactMachine | LiveMachine


def remark(base: KernelSpec, test: KernelSpec, workloads: Sequence[Workload], machine: Machine) -> str | None:
    """The line about two specs that are the same guest, with the settings that change nothing; None if they differ.

    One compiler builds both. machine: that of every guest. A default of the kernel's own is not known before it boots.
    """
    one, other = dict(base.settings), dict(test.settings)
    if (base.source, base.kconfig) != (test.source, test.kconfig) or any(
        _guest(workload, one, machine) != _guest(workload, other, machine) for workload in workloads
    ):
        return None
    idle = sorted({*one.items()} ^ {*other.items()})
    names = ", ".join(f"{name.removeprefix('cmdline.')}={value}" for name, value in idle)
    why = f"{names} is so in every guest" if names else "their kernels and settings do not differ"
    return f"both arms are the same guest: {why}"


def _guest(workload: Workload, settings: Mapping[str, str], machine: Machine) -> tuple[object, ...]:
    """All that an arm's settings make of a guest. Its command line counts in any order."""
    applied = workload.guest_settings(machine.settings, settings)
    return (
        frozenset(overridden(machine.cmdline, workload.arguments(settings))),
        {name: value for name, value in applied.items() if name not in READ_BACK},
        workload.environment(settings),
        settings.get(MOUNT),
    )
