"""virtme-ng: finding it, and the QEMU command that it makes for a guest."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

from lab.core import process
from lab.core.errors import HostFailed
from lab.live import machine
from lab.live.machine import Guest


def find() -> str:
    """The `vng` to use: the one beside this Python, else one on the path."""
    found = shutil.which("vng", path=search_path())
    if found is None:
        raise HostFailed("virtme-ng is not installed; live mode boots its guests with it", hint="run `make setup`")
    return found


def version() -> str:
    """The version of the virtme-ng that this Python sees; empty for one from elsewhere."""
    try:
        return metadata.version("virtme-ng")
    except metadata.PackageNotFoundError:
        return ""


def compose(guest: Guest, kernel: Path, room: Path) -> tuple[list[str], list[str]]:
    """The `vng` command of a guest, and the QEMU command that it makes of it."""
    words = machine.vng_words(guest)
    return ["vng", *words], list(_composed(tuple(words), kernel, room))


@cache
def _composed(words: tuple[str, ...], kernel: Path, room: Path) -> tuple[str, ...]:
    """Ask vng in a folder like a guest's: it looks at the kernel, and wants to see the root."""
    with tempfile.TemporaryDirectory(prefix="lab-vng-") as name:
        folder = Path(name)
        (folder / machine.KERNEL).symlink_to(kernel)
        (folder / machine.ROOM).symlink_to(room)
        # Its files and its configuration are the user's for other guests than these.
        env = {**os.environ, "PATH": search_path(), "HOME": name, "TMPDIR": name}
        try:
            printed = process.run([find(), "--dry-run", *words], cwd=folder, env=env, timeout_s=60)
        except process.CommandFailed as error:
            raise HostFailed(f"vng cannot put a guest together: {error.message}", hint="run `lab doctor`") from error
        return tuple(machine.qemu_argv(printed.decode(errors="replace")))


def search_path() -> str:
    """vng calls programs that are installed beside it."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
