"""`lab shell`: the guest image under a kernel, with a shell or one command in it, in virtme-ng's own guest."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from lab.core import paths, process
from lab.core.errors import GuestFailed, GuestFailure, HostFailed, UserError
from lab.core.progress import Progress
from lab.guests import channel, image, live_machine
from lab.guests.exact import Qemu
from lab.guests.live_machine import Accelerator
from lab.guests.run import CONSOLE, FILE_MAX
from lab.kernels import architecture
from lab.kernels.kernel import Kernel
from lab.kernels.spec import MOUNT

# virtme-ng's root comes by 9p, and the guest loads no modules.
NEEDS = ("CONFIG_9P_FS", "CONFIG_NET_9P_VIRTIO", "CONFIG_VIRTIO_PCI", "CONFIG_VIRTIO_CONSOLE", "CONFIG_OVERLAY_FS")
_LOST = 255  # vng's status when the guest ended before the command
_TAG = "HOME"  # in the environment of all processes of a guest: its folder


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
    """The guest's root. Refuses a kernel that cannot mount it."""
    architecture.require_default("a shell", [kernel.architecture])
    if MOUNT in settings:
        raise UserError(f"{kernel.spec.text}: a shell's root has no {MOUNT}", hint="leave the setting out")
    have = kernel.configuration()
    missing = [option for option in NEEDS if have is not None and have.get(option, "n") != "y"]
    if missing:
        raise UserError(
            f"{kernel.spec.text} has not built in what a shell's root needs: {', '.join(missing)}",
            hint="kernels that the lab builds for a shell have it; `lab ab` does without and boots this one, too",
        )
    if not command and (commands := _setting_commands(settings)):
        progress.log(f"for the spec's settings, type: {'; '.join(commands)}")
    return live_machine.obtain_root(image.obtain(progress)[1])


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

    timeout_s: the longest that the guest may take, if there is a limit.
    """
    bootable = kernel.bzimage or kernel.vmlinux
    if bootable is None:
        raise UserError(f"{kernel.spec.text} is not a kernel that boots here")
    with process.scratch("lab-shell-", variable=_TAG) as folder:
        live_machine.link_files(folder, bootable, root)
        argv = [
            *("prlimit", f"--fsize={FILE_MAX}", "setpriv", "--pdeathsig", "TERM", "--", live_machine.find_vng()),
            *live_machine.vng_options(
                guest.accelerator, _logging_qemu(folder, guest.qemu.path), str(guest.cpus), guest.memory_mb
            ),
            *accelerator_options(guest.accelerator, guest.cpu),
            *guest_options(command, settings),
        ]
        try:
            status = (_run_through_pipes if command else _run_in_terminal)(argv, folder, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise GuestFailed(
                GuestFailure.HANG,
                f"the guest of {kernel.spec.text} hung: it did not end within {timeout_s:g} s",
                hint="if its command needs longer, give it that with --guest-timeout",
                log=_kept_log(folder, kernel),
            ) from error
        if command and status == _LOST:
            raise HostFailed(
                f"the guest of {kernel.spec.text} ended before the command did",
                hint="its kernel died, or lacks what virtme-ng's guest needs",
                log=_kept_log(folder, kernel),
            )
    return status


def _kept_log(folder: Path, kernel: Kernel) -> Path | None:
    """The kernel's messages, put where they stay; None if there are none, as of a shell, whose terminal has them."""
    console = folder / CONSOLE
    if not console.exists():
        return None
    log = paths.cache_dir("logs") / f"shell-{kernel.key[:12]}.log"
    log.write_bytes(console.read_bytes())
    return log


# QEMU with the messages of a command's kernel in a file: virtme-ng drops them, and a kernel has one serial console.
_QEMU = f"""#!/bin/sh
for word; do
    shift
    [ "$word" != file,id=console,path=/dev/null ] || word=file,id=console,path={CONSOLE}
    set -- "$@" "$word"
done
exec %s "$@"
"""


def _logging_qemu(folder: Path, qemu: str) -> str:
    """The program that starts QEMU; QEMU itself where none in the folder may be started."""
    program = folder / "qemu"
    program.write_text(_QEMU % shlex.quote(qemu))
    program.chmod(0o700)
    return str(program) if os.access(program, os.X_OK) else qemu


def accelerator_options(accelerator: Accelerator, cpu: str) -> list[str]:
    """The options of `vng` that keep QEMU to KVM: by itself, virtme-ng lets it fall back to TCG."""
    if accelerator == "tcg":
        return []
    return [f"--qemu-opts={' '.join(['-machine', 'accel=kvm', *live_machine.cpu_options(cpu)])}"]


def _run_in_terminal(argv: Sequence[str], folder: Path, timeout_s: float | None) -> int:
    """Run a program that has the terminal, and may leave it in another mode than it found."""
    mode = termios.tcgetattr(sys.stdin)
    try:
        with (
            subprocess.Popen(argv, cwd=folder, env=live_machine.vng_environment(str(folder))) as started,
            _ended(folder),
        ):
            return started.wait(timeout_s)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)


def _run_through_pipes(argv: Sequence[str], folder: Path, timeout_s: float | None) -> int:
    """Run a program and copy its output: QEMU opens its standard output anew, and would empty a file."""
    env, pipe = live_machine.vng_environment(str(folder)), subprocess.PIPE
    with subprocess.Popen(argv, cwd=folder, env=env, stdout=pipe, stderr=pipe) as started:
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


def guest_options(command: Sequence[str], settings: Mapping[str, str]) -> list[str]:
    """The options of `vng` for a spec's settings, and for the command that runs when they are applied."""
    cmdline = {name.removeprefix("cmdline."): v for name, v in settings.items() if name.startswith("cmdline.")}
    arguments = [
        "panic=-1",
        *(["loglevel=7"] if command else []),
        *(f"{name}={value}" if value else name for name, value in cmdline.items()),
    ]
    script = [*_setting_commands(settings), f"exec {shlex.join(command)}"]
    return ["--append", shlex.join(arguments), *(["--exec", "; ".join(script)] if command else [])]


def _setting_commands(settings: Mapping[str, str]) -> list[str]:
    """Shell commands that apply settings, but for those of the kernel command line."""
    commands = (
        f"export {name.removeprefix('env.')}={shlex.quote(value)}"
        if name.startswith("env.")
        else channel.setting_command(name, value)
        for name, value in settings.items()
    )
    return [command for command in commands if command]
