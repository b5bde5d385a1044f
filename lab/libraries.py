"""What a program needs beside itself to be started: its interpreter, and the shared libraries behind it.

All paths are those inside a root that is a plain folder here, so links are followed within it. The search is
that of ld.so(8) on Debian, without /etc/ld.so.cache, which a root that never ran has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lab.core import process

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_DEFAULT = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_LINKS_MAX = 40


class Missing(Exception):
    """Something that a program needs is not in the root."""

    def __init__(self, name: str, needed_by: str) -> None:
        super().__init__(f"{needed_by} needs {name}")
        self.name = name
        self.needed_by = needed_by


def closure(root: Path, names: dict[str, Path | None]) -> set[str]:
    """Names, without their leading slash, of everything in the root that the named files need, with themselves.

    names: each file by its path in the guest; where it does not come from the root, with its place here.
    """
    found: set[str] = set()
    todo = [(name, place, name) for name, place in names.items()]
    while todo:
        name, place, needed_by = todo.pop()
        if place is None:
            try:
                links, real = follow(root, name)
            except Missing as error:
                raise Missing(name, needed_by) from error
            found |= {link.lstrip("/") for link in links}
            if real.lstrip("/") in found:
                continue
            found.add(real.lstrip("/"))
            place = root / real.lstrip("/")
            name = real
        todo += [(needed, None, name) for needed in _needs(root, name, place)]
    return found


def follow(root: Path, name: str) -> tuple[list[str], str]:
    """The links on the way to a file of the root, and its real name there; `Missing` when it leads nowhere."""
    links: list[str] = []
    at, todo = PurePosixPath("/"), [part for part in PurePosixPath(name).parts if part != "/"]
    while todo:
        part = todo.pop(0)
        at = at.parent if part == ".." else at / part
        here = root / str(at).lstrip("/")
        if here.is_symlink():
            links.append(str(at))
            if len(links) > _LINKS_MAX:
                raise Missing(name, "a circle of links")
            target = PurePosixPath(here.readlink())
            at = PurePosixPath("/") if target.is_absolute() else at.parent
            todo = [part for part in target.parts if part != "/"] + todo
        elif not here.exists():
            raise Missing(name, str(at))
    return links, str(at)


def _needs(root: Path, name: str, place: Path) -> Iterator[str]:
    """What one file needs directly: a script its interpreter, a program its loader and libraries."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    if not place.is_file():
        return
    with place.open("rb") as stream:
        start = stream.read(256)
        if start.startswith(b"#!"):
            yield interpreter(start)
        if not start.startswith(b"\x7fELF"):
            return
        try:
            elf = ELFFile(stream)
            for segment in elf.iter_segments():
                if isinstance(segment, InterpSegment):
                    yield segment.get_interp_name()
            yield from _libraries(root, name, elf)
        except ELFError as error:
            raise Missing(f"nothing that can be read ({error})", name) from error


def interpreter(start: bytes) -> str:
    """The program that a script's first line names."""
    words = start[2:].partition(b"\n")[0].split()
    return words[0].decode(errors="replace") if words else "/"


def _libraries(root: Path, name: str, elf: ELFFile) -> Iterator[str]:
    from elftools.elf.dynamic import DynamicSection

    dynamic = next((section for section in elf.iter_sections() if isinstance(section, DynamicSection)), None)
    if dynamic is None:
        return
    tags = list(dynamic.iter_tags())
    folders = [folder for tag in tags if tag.entry.d_tag in ("DT_RUNPATH", "DT_RPATH") for folder in _path(tag, name)]
    for tag in tags:
        if tag.entry.d_tag == "DT_NEEDED":
            yield _find(root, getattr(tag, "needed"), [*folders, *_DEFAULT], name)  # noqa: B009


def _path(tag: object, name: str) -> list[str]:
    text = str(getattr(tag, "runpath", None) or getattr(tag, "rpath", ""))
    origin = str(PurePosixPath(name).parent)
    return [folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for folder in text.split(":") if folder]


def _find(root: Path, library: str, folders: list[str], needed_by: str) -> str:
    for folder in [""] if "/" in library else folders:
        path = str(PurePosixPath(folder) / library)
        try:
            follow(root, path)
        except Missing:
            continue
        return path
    raise Missing(library, needed_by)


def run_inside(root: Path, program: str, arguments: Sequence[str]) -> str:
    """What a dynamic program of the root prints when it is run here, with the root's own loader and libraries."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    place = root / follow(root, program)[1].lstrip("/")
    with place.open("rb") as stream:
        loader = next(s.get_interp_name() for s in ELFFile(stream).iter_segments() if isinstance(s, InterpSegment))
    ours = root / follow(root, loader)[1].lstrip("/")
    folders = ":".join(str(root / folder.lstrip("/")) for folder in _DEFAULT)
    return process.run([ours, "--library-path", folders, place, *arguments], timeout_s=20).decode(errors="replace")
