"""`lab shell`: the guest image under a kernel, with a shell or one command in it, booted from RAM as all guests are.

Any kernel that boots as a guest has the needed parts: a root in RAM and serial ports. The first port has the kernel's
messages, and the terminal of a shell. A command writes to the second and the third. The last port has the status.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from lab.core import cpio, process
from lab.core.errors import GuestFailed, GuestFailure, HostFailed, UserError
from lab.core.progress import Progress
from lab.guests import channel, image
from lab.guests.exact import Qemu
from lab.guests.live_machine import Accelerator
from lab.guests.run import CONSOLE, FILE_MAX, INITRD
from lab.kernels import architecture
from lab.kernels.kernel import Kernel
from lab.kernels.spec import MOUNT

_TAG = "LAB_SHELL"  # in the environment of QEMU: the guest's folder
_STATUS = "status"
_INIT = "lib/lab/shell"


@dataclass(frozen=True, kw_only=True)
class ShellGuest:
    """The virtual machine of a shell. cpu: the CPU model under KVM."""

    qemu: Qemu
    accelerator: Accelerator
    cpu: str
    cpus: int
    memory_mb: int


def require_terminal(command: Sequence[str]) -> None:
    """Refuse a shell without a terminal, before its kernel is built."""
    if not command and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("a shell needs a terminal", hint="run one command instead: `lab shell SPEC -- uname -r`")


def prepare(kernel: Kernel, command: Sequence[str], *, settings: Mapping[str, str], progress: Progress) -> Path:
    """The archive of the guest's root. Refuses settings and kernels that a shell cannot have."""
    architecture.require_default("a shell", [kernel.architecture])
    if MOUNT in settings:
        raise UserError(f"{kernel.spec.text}: a shell's root has no {MOUNT}", hint="leave the setting out")
    if not command:
        progress.log("the shell ends by `exit`, and the guest by Ctrl-A X")
    return image.obtain(progress)[1] / "root.cpio"


def run(
    kernel: Kernel,
    root: Path,
    command: Sequence[str],
    *,
    guest: ShellGuest,
    settings: Mapping[str, str],
    timeout_s: float | None = None,
) -> int:
    """Boot the kernel and give the user a shell, or run one command; the status it ended with.

    root: an archive. timeout_s: the longest that the guest may take, if there is a limit.
    """
    bootable = kernel.bzimage or kernel.vmlinux
    if bootable is None:
        raise UserError(f"{kernel.spec.text} is not a kernel that boots here")
    with process.scratch("lab-shell-", variable=_TAG) as folder:
        (folder / "init").write_text(init_script(command, settings))
        # The image's archive, and the first program in another behind it.
        with (folder / INITRD).open("wb") as stream, root.open("rb") as archive:
            shutil.copyfileobj(archive, stream, 1 << 20)
            cpio.write(stream, folder, [], {_INIT: folder / "init"})
        argv = [
            *("prlimit", f"--fsize={max(FILE_MAX, guest.memory_mb << 20)}", "setpriv", "--pdeathsig", "TERM", "--"),
            *qemu_argv(guest, bootable, folder, command, settings),
        ]
        try:
            (_run_through_pipes if command else _run_in_terminal)(argv, folder, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise GuestFailed(
                GuestFailure.HANG,
                f"the guest of {kernel.spec.text} hung: it did not end within {timeout_s:g} s",
                hint="if its command needs longer, give it that with --guest-timeout",
                log=folder / CONSOLE,
            ) from error
        said = (folder / _STATUS).read_text().strip() if (folder / _STATUS).exists() else ""
        if command and not said.isdigit():
            raise HostFailed(
                f"the guest of {kernel.spec.text} ended before the command did",
                hint="its kernel died, or its memory is too little for the image: give --memory",
                log=folder / CONSOLE,
            )
    return int(said) if said.isdigit() else 0


def qemu_argv(
    guest: ShellGuest, kernel: Path, folder: Path, command: Sequence[str], settings: Mapping[str, str]
) -> list[str]:
    """QEMU's argument list: the machine that boots any kernel, and the ends of its serial ports."""
    ports = {"console": "stdio,mux=on,signal=off"}
    if command:
        # By name: QEMU opens its own standard output again, which is a pipe here.
        ports = {"console": f"file,path={folder / CONSOLE}", "out": "file,path=/proc/self/fd/1"}
        ports["err"] = "file,path=/proc/self/fd/2"
    ports["status"] = f"file,path={folder / _STATUS}"
    cmdline = {name.removeprefix("cmdline."): v for name, v in settings.items() if name.startswith("cmdline.")}
    words = ["console=ttyS0", f"rdinit=/{_INIT}", "panic=-1", "reboot=t", "loglevel=7" if command else "quiet"]
    words += [f"{name}={value}" if value else name for name, value in cmdline.items()]
    return [
        guest.qemu.path,
        *("-machine", "q35", "-accel", guest.accelerator, "-cpu", guest.cpu),
        *("-smp", str(guest.cpus), "-m", f"{guest.memory_mb}M"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *(
            word
            for name, kind in ports.items()
            for word in ("-chardev", kind.replace(",", f",id={name},", 1), "-device", f"isa-serial,chardev={name}")
        ),
        *("-kernel", str(kernel), "-initrd", str(folder / INITRD), "-append", shlex.join(words)),
    ]


_INIT_SCRIPT = """\
#!/bin/busybox sh
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root
/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin /proc /sys /dev /run /tmp /root /etc
/bin/busybox --install -s
[ -e /etc/passwd ] || echo root::0:0:root:/root:/bin/sh >/etc/passwd
[ -e /etc/group ] || echo root:x:0: >/etc/group
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts 2>/dev/null
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mount -t tmpfs tmpfs /run
cd /root
{commands}
reboot -f
"""
_IN_TERMINAL = """\
stty rows {rows} cols {columns} </dev/ttyS0
setsid -c {environment} sh -l </dev/ttyS0 >/dev/ttyS0 2>&1
echo $? >/dev/ttyS1"""
_ONE_COMMAND = """\
stty -F /dev/ttyS1 raw
stty -F /dev/ttyS2 raw
{environment} sh -c {command} </dev/null >/dev/ttyS1 2>/dev/ttyS2
echo $? >/dev/ttyS3"""


def init_script(command: Sequence[str], settings: Mapping[str, str]) -> str:
    """The first program of the guest: it applies a spec's settings, and runs a shell or the command."""
    size = shutil.get_terminal_size()
    commands = [line for name, value in settings.items() if (line := channel.setting_command(name, value))]
    values = {name.removeprefix("env."): value for name, value in settings.items() if name.startswith("env.")}
    environment = shlex.join(
        ["env", f"TERM={os.environ.get('TERM', 'linux')}", *(f"{k}={v}" for k, v in values.items())]
    )
    last = (_ONE_COMMAND if command else _IN_TERMINAL).format(
        rows=size.lines,
        columns=size.columns,
        environment=environment,
        command=shlex.quote(f"exec {shlex.join(command)}"),
    )
    return _INIT_SCRIPT.format(commands="\n".join([*commands, last]))


def _run_in_terminal(argv: Sequence[str], folder: Path, timeout_s: float | None) -> int:
    """Run a program that has the terminal, and may leave it in another mode than it found."""
    mode = termios.tcgetattr(sys.stdin)
    try:
        with (
            subprocess.Popen(argv, cwd=folder, env={**os.environ, _TAG: str(folder)}) as started,
            _ended(folder),
        ):
            return started.wait(timeout_s)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)


def _run_through_pipes(argv: Sequence[str], folder: Path, timeout_s: float | None) -> int:
    """Run a program and copy its output: QEMU opens its standard output again, and would empty a file."""
    env, pipe = {**os.environ, _TAG: str(folder)}, subprocess.PIPE
    with subprocess.Popen(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as started:
        threads = [
            Thread(target=_copy, args=(started.stdout, sys.stdout.buffer)),
            Thread(target=_copy, args=(started.stderr, sys.stderr.buffer)),
        ]
        for thread in threads:
            thread.start()
        try:
            with _ended(folder):
                return started.wait(timeout_s)
        finally:
            for thread in threads:
                thread.join()


@contextmanager
def _ended(folder: Path) -> Iterator[None]:
    """End all processes of a guest when waiting for it does not end by itself."""
    try:
        yield
    except BaseException:
        process.kill_tagged(_TAG, str(folder))
        raise


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    while piece := os.read(source.fileno(), 1 << 16):
        target.write(piece)
        target.flush()
