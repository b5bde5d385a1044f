"""Places of a kernel's memory by name: static variables, variables of each CPU, members of objects in slab caches.

Members are those of the kernel's types by its BTF (Documentation/bpf/btf.rst).
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from lab.kernels import files, symbols
from lab.kernels.symbols import Label

_DATA = frozenset("dDbBrRvV")
_IMAGE = 0xFFFF_FFFF_8000_0000
_PAGES = range(0xFFFF_EA00_0000_0000, 0xFFFF_EB00_0000_0000)
_STACKS = range(0xFFFF_C900_0000_0000, 0xFFFF_E900_0000_0000)
_MASK = (1 << 64) - 1

# The types of objects in slab caches that are not called like their type.
_TYPES = {
    "filp": "file", "inode_cache": "inode", "cred_jar": "cred", "files_cache": "files_struct",
    "signal_cache": "signal_struct", "sighand_cache": "sighand_struct", "shmem_inode_cache": "shmem_inode_info",
    "eventpoll_epi": "epitem", "eventpoll_pwq": "eppoll_entry", "mnt_cache": "mount", "fs_cache": "fs_struct",
    "proc_inode_cache": "proc_inode", "sock_inode_cache": "socket_alloc", "uid_cache": "user_struct",
}  # fmt: skip


class Places:
    """The places of one kernel."""

    def __init__(self, listed: list[Label], types: Types | None) -> None:
        self.types = types
        self.addresses = {symbol.name: symbol.address for symbol in listed}
        self._locking = list(_locking(listed))
        self._allocating = [s.address for s in listed if s.kind in "tT" and _ALLOCATES.fullmatch(s.name)]
        # Since 6.16, kallsyms says "T" of data, too.
        data = self.addresses.get("_sdata", 1 << 64)
        self._data = sorted(
            (s.address, s.name) for s in listed if s.address >= _IMAGE and (s.kind in _DATA or s.address >= data)
        )
        # Variables of one CPU lie from 0 on, or behind __per_cpu_start (6.15 and later).
        self._cpu = range(self.addresses.get("__per_cpu_start", 0), self.addresses.get("__per_cpu_end", 0))
        aside = ("__per_cpu_start", "fixed_percpu_data")
        self._percpu = sorted((s.address, s.name) for s in listed if s.address in self._cpu and s.name not in aside)

    def arguments(self) -> list[str]:
        """Arguments of the cost plugin, to find the slab cache of an object and the variables of each CPU."""
        offsets = {"percpu": self.addresses.get("__per_cpu_offset")}
        if self.types is not None and "slab_caches" in self.addresses:
            slab = "slab" if "slab" in self.types else "page"
            found = {
                "slab_caches": self.addresses["slab_caches"],
                "slab_cache": self.types.offset(slab, "slab_cache"),
                **{f"cache_{name}": self.types.offset("kmem_cache", name) for name in ("name", "size", "list")},
            }
            if "vmemmap_populate" not in self.addresses:  # without CONFIG_SPARSEMEM_VMEMMAP
                found["sections"] = self.addresses.get("mem_section")
                found["section_size"] = self.types.size("mem_section")
                found["section_map"] = self.types.offset("mem_section", "section_mem_map")
            offsets |= found if None not in found.values() else {}
        words = [f"{name}={value}" for name, value in offsets.items() if value is not None]
        words += [f"{part}={start}:{end}" for part, start, end in self._locking]
        return [*words, *(f"allocates={start}" for start in self._allocating)]

    def of_object(self, cache_name: str, offset: int, owner: str = "") -> str:
        """The member at an offset of an object of a slab cache. owner: the function that got it, if that is known."""
        kind = _TYPES.get(cache_name, cache_name)
        if self.types is None or kind not in self.types:
            return f"{cache_name}{f'({owner})' if owner else ''}+{offset:#x}"
        return f"{kind}.{self.types.path(kind, offset)}"

    def of_address(self, address: int, cpus: list[int]) -> str:
        """The place at an address that is in no slab. cpus: the offset of each CPU's variables."""
        for base in cpus:
            there = (address - base) & _MASK
            if there in self._cpu:
                return f"percpu {_near(self._percpu, there)}"
        if address in _PAGES:
            member = self.types.path("page", address % 64) if self.types is not None else f"+{address % 64:#x}"
            return f"page.{member}"
        if address >= _IMAGE:
            return _near(self._data, address)
        if address in _STACKS:
            return "a stack"
        return "user memory" if address < 1 << 63 else "pages"


# The functions that take and release locks which one CPU at a time can hold.
_TAKES = re.compile(
    r"_raw_(spin|write)_(try)?lock(_irq|_irqsave|_bh)?|native_queued_spin_lock_slowpath|queued_write_lock_slowpath"
    r"|(__)?mutex_(try)?lock(_slowpath|_killable_slowpath|_interruptible|_killable)?"
    r"|down_write(_killable|_trylock)?|rwsem_down_write_slowpath"
)
_RELEASES = re.compile(r"_raw_(spin|write)_unlock(_irq|_irqrestore|_bh)?|mutex_unlock|up_write|downgrade_write")
# The functions that return objects of general caches: kmalloc() is one of them, as the compiler finds fit.
_ALLOCATES = re.compile(r"(__)?kmalloc(_cache|_trace|_node|_track_caller)*(_noprof)?|kmem_cache_alloc(_node)?_trace")


def _locking(listed: list[Label]) -> Iterator[tuple[str, int, int]]:
    """Yield each function that takes or releases locks: `takes` or `releases`, its first address, the next after it."""
    text = sorted((s.address, symbols.base_name(s.name)) for s in listed if s.kind in "tT" and s.address >= _IMAGE)
    for (start, name), (end, _) in pairwise(text):
        part = "takes" if _TAKES.fullmatch(name) else "releases" if _RELEASES.fullmatch(name) else ""
        if part and start < end:
            yield part, start, end


def _near(named: list[tuple[int, str]], address: int) -> str:
    at = bisect_right(named, (address, "\x7f")) - 1
    if at < 0:
        return f"{address:#x}"
    start, name = named[at]
    return f"{name}+{address - start:#x}" if address > start else name


@cache
def of_kernel(path: Path, system_map: Path | None) -> Places:
    """The places of a kernel by its file, vmlinux or bzImage; without names if it has no kallsyms and no BTF.

    system_map: has the variables of a kernel that the lab builds, whose kallsyms has functions alone
    (CONFIG_KALLSYMS_ALL is not set). That of Debian's packages has one line.
    """
    listed = symbols.read_kallsyms(files.extract_vmlinux(path)) or []
    if system_map is not None:
        listed = max(listed, list(symbols.map_labels(system_map)), key=len)
    return Places(listed, types_of(path))


_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")

_PTR, _ARRAY, _STRUCT, _UNION = 2, 3, 4, 5
_SAME = frozenset({8, 9, 10, 11, 18})
"""typedef, volatile, const, restrict, type_tag: another type with another name."""

# The bytes after a type's three words: once, and for each of its members.
_ONCE = {1: 4, _ARRAY: 12, 14: 4, 17: 4}
_EACH = {_STRUCT: 12, _UNION: 12, 6: 8, 13: 8, 15: 12, 19: 12}
_DEEPEST = 8


class _Type(NamedTuple):
    kind: int
    bitfields: bool
    size: int  # bytes, or another type's number
    at: int  # of the following part
    members: int


class Types:
    """The types of one kernel."""

    def __init__(self, data: bytes) -> None:
        magic, _, _, start, type_at, type_size, text_at, text_size = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("no BTF")
        self._data, self._text = data, data[start + text_at : start + text_at + text_size]
        self._types = [_Type(0, False, 0, 0, 0)]
        self._named: dict[str, int] = {}
        at, end = start + type_at, start + type_at + type_size
        while at < end:
            name, info, size = _TYPE.unpack_from(data, at)
            kind, count = info >> 24 & 31, info & 0xFFFF
            at += _TYPE.size
            self._types.append(_Type(kind, bool(info >> 31), size, at, count))
            if kind in (_STRUCT, _UNION) and name:
                self._named.setdefault(self._word(name), len(self._types) - 1)
            at += _ONCE.get(kind, 0) + _EACH.get(kind, 0) * count

    def __contains__(self, name: str) -> bool:
        return name in self._named

    def offset(self, name: str, member: str) -> int | None:
        """The offset of a member of a struct, or of an unnamed struct or union in it; None if it has no such member."""
        return self._offset(self._named[name], member) if name in self._named else None

    def size(self, name: str) -> int | None:
        """The bytes of a struct; None if no struct has that name."""
        return self._types[self._named[name]].size if name in self._named else None

    def path(self, name: str, offset: int) -> str:
        """The member at an offset of a struct, as `f_path.dentry`; `+0x28` between members."""
        return self._path(self._named[name], offset, 0) if name in self._named else f"+{offset:#x}"

    def _word(self, at: int) -> str:
        return self._text[at : self._text.index(b"\0", at)].decode()

    def _plain(self, number: int) -> _Type:
        found = self._types[number]
        while found.kind in _SAME:
            found = self._types[found.size]
        return found

    def _size(self, number: int) -> int:
        found = self._plain(number)
        if found.kind == _ARRAY:
            of, _, count = _TYPE.unpack_from(self._data, found.at)
            return self._size(of) * int(count)
        return 8 if found.kind == _PTR else found.size

    def _members(self, found: _Type) -> Iterator[tuple[str, int, int]]:
        for i in range(found.members):
            name, of, bits = _TYPE.unpack_from(self._data, found.at + 12 * i)
            yield self._word(name), of, (bits & 0xFFFFFF if found.bitfields else bits) // 8

    def _offset(self, number: int, member: str) -> int | None:
        found = self._plain(number)
        if found.kind not in (_STRUCT, _UNION):
            return None
        for name, of, offset in self._members(found):
            if name == member:
                return offset
            if not name and (inner := self._offset(of, member)) is not None:
                return offset + inner
        return None

    def _path(self, number: int, offset: int, depth: int) -> str:
        found = self._plain(number)
        if found.kind == _ARRAY:
            (of,) = struct.unpack_from("<I", self._data, found.at)
            size = self._size(of) or 1
            return f"[{offset // size}]" + _joined("", self._path(of, offset % size, depth + 1))
        if found.kind not in (_STRUCT, _UNION) or depth > _DEEPEST:
            return ""
        for name, of, start in self._members(found):
            if start <= offset < start + max(self._size(of), 1):
                return _joined(name, self._path(of, offset - start, depth + 1))
        return f"+{offset:#x}"


def _joined(name: str, inner: str) -> str:
    if not inner or not name:
        return name + inner
    return name + inner if inner.startswith("[") else f"{name}.{inner}"


def types_of(vmlinux: Path) -> Types | None:
    """The types of an uncompressed kernel; None of one without BTF."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with vmlinux.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".BTF")
            return Types(section.data()) if section else None
    except (ELFError, ValueError, struct.error):
        return None
