"""Boots one guest, and classifies its failures."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from lab.core import paths
from lab.core.errors import GuestFailed, GuestFailure, HostFailed, suggestion
from lab.guests.channel import GuestReport, parse
from lab.kernels.kernel import Kernel

Mode = Literal["exact", "live"]

# Files in a guest's folder.
CONSOLE, REPORT, INITRD = "console.log", "report.jsonl", "initrd.cpio"

GUEST_TIMEOUT_S = 300.0
"""The longest that a guest may take, unless the user says otherwise."""

LAST_WORDS_S = 20.0
"""The longest silence of a guest whose kernel oopsed."""

QUEUED_MAX = 3
"""The most time that a guest may also wait for a processor, as a multiple of its longest time."""

END_SIZE = 64 << 10
"""The bytes of a console's end that an oops is looked for in."""

TOO_MUCH = "cost plugin: the guest's"
"""The beginning of the plugin's complaint about a guest that would make it grow without bound."""

FILE_MAX = 64 << 20
"""The most bytes of each file of an exact guest: five times those of all of syscalls."""

REPORT_MAX = 16 << 20
"""The most bytes of a report, a hundred times those of syscalls. Reading takes up to twenty times as much memory."""

DISK_NEEDED = FILE_MAX
"""The bytes of disk that have to be free for a guest: enough for a few kept states beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """`base` or `test`: a kernel and the settings of its guest."""

    name: str
    kernel: Kernel
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestExit:
    """The end of a guest, and the files that it left. status: QEMU's. cpu_s: the processor time that it took."""

    status: int
    timed_out: bool
    stderr: str
    wall_s: float
    cpu_s: float = 0.0
    console: Path
    report: Path

    @property
    def console_text(self) -> str:
        """The kernel's messages."""
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    @property
    def complaints(self) -> list[str]:
        """QEMU's messages, without its warnings."""
        return [line.strip() for line in self.stderr.splitlines() if line.strip() and "warning:" not in line]


class Stoppable(Protocol):
    """A guest on this machine, or on another."""

    def kill(self) -> None:
        """End it."""


class RunningGuests:
    """The guests that run now, so that all can be stopped at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[Stoppable] = set()
        self._closed = False

    def add(self, process: Stoppable) -> None:
        """Add a started guest; kill it if all have been stopped."""
        with self._lock:
            self._processes.add(process)
            if self._closed:
                process.kill()

    def discard(self, process: Stoppable) -> None:
        """Remove a guest that ended by itself."""
        with self._lock:
            self._processes.discard(process)

    def stop_all(self) -> None:
        """Kill every guest, and every guest that is added later."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.kill()


@contextmanager
def needing_disk(folder: Path) -> Iterator[None]:
    """Raise `DiskFull` for a guest that has too little disk to start, and for one that failed while it had too little.

    A report that a full disk cut short reads as a guest that died. The disk may be less full when the guest ends: what
    filled it can be the state of another guest, which is deleted if it does not fit.
    """
    paths.require_space(folder, DISK_NEEDED, "a guest")
    try:
        yield
    except GuestFailed:
        paths.require_space(folder, DISK_NEEDED, "a guest")
        raise


def boot(
    argv: Sequence[str],
    *,
    folder: Path,
    timeout_s: float,
    running: RunningGuests | None = None,
    on_start: Callable[[subprocess.Popen[bytes]], None] | None = None,
    fds: Sequence[int] = (),
    file_max: int | None = None,
    silence_s: float | None = None,
) -> GuestExit:
    """Run a guest to its end, or kill it after `timeout_s` of wall time, less the time that it waited for a processor.

    A guest whose kernel oopsed may never end, and is killed once it says nothing more.

    argv: has the guest write CONSOLE and REPORT in the folder. on_start: called with the new process; an exception from
    it ends the guest. fds: the open files that it inherits. file_max: the most bytes of a file that it writes, its
    memory included if that is a file. silence_s: a guest that says nothing for so long is killed, too.
    """
    running = running or RunningGuests()
    started = time.monotonic()
    # The guest must not outlive the lab, not even when the lab is killed: an exact guest that hangs never sleeps.
    command = ["setpriv", "--pdeathsig", "KILL", "--no-new-privs", "--", *argv]
    with (folder / "qemu.log").open("w+b") as log:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, pass_fds=fds
            )
        except OSError as error:
            raise HostFailed(f"cannot start {argv[0]}: {error.strerror}", hint="run `lab doctor`") from error
        running.add(process)
        if file_max:
            with suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (file_max, file_max))
        timed_out, cpu_s = False, 0.0
        try:
            if on_start is not None:
                on_start(process)
            cpu_s = _wait(process, timeout_s, folder, silence_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            process.kill()
            process.wait()
            running.discard(process)
        log.seek(0)
        stderr = log.read().decode(errors="replace")
    return GuestExit(
        status=process.returncode,
        timed_out=timed_out,
        stderr=stderr,
        wall_s=time.monotonic() - started,
        cpu_s=cpu_s,
        console=folder / CONSOLE,
        report=folder / REPORT,
    )


def _wait(process: subprocess.Popen[bytes], timeout_s: float, folder: Path, silence_s: float | None) -> float:
    """Wait for a guest to end; its processor time, which is known until it is reaped."""
    console, report = folder / CONSOLE, folder / REPORT
    descriptor = os.pidfd_open(process.pid)
    started = spoke = time.monotonic()
    left, said = timeout_s, (_size(console), _size(report))
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        while not ended.poll(1000 * min(left, silence_s or LAST_WORDS_S / 4)):
            now = time.monotonic()
            if (sizes := (_size(console), _size(report))) != said:
                said, spoke = sizes, now
            if now - spoke >= LAST_WORDS_S and _OOPS.search(_end(console)):
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            # A guest beside much other work is slow, and does not hang: its kernel must not be blamed. A guest that
            # hangs must end there, too.
            left = timeout_s - (now - started) + min(_queued_s(process.pid), QUEUED_MAX * timeout_s)
            if left <= 0 or (silence_s and now - spoke >= silence_s):
                raise subprocess.TimeoutExpired(process.args, timeout_s)
    finally:
        os.close(descriptor)
    # The name of the program is in parentheses, and may contain anything.
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    process.wait()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _queued_s(process: int) -> float:
    """The longest time for which a thread of a process was ready to run, and no processor was free.

    0.0 if the host's kernel does not count it.
    """
    waited = [0]
    for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that has ended
            waited.append(int(file.read_text().split()[1]))
    return max(waited) / 1e9


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _end(path: Path) -> str:
    """The end of a console, which may be long."""
    if not path.exists():
        return ""
    with path.open("rb") as stream:
        stream.seek(max(_size(path) - END_SIZE, 0))
        return stream.read().decode(errors="replace")


_PANIC = re.compile(r"Kernel panic - not syncing: (.*)")
_OOPS = re.compile(
    r"((?<!watchdog: )BUG: .*|Oops: .*|general protection fault.*|kernel BUG at .*|Unable to handle kernel.*)"
)
_OOM = re.compile(r"(Out of memory: Killed process .*|invoked oom-killer.*)")
# With a bound in the middle: one line of 64 MiB full of beginnings would be searched for days.
_STALL = re.compile(
    r"(rcu: INFO: .{,200}stall.*|INFO: task .{,200} blocked for more than.*|watchdog: BUG: soft lockup.*)"
)

# Bits that are 0 on every CPU. QEMU 7.2 does not set the kind of the flags before a cmpxchg16b, so it may take
# half a pointer for them if an interrupt comes right behind it (target/i386/tcg/translate.c).
_WRONG_FLAGS = re.compile(r"EFLAGS: (?!00[0-3])[0-9a-f]{8}\b")
WRONG_FLAGS = "QEMU 7.2 has wrong flags after cmpxchg16b in some layouts of a kernel's code"

# Signals by which a program ends itself, or ends by a mistake of its own: no other process sent them.
_CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}

_ORDER = ": terminating on signal "
"""QEMU's message about a signal that ended it from outside. Its status is 0 then, as if its guest had ended."""

_REFUSED_HINTS = {"hugepages": "its memory does not give that many: reserve fewer, or raise memory_mb in workload.toml"}


def read_report(ended: GuestExit) -> GuestReport:
    """The report of a guest. `GuestFailed` names its failure, and the case that ran then.

    An oops is a failure even if the workload continued: numbers of a kernel that oopsed mean nothing.
    """
    for path, most in ((ended.console, FILE_MAX), (ended.report, REPORT_MAX)):
        if path.exists() and path.stat().st_size > most:
            raise _flood(path, most)
    report = parse(ended.report.read_bytes() if ended.report.exists() else b"")
    try:
        _require_complete(ended, report)
    except GuestFailed as error:
        error.case = report.running
        error.wrong_flags = bool(_WRONG_FLAGS.search(ended.console_text))
        raise
    return report


def _require_complete(ended: GuestExit, report: GuestReport) -> None:
    console, log = ended.console_text, ended.console
    if panic := _PANIC.search(console):
        raise _panicked(panic[1].strip(), console, log)
    if oops := _OOPS.search(console):
        raise GuestFailed(
            GuestFailure.OOPS, f"the guest's kernel oopsed: {oops[1].strip()}", hint=_hint(console), log=log
        )
    stall = _STALL.search(console)
    if ended.timed_out:
        why = f": {stall[1].strip()}" if stall else ""
        when = "" if console or report.hello else " before it printed anything"
        raise GuestFailed(
            GuestFailure.HANG,
            f"the guest hung{when}; stopped after {ended.wall_s:.0f} s{why}",
            hint="if this machine is slow, give it longer with --guest-timeout",
            log=log,
        )
    if ended.status == -signal.SIGXFSZ:
        raise _flood(log)
    if (complaint := ended.complaints[-1:]) and complaint[0].startswith(TOO_MUCH):
        raise GuestFailed(
            GuestFailure.WORKLOAD,
            complaint[0].removeprefix("cost plugin: "),
            hint="mark fewer operations, or larger ones",
            log=log.with_name("qemu.log"),
        )
    if -ended.status in _CRASHES:
        raise GuestFailed(
            GuestFailure.QEMU_DIED,
            f"QEMU died by signal {-ended.status} ({signal.Signals(-ended.status).name}) while it ran this kernel: "
            f"{ended.complaints[-1] if ended.complaints else 'no message'}",
            hint="a kernel can do that to QEMU, by its writes to devices; another QEMU (--qemu) may stand it",
            log=log.with_name("qemu.log"),
        )
    if ended.status != 0:
        how = f"signal {-ended.status}" if ended.status < 0 else f"status {ended.status}"
        raise GuestFailed(
            GuestFailure.QEMU_DIED,
            f"QEMU died with {how}: {ended.complaints[-1] if ended.complaints else 'no message'}",
            hint="see its log; `lab doctor` checks this machine",
            log=log.with_name("qemu.log"),
        )
    if not report.complete and (order := next((line for line in ended.complaints if _ORDER in line), None)):
        raise GuestFailed(
            GuestFailure.QEMU_DIED,
            f"QEMU was told to end before its guest did: {order}",
            hint="run it again; something on this machine ends programs",
            log=log.with_name("qemu.log"),
        )
    if stall and "lockup" in stall[1]:
        raise GuestFailed(GuestFailure.OOPS, f"the guest's kernel complained: {stall[1].strip()}", log=log)
    if report.fatal:
        raise GuestFailed(GuestFailure.NO_REPORT, f"the guest's init gave up: {report.fatal}", log=log)
    if report.refused:
        setting = report.refused[0]
        hint = "check the setting's name and value; an older kernel may not have it"
        raise GuestFailed(
            GuestFailure.REFUSED,
            f"the guest refused the setting {setting.name}={setting.value}: {setting.error}",
            hint=_REFUSED_HINTS.get(setting.name) or _similar_sysctl(setting.name) or hint,
            log=log,
        )
    if not report.complete:
        raise _incomplete(report, console, log)


def _similar_sysctl(name: str) -> str | None:
    """A question that names the host's sysctls like one that the guest refused."""
    if not name.startswith("sysctl."):
        return None
    top = Path("/proc/sys")
    return suggestion(name, ("sysctl." + ".".join(path.relative_to(top).parts) for path in top.rglob("*")))


def _flood(log: Path, most: int = FILE_MAX) -> GuestFailed:
    return GuestFailed(
        GuestFailure.WORKLOAD,
        f"the guest wrote more than {most >> 20} MiB to its console, its report or the plugin's output",
        hint="does a program print, or mark operations, without end?",
        log=log,
    )


def _panicked(why: str, console: str, log: Path) -> GuestFailed:
    if _OOM.search(console) and any(text in why.lower() for text in ("out of memory", "deadlocked on memory")):
        return GuestFailed(GuestFailure.OOM, f"the guest ran out of memory and panicked: {why}", log=log)
    if any(text in why for text in ("No working init found", "Unable to mount root fs")):
        return GuestFailed(
            GuestFailure.PANIC,
            f"the guest's kernel panicked, because it found no init that it can run: {why}",
            hint="does it have the options that the guest image needs (CONFIG_BLK_DEV_INITRD, CONFIG_BINFMT_ELF; see "
            "kernels/fragments/guest.config)? Add it with %CONFIG_...=y",
            log=log,
        )
    return GuestFailed(GuestFailure.PANIC, f"the guest's kernel panicked: {why}", hint=_hint(console), log=log)


def _hint(console: str) -> str | None:
    """The hint for a kernel that died: QEMU is to blame if it computed flags wrongly, and an interrupt came then."""
    if not _WRONG_FLAGS.search(console):
        return None
    return f"{WRONG_FLAGS}: try a newer one with --qemu"


def _incomplete(report: GuestReport, console: str, log: Path) -> GuestFailed:
    hint = None
    if report.hello is not None:
        last = report.cases[-1].name if report.cases else "the first case"
        message = f"the guest ended in the middle of its report (at {last})"
    elif console.strip():
        message = "the kernel booted, but its init never reported"
        hint = "it needs the options of kernels/fragments/guest.config, such as BLK_DEV_INITRD, BINFMT_ELF, DEVTMPFS"
    else:
        message = "the guest's kernel reset the machine, or switched it off, before it printed anything"
        hint = (
            "a fault in its first steps does that; a kernel that boots here needs CONFIG_SERIAL_8250_CONSOLE, "
            "and CONFIG_PVH for the fast boot"
        )
    return GuestFailed(GuestFailure.NO_REPORT, message, hint=hint, log=log)


def overridden(words: Sequence[str], extra: Sequence[str]) -> list[str]:
    """Words of a command line, without the replaced ones, and the replacements.

    To give a parameter twice is not enough: since v6.17 `mitigations=off mitigations=auto` mitigates nothing
    (mitigations_parse_cmdline() in kernel/cpu.c).
    """
    replaced = {word.partition("=")[0] for word in extra}
    return [*(word for word in words if word.partition("=")[0] not in replaced), *extra]
