"""Folders that are there whole or not at all, and are made once however many labs want them."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)

#: Told what is going on and, where that can be known, how much of it is done (0 to 1).
Progress = Callable[[str, float | None], None]


def quiet(message: str, share: float | None = None) -> None:
    """The progress of somebody who did not ask: the debug log."""
    logger.debug("%s %s", message, share)


def make_once(target: Path, make: Callable[[Path], None], *, progress: Progress = quiet) -> bool:
    """Let `make` fill a folder, then give it its name; False when it was there already.

    A lock makes the others wait for the first one's result. Because the lock goes with the process that
    holds it, a half-made folder found under the lock belongs to a process that died, and is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with _locked(target.with_name(f".{target.name}.lock"), progress):
        if target.exists():
            return False
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        try:
            make(partial)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return True


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock; say so first if that means to wait."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"another lab is making {path.name.strip('.').removesuffix('.lock')}: waiting for it", None)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
