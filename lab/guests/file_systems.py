"""File systems of guests: the setting `mount.fs` makes a new one on a RAM disk and mounts it at /tmp.

The RAM disk is the kernel's own (brd), so nothing but the kernel is between a program and memory. Kernels that the lab
builds have both built in; a package's modules are brought into the guest and loaded there.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from lab.core.errors import HostFailed, UserError
from lab.core.paths import data_folder
from lab.guests.run import Arm
from lab.kernels import files
from lab.kernels.kconfig import FILE_SYSTEMS, RAM_DISK
from lab.kernels.kernel import Kernel
from lab.kernels.spec import MOUNT
from lab.workloads.spec import Workload

_DISK_MIB = 384
"""XFS takes no less than 300 MiB. A RAM disk has the pages that were written."""

_DISK = "/dev/ram0"
_BUSYBOX = "/bin/busybox"
_SCRIPT = "/lib/lab/mount-fs"
_MODULES = PurePosixPath("/lib/lab/modules")


class _Maker(NamedTuple):
    """The program that makes a file system, which nothing random decides about. Its last argument is the disk."""

    package: str
    command: tuple[str, ...]


_UUID = "6c616200-0000-4000-8000-000000000001"
# Without lazy_*, a thread of the kernel writes the rest while cases run.
_EXT4 = f"lazy_itable_init=0,lazy_journal_init=0,hash_seed={_UUID}"
_MAKERS = {
    "ext4": _Maker("e2fsprogs", ("/sbin/mke2fs", "-q", "-t", "ext4", "-U", _UUID, "-E", _EXT4)),
    "xfs": _Maker("xfsprogs", ("/sbin/mkfs.xfs", "-q", "-m", f"uuid={_UUID}")),
    "btrfs": _Maker("btrfs-progs", ("/sbin/mkfs.btrfs", "-q", "-U", _UUID)),
}


def mounted(workload: Workload, arms: Sequence[Arm]) -> Workload:
    """The workload with its guests' needs for the file systems of its arms; unchanged without any.

    Raises `UserError` for a kernel that lacks one of them. Memory grows by the RAM disk, in both arms.
    """
    asked = {arm.name: kind for arm in arms if (kind := arm.settings.get(MOUNT))}
    if not asked:
        return workload
    makers = [_MAKERS[kind] for kind in sorted(set(asked.values()) & _MAKERS.keys())]
    brought = {_SCRIPT: data_folder("images") / "guest" / "mount-fs.sh"}
    for arm in arms:
        if (kind := asked.get(arm.name)) in _MAKERS:
            brought |= _modules(arm.kernel, kind)
    return msgspec.structs.replace(
        workload,
        packages=(*workload.packages, *(maker.package for maker in makers)),
        extra_files=(*workload.extra_files, _BUSYBOX, *(maker.command[0] for maker in makers)),
        cmdline=(*workload.cmdline, *([f"brd.rd_size={_DISK_MIB << 10}", "brd.rd_nr=1"] if makers else [])),
        memory_mb=workload.memory_mb + (_DISK_MIB if makers else 0),
        brought=brought,
    )


def with_modules(workload: Workload, arm: Arm) -> Workload:
    """The workload of guests that are `mounted`, with the modules that one more kernel needs, if it needs any.

    Raises `UserError` for a kernel without the file system.
    """
    kind = arm.settings.get(MOUNT)
    modules = _modules(arm.kernel, kind) if kind in _MAKERS else {}
    if modules.items() <= workload.brought.items():
        return workload
    return msgspec.structs.replace(workload, brought=workload.brought | modules)


def loads_modules(workload: Workload, arm: Arm) -> bool:
    """True if the guests of an arm load modules."""
    kind = arm.settings.get(MOUNT)
    folder = _MODULES / arm.kernel.release / (kind or "")
    return kind is not None and any(PurePosixPath(name).is_relative_to(folder) for name in workload.brought)


def setups(workload: Workload, settings: Mapping[str, str]) -> list[Sequence[str]]:
    """The programs that prepare a guest of an arm with these settings, before its first case."""
    kind = settings.get(MOUNT)
    if kind is None:
        return [workload.setup] if workload.setup else []
    command = _MAKERS[kind].command if kind in _MAKERS else ()
    mount = (_BUSYBOX, "sh", _SCRIPT, kind, str(_DISK_MIB), *command)
    return [mount, workload.setup] if workload.setup else [mount]


def by_hand(kind: str) -> list[str]:
    """Shell commands that make the file system in a guest whose modules are installed."""
    if kind not in _MAKERS:
        return [f"mount -t {kind} none /tmp"]
    return [
        f"modprobe brd rd_nr=1 rd_size={_DISK_MIB << 10}",
        shlex.join([*_MAKERS[kind].command, _DISK]),
        f"mount -t {kind} {_DISK} /tmp",
    ]


def _modules(kernel: Kernel, kind: str) -> dict[str, Path]:
    """The modules that a kernel needs for a file system on a RAM disk: their paths in the guest, and here.

    In the guest, a folder for the kernel's release and the file system has them in the order in which they are loaded.
    """
    have = kernel.configuration()
    packaged = sorted(kernel.modules.rglob("*.ko*")) if kernel.modules else []
    there = {path.name.partition(".ko")[0].replace("-", "_"): path for path in packaged}
    seen: set[str] = set()
    found: list[Path] = []
    for name, option in (("brd", RAM_DISK), (kind, FILE_SYSTEMS[kind])):
        value = "m" if have is None else have.get(option, "n")
        if value == "n" or (value == "m" and name not in there):
            raise UserError(
                f"{MOUNT}={kind}: {kernel.spec.text} has {option} neither built in nor as a module",
                hint="name another kernel, or build one from a tree",
            )
        if value == "m":
            found += _in_order(name, there, seen)
    folder = _MODULES / kernel.release / kind
    return {str(folder / f"{place:02}-{path.name}"): path for place, path in enumerate(found)}


def _in_order(name: str, there: Mapping[str, Path], seen: set[str]) -> Iterator[Path]:
    """A module behind its dependencies, each once."""
    if name in seen or name not in there:
        return
    seen.add(name)
    for other in _depends(there[name]):
        yield from _in_order(other, there, seen)
    yield there[name]


def _depends(path: Path) -> Iterator[str]:
    """The modules that a module says it depends on."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        section = ELFFile(io.BytesIO(files.decompress(path.read_bytes()))).get_section_by_name(".modinfo")
        lines = section.data().split(b"\0") if section else []
    except (*files.UNPACK_ERRORS, ELFError, OverflowError, HostFailed) as error:
        raise UserError(
            f"the module {path} cannot be read: {error}", hint="guests load .ko, .ko.xz and .ko.gz"
        ) from error
    for line in lines:
        if line.startswith(b"depends="):
            names = line.removeprefix(b"depends=").decode("ascii", "replace").replace("-", "_")
            yield from filter(None, names.split(","))
