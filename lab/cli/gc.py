"""What `lab gc` may delete, kind by kind: where it is, when it was used last, and what says that it is in use.

`lab gc`: what may be deleted is, by age and size: what can be made again, and what guests said on their consoles.

Never what a report needs: documents, plans, the raw numbers of every guest, bisections and nights are not looked at.

`lab gc`.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
from filelock import FileLock, Timeout

from lab.cli import options
from lab.compare import results
from lab.core import locks, paths, records
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


RECENT_S = 86400.0
"""What was used within a day stays, however little room there is: somebody may be at work with it."""


def choose(found: Sequence[Item], *, older_than_s: float, at_most: int | None, now: float) -> list[Item]:
    """What goes: whatever was unused for longer; then, until what is left fits, what was unused for longest.

    A clock that jumped ahead would make everything old: what seems to come from the future counts as used now.
    """
    aged = sorted(found, key=lambda item: item.used)
    chosen = [item for item in aged if now - item.used > older_than_s]
    left = sum(item.size for item in found) - sum(item.size for item in chosen)
    for item in aged:
        if at_most is None or left <= at_most:
            break
        if item not in chosen and now - item.used > RECENT_S:
            chosen.append(item)
            left -= item.size
    return chosen


def collect(*, older_than_s: float, at_most: int | None, dry_run: bool) -> tuple[list[Item], int]:
    """Delete what may go and nobody works with; it, and the bytes that are left."""
    found = items()
    gone = []
    for item in choose(found, older_than_s=older_than_s, at_most=at_most, now=time.time()):
        with item.claimed() as ours:
            if ours:
                gone.append(item)
            if ours and not dry_run:
                item.delete()
    if not dry_run:
        store.collect_garbage(float("inf"), dry_run=False)  # leftovers of builds that were killed
    return gone, sum(item.size for item in found) - sum(item.size for item in gone)


class Size(click.ParamType[int]):
    """A size such as `500M` or `20G`."""

    name = "SIZE"
    _UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}  # noqa: RUF012

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The size in bytes."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", str(value).strip(), re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is not a size; write 500M or 20G", param, ctx)
        return int(float(found[1]) * self._UNITS[found[2].upper()])


@click.command()
@click.option(
    "--older-than", type=options.Duration(), default=30 * 86400.0, help="What was unused for this long (30d)."
)
@click.option("--size", type=Size(), help="Then more, the longest unused first, until what is left fits.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@options.json_output
def gc(older_than: float, size: int | None, dry_run: bool, as_json: bool) -> None:
    """Delete what can be made again, or nobody reads any more: kernels and the folders they are built in, guest
    images, a worker's copies, and the consoles of guests.

    Never what a report needs, what somebody works with at the moment, or, to make room, what was used within a day.
    Results stay.

    \b
    Example:
      lab gc --older-than 14d --size 20G
    """
    gone, left = collect(older_than_s=older_than, at_most=size, dry_run=dry_run)
    if as_json:
        rows = [{"path": str(item.path), "kind": item.kind, "size": item.size} for item in gone]
        document = {"schema": "lab.gc/1", "dry_run": dry_run, "removed": rows, "left": left}
        click.echo(records.encode(document), nl=False)
        return
    for item in gone:
        click.echo(f"{'would remove' if dry_run else 'removed'} {item.kind} {item.path} ({item.size >> 10} KiB)")
    freed = sum(item.size for item in gone)
    click.echo(f"{freed >> 20} MiB {'would be ' if dry_run else ''}free, {left >> 20} MiB left")
    if size is not None and left > size:
        click.echo(f"that is more than {size >> 20} MiB: the rest was used within a day, or is in use", err=True)
