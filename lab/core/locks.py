"""File locks: entries of the cache that processes use, and folders that one process makes for all.

A process that uses an entry holds the file that stands for it, by a shared flock, until it ends or is killed. So
any number of processes may use an entry at once, and none of them waits. Only `lab gc` locks exclusively, and
leaves alone files that are in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from filelock import FileLock, Timeout

from lab.core.errors import UserError
from lab.core.progress import QUIET, Progress

_MOST = 256
"""Files that one process holds, those that it requested last. The usual limit of open files is 1,024."""

_held: OrderedDict[tuple[int, int], int] = OrderedDict()
_guard = Lock()


def hold(path: Path) -> bool:
    """Hold a file until this process ends, and mark it as used now; False if it is gone, or just went."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    identity = _identity(os.fstat(descriptor))
    with _guard:
        if identity in _held:
            os.close(descriptor)
            _held.move_to_end(identity)
        elif _lock_shared(path, descriptor):
            _held[identity] = descriptor
            if len(_held) > _MOST:
                os.close(_held.popitem(last=False)[1])
        else:
            os.close(descriptor)
            return False
    with suppress(OSError):  # a store that another user owns can be read
        path.touch()
    return True


def _lock_shared(path: Path, descriptor: int) -> bool:
    """Lock a file; False if `lab gc` removed it while this process waited."""
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        return _identity(path.stat()) == _identity(os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


@contextmanager
def unheld(path: Path) -> Iterator[bool]:
    """Try to lock a file exclusively; yields False if another process holds it. No process holds a removed file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield True
        return
    locked = False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        yield locked
    finally:
        os.close(descriptor)


def make_once(target: Path, make: Callable[[Path], object], *, progress: Progress = QUIET) -> bool:
    """Let `make` fill a folder, then give it its name; False when it was there already.

    Other processes wait for the result. The lock ends with its process, so a half-made folder under the lock belongs to
    a dead process, and is removed.
    """
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    waiting = f"another lab is making {target.name}: waiting for it"
    with file_lock(target.with_name(f".{target.name}.lock"), waiting, progress):
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
def alone(path: Path, message: str, hint: str) -> Iterator[None]:
    """Hold a file's lock; `UserError` with that message if another process holds it."""
    try:
        held = FileLock(path).acquire(timeout=0)
    except Timeout:
        raise UserError(message, hint=hint) from None
    with held:
        yield


def file_lock(path: Path, waiting: str, progress: Progress) -> FileLock:
    """An exclusive lock on a file. waiting: a line to log if another process holds it."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
        lock.release()
    except Timeout:
        progress.log_once(waiting)
    return lock
