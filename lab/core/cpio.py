"""Reproducible cpio archives ("newc", which the kernel unpacks): the bytes depend on the contents alone.

Names are sorted, owners are root, times are zero and inodes are counted. The kernel documents the format in
Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO


def entry(name: str, mode: int, content: bytes = b"", *, inode: int = 0) -> bytes:
    """One archive member: header, name and content, each padded to four bytes."""
    encoded = os.fsencode(name) + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + encoded) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def trailer() -> bytes:
    """The member that ends an archive; another archive may follow it."""
    return entry("TRAILER!!!", 0)


def write(stream: BinaryIO, root: Path, names: Iterable[str], added: Mapping[str, Path] = MappingProxyType({})) -> None:
    """Pack the named files, links and folders of a root, with the folders that lead to them.

    added: files from elsewhere, by their names in the archive; everybody may read and run them.
    Device nodes, sockets and pipes are left out: the guest's devtmpfs makes its own.
    """
    made = {str(parent) for name in added for parent in Path(name).parents}
    members = {*names, *added}
    members |= {str(parent) for name in members for parent in Path(name).parents} - {"."}
    for inode, name in enumerate(sorted(members), start=1):
        path = root / name
        if name in added:
            stream.write(entry(name, stat.S_IFREG | 0o555, added[name].read_bytes(), inode=inode))
            continue
        mode = stat.S_IFDIR if name in made and not path.exists() else path.lstat().st_mode
        if stat.S_ISLNK(mode):
            stream.write(entry(name, stat.S_IFLNK | 0o777, os.fsencode(path.readlink()), inode=inode))
        elif stat.S_ISDIR(mode):
            stream.write(entry(name, stat.S_IFDIR | stat.S_IMODE(mode) | 0o755, inode=inode))
        elif stat.S_ISREG(mode):
            stream.write(entry(name, mode, path.read_bytes(), inode=inode))
    stream.write(trailer())


def everything_in(root: Path) -> Iterator[str]:
    """The names of all files and folders below a root, relative to it."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield str((Path(folder) / name).relative_to(root))
