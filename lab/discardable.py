"""What `lab gc` may delete, kind by kind: where it is, when it was used last, and what says that it is in use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from lab.compare import results
from lab.core import locks, paths
from lab.kernels import store

Kind = Literal["kernel", "consoles", "image", "build folder", "blob", "leftover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that could go. used: when it last was, in seconds since the epoch.

    lock: who makes it, or writes to it, has this one. held: who uses it holds this file (see `lab.core.locks`).
    """

    path: Path
    kind: Kind
    size: int
    used: float
    lock: Path | None = None
    held: Path | None = None

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Whether nobody is at work with it, which then nobody is as long as this lasts."""
        with ExitStack() as stack:
            if self.lock is not None:
                try:
                    stack.enter_context(FileLock(self.lock).acquire(timeout=0))
                except (Timeout, FileNotFoundError):
                    yield False
                    return
            free = stack.enter_context(locks.unheld(self.held)) if self.held is not None else True
            yield free and self.path.exists()

    def delete(self) -> None:
        """Delete it. It loses its name first: an interrupted removal leaves nothing that looks whole."""
        condemned = self.path
        if self.kind != "leftover":
            condemned = self.path.with_name(f".{self.path.name}.old")
            _remove(condemned)
            self.path.rename(condemned)
        _remove(condemned)


def items() -> list[Item]:
    """Everything that could go."""
    return [*_kernels(), *_consoles(), *_images(), *_build_folders(), *_blobs(), *_leftovers()]


def _kernels() -> Iterator[Item]:
    for _, folder, used in store.builds():
        yield Item(path=folder, kind="kernel", size=_size(folder), used=used, held=folder / "build.json")


def _consoles() -> Iterator[Item]:
    """Of finished results alone: those of an interrupted one say why it was."""
    for document in results.results_dir().glob("*/result.json"):
        for folder in (document.parent / "guests", *document.parent.glob("*/**/guests")):
            if folder.is_dir():
                used, lock = document.stat().st_mtime, document.parent / ".lock"
                yield Item(path=folder, kind="consoles", size=_size(folder), used=used, lock=lock)


def _images() -> Iterator[Item]:
    """The whole root, its slices, and what live mode made of it."""
    for record in paths.cache_dir("images").glob("[!.]*/image.json"):
        folder = record.parent
        lock = folder.with_name(f".{folder.name}.lock")
        yield Item(
            path=folder, kind="image", size=_size(folder), used=record.stat().st_mtime, lock=lock, held=record
        )  # fmt: skip


def _build_folders() -> Iterator[Item]:
    """Where kernels are made: a folder for each configuration of a tree, and last the source that they share."""
    for tree in paths.cache_dir("work").iterdir():
        source, lock = tree / "src", tree / "src.lock"
        folders = [folder for folder in tree.glob("[!.]*") if folder.is_dir() and folder != source]
        used = {folder: _last_build(folder) for folder in folders}
        if source.is_dir():
            used[source] = max([*used.values(), source.stat().st_mtime])
        for folder, when in used.items():
            yield Item(path=folder, kind="build folder", size=_size(folder), used=when, lock=lock)


def _last_build(folder: Path) -> float:
    """When a kernel was last made there: what was asked for is written down before."""
    asked = [path for name in ("lab.config", "lab.fragment") if (path := folder / name).is_file()]
    return max(path.stat().st_mtime for path in (folder, *asked))


def _blobs() -> Iterator[Item]:
    """A worker's own copies of files of the share."""
    for path in paths.cache_dir("blobs").glob("[!.]*"):
        if path.suffix != ".lock":
            found = path.stat()
            yield Item(
                path=path, kind="blob", size=found.st_size, used=found.st_mtime, lock=path.with_suffix(".lock")
            )  # fmt: skip


def _leftovers() -> Iterator[Item]:
    """Of removals that were interrupted, and of images and copies whose makers died."""
    cache = paths.cache_dir()
    for pattern in ("kernels/.*.old", "images/.*.old", "work/*/.*.old", "blobs/.*.old"):
        for path in cache.glob(pattern):
            yield Item(path=path, kind="leftover", size=_size(path), used=0.0)
    for path in cache.glob("images/.*.partial"):
        yield Item(path=path, kind="leftover", size=_size(path), used=0.0, lock=path.with_suffix(".lock"))
    for path in cache.glob("blobs/.*"):
        if path.suffix != ".old":
            lock = path.with_name(f"{path.stem.removeprefix('.')}.lock")
            yield Item(path=path, kind="leftover", size=_size(path), used=0.0, lock=lock)


def _size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are not followed."""
    if not path.is_dir():
        return _bytes(str(path))
    return sum(_bytes(f"{top}/{name}") for top, _, names in os.walk(path) for name in names)


def _bytes(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0  # somebody works there


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
