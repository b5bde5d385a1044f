"""What may be deleted: kernels, which can be built again, and what guests said on their consoles.

Never what a report needs: documents, plans, the raw numbers of every guest, bisections and nights are not looked at.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from lab import results, store

RECENT_S = 86400.0
"""What was used within a day stays, however little room there is: somebody may be at work with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that could go. used: when it last was, in seconds since the epoch."""

    path: Path
    kind: Literal["kernel", "consoles"]
    size: int
    used: float


def items() -> list[Item]:
    """Everything that could go."""
    return [*_kernels(), *_consoles()]


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
    """Delete what may go; it, and the bytes that are left."""
    found = items()
    chosen = choose(found, older_than_s=older_than_s, at_most=at_most, now=time.time())
    gone = [item for item in chosen if dry_run or _delete(item)]
    if not dry_run:
        store.collect_garbage(float("inf"), dry_run=False)  # leftovers of builds that were killed
    return gone, sum(item.size for item in found) - sum(item.size for item in gone)


def _kernels() -> Iterator[Item]:
    for _, folder, used in store.builds():
        yield Item(path=folder, kind="kernel", size=_size(folder), used=used)


def _consoles() -> Iterator[Item]:
    """Of finished results alone: those of an interrupted one say why it was."""
    for document in results.results_dir().glob("*/result.json"):
        for folder in (document.parent / "guests", *document.parent.glob("*/**/guests")):
            if folder.is_dir():
                used = document.stat().st_mtime
                yield Item(path=folder, kind="consoles", size=_size(folder), used=used)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _delete(item: Item) -> bool:
    """Whether it could be: a result that somebody writes to is left alone."""
    if item.kind == "kernel":
        # build.json first: an interrupted removal leaves nothing that looks finished.
        (item.path / "build.json").unlink(missing_ok=True)
        shutil.rmtree(item.path, ignore_errors=True)
        return True
    relative = item.path.relative_to(results.results_dir())
    lock = FileLock(results.results_dir() / relative.parts[0] / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        shutil.rmtree(item.path, ignore_errors=True)
    finally:
        lock.release()
    return True
