"""The store of finished kernels, by the hash of all their inputs.

A kernel is a folder with a `build.json`. Folders are filled elsewhere and renamed into place, so all are whole. A
second index maps requests (before kconfig is resolved) to keys, so that a hit runs nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from lab.core import locks, paths, process, records
from lab.core.errors import BuildFailed
from lab.core.records import Record
from lab.kernels import architecture

logger = logging.getLogger(__name__)


class BuildInputs(Record, frozen=True, kw_only=True):
    """All inputs of a build; their digest is the key."""

    tree_id: str
    kconfig_sha256: str
    compiler: str
    linker: str
    make: list[str]
    layout: int = 1


class Build(Record, frozen=True, kw_only=True):
    """A finished kernel: `build.json`, written by the Ansible role."""

    schema: int = 1
    key: str
    inputs: BuildInputs
    spec: str
    commit: str
    tree: str
    subject: str
    compiler_command: str
    release: str
    files: dict[str, str]


def kernels_dir() -> Path:
    return paths.cache_dir("kernels")


def key_of(inputs: BuildInputs) -> str:
    return records.digest(inputs)


def folder_of(key: str) -> Path:
    """The folder of a kernel, built or not."""
    return kernels_dir() / key[:24]


def find(key: str) -> Build | None:
    """A finished kernel by key; None also if one of its files is damaged or gone, so that it is made again."""
    path = folder_of(key) / "build.json"
    if (build := records.find(path, Build)) is None:
        return None
    if not _boots(build):
        logger.warning("%s has no image of a kernel", path.parent)
        return None
    damaged = [name for name, digest in build.files.items() if not _is_whole(path.with_name(name), digest)]
    if damaged:
        logger.warning("%s changed since it was built", path.with_name(damaged[0]))
    return None if damaged else build


def _boots(build: Build) -> bool:
    """True if its build left the image that a boot loader takes."""
    return any(architecture.load(name).packed in build.files for name in architecture.names())


def _is_whole(path: Path, digest: str) -> bool:
    try:
        return records.file_digest(path) == digest
    except OSError:
        return False


def staging(*, variable: str = "", value: str = "") -> AbstractContextManager[Path]:
    """A new folder on the store's file system, to be filled and passed to `adopt`; `process.scratch` has the values."""
    prefix = f".staging-{os.getpid()}-"
    return process.scratch(prefix, kernels_dir(), variable=variable, value=value, mode=0o777)


def adopt(staging: Path, key: str) -> Build:
    """Move a filled staging folder into the store. If another process finished the same key first, its folder stays.

    Raises `BuildFailed` if it has no image: nothing would build the kernel again.
    """
    build = records.load(staging / "build.json", Build)
    if not _boots(build):
        raise BuildFailed(f"the build of {build.spec} left {', '.join(sorted(build.files))}, and no image of a kernel")
    records.save(staging / "build.json", build)  # sealed
    for path in (*staging.iterdir(), staging):
        _sync(path)
    if (existing := find(key)) is not None:
        shutil.rmtree(staging, ignore_errors=True)
        return existing
    # A folder without a record is left from a removal that was interrupted.
    shutil.rmtree(folder_of(key), ignore_errors=True)
    try:
        staging.rename(folder_of(key))
    except OSError:
        if (existing := find(key)) is None:
            raise
        shutil.rmtree(staging, ignore_errors=True)
        return existing
    return build


def _sync(path: Path) -> None:
    """Have a file or a folder on the disk, before a name says that it is whole."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _request_path(request: str) -> Path:
    return paths.cache_dir("requests") / f"{request[:24]}.json"


def find_request(request: str) -> Build | None:
    """The kernel of an earlier identical request, if it is still there."""
    key = records.find(_request_path(request), str)
    return None if key is None else find(key)


def remember_request(request: str, key: str) -> None:
    records.save(_request_path(request), key)


def builds() -> Iterator[tuple[Build, Path, float]]:
    """All finished kernels: record, folder, time of last use (seconds since the epoch)."""
    files = paths.entries(kernels_dir(), "[!.]*/build.json")
    for path, build in records.load_each(files, Build):
        yield build, path.parent, path.stat().st_mtime


def hold(build: Build) -> bool:
    """Mark a kernel as used now, and as in use until this process ends; False if it was just removed."""
    return locks.hold(folder_of(build.key) / "build.json")


def abandoned() -> list[Path]:
    """Leftovers of builds that were killed."""
    folders = kernels_dir().glob(".staging-*")
    return [folder for folder in folders if not Path(f"/proc/{folder.name.split('-')[1]}").exists()]
