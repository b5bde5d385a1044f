"""Architectures of guests: a folder of `machines/` each, with all that differs. Nothing else names one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache

import msgspec

from lab.core import toml
from lab.core.errors import UserError, suggestion
from lab.core.paths import room
from lab.core.records import Record

FILE = "architecture.toml"
DEFAULT = "x86_64"


class MachineType(StrEnum):
    """The kind of virtual machine around a guest. Both arms of a comparison get the same one."""

    MICROVM = "microvm"  # PVH boot of an uncompressed vmlinux: the fastest
    Q35_PVH = "q35-pvh"  # the same on a PC, for kernels that want one
    Q35 = "q35"  # bzImage through the decompressor: boots anything
    VIRT = "virt"  # a board that exists in QEMU alone, described by a device tree


class Architecture(Record, frozen=True, kw_only=True):
    """`machines/<name>/architecture.toml`.

    debian: its name in package archives. flavour: of the kernels that guests boot. images: the kinds of
    their files, which are also kbuild's targets. kbuild: its ARCH. tree: the folder of its code in a kernel's tree.
    elf_machine: in the headers of its programs. triplet: of its C libraries.
    compiler, qemu: commands, and the packages that they are in.
    modelled: cycles can be modelled; else instructions are counted.
    console, report: QEMU's options of the two serial ports. options: others.
    boards: QEMU's machine for each kind that guests can have, the fastest first.
    """

    schema: int
    name: str
    debian: str
    flavour: str
    images: list[str]
    kbuild: str
    tree: str
    elf_machine: int
    triplet: str
    compiler: str
    compiler_package: str
    qemu: str
    qemu_package: str
    modelled: bool
    console: list[str]
    report: list[str]
    options: list[str] = msgspec.field(default_factory=list)
    boards: dict[MachineType, str]

    @property
    def packed(self) -> str:
        """The kind of image that a boot loader takes."""
        return self.images[0]

    @property
    def packages(self) -> list[str]:
        """The packages of a host that measures such guests: QEMU, and for other guests than the host's a compiler."""
        cross = [self.compiler_package, f"libc6-dev-{self.debian}-cross"] if self.cross_prefix else []
        return [self.qemu_package, *cross]

    @property
    def cross_prefix(self) -> str:
        """The beginning of its binutils' names; nothing for the host's own."""
        return self.compiler.removesuffix("gcc")


@cache
def names() -> tuple[str, ...]:
    """The architectures that guests can have."""
    return tuple(sorted(path.parent.name for path in room("machines").glob(f"*/{FILE}")))


@cache
def load(name: str = DEFAULT) -> Architecture:
    """An architecture by its name."""
    if name not in names():
        hint = suggestion(name, names())
        there = f"there are {', '.join(names())}"
        raise UserError(f"no architecture called {name!r}", hint=f"{hint} {there}" if hint else there)
    return toml.load(room("machines") / name / FILE, Architecture)


def require_default(what: str, guests: Iterable[str]) -> None:
    """Refuse guests of another architecture for something that the lab has for one alone."""
    if others := sorted(set(guests) - {DEFAULT}):
        raise UserError(f"{what}: for {DEFAULT} guests only, not for {', '.join(others)}", hint="use exact mode")


def of_image(kind: str) -> Architecture:
    """The architecture of a kind of kernel image."""
    return next(found for found in map(load, names()) if kind in found.images)


def image_of(machine: MachineType) -> str:
    """The kind of kernel image that a kind of machine boots."""
    return "vmlinux" if machine in (MachineType.MICROVM, MachineType.Q35_PVH) else of_machine(machine).packed


def of_machine(machine: str) -> Architecture:
    """The architecture of a kind of machine; the host's own of those that only live mode has."""
    return next((found for found in map(load, names()) if machine in found.boards), load())
