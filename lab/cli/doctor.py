"""What this machine can do and what not, each finding with what to do about it.

`lab doctor`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import click

from lab.cli import options
from lab.core import paths, records
from lab.core.errors import LabError
from lab.core.process import run_text
from lab.core.records import Record
from lab.guests import exact, host, host_setup
from lab.guests.host_setup import Change
from lab.guests.kvm import probe_kvm, some_kernel

State = Literal["ok", "limited", "missing"]


class Finding(Record, frozen=True, kw_only=True):
    """One line of the doctor: `ok`; `limited`, the lab works without it; `missing`, something does not work."""

    name: str
    state: State
    text: str
    remedy: str | None = None


def examine(qemu: str = exact.QEMU) -> list[Finding]:
    """All findings about this machine. Boots one guest to judge KVM, where `/dev/kvm` is there at all."""
    return [*_tools(), _qemu(qemu), _kvm(qemu), _pmu(), _virtme(), _source(), _cores(), _disk(), _user(), *bench()]


# --- tools that the lab calls: command, package, what for

_TOOLS = (
    ("gcc", "gcc", "building kernels"),
    ("make", "make", "building kernels"),
    ("flex", "flex", "building kernels"),
    ("bison", "bison", "building kernels"),
    ("bc", "bc", "building kernels"),
    ("git", "git", "kernel trees"),
    ("mmdebstrap", "mmdebstrap", "the guest image"),
    ("apt-get", "apt", "the guest image and deb: kernels"),
    ("lz4", "lz4", "unpacking distributors' kernels"),
    ("zstd", "zstd", "unpacking distributors' kernels"),
    ("setpriv", "util-linux", "guests that do not outlive the lab"),
)


def _tools() -> Iterator[Finding]:
    missing = [(command, package, use) for command, package, use in _TOOLS if shutil.which(command) is None]
    for command, package, use in missing:
        yield Finding(
            name=command, state="missing", text=f"not installed; needed for {use}",
            remedy=f"make setup, or apt-get install {package}",
        )  # fmt: skip
    if not missing:
        yield Finding(
            name="tools", state="ok", text=f"all {len(_TOOLS)} programs that builds and images need are there"
        )
    if shutil.which("ccache") is None:
        yield Finding(
            name="ccache", state="limited", text="not installed: kernels are compiled from scratch",
            remedy="make setup, or apt-get install ccache",
        )  # fmt: skip
    else:
        yield Finding(name="ccache", state="ok", text="objects of earlier builds are used again")


def _qemu(command: str) -> Finding:
    try:
        found = exact.find_qemu(command)
    except LabError as error:
        return Finding(name="exact mode", state="missing", text=error.message, remedy=error.hint)
    return Finding(name="exact mode", state="ok", text=f"works: QEMU {found.version}; needs no KVM, PMU or root")


# --- KVM: judged by booting something, because /dev/kvm being there proves nothing


def _kvm(command: str) -> Finding:
    name = "live mode (KVM)"
    device = Path("/dev/kvm")
    if not device.exists():
        return Finding(
            name=name, state="limited", text="no /dev/kvm: this machine, or the virtual machine it is, offers none",
            remedy="use exact mode; for live mode enable virtualisation in the firmware, or nesting in the hypervisor",
        )  # fmt: skip
    if not os.access(device, os.R_OK | os.W_OK):
        return Finding(
            name=name, state="limited", text="/dev/kvm is there, but not for this user",
            remedy="add the user to the group kvm (`sudo adduser $USER kvm`) and log in again",
        )  # fmt: skip
    try:
        path = exact.find_qemu(command).path
    except LabError as error:
        return Finding(name=name, state="limited", text=f"cannot be tried: {error.message}", remedy=error.hint)
    kernel = some_kernel()
    if kernel is None:
        return Finding(
            name=name, state="limited", text="/dev/kvm opens; not tried, because there is no kernel to boot yet",
            remedy="build or fetch one (`lab kernel build deb:6.12`), then ask again",
        )  # fmt: skip
    reason = probe_kvm(path, kernel)
    if reason is None:
        return Finding(name=name, state="ok", text="a kernel boots under KVM")
    return Finding(
        name=name, state="limited", text=f"/dev/kvm opens, but no kernel boots under it: {reason}",
        remedy="use exact mode (--mode auto does); a hypervisor that does not nest cannot be mended from inside",
    )  # fmt: skip


# --- hardware counters

_PERF_EVENT_OPEN = 298
_PERF_ATTR_SIZE = 112


def _pmu() -> Finding:
    name = "hardware counters"
    if counts_cycles():
        return Finding(name=name, state="ok", text="the PMU counts cycles")
    return Finding(
        name=name, state="limited", text="no PMU: perf cannot count cycles or TLB misses here",
        remedy="exact mode does not need one; for live mode use a machine that has one, or expose it to this guest",
    )  # fmt: skip


def counts_cycles() -> bool:
    """Whether perf_event_open(2) gives a counter of hardware cycles for this process."""
    # struct perf_event_attr: type HARDWARE 0, size, config CPU_CYCLES 0; flags: disabled, exclude_kernel, exclude_hv
    attributes = struct.pack("IIQ", 0, _PERF_ATTR_SIZE, 0).ljust(40, b"\0") + struct.pack("Q", 1 | 1 << 5 | 1 << 6)
    buffer = ctypes.create_string_buffer(attributes.ljust(_PERF_ATTR_SIZE, b"\0"), _PERF_ATTR_SIZE)
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(_PERF_EVENT_OPEN, buffer, 0, -1, -1, 0)
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True


def _virtme() -> Finding:
    if shutil.which("vng", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))):
        return Finding(name="virtme-ng", state="ok", text="installed")
    return Finding(name="virtme-ng", state="limited", text="not installed; live mode needs it", remedy="make setup")


def _source() -> Finding:
    name = "default tree"
    if (paths.data_dir("trees") / "default.git").is_dir():
        return Finding(name=name, state="ok", text="imported")
    if Path("/usr/src/linux-source-6.12.tar.xz").is_file():
        return Finding(name=name, state="ok", text="not imported yet; its source package is installed")
    try:
        offered = run_text(["apt-cache", "pkgnames", "linux-source-6.12"])
    except LabError:
        offered = ""
    if "linux-source-6.12" in offered.split():
        return Finding(name=name, state="ok", text="not imported yet; its source package can be downloaded")
    return Finding(
        name=name, state="limited", text="linux-source-6.12 is neither installed nor offered by the package sources",
        remedy="sudo apt-get update; or use a tree of your own with --tree",
    )  # fmt: skip


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    text = f"{cores} cores, {memory_gb:.0f} GiB of memory: {cores} exact guests at a time"
    if memory_gb < cores:
        return Finding(name="size", state="limited", text=text, remedy="run fewer guests at a time with --jobs")
    return Finding(name="size", state="ok", text=text)


def _disk() -> Finding:
    folder = paths.cache_dir()
    free_gb = shutil.disk_usage(folder).free / 2**30
    text = f"{free_gb:.0f} GiB free for {folder}"
    if free_gb < 5:
        return Finding(
            name="disk", state="missing", text=f"{text}: a kernel build needs 3, the default tree and image 2",
            remedy="free some, or point XDG_CACHE_HOME and XDG_DATA_HOME elsewhere",
        )  # fmt: skip
    return Finding(name="disk", state="ok", text=text)


def _user() -> Finding:
    return Finding(
        name="privileges", state="ok",
        text="running as root" if os.geteuid() == 0 else "an ordinary user: enough for images, builds and exact runs",
    )  # fmt: skip


# --- what makes live measurements scatter


def bench() -> list[Finding]:
    """How this machine is set up for live mode; nothing of it matters to exact mode."""
    return [
        Finding(name=f"live: {fact.name}", state=fact.state, text=fact.text, remedy=fact.remedy)
        for fact in host.survey(sorted(os.sched_getaffinity(0)))
    ]


def works(findings: list[Finding]) -> bool:
    """Whether nothing that the lab cannot do without is missing."""
    return all(found.state != "missing" for found in findings)


_MARKS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}


@click.command()
@click.option("--qemu", default=exact.QEMU, show_default=True, help="The QEMU to examine.")
@click.option("--fix", is_flag=True, help="Set this machine up for live mode: governor, turbo, THP, KSM, swap.")
@click.option("--without-smt", is_flag=True, help="With --fix: hyper-threads off, too.")
@click.option("--restore", is_flag=True, help="Put back what --fix changed.")
@click.option("--check", is_flag=True, help="With --fix or --restore: only say what would be changed.")
@options.json_output
def doctor(qemu: str, fix: bool, without_smt: bool, restore: bool, check: bool, as_json: bool) -> int:
    """What this machine can do, what not, and what to do about it. Exits 4 if something is missing.

    --fix and --restore need root (or sudo without a password), and exit 4 if nothing could be set or a switch
    refused.

    \b
    Example:
      lab doctor
      sudo .venv/bin/lab doctor --fix --check
    """
    if fix and restore:
        raise click.UsageError("--fix and --restore are opposites")
    if check and not (fix or restore):
        raise click.UsageError("--check goes with --fix or --restore")
    if without_smt and not fix:
        raise click.UsageError("--without-smt goes with --fix")
    if not fix and not restore:
        findings = examine(qemu)
        _print(findings, None, as_json=as_json)
        return 0 if works(findings) else 4
    changes = host_setup.fix(without_smt=without_smt, check=check) if fix else host_setup.restore(check=check)
    _print(bench(), changes, as_json=as_json)
    return 0 if host_setup.succeeded(changes) or (restore and not changes) else 4


def _print(findings: Sequence[Finding], changes: Sequence[Change] | None, *, as_json: bool) -> None:
    if as_json:
        told = {} if changes is None else {"changes": changes}
        click.echo(records.encode({"schema": "lab.doctor/1", "findings": findings, **told}), nl=False)
        return
    for change in changes or ():
        click.echo(f"{change.outcome:7}  {change.name}: {change.text}")
    if changes is not None:
        click.echo("" if changes else "nothing to put back\n")
    for found in findings:
        click.echo(f"{_MARKS[found.state]}  {found.name}: {found.text}")
        if found.remedy:
            click.echo(f"         -> {found.remedy}")
