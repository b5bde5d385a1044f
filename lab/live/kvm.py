"""Which mode and which accelerator: KVM only where a guest really boots under it.

The probe boots one, so its answer is kept until this machine is booted again or QEMU changes.
"""

from __future__ import annotations

import grp
import os
from pathlib import Path
from typing import Literal

from lab import doctor, exact, paths, records
from lab.errors import HostFailed, LabError
from lab.live.machine import Accelerator
from lab.progress import Meter
from lab.records import Record

Asked = Literal["auto", "kvm", "tcg"]

_DEVICE = Path("/dev/kvm")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Refusal(HostFailed):
    """KVM cannot be used here; the message says why, the hint what would help."""


class _Probe(Record, frozen=True, kw_only=True):
    """An answer: `reason` is None where a kernel came up."""

    boot_id: str
    qemu: str
    reason: str | None


def accelerator(asked: Asked, qemu: str, meter: Meter) -> Accelerator:
    """What guests run on: as asked; `auto` is KVM where it works, else TCG, and then that is said."""
    if asked == "tcg":
        return "tcg"
    try:
        require(qemu)
    except Refusal as error:
        if asked == "kvm":
            raise
        meter.say(f"no KVM: {error.message}; measuring with --accel tcg, whose times are an emulator's")
        return "tcg"
    return "kvm"


def works(qemu: str) -> bool:
    """Whether a guest boots under KVM."""
    try:
        require(qemu)
    except LabError:
        return False
    return True


def require(qemu: str, device: Path = _DEVICE) -> None:
    """Nothing if a guest boots under KVM; else `Refusal`."""
    if not device.exists():
        raise Refusal(f"there is no {device}", hint="use --accel tcg, or --mode exact; `lab doctor` says more")
    if not os.access(device, os.R_OK | os.W_OK):
        group = _group(device)
        raise Refusal(
            f"{device} is there, but not for this user",
            hint=f"add the user to the group {group} (`sudo adduser $USER {group}`) and log in again; or --accel tcg",
        )
    if reason := _probed(qemu):
        raise Refusal(f"{device} opens, but no kernel boots under it: {reason}", hint="use --accel tcg")


def _group(device: Path) -> str:
    gid = device.stat().st_gid
    try:
        return grp.getgrgid(gid).gr_name if gid else "kvm"
    except KeyError:
        return str(gid)


def _probed(qemu: str) -> str | None:
    found = exact.find_qemu(qemu)
    boot_id = _BOOT_ID.read_text().strip()
    path = paths.cache_dir("checks") / "kvm.json"
    if path.is_file():
        try:
            kept = records.load(path, _Probe)
        except HostFailed:
            kept = None
        if kept is not None and (kept.boot_id, kept.qemu) == (boot_id, found.version):
            return kept.reason
    kernel = doctor.some_kernel()
    if kernel is None:
        return "there is no kernel to try it with; build or fetch one first (`lab kernel build deb:6.12`)"
    reason = doctor.probe_kvm(found.path, kernel)
    records.save(path, _Probe(boot_id=boot_id, qemu=found.version, reason=reason))
    return reason
