"""Slices: the guest image cut down to what one workload needs, with the workload's own files and program.

Exact mode boots a slice. It is packed for its workload alone, so a workload that is added leaves the bytes of
every other workload's guest, and hence its numbers, as they were.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path, PurePosixPath

from filelock import FileLock

from lab import compilers, images, libraries, workloads
from lab.compilers import Compiler
from lab.core import cpio, paths, process, records
from lab.core.errors import BuildFailed, UserError
from lab.core.git import environment
from lab.core.paths import room
from lab.images import Image
from lab.workload import Workload

# Where a shell's names are when the image has no shell but busybox; a workload's `setup` makes the links.
_BUSYBOX = "/bin/busybox"
_SHELLS = ("/bin/sh", "/bin/ash", "/usr/bin/env")


def slice_for(image: tuple[Image, Path], workload: Workload) -> Path:
    """The cpio of what one workload's guest needs; packed once for the files as they are."""
    _, folder = image
    own = own_files(workload)
    key = records.digest(
        [workload.image_files, workload.setup, {name: records.file_digest(path) for name, path in own.items()}]
    )
    target = folder / "slices" / f"{workload.name}-{key[:16]}.cpio"
    if not target.exists():
        names = _names(image, workload, own)
        target.parent.mkdir(exist_ok=True)
        _pack(target, folder / "root", names, own)
    return target


def own_files(workload: Workload) -> dict[str, Path]:
    """What a workload brings along, by its place in the guest: its files, and a user's compiled program."""
    own = dict(workload.own_files)
    for case in workload.cases:
        if case.file.startswith("/") and not Path(case.file).is_file():
            raise UserError(f"{workload.name}:{case.name}: {case.file} is gone")
    if workload.compiled and not workloads.is_shipped(workload):
        own[workload.program] = compiled(workload)
    return own


def _names(image: tuple[Image, Path], workload: Workload, own: dict[str, Path]) -> set[str]:
    """Everything that comes from the image's root."""
    record, folder = image
    wanted: dict[str, Path | None] = dict.fromkeys(("/init", *workload.image_files, *workload.setup[:1]))
    wanted |= {name: path for name, path in own.items() if not _is_script_of_busybox(path)}
    if any(map(_is_script_of_busybox, own.values())):
        wanted[_BUSYBOX] = None
    try:
        return libraries.closure(folder / "root", wanted) - {name.lstrip("/") for name in own}
    except libraries.Missing as error:
        by = "" if error.name == error.needed_by else f" ({error.needed_by} does)"
        raise UserError(
            f"workload {workload.name} needs {error.name}{by}, which the guest image {record.name} does not have",
            hint=f"what is in the image: {folder / 'root'}",
        ) from error


def _is_script_of_busybox(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(256)
    return start.startswith(b"#!") and libraries.interpreter(start) in _SHELLS


def _pack(target: Path, root: Path, names: set[str], own: dict[str, Path]) -> None:
    added = {name.lstrip("/"): path for name, path in own.items()}
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("wb") as stream:
            cpio.write(stream, root, names, added)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


# --- programs of a user's own ---


def compiled(workload: Workload, compiler: Compiler | None = None) -> Path:
    """The program that a folder's Makefile makes: `make OUT=... CC=... LAB_INCLUDE=...`; made once for the sources."""
    compiler = compiler or compilers.identify()
    name = PurePosixPath(workload.program).name
    target = paths.cache_dir("programs") / f"{workload.name}-{_sources_key(workload, compiler)[:16]}"
    if not (target / name).is_file():
        with FileLock(target.with_suffix(".lock")):
            if not (target / name).is_file():
                _make(workload, compiler, target, name)
    return target / name


def _sources_key(workload: Workload, compiler: Compiler) -> str:
    files = [path for path in sorted(workload.folder.rglob("*")) if path.is_file() and path.name != "workload.toml"]
    sources = {str(path.relative_to(workload.folder)): records.file_digest(path) for path in files}
    return records.digest([sources, images.shared_sources(), compiler.version, workload.program])


def _make(workload: Workload, compiler: Compiler, target: Path, name: str) -> None:
    process.find_tool("make", package="make")
    log = paths.cache_dir("logs") / f"{target.name}.log"
    cleared = {"MAKEFLAGS": "", "MAKELEVEL": "", "CFLAGS": "", "LDFLAGS": ""}
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    variables = [f"OUT={partial}", f"CC={compiler.command}", f"LAB_INCLUDE={room('workloads') / 'include'}"]
    partial.mkdir()
    try:
        process.run(["make", f"--directory={workload.folder}", *variables], env={**environment(), **cleared})
    except process.CommandFailed as error:
        log.write_text(error.stderr)
        lines = error.stderr.splitlines()
        what = next((line for line in lines if "error:" in line or "Error" in line or "***" in line), error.message)
        raise BuildFailed(f"workload {workload.name} does not compile: {what.strip()}", log=log) from error
    if not (partial / name).is_file():
        raise BuildFailed(
            f"workload {workload.name}: its Makefile made no {name}",
            hint="`make OUT=DIR CC=gcc` must leave the program, called as in workload.toml, in DIR",
        )
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
