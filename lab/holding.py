"""What is in use: who works with something of the cache holds the file that stands for it until its process ends.

Any number of processes may hold it at once, and none of them waits: the lock (flock) is a shared one. Only `lab gc`
wants it for itself, and leaves alone what it does not get. A process that is killed holds nothing any more.
"""

from __future__ import annotations

import fcntl
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

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
