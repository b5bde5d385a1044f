"""The initrd of a guest: the guest image cut down to one workload's needs, with the workload's own files.

It is packed for its workload alone, so a new workload does not change the bytes of any other workload's guest, nor its
numbers. A program needs its interpreter, its loader and its shared libraries.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lab.core import cpio, paths, process, records
from lab.core.errors import BuildFailed, UserError
from lab.core.git import environment
from lab.core.locks import make_once
from lab.core.paths import data_folder
from lab.guests import image
from lab.guests.image import Image
from lab.kernels import architecture, compilers
from lab.kernels.architecture import Architecture
from lab.kernels.compilers import Compiler
from lab.workloads import selection
from lab.workloads.spec import Workload

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

BUSYBOX = "/bin/busybox"

LOADERS = ("ld-linux", "ld-musl")
"""The starts of the names of loaders. A workload that brings one brings the interpreters of its scripts, too."""

# The names of shells; the image has busybox alone, and a workload's `setup` makes the links.
_SHELLS = ("/bin/sh", "/bin/ash", "/usr/bin/sh", "/usr/bin/env")


def pack_initrd(image: tuple[Image, Path], workload: Workload) -> Path:
    """The cpio of all that a workload's guest needs; packed once for the current files."""
    record, folder = image
    own = own_files(workload, record.architecture)
    key = records.digest(
        [workload.image_files, workload.setup, {name: records.file_digest(path) for name, path in own.items()}]
    )
    target = folder / "slices" / f"{workload.name}-{key[:16]}.cpio"
    if not records.is_sealed(target):
        names = _names(image, workload, own)
        target.parent.mkdir(exist_ok=True)
        _pack(target, folder / "root", names, own)
    return target


def init_of(packed: Path) -> Path:
    """The first program of the guests that unpack an initrd."""
    return packed.parent.parent / "root" / "init"


def own_files(workload: Workload, guests: str = architecture.DEFAULT) -> dict[str, Path]:
    """A workload's own files by their path in the guest: with its compiled program, if it is a user's.

    guests: their architecture.
    """
    own = dict(workload.own_files)
    for case in workload.cases:
        if case.file.startswith("/") and not Path(case.file).is_file():
            raise UserError(f"{workload.name}:{case.name}: {case.file} is gone")
    if workload.compiled and not selection.is_shipped(workload):
        own[workload.program] = _compiled(workload, compilers.of_guests(guests))
    for name, path in own.items():
        _require_architecture(workload, name, path, architecture.load(guests))
    return own


def _require_architecture(workload: Workload, name: str, path: Path, guests: Architecture) -> None:
    """Refuse an ELF program of another architecture, which a guest would only say it cannot execute."""
    with path.open("rb") as stream:
        start = stream.read(20)
    if start[:4] == b"\x7fELF" and int.from_bytes(start[18:20], "little") != guests.elf_machine:
        raise UserError(
            f"workload {workload.name}: {name} is a program of another architecture than {guests.name}",
            hint=f"compile it with {guests.compiler} (package {guests.compiler_package})",
        )


def _names(image: tuple[Image, Path], workload: Workload, own: dict[str, Path]) -> set[str]:
    """The names of all files of the image's root that the guest needs."""
    record, folder = image
    files = [name for pattern in workload.image_files for name in _matching(folder / "root", pattern)]
    wanted: dict[str, Path | None] = dict.fromkeys(("/init", *files, *workload.setup[:1]))
    is_started_by_own = any(PurePosixPath(name).name.startswith(LOADERS) for name in own)
    for name, path in own.items():
        if _interpreter(path) in _SHELLS:
            wanted[BUSYBOX] = None
        elif not (is_started_by_own and is_script(path)):
            wanted[name] = path
    try:
        return closure(folder / "root", wanted) - {name.lstrip("/") for name in own}
    except MissingFile as error:
        why = "" if error.name == error.needed_by else f" ({error.needed_by} does)"
        raise UserError(
            f"workload {workload.name} needs {error.name}{why}, which the guest image {record.name} does not have",
            hint=f"the image's files are in {folder / 'root'}",
        ) from error


def _matching(root: Path, pattern: str) -> list[str]:
    """The files of the root that a name with `*` stands for; any other name as it is."""
    if "*" not in pattern:
        return [pattern]
    return sorted(f"/{path.relative_to(root)}" for path in root.glob(pattern.lstrip("/"))) or [pattern]


def _pack(target: Path, root: Path, names: set[str], own: dict[str, Path]) -> None:
    added = {name.lstrip("/"): path for name, path in own.items()}
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("wb") as stream:
            cpio.write(stream, root, names, added)
        partial.replace(target)
        records.seal(target)
    finally:
        partial.unlink(missing_ok=True)


# ---- programs of users


def _compiled(workload: Workload, compiler: Compiler) -> Path:
    """The program that a folder's Makefile makes: `make OUT=... CC=... LAB_INCLUDE=...`; made once for the sources."""
    files = [path for path in sorted(workload.folder.rglob("*")) if path.is_file() and path.name != "workload.toml"]
    sources = {str(path.relative_to(workload.folder)): records.file_digest(path) for path in files}
    key = records.digest([sources, image.shared_sources(), compiler.version, workload.program])
    name = PurePosixPath(workload.program).name
    target = paths.cache_dir("programs") / f"{workload.name}-{key[:16]}"
    make_once(target, lambda partial: _make(workload, compiler, partial, name))
    return target / name


def _make(workload: Workload, compiler: Compiler, partial: Path, name: str) -> None:
    process.find_tool("make", package="make")
    cleared = {"MAKEFLAGS": "", "MAKELEVEL": "", "CFLAGS": "", "LDFLAGS": ""}
    variables = [f"OUT={partial}", f"CC={compiler.command}", f"LAB_INCLUDE={data_folder('workloads') / 'include'}"]
    try:
        process.run(["make", f"--directory={workload.folder}", *variables], env={**environment(), **cleared})
    except process.CommandFailed as error:
        log = paths.cache_dir("logs") / f"{partial.stem.lstrip('.')}.log"
        log.write_text(error.stderr)
        lines = error.stderr.splitlines()
        why = next((line for line in lines if "error:" in line or "Error" in line or "***" in line), error.message)
        raise BuildFailed(f"workload {workload.name} does not compile: {why.strip()}", log=log) from error
    if not (partial / name).is_file():
        raise BuildFailed(
            f"workload {workload.name}: its Makefile made no {name}",
            hint="`make OUT=DIR CC=gcc` must leave the program, called as in workload.toml, in DIR",
        )


# ---- libraries

# The search path of ld.so(8) on Debian. A root that never ran has no /etc/ld.so.cache.
_TRIPLETS = [architecture.load(name).triplet for name in architecture.names()]
_DEFAULT = (
    *(f"{folder}/{triplet}" for triplet in _TRIPLETS for folder in ("/lib", "/usr/lib")),
    *("/lib64", "/usr/lib64", "/lib", "/usr/lib"),
)
_LINKS_MAX = 40


class MissingFile(Exception):
    """A file that a program needs is not in the root."""

    def __init__(self, name: str, needed_by: str) -> None:
        super().__init__(f"{needed_by} needs {name}")
        self.name = name
        self.needed_by = needed_by


def closure(root: Path, names: dict[str, Path | None], search: Sequence[str] = ()) -> set[str]:
    """The named files, and all files of the root that they need, without their leading slashes.

    names: files by their path in the guest; a file that is not in the root with its path on the host. Such files find
    the libraries among them. search: folders in which libraries are looked up first.
    """
    needed: set[str] = set()
    own = {PurePosixPath(name).name for name, path in names.items() if path is not None}
    todo = [(name, path, name) for name, path in names.items()]
    while todo:
        name, path, needed_by = todo.pop()
        if path is None:
            try:
                links, real = follow(root, name)
            except MissingFile as error:
                raise MissingFile(name, needed_by) from error
            needed |= {link.lstrip("/") for link in links}
            if real.lstrip("/") in needed:
                continue
            needed.add(real.lstrip("/"))
            path = root / real.lstrip("/")
            name = real
            if path.is_dir():
                todo += [(f"{real}/{child.name}", None, name) for child in path.iterdir() if not is_script(child)]
                # Modules that can be run as scripts, too: nothing runs them.
                needed |= {f"{real}/{child.name}".lstrip("/") for child in path.iterdir() if is_script(child)}
                continue
        todo += [(other, None, name) for other in _needs(root, name, path, own if names.get(name) else (), search)]
    return needed


def is_script(path: Path) -> bool:
    """True for a file that names its interpreter."""
    return not path.is_symlink() and path.is_file() and _interpreter(path) is not None


def _interpreter(path: Path) -> str | None:
    """The program that a script's first line names; None for a file that is not a script."""
    with path.open("rb") as stream:
        start = stream.read(256)
    if not start.startswith(b"#!"):
        return None
    argv = start[2:].partition(b"\n")[0].split()
    return argv[0].decode(errors="replace") if argv else "/"


def follow(root: Path, name: str) -> tuple[list[str], str]:
    """The links on the way to a file of the root, and its real name there; `MissingFile` if a link leads nowhere."""
    links: list[str] = []
    at, todo = PurePosixPath("/"), [part for part in PurePosixPath(name).parts if part != "/"]
    while todo:
        part = todo.pop(0)
        at = at.parent if part == ".." else at / part
        here = root / str(at).lstrip("/")
        if here.is_symlink():
            links.append(str(at))
            if len(links) > _LINKS_MAX:
                raise MissingFile(name, "a circle of links")
            target = PurePosixPath(here.readlink())
            at = PurePosixPath("/") if target.is_absolute() else at.parent
            todo = [part for part in target.parts if part != "/"] + todo
        elif not here.exists():
            raise MissingFile(name, str(at))
    return links, str(at)


def _needs(root: Path, name: str, path: Path, own: Container[str], search: Sequence[str]) -> Iterator[str]:
    """The files of the root that a file needs directly: a script its interpreter, a program its loader and libraries.

    own: the names of libraries that need not be there.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    if not path.is_file():
        return
    if (started_by := _interpreter(path)) is not None:
        yield started_by
    with path.open("rb") as stream:
        if stream.read(4) != b"\x7fELF":
            return
        try:
            elf = ELFFile(stream)
            for segment in elf.iter_segments():
                if isinstance(segment, InterpSegment):
                    yield segment.get_interp_name()
            yield from _libraries(root, name, elf, own, search)
        except (ELFError, ValueError) as error:
            raise UserError(f"{path} is not a readable ELF file: {error}") from error


def _libraries(root: Path, name: str, elf: ELFFile, own: Container[str], search: Sequence[str]) -> Iterator[str]:
    from elftools.elf.dynamic import DynamicSection

    dynamic = next((section for section in elf.iter_sections() if isinstance(section, DynamicSection)), None)
    if dynamic is None:
        return
    tags = list(dynamic.iter_tags())
    run_paths = [tag for tag in tags if tag.entry.d_tag in ("DT_RUNPATH", "DT_RPATH")]
    folders = [folder for tag in run_paths for folder in _search_path(tag, name)]
    for tag in tags:
        if tag.entry.d_tag == "DT_NEEDED" and (library := getattr(tag, "needed")) not in own:  # noqa: B009
            yield _find(root, library, [*search, *folders, *_DEFAULT], name)


def _search_path(tag: object, name: str) -> list[str]:
    text = str(getattr(tag, "runpath", None) or getattr(tag, "rpath", ""))
    origin = str(PurePosixPath(name).parent)
    return [folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for folder in text.split(":") if folder]


def _find(root: Path, library: str, folders: list[str], needed_by: str) -> str:
    for folder in [""] if "/" in library else folders:
        path = str(PurePosixPath(folder) / library)
        try:
            follow(root, path)
        except MissingFile:
            continue
        return path
    raise MissingFile(library, needed_by)


def run_inside(root: Path, program: str, arguments: Sequence[str]) -> str:
    """The output of a dynamic program of the root, run on the host with the root's own loader and libraries."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    path = root / follow(root, program)[1].lstrip("/")
    with path.open("rb") as stream:
        loader = next(s.get_interp_name() for s in ELFFile(stream).iter_segments() if isinstance(s, InterpSegment))
    own_loader = root / follow(root, loader)[1].lstrip("/")
    folders = ":".join(str(root / folder.lstrip("/")) for folder in _DEFAULT)
    return process.run([own_loader, "--library-path", folders, path, *arguments], timeout_s=20).decode(errors="replace")
