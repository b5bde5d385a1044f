"""Exact mode's virtual machine: QEMU's TCG counts instructions, and nothing outside can disturb it.

Bit-identical runs need all of: one TCG thread, counted instructions with a clock that never waits for the host, a
fixed wall clock, a CPU model without random numbers, no device that completes on a host thread. The guest's root is a
cpio in RAM; its only devices are two serial ports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lab.core import records, toml
from lab.core.errors import HostFailed, LabError, UserError
from lab.core.paths import data_folder
from lab.core.process import find_tool, run, run_text
from lab.core.records import Record
from lab.guests import backports
from lab.guests.hardware import Machine
from lab.guests.plugin import COSTS, Instrument, escape
from lab.guests.run import CONSOLE, INITRD, REPORT, overridden
from lab.kernels import architecture, places
from lab.kernels.architecture import Architecture, MachineType

QEMU = architecture.load().qemu
"""Stands for the QEMU of the guest's architecture."""

# The architecture's options for a serial port stand behind its character device.
_PORTS = {"console": "file,id=console,path={console}", "report": "file,id=report,path={report}"}

# QEMU's options. A word in braces is a fact of the guest, or the path of a file.
_OPTIONS = (
    ("-machine", "{board},memory-backend=ram"),
    # Not touched beforehand: the host's page faults cannot show in a time that counts instructions.
    ("-object", "memory-backend-ram,id=ram,size={memory_mb}M"),
    ("-accel", "tcg,thread=single"),
    ("-icount", "shift={shift},sleep=off"),
    ("-rtc", "base={rtc},clock=vm"),
    ("-cpu", "{cpu}"),
    ("-smp", "{vcpus}"),
    ("-m", "{memory_mb}M"),
    ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
    *(("-chardev", device) for device in _PORTS.values()),
    ("-kernel", "{kernel}"),
    ("-initrd", "{initrd}"),
    ("-append", "{append}"),
)

# The most MiB of generated code; the kernel of `boot` needs 60. No number depends on it, so no fingerprint does.
_BOUNDED = {"tcg,thread=single": "tcg,thread=single,tb-size=96"}

# The digest of the options above from the time when fingerprints did not cover them. While they are the same,
# fingerprints stay equal to those of stored results.
_FIRST_OPTIONS = "ffef0ddd42bb9be7423631fb1836635685119ca1055e4c8a1132cf2dfd6c881b"


class Contention(Record, frozen=True, kw_only=True):
    """Turns of vCPUs that contend. quantum: modelled cycles of a turn. symbols: the functions of QEMU that end turns.

    qemu_maximum: the newest QEMU that is known to repeat its numbers.
    least_shift: the smallest `shift` with which such guests boot.
    """

    quantum: int
    qemu_minimum: tuple[int, int]
    qemu_maximum: tuple[int, int]
    symbols: tuple[str, ...]
    least_shift: int


class ExactMachine(Record, frozen=True, kw_only=True):
    """`machines/<architecture>/exact.toml`."""

    schema: int
    cpu: str
    shift: int
    rtc: str
    qemu_minimum: tuple[int, int]
    cmdline: list[str]
    settings: dict[str, str]
    contention: Contention | None = None

    def for_contention(self, vcpus: int) -> ExactMachine:
        """The parameters of guests whose vCPUs contend: all share one clock, which is slower with more vCPUs.

        `UserError` if guests of the architecture cannot contend.
        """
        if self.contention is None:
            raise UserError("vCPUs that contend are those of x86-64 guests", hint="leave out --cpus, or @N")
        shift = max(self.contention.least_shift, self.shift - (vcpus - 1).bit_length())
        return msgspec.structs.replace(self, shift=shift)

    @property
    def step_ns(self) -> int:
        """The guest time of an instruction."""
        return 1 << self.shift


class Qemu(Record, frozen=True, kw_only=True):
    """The emulator as found."""

    path: str
    version: str
    numbers: tuple[int, int]


@cache
def exact_machine(name: str = architecture.DEFAULT) -> ExactMachine:
    """The parameters of exact mode's guest of an architecture."""
    return toml.load(data_folder("machines") / name / "exact.toml", ExactMachine)


def cmdline(extra: Sequence[str], parameters: ExactMachine | None = None) -> list[str]:
    """The kernel command line: the machine's, then that of the workload and the arm."""
    return overridden((parameters or exact_machine()).cmdline, extra)


def believing(words: Sequence[str], machine: Machine | None) -> list[str]:
    """A complete command line; if mitigations are on, with the parameters that make up for the guest's CPU.

    Without them the kernel would believe in flaws that the modelled machine does not have. The user's parameters
    override them.
    """
    mitigated = any(word.startswith("mitigations=") and word != "mitigations=off" for word in words)
    return overridden(machine.guest.mitigated, words) if mitigated and machine and machine.guest else list(words)


def _options(guest: Architecture) -> tuple[tuple[str, ...], ...]:
    """QEMU's options for guests of an architecture."""
    ports = {device: getattr(guest, name) for name, device in _PORTS.items()}
    rows = tuple((*row, *ports.get(row[-1], ())) for row in _OPTIONS)
    return (*rows, tuple(guest.options)) if guest.options else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactGuest:
    """A guest of exact mode, from which both its command line and its fingerprint are made.

    cmdline: the kernel's, complete. instrument: the cost model, if one runs.
    """

    qemu: Qemu
    machine: MachineType
    vcpus: int
    memory_mb: int
    cmdline: Sequence[str]
    instrument: Instrument | None = None
    parameters: ExactMachine = field(default_factory=lambda: exact_machine())

    def argv(self, *, kernel: Path, folder: Path, root: Path, system_map: Path | None = None) -> list[str]:
        """QEMU's argument list for a guest in a folder. root: the guest's archive, without the job behind it."""
        files = {
            "kernel": str(kernel),
            "initrd": str(folder / INITRD),
            "console": escape(folder / CONSOLE),
            "report": escape(folder / REPORT),
        }
        own = architecture.of_machine(self.machine)
        values = {**self._facts(), **files, "board": own.boards[self.machine], "append": " ".join(self.cmdline)}
        plugin = self.instrument.arguments(root, folder / COSTS, own) if self.instrument else []
        if self.instrument and self.instrument.quantum:
            plugin = [*plugin[:-1], ",".join([plugin[-1], *places.of_kernel(kernel, system_map).arguments()])]
        words = [_BOUNDED.get(word, word).format_map(values) for option in _options(own) for word in option]
        return [self.qemu.path, *backports.firmware(self.qemu.path), *words, *plugin]

    def fingerprint(self, *, settings: Mapping[str, str], env: Mapping[str, str], initrd_sha256: str) -> str:
        """Name all inputs of the guest's numbers except kernel, arm and seed: equal ones promise equal numbers.

        settings: applied before its program runs. env: its program's.
        """
        facts = {**self._facts(), "settings": settings, "env": env, "initrd_sha256": initrd_sha256}
        described: list[Any] = [facts, facts.pop("rtc")]
        own = architecture.of_machine(self.machine)
        if (options := records.digest([_options(own), own.boards])) != _FIRST_OPTIONS:
            described.append(options)
        return records.digest(described)[:16]

    def beginning(self) -> list[Any]:
        """All that the guest depends on until it is ready, except its kernel, its archive and its job."""
        facts = {name: value for name, value in self._facts().items() if name != "model"}
        own = architecture.of_machine(self.machine)
        return [facts, _options(own), own.boards, records.remembered_digest(Path(self.qemu.path).resolve())]

    @property
    def cpu(self) -> str:
        """QEMU's `-cpu`: that of the modelled machine, or every guest's."""
        is_modelled = architecture.of_machine(self.machine).modelled
        guest = self.instrument.machine.guest if self.instrument and is_modelled else None
        cpu = guest.cpu if guest else self.parameters.cpu
        # A kernel that sees a hypervisor takes other locks (virt_spin_lock_key in arch/x86/kernel/paravirt.c).
        return f"{cpu},-hypervisor" if self.instrument and self.instrument.quantum else cpu

    def _facts(self) -> dict[str, Any]:
        """The facts in the command line, without paths."""
        return {
            "qemu": self.qemu.version,
            "machine": str(self.machine),
            "cpu": self.cpu,
            "shift": self.parameters.shift,
            "rtc": self.parameters.rtc,
            "vcpus": self.vcpus,
            "memory_mb": self.memory_mb,
            "cmdline": list(self.cmdline),
            "model": self.instrument.identity if self.instrument else "none",
        }


class GuestCpu(NamedTuple):
    """A CPU as this QEMU makes it: registers of CPUID by leaf, subleaf and name. refused: requested, and not there."""

    words: dict[tuple[int, int, str], int]
    refused: dict[tuple[int, int, str], int]


# The first CPU of every machine; libvirt asks there as well.
_FIRST_CPU = "/machine/unattached/device[0]"


def cpuid(qemu: Qemu, cpu: str) -> GuestCpu:
    """The CPUID of guests with QEMU's `-cpu`. No guest runs."""
    argv = [qemu.path, "-machine", "q35", "-accel", "tcg", "-cpu", cpu, "-S", "-nodefaults", "-no-user-config"]
    asked = ("feature-words", "filtered-features")
    commands = [
        {"execute": "qmp_capabilities"},
        *({"execute": "qom-get", "arguments": {"path": _FIRST_CPU, "property": name}, "id": name} for name in asked),
        {"execute": "quit"},
    ]
    stdin = b"".join(msgspec.json.encode(command) + b"\n" for command in commands)
    output = run([*argv, "-display", "none", "-qmp", "stdio"], stdin=stdin, timeout_s=60)
    answers = [msgspec.json.decode(line) for line in output.splitlines() if line.strip()]
    found = {answer["id"]: _registers(answer["return"]) for answer in answers if "id" in answer and "return" in answer}
    if len(found) < len(asked):
        raise HostFailed(f"{qemu.path} does not say what CPUID {cpu!r} has")
    return GuestCpu(found["feature-words"], found["filtered-features"])


def _registers(words: list[dict[str, Any]]) -> dict[tuple[int, int, str], int]:
    return {
        (word["cpuid-input-eax"], word.get("cpuid-input-ecx", 0), word["cpuid-register"]): word["features"]
        for word in words
    }


@cache
def sandbox(qemu: str) -> tuple[str, ...]:
    """QEMU's options that deny it to start programs, to gain privileges and to change its scheduling; none if the
    host or this QEMU cannot filter system calls.

    They are against a kernel that has broken out of its guest. No number depends on them, so no fingerprint does.
    """
    options = ("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
    argv = [qemu, "-machine", "none", "-S", "-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio"]
    stdin = b'{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'
    try:
        run([*argv, *options], stdin=stdin, timeout_s=60)
    except LabError:
        return ()
    return options


def missing_for_contention(qemu: Qemu, needs: Contention) -> list[str]:
    """Name the parts that a QEMU lacks to have vCPUs contend: its version, and functions that it does not export."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    lacks = []
    if not needs.qemu_minimum <= qemu.numbers <= needs.qemu_maximum:
        ends = dict.fromkeys("{}.{}".format(*numbers) for numbers in (needs.qemu_minimum, needs.qemu_maximum))
        lacks.append(f"version {' to '.join(ends)}")
    try:
        with Path(qemu.path).open("rb") as file:
            section = ELFFile(file).get_section_by_name(".dynsym")
            found = section.iter_symbols() if isinstance(section, SymbolTableSection) else ()
            there = {symbol.name for symbol in found if symbol["st_shndx"] != "SHN_UNDEF"}
    except (ELFError, OSError):
        there = set()
    return [*lacks, *(name for name in needs.symbols if name not in there)]


def find_qemu(command: str = QEMU, guests: Architecture | None = None, *, contends: bool = False) -> Qemu:
    """The QEMU to use for guests of an architecture.

    contends: their vCPUs do. If the host's own QEMU cannot have that, it is the one unpacked beside it.
    `HostFailed` when it is missing, does not run, is too old to count instructions right, or lacks something needed.
    """
    guests = guests or architecture.load()
    found = _qemu_at(find_tool(guests.qemu if command == QEMU else command, package=guests.qemu_package), guests)
    needs = exact_machine(guests.name).contention if contends else None
    if needs is None or not (lacks := missing_for_contention(found, needs)):
        return found
    if command == QEMU and (path := backports.unpacked(guests.qemu)):
        found = _qemu_at(str(path), guests)
        if not (lacks := missing_for_contention(found, needs)):
            return found
    suite = backports.suite()
    remedy = f"run `lab doctor --install`, which unpacks that of {suite} beside it, or " if suite else ""
    raise HostFailed(
        f"vCPUs that contend need more of QEMU than {found.path} has: {', '.join(lacks)}",
        hint=f"{remedy}name another one with --qemu",
    )


def _qemu_at(path: str, guests: Architecture) -> Qemu:
    line = run_text([path, "--version"]).partition("\n")[0]
    version = re.search(r"version (\d+)\.(\d+)", line)
    if not version:
        raise HostFailed(f"{path} does not print the version of QEMU: {line!r}")
    numbers = (int(version[1]), int(version[2]))
    minimum = exact_machine().qemu_minimum
    if numbers < minimum:
        raise HostFailed(
            f"{path} is QEMU {numbers[0]}.{numbers[1]}, exact mode needs {minimum[0]}.{minimum[1]} or newer",
            hint=f"install a newer {guests.qemu_package}, or name one with --qemu",
        )
    return Qemu(path=path, version=line.removeprefix("QEMU emulator version "), numbers=numbers)
