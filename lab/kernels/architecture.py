"""Architectures of guests: a folder of `machines/` each, with all differences. Nothing else names an architecture."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from enum import StrEnum
from functools import cache

import msgspec

from lab.core import toml
from lab.core.errors import UserError, suggestion
from lab.core.paths import data_folder
from lab.core.records import Record

FILE = "architecture.toml"
DEFAULT = "x86_64"

MAGIC_AT = 0x38
"""Offset in an `ImageHeader` (Documentation/arch/arm64/booting.rst, arch/riscv/boot-image-header.rst)."""


class MachineType(StrEnum):
    """The kind of virtual machine around a guest. Both arms of a comparison get the same one."""

    MICROVM = "microvm"  # PVH boot of an uncompressed vmlinux: the fastest
    Q35_PVH = "q35-pvh"  # the same on a PC, for kernels that want one
    Q35 = "q35"  # bzImage through the decompressor: boots anything
    VIRT = "virt"  # a board that exists in QEMU alone, described by a device tree: arm64's
    VIRT_RISCV64 = "virt-riscv64"  # the same of RISC-V


class ImageHeader(Record, frozen=True, kw_only=True):
    """An uncompressed kernel with the header that arm64 and RISC-V share.

    magic: the four characters at `MAGIC_AT`. addresses: its places in memory without KASLR, those of new kernels first.
    relative: the ELF relocation that adds the image's address to a word.
    """

    magic: str
    addresses: list[int]
    relative: int

    def begins(self, image: bytes | mmap.mmap) -> bool:
        """True for a file with this header."""
        return image[MAGIC_AT : MAGIC_AT + 4] == self.magic.encode()


class Mark(Record, frozen=True, kw_only=True):
    """The instruction that marks the measured work (workloads/include/lab/arch). bare: its bytes in hex, without a
    number. bit: the beginning of the number, from the first byte's lowest bit on."""

    bare: str
    bit: int

    def numbered(self, number: int) -> bytes:
        """The instruction with a number, those of workloads/include/lab/mark.h."""
        bare = bytes.fromhex(self.bare)
        return (int.from_bytes(bare, "little") | number << self.bit).to_bytes(len(bare), "little")


class Architecture(Record, frozen=True, kw_only=True):
    """`machines/<name>/architecture.toml`.

    debian: its name in package archives. flavour: of the kernels that guests boot. images: the kinds of
    their files, which are also kbuild's targets. image: how such a file begins, if it is not packed.
    suites: the releases of Debian that have it; empty for all.
    kbuild: its ARCH. tree: the folder of its code in a kernel's tree.
    mark: in its programs. elf_machine: in the headers of these. triplet: of its C libraries.
    pc: the number of the program counter in gdb's remote protocol, None if guests cannot continue from a kept state.
    compiler, qemu: commands, and the packages that they are in.
    modelled: cycles are modelled; else instructions are counted. experimental: the machine whose cycles can be modelled
    on request; empty for none.
    console, report: QEMU's options of the two serial ports. options: others.
    boards: QEMU's machine for each kind that guests can have, the fastest first.
    """

    schema: int
    name: str
    debian: str
    flavour: str
    images: list[str]
    image: ImageHeader | None = None
    suites: list[str] = msgspec.field(default_factory=list)
    kbuild: str
    tree: str
    mark: Mark
    elf_machine: int
    pc: int | None = None
    triplet: str
    compiler: str
    compiler_package: str
    qemu: str
    qemu_package: str
    modelled: bool
    experimental: str = ""
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
    return tuple(sorted(path.parent.name for path in data_folder("machines").glob(f"*/{FILE}")))


@cache
def load(name: str = DEFAULT) -> Architecture:
    if name not in names():
        hint = suggestion(name, names())
        there = f"there are {', '.join(names())}"
        raise UserError(f"no architecture called {name!r}", hint=f"{hint} {there}" if hint else there)
    return toml.load(data_folder("machines") / name / FILE, Architecture)


def experiment(model: str) -> str:
    """The name of a machine, or the identity of a model; it says so if the machine is experimental."""
    trials = {load(name).experimental for name in names()}
    return f"{model}, experimental" if trials.intersection(model.split()) else model


def require_default(what: str, guests: Iterable[str]) -> None:
    """Refuse guests of another architecture for something that the lab has for one alone."""
    if others := sorted(set(guests) - {DEFAULT}):
        raise UserError(f"{what}: for {DEFAULT} guests only, not for {', '.join(others)}", hint="use exact mode")


def of_header(image: bytes | mmap.mmap) -> Architecture | None:
    """The architecture of an uncompressed kernel by its header; None for any other file."""
    return next((found for found in map(load, names()) if found.image and found.image.begins(image)), None)


def image_of(machine: MachineType) -> str:
    """The kind of kernel image that a kind of machine boots."""
    return "vmlinux" if machine in (MachineType.MICROVM, MachineType.Q35_PVH) else of_machine(machine).packed


def of_machine(machine: str) -> Architecture:
    """The architecture of a kind of machine; the host's own for a kind that only live mode has."""
    return next((found for found in map(load, names()) if machine in found.boards), load())
