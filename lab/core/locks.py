"""What is in use: who works with something of the cache holds the file that stands for it until its process ends.

Any number of processes may hold it at once, and none of them waits: the lock (flock) is a shared one. Only `lab gc`
wants it for itself, and leaves alone what it does not get. A process that is killed holds nothing any more.

Folders that are there whole or not at all, and are made once however many labs want them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from filelock import FileLock, Timeout

_MOST = 256
"""Files that one process holds; of more, those it asked for last. A process may have 1,024 open, mostly."""

_held: OrderedDict[tuple[int, int], int] = OrderedDict()
_guard = Lock()


def hold(path: Path) -> bool:
    """Hold a file from now on, and mark it as used now; False where it is gone, or just went."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    known = _identity(os.fstat(descriptor))
    with _guard:
        if known in _held:
            os.close(descriptor)
            _held.move_to_end(known)
        elif _is_ours(path, descriptor):
            _held[known] = descriptor
            if len(_held) > _MOST:
                os.close(_held.popitem(last=False)[1])
        else:
            os.close(descriptor)
            return False
    path.touch()
    return True


def _is_ours(path: Path, descriptor: int) -> bool:
    """Whether the file that was locked has its name yet: it may have lost it while the lock was waited for."""
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        return _identity(path.stat()) == _identity(os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


@contextmanager
def unheld(path: Path) -> Iterator[bool]:
    """Whether nobody holds a file, which then nobody does as long as this lasts. What is gone is held by nobody."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


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
