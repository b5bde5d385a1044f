"""`lab shell`: the guest image under a kernel, with a shell or one command in it, in virtme-ng's own guest."""

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
from lab.kernels import architecture
from lab.kernels.kernel import Kernel

# virtme-ng's root comes by 9p, and the guest loads no modules.
NEEDS = ("CONFIG_9P_FS", "CONFIG_NET_9P_VIRTIO", "CONFIG_VIRTIO_PCI", "CONFIG_VIRTIO_CONSOLE", "CONFIG_OVERLAY_FS")
_LOST = 255  # vng's status when the guest ended before the command


def require_terminal(command: Sequence[str]) -> None:
    """Refuse a shell without a terminal, before its kernel is built."""
    if not command and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("a shell needs a terminal", hint="run one command instead: `lab shell SPEC -- uname -r`")


def prepare(kernel: Kernel, command: Sequence[str], *, settings: Mapping[str, str], progress: Progress) -> Path:
    """The guest's root. Refuses a kernel that cannot mount it."""
    architecture.require_default("a shell", [kernel.architecture])
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
    qemu: Qemu,
    accelerator: Accelerator,
    cpu: str,
    cpus: int,
    memory_mb: int,
    settings: Mapping[str, str],
) -> int:
    """Boot the kernel and give the user a shell, or run one command; the status it ended with.

    cpu: the CPU model under KVM.
    """
    bootable = kernel.bzimage or kernel.vmlinux
    if bootable is None:
        raise UserError(f"{kernel.spec.text} is not a kernel that boots here")
    with tempfile.TemporaryDirectory(prefix="lab-shell-") as name:
        folder = Path(name)
        live_machine.link_files(folder, bootable, root)
        argv = [
            *("setpriv", "--pdeathsig", "TERM", "--", live_machine.find_vng()),
            *live_machine.vng_options(accelerator, qemu.path, str(cpus), memory_mb),
            *accelerator_options(accelerator, cpu),
            *guest_options(command, settings),
        ]
        env = live_machine.vng_environment(name)
        if command:
            status = _run_through_pipes(argv, folder, env)
        else:
            status = subprocess.run(argv, cwd=folder, env=env, check=False).returncode
    if command and status == _LOST:
        raise HostFailed(
            f"the guest of {kernel.spec.text} ended before the command did",
            hint="its kernel died, or lacks what virtme-ng's guest needs",
        )
    return status


def accelerator_options(accelerator: Accelerator, cpu: str) -> list[str]:
    """The options of `vng` that keep QEMU to KVM: by itself, virtme-ng lets it fall back to TCG."""
    if accelerator == "tcg":
        return []
    return [f"--qemu-opts={' '.join(['-machine', 'accel=kvm', *live_machine.cpu_options(cpu)])}"]


def _run_through_pipes(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> int:
    """Run a program and copy its output: QEMU opens its standard output anew, and would empty a file."""
    with subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        threads = [
            Thread(target=_copy, args=(process.stdout, sys.stdout.buffer)),
            Thread(target=_copy, args=(process.stderr, sys.stderr.buffer)),
        ]
        for thread in threads:
            thread.start()
        status = process.wait()
        for thread in threads:
            thread.join()
    return status


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    while piece := os.read(source.fileno(), 1 << 16):
        target.write(piece)
        target.flush()


def guest_options(command: Sequence[str], settings: Mapping[str, str]) -> list[str]:
    """The options of `vng` for a spec's settings, and for the command that runs when they are applied."""
    cmdline = {name.removeprefix("cmdline."): v for name, v in settings.items() if name.startswith("cmdline.")}
    arguments = ["panic=-1", *(f"{name}={value}" if value else name for name, value in cmdline.items())]
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
