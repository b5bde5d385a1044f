"""QEMU 10.0 for the host's release, unpacked in the lab's cache; the host's own QEMU stays unchanged.

On Debian 12 it is a backport. It needs the libraries of the release, which the host's own QEMU has brought.
"""

from __future__ import annotations

import platform
from pathlib import Path

from lab.core import paths
from lab.core.errors import HostFailed
from lab.core.locks import make_once
from lab.core.process import CommandFailed, run
from lab.core.progress import Progress
from lab.kernels.package_lists import all_suites

_PACKAGES = ("qemu-system-x86", "qemu-system-data", "seabios")
_FIRMWARE = ("usr/share/qemu", "usr/share/seabios")
_SUITES = {"bookworm": "bookworm-backports", "trixie": "trixie"}
"""The suite with QEMU 10.0 for each release."""


def suite() -> str | None:
    """The suite with QEMU 10.0 for the host's release; None if the lab knows none."""
    try:
        return _SUITES.get(platform.freedesktop_os_release().get("VERSION_CODENAME", ""))
    except OSError:
        return None


def _top() -> Path:
    return paths.cache_dir("qemu")


def unpacked(program: str) -> Path | None:
    """A QEMU that `install` has unpacked on this release, by the name of its program."""
    path = _top() / (suite() or "none") / "usr" / "bin" / program
    return path if path.is_file() else None


def firmware(program: str) -> list[str]:
    """Options that lead an unpacked QEMU to its own firmware: it looks for that of the host. None for other QEMUs."""
    for top in Path(program).parents:
        if top.parent == _top():
            return [word for name in _FIRMWARE for word in ("-L", str(top / name))]
    return []


def install(progress: Progress) -> None:
    """Download and unpack QEMU; `HostFailed` if the release has none of that version, or QEMU does not run here."""
    name = suite()
    if name is None:
        raise HostFailed("this release has no QEMU 10.0 that the lab knows", hint="name a QEMU by --qemu")
    make_once(_top() / name, lambda folder: _unpack(name, folder, progress), progress=progress)


def _unpack(name: str, folder: Path, progress: Progress) -> None:
    progress.log(f"unpacking QEMU of {name} beside the host's")
    lists = all_suites(progress)
    for package in _PACKAGES:
        lists.download(f"{package}/{name}", folder, hint="check the network, and the mirror of the package sources")
    try:
        run([folder / "usr" / "bin" / "qemu-system-x86_64", "--version"])
    except CommandFailed as error:
        hint = "install the host's own qemu-system-x86 first, which brings the libraries"
        raise HostFailed(f"QEMU of {name} does not run here: {error.message}", hint=hint) from error
