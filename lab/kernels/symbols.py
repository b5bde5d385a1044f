"""Functions by address: of a kernel, from System.map or its kallsyms; of a program, from its ELF symbols.

Addresses in the file are those in the guest: exact mode runs kernels with `nokaslr`, and the lab's own programs are
static and not position independent (for others see `bias`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lab.core.errors import UserError
from lab.kernels import files, kallsyms

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

KERNEL_HALF = 1 << 63
"""Addresses from here on are the kernel's."""

_TEXT_LETTERS = "tTwWiu"
_SHF_EXECINSTR = 4
# Functions in assembler are often labels without a type. 10, STT_GNU_IFUNC, is also called STT_LOOS.
_ELF_CODE = ("STT_FUNC", "STT_GNU_IFUNC", "STT_LOOS", "STT_NOTYPE")

# Suffixes of compilers and linkers for functions that they clone, split or make unique.
_SUFFIX = re.compile(
    r"(?:\.(?:constprop|isra|part|cold|hot|warm|clone|llvm|lto_priv|localalias|__uniq)(?:\.\d+)*|\.\d+)+$"
)
# Suffixes of the pieces of a split function: a jump from one piece to another is not a call.
_PIECE = re.compile(r"\.(?:part|cold|hot|warm)\b")
# Labels of the linker script for the ends of sections: no functions, though nm calls them text.
_MARKER = re.compile(r"^_(?:s|e|sinit|einit)?text$|^__\w+_(?:text|thunk)_(?:start|end)$")


# include/linux/init.h: FILE__COUNTER_LINE_FUNCTION and the level, with `s` for initcalls that wait for those before.
_INITCALL = re.compile(r"__initcall__kmod_.{1,512}?__\d+_\d+_(.{1,512}?)(early|con|rootfs|[0-7])s?")
_LEVELS = {
    "con": "console", "early": "early", "0": "pure", "1": "core", "2": "postcore", "3": "arch", "4": "subsys",
    "5": "fs", "rootfs": "rootfs", "6": "device", "7": "late",
}  # fmt: skip
LEVELS = tuple(_LEVELS.values())
"""The levels of initcalls in the order in which a kernel runs them, by the names that it has for them."""


class Label(NamedTuple):
    """A name at an address. kind: nm's letter. size: bytes, None if only the next label ends it."""

    address: int
    kind: str
    name: str
    size: int | None = None


class Symbol(NamedTuple):
    """A function: its name, first address and size in bytes (to the next label if the file gives none)."""

    name: str
    start: int
    size: int


class SymbolTable:
    """Functions by address. The plainest of several names at one address is used.

    A function without a size ends at the next label, of code or not; the last one at the end of its page.
    """

    def __init__(self, labels: Iterable[Label]) -> None:
        ordered = sorted(labels)
        groups = [(address, list(group)) for address, group in groupby(ordered, key=lambda label: label.address)]
        ends = [address for address, _ in groups[1:]]
        if groups:
            ends.append((groups[-1][0] | 0xFFF) + 1)
        self._symbols: list[Symbol] = []
        for (address, group), end in zip(groups, ends, strict=True):
            texts = [label for label in group if label.kind in _TEXT_LETTERS and not _MARKER.match(label.name)]
            if texts:
                size = max(label.size or 0 for label in texts) or end - address
                self._symbols.append(Symbol(min(texts, key=_plainness).name, address, size))
        self._starts = [symbol.start for symbol in self._symbols]

    def __len__(self) -> int:
        return len(self._symbols)

    def __iter__(self) -> Iterator[Symbol]:
        return iter(self._symbols)

    def find(self, address: int) -> Symbol | None:
        """The function that contains an address; None between and outside of functions."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        symbol = self._symbols[at]
        return symbol if address - symbol.start < symbol.size else None

    def entry(self, address: int) -> bool:
        """True for the address at which a function is called: its first, and not that of a piece split off it."""
        symbol = self.find(address)
        return symbol is not None and symbol.start == address and not _PIECE.search(symbol.name)


def _plainness(label: Label) -> tuple[int, int, int, str]:
    """Sort key for the names of one address, so that both arms choose the same name."""
    name = label.name
    underscores = len(name) - len(name.lstrip("_"))
    return (underscores, "TWwt".find(label.kind), len(name), name)


def base_name(name: str) -> str:
    """A function's name in the source, without the compiler's suffixes, as in `fn.constprop.0` or `fn.cold`.

    Builds can differ in their clones, so only these names can be compared between two arms.
    """
    return _SUFFIX.sub("", name) or name


# --- kernels


def kernel_symbols(vmlinux: Path | None, system_map: Path | None) -> SymbolTable:
    """A kernel's functions, from the best source: System.map, its kallsyms, its ELF symbols.

    vmlinux may be a bzImage. A System.map without functions is skipped: Debian's packages have one that refers to the
    real one. `UserError` if no source has functions.
    """
    if system_map is not None and len(table := from_system_map(system_map)):
        return table
    if vmlinux is not None:
        for source in (from_kallsyms_image, from_elf):
            if len(table := source(vmlinux)):
                return table
    raise UserError(
        f"{vmlinux or system_map or 'a kernel without files'}: no names of the kernel's functions",
        hint="build it with CONFIG_KALLSYMS=y, or give the System.map that belongs to it",
    )


def initcall_levels(vmlinux: Path | None, system_map: Path | None) -> dict[str, str]:
    """The level of each initcall, such as `subsys`, by its function's name.

    Empty if a kernel lists functions alone (packages have CONFIG_KALLSYMS_ALL).
    """
    labels = list(map_labels(system_map)) if system_map is not None else []
    names = [label.name for label in labels]
    if not any(map(_INITCALL.fullmatch, names)) and vmlinux is not None:
        names = [symbol.name for symbol in kallsyms.read(files.extract_vmlinux(vmlinux)) or []]
    found = (match.groups() for name in names if (match := _INITCALL.fullmatch(name)))
    return {function: _LEVELS[level] for function, level in found}


def from_system_map(path: Path) -> SymbolTable:
    """The functions in a System.map (`nm` output: address, letter, name); `UserError` for any other file."""
    return SymbolTable(_in_kernel(map_labels(path)))


def map_labels(path: Path) -> Iterator[Label]:
    """All labels in a System.map; `UserError` for any other file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    return (_map_label(path, number, line) for number, line in enumerate(lines, 1) if line)


def _map_label(path: Path, number: int, line: str) -> Label:
    address, _, rest = line.partition(" ")
    kind, _, name = rest.partition(" ")
    try:
        return Label(int(address, 16), kind, name)
    except ValueError:
        raise UserError(f"{path}, line {number}: not a line of a System.map: {line[:60]!r}") from None


def _in_kernel(labels: Iterable[Label]) -> Iterator[Label]:
    """The labels that are addresses of the kernel, without offsets into per-CPU data and absolute values."""
    return (label for label in labels if label.address >= KERNEL_HALF and label.kind not in "aA")


def from_kallsyms_image(path: Path) -> SymbolTable:
    """The functions in the kallsyms of a kernel file (vmlinux or bzImage); empty when it has none.

    Errors are those of `files.extract_vmlinux`.
    """
    listed = kallsyms.read(files.extract_vmlinux(path)) or []
    return SymbolTable(_in_kernel(Label(*symbol) for symbol in listed))


_OF_MODULE = re.compile(r"([0-9a-f]{1,16}) ([A-Za-z]) (\S{1,512})\s+\[[^]]{1,64}\]")


def of_modules(kallsyms: Iterable[str]) -> SymbolTable:
    """The functions of the modules that a kernel has loaded, by the lines of its /proc/kallsyms."""
    found = (_OF_MODULE.match(line) for line in kallsyms)
    return SymbolTable(_in_kernel(Label(int(match[1], 16), match[2], match[3]) for match in found if match))


# --- programs


def from_elf(path: Path, *, bias: int = 0) -> SymbolTable:
    """The functions of an ELF program, from .symtab, or .dynsym if it is stripped; empty if it has neither.

    bias: the load address of a position-independent program. `UserError` if the file cannot be read or is not an ELF
    file.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as stream:
            return SymbolTable(_elf_labels(ELFFile(stream), bias))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ELFError, ValueError) as error:
        raise UserError(f"{path} is not a readable ELF file: {error}") from error


def _elf_labels(elf: ELFFile, bias: int) -> list[Label]:
    from elftools.elf.sections import SymbolTableSection

    code = {index for index, section in enumerate(elf.iter_sections()) if section["sh_flags"] & _SHF_EXECINSTR}
    section = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    if not isinstance(section, SymbolTableSection):
        return []
    labels = []
    for symbol in section.iter_symbols():
        if symbol["st_info"]["type"] in _ELF_CODE and symbol.name and symbol["st_shndx"] in code:
            kind = "t" if symbol["st_info"]["bind"] == "STB_LOCAL" else "T"
            labels.append(Label(symbol["st_value"] + bias, kind, symbol.name, symbol["st_size"] or None))
    return labels
