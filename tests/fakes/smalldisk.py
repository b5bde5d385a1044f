"""A real file system of a few MB, for tests of what happens when it is full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """Have a small disk where a folder is; the test is skipped where this user may not mount one."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, left: int) -> Path:
    """A file that leaves so many bytes of a disk."""
    filler = disk / "filler"
    with filler.open("wb") as stream:
        stream.write(b"x" * (shutil.disk_usage(disk).free - left))
    return filler
