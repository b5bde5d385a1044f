"""Types of a kernel by its BTF (Documentation/bpf/btf.rst): the place of a member, and the member at a place."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


def of_kernel(vmlinux: Path) -> Types | None:
    """The types of an uncompressed kernel; None of one without BTF."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with vmlinux.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".BTF")
            return Types(section.data()) if section else None
    except (ELFError, ValueError, struct.error):
        return None
