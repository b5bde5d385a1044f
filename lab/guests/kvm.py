"""Which mode and which accelerator: KVM only where a guest really boots under it.

The probe boots one, so its answer is kept until this machine is booted again or QEMU changes.
"""

from __future__ import annotations

import grp
import os
import tempfile
from pathlib import Path
from typing import Literal

from lab.core import paths, records
from lab.core.errors import HostFailed, LabError
from lab.core.progress import Progress
from lab.core.records import Record
from lab.guests import exact, run
from lab.guests.live_machine import Accelerator
from lab.kernels import store

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


def accelerator(asked: Asked, qemu: str, progress: Progress) -> Accelerator:
    """What guests run on: as asked; `auto` is KVM where it works, else TCG, and then that is said."""
    if asked == "tcg":
        return "tcg"
    try:
        require(qemu)
    except Refusal as error:
        if asked == "kvm":
            raise
        progress.log(f"no KVM: {error.message}; measuring with --accel tcg, whose times are an emulator's")
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
    kernel = some_kernel()
    if kernel is None:
        return "there is no kernel to try it with; build or fetch one first (`lab kernel build deb:6.12`)"
    reason = probe_kvm(found.path, kernel)
    records.save(path, _Probe(boot_id=boot_id, qemu=found.version, reason=reason))
    return reason


def some_kernel() -> Path | None:
    """A kernel to try KVM with: the newest of the store, else a downloaded one, else the host's own."""
    built = sorted(store.builds(), key=lambda found: found[2])
    if built:
        return built[-1][1] / "bzImage"
    others = [*paths.cache_dir("debs").glob("*/boot/vmlinuz-*"), *Path("/boot").glob("vmlinuz-*")]
    return next((path for path in others if os.access(path, os.R_OK)), None)


# A kernel without a root prints this when all of the kernel has come up: good enough, and needs no image.
_CAME_UP = ("No working init found", "Unable to mount root fs", "VFS: Cannot open root device", "Run /init")


# `host` alone makes QEMU give up where a nested hypervisor does not let this register be written.
_CPU_MODELS = ("host", "host,-arch-capabilities")


def probe_kvm(qemu: str, kernel: Path, *, timeout_s: float = 10.0) -> str | None:
    """Boot a kernel under KVM; None if it came up, else the reasons why it did not, by CPU model."""
    reasons = []
    for model in _CPU_MODELS:
        reason = probe(qemu, kernel, accelerator="kvm", model=model, timeout_s=timeout_s)
        if reason is None:
            return None
        reasons.append(f"{reason} (-cpu {model})")
    return "; ".join(reasons)


def probe(qemu: str, kernel: Path, *, accelerator: str, model: str, timeout_s: float) -> str | None:
    """Boot a kernel without a root; None if it came up, else the reason that it did not."""
    with tempfile.TemporaryDirectory(prefix="lab-probe-") as name:
        folder = Path(name)
        argv = [
            qemu,
            *("-machine", "q35", "-accel", accelerator, "-cpu", model),
            *("-m", "512M", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-chardev", "file,id=console,path=console.log", "-device", "isa-serial,chardev=console"),
            *("-kernel", str(kernel), "-append", "console=ttyS0 panic=-1 reboot=t"),
        ]
        ended = run.boot(argv, folder=folder, timeout_s=timeout_s)
        console = ended.console.read_text(errors="replace") if ended.console.exists() else ""
        if any(words in console for words in _CAME_UP):
            return None
        return _why_not(ended, console)


def _why_not(ended: run.Ended, console: str) -> str:
    complaints = [line.strip() for line in ended.stderr.splitlines() if line.strip() and "warning:" not in line]
    if any("KVM internal error" in line for line in complaints):
        return ", ".join(line.rstrip(".") for line in complaints[:2])
    if complaints:
        return complaints[0].removeprefix("qemu-system-x86_64: ")
    if ended.timed_out:
        last = console.strip().splitlines()
        where = f"; its last words: {last[-1].strip()}" if last else " and printed nothing"
        return f"the guest did not come up within {ended.wall_s:.0f} s{where}"
    return f"QEMU ended with status {ended.status}"
