"""`lab gc`: deletes, by age and size, files that can be made again, and the consoles of guests.

It never looks at files that a report needs: documents, plans, the raw numbers of every guest, bisections and nights.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
from filelock import FileLock, Timeout

from lab.cli import options
from lab.compare import result_folders
from lab.core import locks, paths, records
from lab.guests import snapshot
from lab.kernels import store

Kind = Literal["kernel", "consoles", "image", "snapshot", "build folder", "blob", "symbols", "leftover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that may be deleted. used: the last time, in seconds since the epoch.

    lock: the lock of its makers and writers. held: the file that its users hold (see `lab.core.locks`).
    """

    path: Path
    kind: Kind
    size: int
    used: float
    lock: Path | None = None
    held: Path | None = None

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Claim it; yields False if another process makes or uses it."""
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
    """Everything that may be deleted."""
    built = (*kernels(), *_images(), *_build_folders())
    return [*built, *_consoles(), *_snapshots(), *_blobs(), *_symbols(), *_leftovers()]


def kernels() -> Iterator[Item]:
    """The kernels of the store, and the leftovers of their builds."""
    for _, folder, used in store.builds():
        yield Item(path=folder, kind="kernel", size=_size(folder), used=used, held=folder / "build.json")
    for folder in store.abandoned():
        yield Item(path=folder, kind="leftover", size=_size(folder), used=0.0)


def _consoles() -> Iterator[Item]:
    """The guests' folders of finished results; an interrupted result's say why it was interrupted."""
    for document in paths.entries(result_folders.results_dir(), "*/result.json"):
        for folder in (document.parent / "guests", *document.parent.glob("*/**/guests")):
            if folder.is_dir():
                used, lock = document.stat().st_mtime, document.parent / ".lock"
                yield Item(path=folder, kind="consoles", size=_size(folder), used=used, lock=lock)


def _images() -> Iterator[Item]:
    """The whole root, its slices, and live mode's forms of it."""
    for record in paths.cache_dir("images").glob("[!.]*/image.json"):
        folder = record.parent
        lock = folder.with_name(f".{folder.name}.lock")
        yield Item(
            path=folder, kind="image", size=_size(folder), used=record.stat().st_mtime, lock=lock, held=record
        )  # fmt: skip


def _snapshots() -> Iterator[Item]:
    """The kept states of guests. One without a record is of a lab that was killed."""
    for folder in snapshot.kept():
        used, held = snapshot.used(folder), folder / snapshot.RECORD
        yield Item(path=folder, kind="snapshot", size=_size(folder), used=used, held=held)


def _build_folders() -> Iterator[Item]:
    """The folders that kernels are built in: one for each configuration of a tree, last the source they share."""
    for tree in paths.cache_dir("work").iterdir():
        source, lock = tree / "src", tree / "src.lock"
        folders = [folder for folder in tree.glob("[!.]*") if folder.is_dir() and folder != source]
        used = {folder: _last_build(folder) for folder in folders}
        if source.is_dir():
            used[source] = max([*used.values(), source.stat().st_mtime])
        for folder, when in used.items():
            yield Item(path=folder, kind="build folder", size=_size(folder), used=when, lock=lock)


def _last_build(folder: Path) -> float:
    """The time of the last build in a build folder: each build writes its configuration first."""
    written = [path for name in ("lab.config", "lab.fragment") if (path := folder / name).is_file()]
    return max(path.stat().st_mtime for path in (folder, *written))


def _blobs() -> Iterator[Item]:
    """A worker's own copies of files of the share."""
    for path in paths.cache_dir("blobs").glob("[!.]*"):
        if path.suffix != ".lock":
            size, used = path.stat().st_size, path.stat().st_mtime
            yield Item(path=path, kind="blob", size=size, used=used, lock=path.with_suffix(".lock"))


def _symbols() -> Iterator[Item]:
    """The functions of kernels, which are quickly read again."""
    for path in paths.cache_dir("symbols").glob("[!.]*.json"):
        yield Item(path=path, kind="symbols", size=_size(path), used=path.stat().st_mtime)


def _leftovers() -> Iterator[Item]:
    """Leftovers of interrupted removals, and of makers of images, copies and records that died."""
    cache = paths.cache_dir()
    removals = ("kernels/.*.old", "images/.*.old", "work/*/.*.old", "blobs/.*.old", "snapshots/.*.old")
    found: list[tuple[Path, Path | None]] = [(path, None) for pattern in removals for path in cache.glob(pattern)]
    found += [(path, path.with_suffix(".lock")) for path in cache.glob("images/.*.partial")]
    copies = [path for path in cache.glob("blobs/.*") if path.suffix != ".old"]
    found += [(path, path.with_name(f"{path.stem.removeprefix('.')}.lock")) for path in copies]
    found += [(path, None) for path in _unfinished_files()]
    for path, lock in found:
        yield Item(path=path, kind="leftover", size=_size(path), used=0.0, lock=lock)


def _unfinished_files() -> Iterator[Path]:
    """Files that a lab was killed in the middle of. No lab writes one for a day."""
    for top in (paths.data_dir(), paths.cache_dir()):
        for folder, _, names in os.walk(top):
            for path in (Path(folder, name) for name in names if records.LEFTOVER.fullmatch(name)):
                with suppress(FileNotFoundError):  # its writer lives, and has just renamed it
                    if time.time() - path.stat().st_mtime > RECENT_S:
                        yield path


def _size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links are not followed."""
    if not path.is_dir():
        return _bytes(str(path))
    return sum(_bytes(f"{top}/{name}") for top, _, names in os.walk(path) for name in names)


def _bytes(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0  # another process works there


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


RECENT_S = 86400.0
"""The age below which everything stays, however little space is left: another lab may be at work with it."""


def choose(items: Sequence[Item], *, older_than_s: float, at_most: int | None, now: float) -> list[Item]:
    """Choose entries that were unused for longer; then, until the rest fits, the longest unused.

    A clock that jumped ahead would make everything old: an item from the future counts as used now.
    """
    aged = sorted(items, key=lambda item: item.used)
    chosen = [item for item in aged if now - item.used > older_than_s]
    left = sum(item.size for item in items) - sum(item.size for item in chosen)
    for item in aged:
        if at_most is None or left <= at_most:
            break
        if item not in chosen and now - item.used > RECENT_S:
            chosen.append(item)
            left -= item.size
    return chosen


def collect(
    everything: Sequence[Item], *, older_than_s: float, at_most: int | None = None, dry_run: bool
) -> tuple[list[Item], list[Item]]:
    """Delete the chosen entries that are not in use; returns these, and the others."""
    deleted = []
    for item in choose(everything, older_than_s=older_than_s, at_most=at_most, now=time.time()):
        with item.claimed() as claimed:
            if claimed:
                deleted.append(item)
            if claimed and not dry_run:
                item.delete()
    return deleted, [item for item in everything if item not in deleted]


def _sizes(found: Sequence[Item]) -> str:
    """The size of all items, and of those of each kind; empty without any."""
    by_kind: dict[str, int] = {}
    for item in found:
        by_kind[item.kind] = by_kind.get(item.kind, 0) + item.size
    kinds = [f"{kind} {size >> 20}" for kind, size in sorted(by_kind.items(), key=lambda each: -each[1])]
    return f"{sum(by_kind.values()) >> 20} MiB ({', '.join(kinds)})" if kinds else ""


class Size(click.ParamType[int]):
    """A size such as `500M` or `20G`."""

    name = "SIZE"
    _UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}  # noqa: RUF012

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", str(value).strip(), re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is not a size; write 500M or 20G", param, ctx)
        return int(float(found[1]) * self._UNITS[found[2].upper()])


@click.command()
@click.option(
    "--older-than", type=options.Duration(), default=30 * 86400.0, help="Files that were unused for this long (30d)."
)
@click.option("--size", type=Size(), help="Then more, the longest unused first, until the rest fits.")
@click.option("--dry-run", is_flag=True, help="Only list these files.")
@options.json_output
def gc(older_than: float, size: int | None, dry_run: bool, as_json: bool) -> None:
    """Delete files that can be made again, or that nothing reads: kernels and the folders they are built in, guest
    images and the states of guests, a worker's copies, and the consoles of guests.

    Results stay, and files in use. --size does not delete files that were used within a day.

    \b
    Example:
      lab gc --older-than 14d --size 20G
    """
    deleted, kept = collect(items(), older_than_s=older_than, at_most=size, dry_run=dry_run)
    left = sum(item.size for item in kept)
    if as_json:
        rows = [{"path": str(item.path), "kind": item.kind, "size": item.size} for item in deleted]
        options.print_json({"schema": "lab.gc/1", "dry_run": dry_run, "removed": rows, "left": left})
        return
    for item in deleted:
        click.echo(f"{'would remove' if dry_run else 'removed'} {item.kind} {item.path} ({item.size >> 10} KiB)")
    nothing = f"nothing: all was used within {older_than / 86400:g} days"
    click.echo(f"{'would free' if dry_run else 'freed'} {_sizes(deleted) or nothing}")
    click.echo(f"{'would keep' if dry_run else 'kept'} {_sizes(kept) or 'nothing that can be made again'}")
    if size is not None and left > size:
        click.echo(f"that is more than {size >> 20} MiB: the rest was used within a day, or is in use", err=True)
