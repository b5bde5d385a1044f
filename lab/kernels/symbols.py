"""Functions by address: of a kernel, from System.map or its kallsyms; of a program, from its ELF symbols.

Addresses in the file are those in the guest: exact mode runs kernels with `nokaslr`, and the lab's own programs are
static and not position independent (for others see `bias`).
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from lab.core import paths, records
from lab.core.errors import UserError
from lab.core.records import Record
from lab.kernels import architecture, files
from lab.kernels.files import Buffer

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

KERNEL_HALF = 1 << 63
"""Addresses from here on are the kernel's."""

_TEXT_LETTERS = "tTwWiu"
_SHF_EXECINSTR = 4
# STT_NOTYPE, which functions in assembler often have, STT_FUNC and STT_GNU_IFUNC.
_ELF_CODE = (0, 2, 10)
# By the size of an address: the fields of a symbol, and the places of its name, info, section, value and size.
_ELF_SYMBOL = {32: ("IIIBBH", (0, 3, 5, 1, 2)), 64: ("IBBHQQ", (0, 1, 3, 4, 5))}

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
    """A name at an address, as kallsyms has it. kind: nm's letter. size: None if only the next label ends it."""

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

    @classmethod
    def of(cls, symbols: list[Symbol]) -> Self:
        """The table of functions that another table listed."""
        table = cls(())
        table._symbols, table._starts = symbols, [symbol.start for symbol in symbols]
        return table

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
        names = [symbol.name for symbol in read_kallsyms(files.extract_vmlinux(vmlinux)) or []]
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


# Raised if functions are read in another way.
_SCHEMA = 1


class _Kallsyms(Record, frozen=True, kw_only=True):
    """The functions in a kernel's kallsyms, as the cache keeps them."""

    schema: int = _SCHEMA
    functions: list[Symbol]


def from_kallsyms_image(path: Path) -> SymbolTable:
    """The functions in the kallsyms of a kernel file (vmlinux or bzImage); empty when it has none.

    The cache keeps them by the file's content. Errors are those of `files.extract_vmlinux`.
    """
    image = files.extract_vmlinux(path)
    place = paths.cache_dir("symbols") / f"{records.remembered_digest(path)[:24]}.json"
    if (kept := records.find(place, _Kallsyms)) and kept.schema == _SCHEMA:
        return SymbolTable.of(kept.functions)
    table = SymbolTable(_in_kernel(read_kallsyms(image) or []))
    if len(table):
        records.save(place, _Kallsyms(functions=list(table)))
    return table


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
    except (ELFError, ValueError, struct.error) as error:
        raise UserError(f"{path} is not a readable ELF file: {error}") from error


def _elf_labels(elf: ELFFile, bias: int) -> list[Label]:
    from elftools.elf.sections import SymbolTableSection

    code = {index for index, section in enumerate(elf.iter_sections()) if section["sh_flags"] & _SHF_EXECINSTR}
    section = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    if not isinstance(section, SymbolTableSection):
        return []
    # Unpacked here: pyelftools takes a second for the symbols of some programs.
    entry, order = _ELF_SYMBOL[elf.elfclass]
    labels, texts = [], section.stringtable.data()
    for fields in struct.iter_unpack(("<" if elf.little_endian else ">") + entry, section.data()):
        name, info, index, value, size = (fields[place] for place in order)
        if info & 0xF in _ELF_CODE and index in code and (text := texts[name : texts.index(b"\0", name)]):
            labels.append(Label(value + bias, "T" if info >> 4 else "t", text.decode(errors="replace"), size or None))
    return labels


# ---- the symbol table inside a kernel (CONFIG_KALLSYMS), read from its file without booting it

# The tables follow each other in .rodata and have no names in the file. scripts/kallsyms.c writes them and
# kernel/kallsyms.c reads them; each begins at a multiple of 8, from 7.0 on of 4:
#
#     up to 6.3   offsets, relative_base, num_syms, names, markers, [seqs_of_names,] token_table, token_index
#     from 6.4    num_syms, names, markers, token_table, token_index, offsets, relative_base, seqs_of_names
#     from 7.0    num_syms, names, markers, token_table, token_index, offsets, seqs_of_names
#
# Offsets are relative to relative_base; from 7.0 on, each to its own address.
#
# A name is a length and that many tokens; a token is one of 256 strings. In the token table, every character that
# occurs in a name is a token at its own index, and digits always occur. So "0", "1", .. "9" in a row lead to the
# table, its index behind it confirms it, and the other tables are found and checked from there.

_DIGITS = b"".join(b"%d\0" % digit for digit in range(10))
_TOKENS = 256
_MARKED = 256  # one marker for so many names
_LONGEST = 0x3FFF  # of a name, in tokens: two bytes of length
_LOWEST = 0xFFFF_8000_0000_0000  # of a kernel address


class _Tokens(NamedTuple):
    start: int
    end: int
    texts: list[bytes]


class _Names(NamedTuple):
    start: int  # of num_syms
    symbols: list[bytes]


def read_kallsyms(image: Buffer) -> list[Label] | None:
    """All symbols of an uncompressed kernel, by address; None if it has no such tables."""
    for match in re.finditer(re.escape(_DIGITS), image):
        if (tokens := _tokens_around(image, match.start())) is None:
            continue
        # Words of one layout can pass for a table of a single name in the other, so the longer table is the real one.
        listed = max(_listed(image, tokens), key=len, default=None)
        if listed:
            return listed
    return None


def _listed(image: Buffer, tokens: _Tokens) -> Iterator[list[Label]]:
    """The symbols as each of the layouts gives them."""
    for find_names, find_addresses in ((_names, _addresses), (_names_before, _own_addresses)):
        names = find_names(image, tokens)
        addresses = find_addresses(image, names, tokens) if names else None
        if names and addresses:
            texts = [name.decode("utf-8", errors="replace") for name in names.symbols]
            yield [Label(at, text[0], text[1:]) for at, text in zip(addresses, texts, strict=True)]


def _aligned(offset: int, to: int = 8) -> int:
    return offset + to - 1 & -to


# --- tokens


def _tokens_around(image: Buffer, zero: int) -> _Tokens | None:
    """The token table that has its "0" at an offset, if its index agrees."""
    end = zero
    for _ in range(ord("0"), _TOKENS):
        end = image.find(b"\0", end) + 1
        if not end:
            return None
    for index_at in {_aligned(end), _aligned(end, 4)}:
        if index_at + 2 * _TOKENS > len(image):
            continue
        index = struct.unpack_from(f"<{_TOKENS}H", image, index_at)
        start = zero - index[ord("0")]
        texts = image[start : end - 1].split(b"\0") if start >= 0 else []
        if list(index) == list(accumulate((len(text) + 1 for text in texts[:-1]), initial=0)):
            return _Tokens(start, index_at + 2 * _TOKENS, texts)
    return None


# --- names


def _names(image: Buffer, tokens: _Tokens) -> _Names | None:
    """Number and names of the symbols, searched backwards from the token table.

    num_syms is a word before the table with four zeros behind it, then that many names, then markers that match.
    """
    at = (tokens.start & ~7) - 8
    zeros = bytes(4)
    while at >= 0:
        # A zero is rare among compressed names, so this comparison alone rules out most words.
        if image[at + 4 : at + 8] == zeros and (names := _names_at(image, at, tokens)):
            return names
        at -= 8
    return None


def _names_before(image: Buffer, tokens: _Tokens) -> _Names | None:
    """Number and names of the symbols of 7.0 and later, searched backwards from the markers before the token table."""
    markers_at, markers = _markers_before(image, tokens.start)
    if not markers:
        return None
    # Behind the last marker, there are at most so many more names.
    first = markers_at - 4 - markers[-1] & ~3
    most = len(markers) * _MARKED
    for at in range(first, max(first - _MARKED * (_LONGEST + 2), -1), -4):
        (count,) = struct.unpack_from("<I", image, at)
        if most - _MARKED < count <= most and (names := _names_at(image, at, tokens, alignment=4)):
            return names
    return None


def _markers_before(image: Buffer, end: int) -> tuple[int, list[int]]:
    """The rising words from zero on that end at an offset; and the offset of the first."""
    words: list[int] = []
    for at in range(end - 4, -1, -4):
        (word,) = struct.unpack_from("<I", image, at)
        if words and word >= words[-1]:
            break
        words.append(word)
        if word == 0:
            return at, words[::-1]
    return end, []


def _names_at(image: Buffer, at: int, tokens: _Tokens, alignment: int = 8) -> _Names | None:
    (count,) = struct.unpack_from("<I", image, at)
    start = at + alignment
    # The shortest name is a length and one token.
    if not 0 < count <= (tokens.start - start) // 2:
        return None
    spans: list[tuple[int, int]] = []
    markers: list[int] = []
    offset = start
    for number in range(count):
        if number % _MARKED == 0:
            markers.append(offset - start)
        length, offset = _length(image, offset)
        if not length or offset + length > tokens.start:
            return None
        spans.append((offset, offset + length))
        offset += length
    size = 4 * len(markers)
    markers_at = _aligned(offset, alignment)
    if image[markers_at : markers_at + size] != struct.pack(f"<{len(markers)}I", *markers):
        return None
    texts = tokens.texts
    symbols = [b"".join([texts[token] for token in image[first:last]]) for first, last in spans]
    return _Names(at, symbols) if all(symbols) else None


def _length(image: Buffer, offset: int) -> tuple[int, int]:
    """The number of a name's tokens (0 if it is impossible), and the offset of the first. From 6.1 on in two bytes."""
    length = image[offset]
    if not length & 0x80:
        return length, offset + 1
    length = length & 0x7F | image[offset + 1] << 7
    return length if 0x7F < length <= _LONGEST else 0, offset + 2


# --- addresses


def _addresses(image: Buffer, names: _Names, tokens: _Tokens) -> list[int] | None:
    """The address of each name; offsets and base are behind the tokens, or before the names."""
    count = len(names.symbols)
    size = _aligned(4 * count)
    for offsets, base in ((tokens.end, tokens.end + size), (names.start - 8 - size, names.start - 8)):
        if offsets >= 0 and base + 8 <= len(image) and (addresses := _decoded(image, offsets, base, count)):
            return addresses
    return None


def _own_addresses(image: Buffer, names: _Names, tokens: _Tokens) -> list[int] | None:
    """The address of each name, from offsets behind the tokens that are relative to themselves."""
    count = len(names.symbols)
    start = _address_at(image, tokens.end)
    if start is None or tokens.end + 4 * count > len(image):
        return None
    offsets = struct.unpack_from(f"<{count}i", image, tokens.end)
    addresses = [start + 4 * number + offset for number, offset in enumerate(offsets)]
    return addresses if addresses == sorted(addresses) else None


def _address_at(image: Buffer, offset: int) -> int | None:
    """The address at which a byte of the file is loaded."""
    for segment in files.segments(image):
        if segment.kind == files.PT_LOAD and segment.offset <= offset < segment.offset + segment.size:
            return segment.address + offset - segment.offset
    return None


def _relocated(image: Buffer, base_at: int) -> int:
    """The base that an Image writes there when it boots; 0 if no relocation says so.

    An entry of .rela.dyn has the address of a word, a kind (such as R_AARCH64_RELATIVE), and the word to write there.
    """
    guests = architecture.of_header(image)
    if guests is None or guests.image is None:
        return 0
    places = {image_at + base_at for image_at in guests.image.addresses}
    for match in re.finditer(re.escape(struct.pack("<Q", guests.image.relative)), image):
        if match.start() % 8 == 0 and 8 <= match.start() <= len(image) - 16:
            address, _, value = struct.unpack_from("<3Q", image, match.start() - 8)
            if value >= _LOWEST and address in places:
                return int(value)
    return 0


def _decoded(image: Buffer, offsets_at: int, base_at: int, count: int) -> list[int] | None:
    (base,) = struct.unpack_from("<Q", image, base_at)
    base = base or _relocated(image, base_at)
    if base < _LOWEST:
        return None
    offsets = struct.unpack_from(f"<{count}i", image, offsets_at)
    if min(offsets) < 0:
        # CONFIG_KALLSYMS_ABSOLUTE_PERCPU: a negative offset is base - 1 - address, any other is the address itself.
        addresses = [offset if offset >= 0 else base - 1 - offset for offset in offsets]
    else:
        addresses = [base + offset for offset in offsets]
    # scripts/kallsyms.c sorts by address; anything else is not a table of offsets.
    return addresses if addresses == sorted(addresses) else None
