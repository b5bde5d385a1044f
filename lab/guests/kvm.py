"""The accelerator of live guests and shells: KVM only if a kernel really boots under it, else TCG.

A probe boots a kernel. Its result is kept until this machine is booted again, or QEMU changes. A guest that took too
long is kept for minutes, since the moment may have been to blame.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from lab.core import paths, process, records
from lab.core.errors import HostFailed
from lab.core.progress import Progress
from lab.core.records import Record
from lab.guests import exact, run
from lab.guests.exact import Qemu
from lab.guests.live_machine import Accelerator
from lab.guests.run import GUEST_TIMEOUT_S
from lab.kernels import architecture, archives, store

DEVICE = Path("/dev/kvm")

# The last messages of a kernel without a root: all of it has come up by then, and no image is needed.
_CAME_UP = ("No working init found", "Unable to mount root fs", "VFS: Cannot open root device", "Run /init")

# QEMU aborts with `host` alone if a nested hypervisor does not let it write IA32_ARCH_CAPABILITIES (MSR 0x10a).
_CPU_MODELS = ("host", "host,-arch-capabilities")


_LATE = "the guest did not come up within"
_LATE_KEPT_S = 600
_MOST_KERNELS = 3
"""Kernels that a probe tries: a bisection leaves many that boot nowhere."""

# Of the time that a guest may take. A kernel that comes up says nothing until it finds no root.
_TOTAL, _SILENCE = 0.4, 0.04

_PATIENCE = 10
"""How many times as long as without KVM a kernel may be silent under it: a slow machine is slow at both."""


class Refusal(HostFailed):
    """KVM cannot be used here; the message says why, the hint has a remedy."""


class _Probe(Record, frozen=True, kw_only=True):
    """The result of a probe: `reason` is None if a kernel came up, with the CPU model. at: seconds of the epoch."""

    boot_id: str
    qemu: str
    reason: str | None
    cpu: str = _CPU_MODELS[0]
    at: float = 0.0


def accelerator(
    wanted: Literal["auto", "kvm", "tcg"],
    qemu: str,
    progress: Progress,
    *,
    measuring: bool = True,
    guest_timeout_s: float = GUEST_TIMEOUT_S,
) -> Accelerator:
    """The accelerator to use; `auto` is KVM if it works, else TCG, which is logged.

    measuring: numbers depend on it, so the reason matters, and a probe is worth its time.
    guest_timeout_s: the longest time that any guest may take.
    """
    if wanted == "tcg":
        return "tcg"
    if DEVICE.exists() and not _kept(exact.find_qemu(qemu)):
        if wanted == "auto" and not measuring:
            progress.log_once("the guest is emulated: KVM was not tried yet (`lab doctor` does, or --accel kvm)")
            return "tcg"
        progress.log("trying KVM: a kernel is booted under it; this can take minutes, and is kept")
    try:
        require(qemu, guest_timeout_s=guest_timeout_s)
    except Refusal as error:
        if wanted == "kvm":
            raise
        if measuring:
            progress.log_once(f"no KVM: {error.message}; measuring with --accel tcg, whose times are an emulator's")
        else:
            progress.log_once("no KVM (`lab doctor` says why): the guest is emulated")
        return "tcg"
    return "kvm"


def require(qemu: str, device: Path = DEVICE, *, guest_timeout_s: float = GUEST_TIMEOUT_S, anew: bool = False) -> str:
    """The CPU model with which guests boot under KVM; raises `Refusal` if none does. anew: never by a kept probe."""
    if not device.exists():
        raise Refusal(f"there is no {device}", hint="use --accel tcg, or --mode exact; `lab doctor` says more")
    if not os.access(device, os.R_OK | os.W_OK):
        group = _group(device)
        raise Refusal(
            f"{device} is there, but not for this user",
            hint=f"add the user to the group {group} (`sudo adduser $USER {group}`) and log in again; or --accel tcg",
        )
    found = _probe(exact.find_qemu(qemu), guest_timeout_s, anew=anew)
    if found.reason:
        raise Refusal(
            f"{device} opens, but no kernel boots under it: {found.reason}",
            hint=f"use --accel tcg, or --mode exact; `lab doctor` tries again, this is kept in {_path()}; "
            "on a slow machine give --guest-timeout",
        )
    return found.cpu


def _group(device: Path) -> str:
    gid = device.stat().st_gid
    try:
        return device.group() if gid else "kvm"
    except KeyError:
        return str(gid)


def _path() -> Path:
    return paths.cache_dir("checks") / "kvm.json"


def _probe(qemu: Qemu, guest_timeout_s: float, *, anew: bool) -> _Probe:
    """The kept probe of this QEMU, or a new one."""
    if not anew and (kept := _kept(qemu)):
        return kept
    boot_id = _boot_id()
    kernels = list(itertools.islice(kernels_to_try(), _MOST_KERNELS))
    if not kernels:
        none = "there is no kernel to try it with; build or fetch one first (`lab kernel build deb:6.12`)"
        return _Probe(boot_id=boot_id, qemu=qemu.version, reason=none)
    cpu, reason = probe_kvm(qemu.path, kernels, guest_timeout_s=guest_timeout_s)
    probe = _Probe(boot_id=boot_id, qemu=qemu.version, reason=reason, cpu=cpu, at=time.time())
    records.save(_path(), probe)
    return probe


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _kept(qemu: Qemu) -> _Probe | None:
    """The result of a probe with this QEMU since this machine was booted, unless it may have passed."""
    kept = records.find(_path(), _Probe)
    if kept is None or (kept.boot_id, kept.qemu) != (_boot_id(), qemu.version):
        return None
    may_pass = kept.reason is not None and _LATE in kept.reason
    return None if may_pass and abs(time.time() - kept.at) > _LATE_KEPT_S else kept


def kernels_to_try() -> Iterator[Path]:
    """Kernels to try KVM with: those of the store, newest first, the downloaded ones, the host's own."""
    built = sorted(store.builds(), key=lambda build: build[2], reverse=True)
    packages = archives.downloaded([architecture.DEFAULT])
    images = [*(folder / "bzImage" for _, folder, _ in built), *packages, *Path("/boot").glob("vmlinuz-*")]
    return (image for image in images if os.access(image, os.R_OK))


def probe_kvm(
    qemu: str, kernels: Sequence[Path], *, guest_timeout_s: float = GUEST_TIMEOUT_S
) -> tuple[str, str | None]:
    """Boot a kernel under KVM: the CPU model with which it came up and None, else a model and the reasons.

    A silent kernel is given up soon, and gets more time if it needs that without KVM, too. A kernel that does not come
    up without KVM either says nothing about KVM, and the next one is tried.
    """
    total_s, silence_s = _TOTAL * guest_timeout_s, _SILENCE * guest_timeout_s
    for kernel in kernels:
        model, reason = _boot_under_kvm(qemu, kernel, total_s, silence_s)
        if reason is None:
            return model, None
        plain, wall_s = _boot(qemu, kernel, ("tcg", "-cpu", "max"), total_s, total_s)
        if _PATIENCE * wall_s > silence_s:
            model, reason = _boot_under_kvm(qemu, kernel, total_s, min(total_s, _PATIENCE * wall_s))
        if reason is None or plain is None:
            return model, reason
    return _CPU_MODELS[0], f"no kernel comes up, without KVM neither ({len(kernels)} tried)"


def _boot_under_kvm(qemu: str, kernel: Path, total_s: float, silence_s: float) -> tuple[str, str | None]:
    """Boot a kernel with each CPU model until one comes up: the first that does and None, else a model and all reasons.

    If that one took long, the machine may only have been too slow for the earlier ones, so they get more time.
    """
    reasons = []
    for number, model in enumerate(_CPU_MODELS):
        reason, wall_s = _boot(qemu, kernel, ("kvm", "-cpu", model), total_s, silence_s)
        if reason is None:
            patient_s = min(total_s, _PATIENCE * wall_s)
            earlier = _CPU_MODELS[:number] if patient_s > silence_s else ()
            for one in earlier:
                if _boot(qemu, kernel, ("kvm", "-cpu", one), total_s, patient_s)[0] is None:
                    return one, None
            return model, None
        reasons.append(f"{reason} (-cpu {model})")
    return _CPU_MODELS[0], "; ".join(reasons)


def _boot(qemu: str, kernel: Path, accel: Sequence[str], total_s: float, silence_s: float) -> tuple[str | None, float]:
    """Boot a kernel without a root: None if it came up, else the reason why it did not; and the seconds it took."""
    with process.scratch("lab-probe-") as folder:
        argv = [
            qemu,
            *("-machine", "q35", "-accel", *accel),
            *("-m", "512M", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-chardev", f"file,id=console,path={run.CONSOLE}", "-device", "isa-serial,chardev=console"),
            # A serial line is slow if a hypervisor emulates each byte: only errors, and the panic at the end.
            *("-kernel", str(kernel), "-append", "console=ttyS0 loglevel=4 panic=-1 reboot=t"),
        ]
        ended = run.boot(argv, folder=folder, timeout_s=total_s, silence_s=silence_s)
        console = ended.console_text
        if any(message in console for message in _CAME_UP):
            return None, ended.wall_s
        paths.require_space(folder, run.DISK_NEEDED, "a guest")  # a full disk says nothing about KVM, and is not kept
    return _failure(ended, console), ended.wall_s


def _failure(ended: run.GuestExit, console: str) -> str:
    complaints = ended.complaints
    if any("KVM internal error" in line for line in complaints):
        return ", ".join(line.rstrip(".") for line in complaints[:2])
    if complaints:
        return complaints[0].removeprefix("qemu-system-x86_64: ")
    if ended.timed_out:
        last = console.strip().splitlines()
        where = f"; its last words: {last[-1].strip()}" if last else " and printed nothing"
        return f"{_LATE} {ended.wall_s:.0f} s{where}"
    return f"QEMU ended with status {ended.status}"
