"""Whether there is room on a disk. A full one is nobody's doing: not a kernel's, whose words it swallows."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.core.errors import DiskFull

LEAST = 1 << 20
"""Bytes. Where less is free, what a guest wrote last may be missing."""

_HINT = "free some, e.g. with `lab gc`; then repeat"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around writing a file: a full disk is said to be one."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"no disk space left to write {path}", hint=_HINT) from error
        raise


def require(folder: Path, least: int = LEAST, what: str = "writing there") -> None:
    """Refuse to go on, or to believe what happened, where there is less room than that."""
    free = shutil.disk_usage(folder).free
    if free < least:
        raise DiskFull(f"{folder}: {free >> 20} MiB free, {what} needs {least >> 20} MiB", hint=_HINT)
