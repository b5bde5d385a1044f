"""Findings about this machine, each with its state and a remedy; its set-up for measuring, and the way back."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import struct
import sys
from pathlib import Path
from typing import Literal

import msgspec

from lab.core import ansible, paths, process, records
from lab.core.ansible import PlaybookFailed
from lab.core.errors import DiskFull, HostFailed, LabError
from lab.core.process import run_text
from lab.core.progress import Progress
from lab.core.records import Record
from lab.core.text import listed
from lab.guests import backports, exact, host, kvm
from lab.kernels import architecture
from lab.kernels.architecture import Architecture

State = Literal["ok", "limited", "missing"]


class Finding(Record, frozen=True, kw_only=True):
    """One line of the doctor: `ok`; `limited`, the lab works without it; `missing`, something does not work."""

    name: str
    state: State
    text: str
    remedy: str | None = None


def examine(qemu: str = exact.QEMU) -> list[Finding]:
    """All findings about this machine. Boots a guest to judge KVM, if `/dev/kvm` exists at all."""
    return [
        _packages(), _exact_mode(qemu), _contention(qemu), *_other_architectures(), _live_mode(qemu), _counters(),
        _virtme_ng(), _default_tree(), _size(), _disk(), _terminals(), _privileges(), *live_setup(),
    ]  # fmt: skip


def live_setup() -> list[Finding]:
    """Findings about the scatter of live measurements on this machine; exact mode is not affected."""
    return [
        Finding(name=f"live: {fact.name}", state=fact.state, text=fact.text, remedy=fact.remedy)
        for fact in host.survey(sorted(os.sched_getaffinity(0)))
    ]


def _ok(name: str, text: str) -> Finding:
    return Finding(name=name, state="ok", text=text)


def _limited(name: str, text: str, remedy: str | None) -> Finding:
    return Finding(name=name, state="limited", text=text, remedy=remedy)


def _missing(name: str, text: str, remedy: str | None) -> Finding:
    return Finding(name=name, state="missing", text=text, remedy=remedy)


_PROGRAMS = {"binutils": "ld", "qemu-system-x86": exact.QEMU, "util-linux": "setpriv", "xz-utils": "xz"}
"""The programs of packages that are not called like them. A program that is there needs no package."""

_NO_APT = "use Debian 12 or 13, or the container image"
_OPTIONAL = {"ccache", "linux-source-6.12"}
"""Packages that only save time and downloads."""


def _contention(qemu: str) -> Finding:
    """Tell if vCPUs can contend in exact mode, by the version of QEMU, and the functions that it has to export."""
    name = "contention"
    try:
        found = exact.find_qemu(qemu, contends=True)
    except HostFailed as error:
        return _limited(name, error.message, error.hint)
    return _ok(name, f"works: QEMU {found.version} ends the turns of vCPUs ({found.path})")


def _packages() -> Finding:
    """The packages of `host_packages` that are not installed, unless their program comes from elsewhere."""
    if shutil.which("dpkg-query") is None or shutil.which("apt-get") is None:
        text = "no apt and dpkg here, by which the guest image is made and `deb:` kernels are found"
        return _missing("packages", text, _NO_APT)
    status = run_text(["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n"])
    installed = {line.split()[0] for line in status.splitlines() if line.endswith(" installed")}
    needed = host_packages()
    absent = {
        package: use
        for package, use in needed.items()
        if package not in installed and shutil.which(_PROGRAMS.get(package, package)) is None
    }
    if not absent:
        return _ok("packages", f"all {len(needed)} that the lab needs are installed")
    text = f"{len(absent)} of {len(needed)} {'is' if len(absent) == 1 else 'are'} not installed"
    remedy = f"lab doctor --install, or: sudo apt-get install --no-install-recommends {' '.join(absent)}"
    if not (required := absent.keys() - _OPTIONAL):
        return _limited(
            "packages", f"{text}: {listed(list(absent), 'and')} only save{'s' * (len(absent) == 1)} time", remedy
        )
    uses = dict.fromkeys(use for package, use in absent.items() if package in required)
    return _missing("packages", f"{text}; needed for {listed(list(uses), 'and')}", remedy)


def host_packages() -> dict[str, str]:
    """The packages that the role `host_ready` installs on this release, each with its use."""
    import yaml

    role = yaml.safe_load((paths.data_folder("ansible") / "roles" / "host_ready" / "defaults" / "main.yml").read_text())
    values = platform.freedesktop_os_release()
    release = f"{values['ID']}-{values.get('VERSION_ID', '').partition('.')[0]}"
    found = {package: use for use, packages in role["host_ready_packages"].items() for package in packages}
    return found | dict.fromkeys(role["host_ready_release_packages"].get(release, ()), "the default tree")


def needs_packages() -> bool:
    """True if the role `host_ready` has packages to install."""
    return _packages().state != "ok"


def install(password: str | None = None) -> None:
    """Install the packages by the role `host_ready`. password: sudo's, if it asks for one."""
    if shutil.which("apt-get") is None:
        raise HostFailed("there is no apt here to install packages with", hint=_NO_APT)
    become = {"ansible_become_password": password} if password is not None else {}
    try:
        ansible.play("host_ready", {"host_ready_become": os.geteuid() != 0, **become})
    except PlaybookFailed as error:
        raise HostFailed(
            f"packages were not installed: {error.detail}",
            hint="check the network and the package sources (`sudo apt-get update`)",
        ) from error


def add_contention(qemu: str, progress: Progress) -> None:
    """Unpack QEMU 10.0 beside the host's, if that cannot end turns and the release has one."""
    if backports.suite() and _contention(qemu).state != "ok":
        backports.install(progress)


def _exact_mode(command: str) -> Finding:
    name = "exact mode"
    try:
        qemu = exact.find_qemu(command)
    except LabError as error:
        return _missing(name, error.message, error.hint)
    free = (
        "" if exact.sandbox(qemu.path) else "; guests are not confined, since this host or QEMU filters no system calls"
    )
    return _ok(name, f"works: QEMU {qemu.version}; needs no KVM, PMU or root{free}")


def _other_architectures() -> list[Finding]:
    """Exact mode of guests that are not of the default architecture, which needs more packages."""
    return [_exact_mode_of(architecture.load(name)) for name in architecture.names() if name != architecture.DEFAULT]


def _exact_mode_of(guests: Architecture) -> Finding:
    name = f"exact mode, {guests.name}"
    absent = [program for program in (guests.qemu, guests.compiler) if shutil.which(program) is None]
    if absent:
        text = f"{listed(absent, 'and')} {'are' if len(absent) > 1 else 'is'} not installed"
        remedy = f"for {guests.name} guests: sudo apt-get install --no-install-recommends {' '.join(guests.packages)}"
        return _limited(name, text, remedy)
    try:
        qemu = exact.find_qemu(guests=guests)
    except LabError as error:
        return _limited(name, error.message, error.hint)
    return _ok(name, f"works: QEMU {qemu.version}, {guests.compiler}")


def _live_mode(command: str) -> Finding:
    """Boot something: a /dev/kvm that exists proves nothing."""
    name = "live mode (KVM)"
    device = kvm.DEVICE
    if not device.exists():
        return _limited(
            name,
            "no /dev/kvm: this machine, or the virtual machine it is, offers none",
            "use exact mode; for live mode enable virtualisation in the firmware, or nesting in the hypervisor",
        )
    if not os.access(device, os.R_OK | os.W_OK):
        return _limited(
            name,
            "/dev/kvm is there, but not for this user",
            "add the user to the group kvm (`sudo adduser $USER kvm`) and log in again",
        )
    try:
        qemu = exact.find_qemu(command)
    except LabError as error:
        return _limited(name, f"cannot be tried: {error.message}", error.hint)
    if next(kvm.kernels_to_try(), None) is None:
        return _limited(
            name,
            "/dev/kvm opens; not tried, because there is no kernel to boot yet",
            "build or fetch one (`lab kernel build deb:6.12`), then ask again",
        )
    try:
        cpu = kvm.require(qemu.path, device, anew=True)
    except kvm.Refusal as error:
        return _limited(
            name,
            error.message,
            "use exact mode, the default; a hypervisor that does not nest cannot be mended from inside",
        )
    except DiskFull as error:
        return _limited(name, f"cannot be tried: {error.message}", error.hint)
    return _ok(name, "a kernel boots under KVM" + (f", with -cpu {cpu}" if cpu != "host" else ""))


_PERF_EVENT_OPEN = 298
_PERF_ATTR_SIZE = 112


def _counters() -> Finding:
    """Tell if perf_event_open(2) gives a counter of hardware cycles for this process."""
    name = "hardware counters"
    # struct perf_event_attr: type HARDWARE 0, size, config CPU_CYCLES 0; flags: disabled, exclude_kernel, exclude_hv
    attributes = struct.pack("IIQ", 0, _PERF_ATTR_SIZE, 0).ljust(40, b"\0") + struct.pack("Q", 1 | 1 << 5 | 1 << 6)
    buffer = ctypes.create_string_buffer(attributes.ljust(_PERF_ATTR_SIZE, b"\0"), _PERF_ATTR_SIZE)
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(_PERF_EVENT_OPEN, buffer, 0, -1, -1, 0)
    if descriptor >= 0:
        os.close(descriptor)
        return _ok(name, "the PMU counts cycles")
    return _limited(
        name,
        "no PMU: perf cannot count cycles or TLB misses here",
        "exact mode does not need one; for live mode use a machine that has one, or expose it to this guest",
    )


def _virtme_ng() -> Finding:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    if shutil.which("vng", path=path):
        return _ok("virtme-ng", "installed")
    return _limited("virtme-ng", "not installed; live mode needs it", f"{sys.executable} -m pip install virtme-ng")


def _default_tree() -> Finding:
    name = "default tree"
    if (paths.data_dir("trees") / "default.git").is_dir():
        return _ok(name, "imported")
    if Path("/usr/src/linux-source-6.12.tar.xz").is_file():
        return _ok(name, "not imported yet; its source package is installed")
    try:
        offered = run_text(["apt-cache", "pkgnames", "linux-source-6.12"])
    except LabError:
        offered = ""
    if "linux-source-6.12" in offered.split():
        return _ok(name, "not imported yet; its source package can be downloaded")
    return _limited(
        name,
        "linux-source-6.12 is neither installed nor offered by the package sources",
        "add the release's security updates to the package sources, then `lab doctor --install`; or use a tree of your "
        "own with --tree",
    )


def _size() -> Finding:
    cores = len(os.sched_getaffinity(0))
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    text = f"{cores} cores, {memory_gb:.0f} GiB of memory: {cores} exact guests at a time"
    if memory_gb < cores:
        return _limited("size", text, "run fewer guests at a time with --jobs")
    return _ok("size", text)


def _disk() -> Finding:
    folder = paths.cache_dir()
    free_gb = shutil.disk_usage(folder).free / 2**30
    text = f"{free_gb:.1f} GiB free for {folder}"
    elsewhere = "free some, or point XDG_CACHE_HOME and XDG_DATA_HOME elsewhere"
    if free_gb < 1:
        return _missing("disk", f"{text}: the guest image needs 1", elsewhere)
    if free_gb < 5:
        return _limited("disk", f"{text}: a kernel build needs 3, the default tree and image 2", elsewhere)
    return _ok("disk", text)


def _terminals() -> Finding:
    """Tell if there are pseudo-terminals: a plain chroot has none."""
    try:
        ansible.require_terminals()
    except HostFailed as error:
        return _missing("pseudo-terminals", error.message, error.hint)
    return _ok("pseudo-terminals", "Ansible has those that it needs for images and builds")


def _privileges() -> Finding:
    root = os.geteuid() == 0
    return _ok(
        "privileges", "running as root" if root else "an ordinary user: enough for images, builds and exact runs"
    )


# --- set-up, by an Ansible role ---

STATE_FILE = Path("/var/lib/kernel-ab-lab/bench-host.json")
_ROOT = Path("/")

SetUp = Literal["set", "to set", "as is", "refused", "absent"]


class Change(Record, frozen=True, kw_only=True):
    """The outcome for one switch. `to set`: with --check. `absent`: not on this machine. `refused`: by the kernel."""

    name: str
    outcome: SetUp
    text: str


class _File(msgspec.Struct, kw_only=True):
    path: str
    before: str | None
    after: str | None
    changed: bool
    refused: str | None = None


def fix(*, without_smt: bool, check: bool, root: Path = _ROOT, state: Path = STATE_FILE) -> list[Change]:
    """Set every switch that can be set, and store its old value. check: change nothing."""
    switches = _play("bench_host", {"bench_host_without_smt": without_smt}, check=check, root=root, state=state)
    return [_change(name, files, check=check) for name, files in switches.items()]


def restore(*, check: bool, root: Path = _ROOT, state: Path = STATE_FILE) -> list[Change]:
    """Put back the files that `fix` changed, if it did; one change for each."""
    if not state.exists():
        return []
    switches = _play("bench_host_restore", {}, check=check, root=root, state=state)
    return [_change(file.path, [file], check=check) for files in switches.values() for file in files]


def succeeded(changes: list[Change]) -> bool:
    """True if there was a switch to set, and the kernel refused none."""
    outcomes = {change.outcome for change in changes}
    return "refused" not in outcomes and bool(outcomes - {"absent"})


def _play(name: str, variables: dict[str, bool], *, check: bool, root: Path, state: Path) -> dict[str, list[_File]]:
    with process.scratch("lab-bench-host-") as folder:
        report = folder / "report.json"
        files = {"bench_host_root": str(root), "bench_host_state": str(state), "bench_host_report": str(report)}
        try:
            ansible.play(name, {**variables, **files}, check=check)
        except PlaybookFailed as error:
            raise HostFailed(error.message, hint="it needs root: run it by sudo, or as root") from error
        return records.load(report, dict[str, list[_File]])


def _change(name: str, files: list[_File], *, check: bool) -> Change:
    if not files:
        return Change(name=name, outcome="absent", text="this machine has no such switch")
    refused = [file for file in files if file.refused]
    if refused:
        count = f"{len(refused)} of {len(files)}: " if len(files) > 1 else ""
        return Change(name=name, outcome="refused", text=f"{count}/{refused[0].path}: {refused[0].refused}")
    changed = [file for file in files if file.changed]
    number = f" ({len(files)} CPUs)" if len(files) > 1 else ""
    if not changed:
        return Change(name=name, outcome="as is", text=f"{files[0].after}{number}")
    outcome: SetUp = "to set" if check else "set"
    return Change(name=name, outcome=outcome, text=f"{changed[0].before} -> {changed[0].after}{number}")
