"""Exact mode's virtual machine: QEMU's TCG counting instructions, with nothing outside that could disturb it.

Pure: parameters in, an argument list out. Bit-identical runs need all of: one TCG thread, counted instructions
with a clock that never waits for the host, a fixed wall clock, a CPU model without random numbers, no device that
completes on a host thread. The guest's root is a cpio in RAM; its only devices are two serial ports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from lab.core import records, toml
from lab.core.errors import HostFailed
from lab.core.paths import room
from lab.core.process import find_tool, run_text
from lab.core.records import Record
from lab.kernels.kernel import MachineType


class ExactMachine(Record, frozen=True, kw_only=True):
    """`machines/exact.toml`."""

    schema: int
    cpu: str
    shift: int
    rtc: str
    qemu_minimum: tuple[int, int]
    cmdline: list[str]
    settings: dict[str, str]


class Qemu(Record, frozen=True, kw_only=True):
    """The emulator as found."""

    path: str
    version: str
    numbers: tuple[int, int]


class Environment(Record, frozen=True, kw_only=True):
    """All that an exact number depends on besides kernel, workload and seed."""

    fingerprint: str
    qemu: str
    machine: str
    cpu: str
    shift: int
    vcpus: int
    memory_mb: int
    cmdline: list[str]
    settings: dict[str, str]
    env: dict[str, str]
    initrd_sha256: str
    model: str = "none"


@cache
def exact_machine() -> ExactMachine:
    """The parameters of exact mode's guest."""
    return toml.load(room("machines") / "exact.toml", ExactMachine)


def find_qemu(command: str = "qemu-system-x86_64") -> Qemu:
    """The QEMU to use; an error when it is missing, does not run, or is too old to count instructions right."""
    path = find_tool(command, package="qemu-system-x86")
    words = run_text([path, "--version"]).partition("\n")[0]
    found = re.search(r"version (\d+)\.(\d+)", words)
    if not found:
        raise HostFailed(f"{path} does not say which QEMU it is: {words!r}")
    numbers = (int(found[1]), int(found[2]))
    least = exact_machine().qemu_minimum
    if numbers < least:
        raise HostFailed(
            f"{path} is QEMU {numbers[0]}.{numbers[1]}, exact mode needs {least[0]}.{least[1]} or newer",
            hint="install a newer qemu-system-x86, or name one with --qemu",
        )
    return Qemu(path=path, version=words.removeprefix("QEMU emulator version "), numbers=numbers)


def cmdline(extra: Sequence[str]) -> list[str]:
    """The kernel command line: the machine's, then that of the workload and the arm."""
    return [*exact_machine().cmdline, *extra]


def environment(
    qemu: Qemu,
    machine: MachineType,
    *,
    vcpus: int,
    memory_mb: int,
    settings: dict[str, str],
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    initrd_sha256: str,
    model: str = "none",
    parameters: ExactMachine | None = None,
) -> Environment:
    """Describe what both arms share; equal fingerprints promise equal numbers.

    arguments: what a workload adds to the kernel command line. env: the environment that it gives its program.
    """
    parameters = parameters or exact_machine()
    facts = {
        "qemu": qemu.version,
        "machine": str(machine),
        "cpu": parameters.cpu,
        "shift": parameters.shift,
        "vcpus": vcpus,
        "memory_mb": memory_mb,
        "cmdline": [*parameters.cmdline, *arguments],
        "settings": settings,
        "env": dict(env or {}),
        "initrd_sha256": initrd_sha256,
        "model": model,
    }
    return msgspec.convert({**facts, "fingerprint": records.digest([facts, parameters.rtc])[:16]}, Environment)


def argv(
    qemu: Qemu,
    machine: MachineType,
    *,
    kernel: Path,
    initrd: Path,
    arguments: Sequence[str],
    vcpus: int,
    memory_mb: int,
    console: Path,
    report: Path,
    parameters: ExactMachine | None = None,
) -> list[str]:
    """QEMU's argument list for one guest."""
    parameters = parameters or exact_machine()
    board = "microvm,rtc=on" if machine is MachineType.MICROVM else "q35,hpet=off"
    return [
        qemu.path,
        *("-machine", f"{board},memory-backend=ram"),
        # Not touched beforehand: the host's page faults cannot show in a time that counts instructions.
        *("-object", f"memory-backend-ram,id=ram,size={memory_mb}M"),
        *("-accel", "tcg,thread=single"),
        *("-icount", f"shift={parameters.shift},sleep=off"),
        *("-rtc", f"base={parameters.rtc},clock=vm"),
        *("-cpu", parameters.cpu),
        *("-smp", str(vcpus)),
        *("-m", f"{memory_mb}M"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-chardev", f"file,id=console,path={_escaped(console)}", "-device", "isa-serial,chardev=console"),
        *("-chardev", f"file,id=report,path={_escaped(report)}", "-device", "isa-serial,chardev=report"),
        *("-kernel", str(kernel)),
        *("-initrd", str(initrd)),
        *("-append", " ".join(arguments)),
    ]


def _escaped(path: Path) -> str:
    """A path inside one of QEMU's comma-separated options."""
    return str(path).replace(",", ",,")
