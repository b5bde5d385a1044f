"""`lab shell`: the guest image under a kernel, with a shell in it, or one command. virtme-ng's own guest."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from lab.core.errors import HostFailed, UserError
from lab.core.progress import Progress
from lab.guests import channel, image, live_machine
from lab.guests.exact import Qemu
from lab.guests.live_machine import Accelerator
from lab.kernels import kernel as kernel_kernel
from lab.kernels.kernel import Kernel

_NEEDS = ("CONFIG_9P_FS", "CONFIG_NET_9P_VIRTIO", "CONFIG_VIRTIO_PCI", "CONFIG_VIRTIO_CONSOLE", "CONFIG_OVERLAY_FS")
_LOST = 255  # what vng says when the guest ended by itself, and not the command


def require_terminal(command: Sequence[str]) -> None:
    """Refuse a shell that nobody could type into: before its kernel is built."""
    if not command and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("a shell needs a terminal", hint="run one command instead: `lab shell SPEC -- uname -r`")


def prepare(kernel: Kernel, command: Sequence[str], *, settings: Mapping[str, str], progress: Progress) -> Path:
    """The root for the guest; refuses a kernel that could not work with it."""
    require_root(kernel)
    if not command and applied(settings):
        progress.log(f"for the spec's settings, type: {'; '.join(applied(settings))}")
    return live_machine.obtain(image.obtain(progress)[1])


def run(
    kernel: Kernel,
    room: Path,
    command: Sequence[str],
    *,
    qemu: Qemu,
    accelerator: Accelerator,
    cpus: int,
    memory_mb: int,
    settings: Mapping[str, str],
) -> int:
    """Boot the kernel and give the user a shell, or run one command; the status it ended with."""
    image = kernel.bzimage or kernel.vmlinux
    if image is None:
        raise UserError(f"{kernel.spec.text} is not a kernel that boots here")
    with tempfile.TemporaryDirectory(prefix="lab-shell-") as name:
        folder = Path(name)
        (folder / live_machine.KERNEL).symlink_to(image)
        (folder / live_machine.ROOM).symlink_to(room)
        chosen = words(command, qemu=qemu, accelerator=accelerator, cpus=cpus, memory_mb=memory_mb, settings=settings)
        argv = ["setpriv", "--pdeathsig", "TERM", "--", live_machine.find(), *chosen]
        env = {**os.environ, "PATH": live_machine.search_path(), "HOME": name, "TMPDIR": name}
        if command:
            status = _through_pipes(argv, folder, env)
        else:
            status = subprocess.run(argv, cwd=folder, env=env, check=False).returncode
    if command and status == _LOST:
        raise HostFailed(
            f"the guest of {kernel.spec.text} ended before the command did",
            hint="its kernel died, or lacks what virtme-ng's guest needs",
        )
    return status


def _through_pipes(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> int:
    """Run a program and pass on what it writes: QEMU opens its standard output anew, and would empty a file."""
    with subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        threads = [
            Thread(target=_pass_on, args=(process.stdout, sys.stdout.buffer)),
            Thread(target=_pass_on, args=(process.stderr, sys.stderr.buffer)),
        ]
        for thread in threads:
            thread.start()
        status = process.wait()
        for thread in threads:
            thread.join()
    return status


def _pass_on(source: BinaryIO, target: BinaryIO) -> None:
    while piece := os.read(source.fileno(), 1 << 16):
        target.write(piece)
        target.flush()


def words(
    command: Sequence[str],
    *,
    qemu: Qemu,
    accelerator: Accelerator,
    cpus: int,
    memory_mb: int,
    settings: Mapping[str, str],
) -> list[str]:
    """The arguments of `vng`: the image as root, read-only, with what is written kept in memory; no network."""
    chosen = {k.removeprefix("cmdline."): v for k, v in settings.items() if k.startswith("cmdline.")}
    arguments = [f"{name}={value}" if value else name for name, value in chosen.items()]
    script = [*applied(settings), f"exec {shlex.join(command)}"]
    return [
        *("--run", f"./{live_machine.KERNEL}", "--root", f"./{live_machine.ROOM}", "--cwd", f"./{live_machine.ROOM}"),
        *("--user", "root", "--force-9p", "--disable-microvm", "--disable-monitor"),
        *(["--disable-kvm"] if accelerator == "tcg" else []),
        *("--qemu", qemu.path, "--cpus", str(cpus), "--memory", f"{memory_mb}M"),
        *("--append", shlex.join(["panic=-1", *arguments])),
        *(["--exec", "; ".join(script)] if command else []),
    ]


def applied(settings: Mapping[str, str]) -> list[str]:
    """Shell commands for the settings of a spec."""
    return [line for name, value in settings.items() if (line := _setting(name, value))]


def _setting(name: str, value: str) -> str | None:
    """What applies a setting in a shell; None for what the kernel command line carries."""
    if name.startswith("env."):
        return f"export {name.removeprefix('env.')}={shlex.quote(value)}"
    return channel.setting_command(name, value)


def require_root(kernel: Kernel) -> None:
    """Refuse a kernel that cannot mount the image: virtme-ng's root comes by 9p, and no modules are loaded."""
    have = kernel_kernel.configuration(kernel)
    missing = [option for option in _NEEDS if have is not None and have.get(option, "n") != "y"]
    if missing:
        raise UserError(
            f"{kernel.spec.text} has not built in what a shell's root needs: {', '.join(missing)}",
            hint="kernels that the lab builds have it; `lab ab` does without and boots this one, too",
        )
