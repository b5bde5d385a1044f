"""The accelerator of live guests and shells: KVM only where a kernel really boots under it, else TCG.

A probe boots a kernel. Its result is kept until this machine is booted again, or QEMU changes.
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
from lab.kernels import debs, store

_DEVICE = Path("/dev/kvm")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# The last messages of a kernel without a root: all of it has come up by then, and no image is needed.
_CAME_UP = ("No working init found", "Unable to mount root fs", "VFS: Cannot open root device", "Run /init")

# QEMU aborts with `host` alone where a nested hypervisor does not let it write IA32_ARCH_CAPABILITIES (MSR 0x10a).
_CPU_MODELS = ("host", "host,-arch-capabilities")


class Refusal(HostFailed):
    """KVM cannot be used here; the message says why, the hint what would help."""


class _Probe(Record, frozen=True, kw_only=True):
    """The result of a probe: `reason` is None where a kernel came up."""

    boot_id: str
    qemu: str
    reason: str | None


def accelerator(
    wanted: Literal["auto", "kvm", "tcg"], qemu: str, progress: Progress, *, measuring: bool = True
) -> Accelerator:
    """The accelerator to use; `auto` is KVM where it works, else TCG, which is logged.

    measuring: numbers depend on it, so the reason matters.
    """
    if wanted == "tcg":
        return "tcg"
    try:
        require(qemu)
    except Refusal as error:
        if wanted == "kvm":
            raise
        if measuring:
            progress.log_once(f"no KVM: {error.message}; measuring with --accel tcg, whose times are an emulator's")
        else:
            progress.log_once("no KVM (`lab doctor` says why): the guest is emulated")
        return "tcg"
    return "kvm"


def works(qemu: str) -> bool:
    """True if a guest boots under KVM."""
    try:
        require(qemu)
    except LabError:
        return False
    return True


def require(qemu: str, device: Path = _DEVICE) -> None:
    """Raise `Refusal` unless a guest boots under KVM."""
    if not device.exists():
        raise Refusal(f"there is no {device}", hint="use --accel tcg, or --mode exact; `lab doctor` says more")
    if not os.access(device, os.R_OK | os.W_OK):
        group = _group(device)
        raise Refusal(
            f"{device} is there, but not for this user",
            hint=f"add the user to the group {group} (`sudo adduser $USER {group}`) and log in again; or --accel tcg",
        )
    if reason := _reason_against(qemu):
        raise Refusal(f"{device} opens, but no kernel boots under it: {reason}", hint="use --accel tcg")


def _group(device: Path) -> str:
    gid = device.stat().st_gid
    try:
        return grp.getgrgid(gid).gr_name if gid else "kvm"
    except KeyError:
        return str(gid)


def _reason_against(command: str) -> str | None:
    """The reason why no guest boots under KVM, from the kept probe or a new one."""
    qemu = exact.find_qemu(command)
    boot_id = _BOOT_ID.read_text().strip()
    path = paths.cache_dir("checks") / "kvm.json"
    if path.is_file():
        try:
            kept = records.load(path, _Probe)
        except HostFailed:
            kept = None
        if kept is not None and (kept.boot_id, kept.qemu) == (boot_id, qemu.version):
            return kept.reason
    kernel = some_kernel()
    if kernel is None:
        return "there is no kernel to try it with; build or fetch one first (`lab kernel build deb:6.12`)"
    reason = probe_kvm(qemu.path, kernel)
    records.save(path, _Probe(boot_id=boot_id, qemu=qemu.version, reason=reason))
    return reason


def some_kernel() -> Path | None:
    """A kernel to try KVM with: the newest of the store, else a downloaded one, else the host's own."""
    built = sorted(store.builds(), key=lambda build: build[2])
    if built:
        return built[-1][1] / "bzImage"
    others = [*debs.downloaded(), *Path("/boot").glob("vmlinuz-*")]
    return next((path for path in others if os.access(path, os.R_OK)), None)


def probe_kvm(qemu: str, kernel: Path, *, timeout_s: float = 10.0) -> str | None:
    """Boot a kernel under KVM; None if it came up, else the reasons why it did not, by CPU model."""
    reasons = []
    for model in _CPU_MODELS:
        reason = _probe(qemu, kernel, model, timeout_s)
        if reason is None:
            return None
        reasons.append(f"{reason} (-cpu {model})")
    return "; ".join(reasons)


def _probe(qemu: str, kernel: Path, model: str, timeout_s: float) -> str | None:
    """Boot a kernel without a root; None if it came up, else the reason why it did not."""
    with tempfile.TemporaryDirectory(prefix="lab-probe-") as folder:
        argv = [
            qemu,
            *("-machine", "q35", "-accel", "kvm", "-cpu", model),
            *("-m", "512M", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-chardev", f"file,id=console,path={run.CONSOLE}", "-device", "isa-serial,chardev=console"),
            *("-kernel", str(kernel), "-append", "console=ttyS0 panic=-1 reboot=t"),
        ]
        ended = run.boot(argv, folder=Path(folder), timeout_s=timeout_s)
        console = ended.console_text
    return None if any(message in console for message in _CAME_UP) else _failure(ended, console)


def _failure(ended: run.GuestExit, console: str) -> str:
    complaints = ended.complaints
    if any("KVM internal error" in line for line in complaints):
        return ", ".join(line.rstrip(".") for line in complaints[:2])
    if complaints:
        return complaints[0].removeprefix("qemu-system-x86_64: ")
    if ended.timed_out:
        last = console.strip().splitlines()
        where = f"; its last words: {last[-1].strip()}" if last else " and printed nothing"
        return f"the guest did not come up within {ended.wall_s:.0f} s{where}"
    return f"QEMU ended with status {ended.status}"
