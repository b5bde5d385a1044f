"""`lab shell`."""

from __future__ import annotations

from typing import Literal

import click

from lab.cli import options
from lab.guests import exact, kvm
from lab.guests import shell as guest_shell
from lab.kernels import compilers, trees
from lab.kernels.kernel import resolve


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("spec")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@options.tree
@click.option("--accel", type=click.Choice(["auto", "kvm", "tcg"]), default="auto", show_default=True)
@click.option("--cpus", type=click.IntRange(min=1), default=1, show_default=True, help="vCPUs of the guest.")
@click.option("--memory", type=click.IntRange(min=128), default=1024, show_default=True, help="Its memory, in MiB.")
@click.option("--cc", default=compilers.DEFAULT, show_default=True, help="Compiler of the kernel.")
@options.qemu
@options.jobs
def shell(
    spec: str,
    command: tuple[str, ...],
    tree: str | None,
    accel: Literal["auto", "kvm", "tcg"],
    cpus: int,
    memory: int,
    cc: str,
    qemu: str,
    jobs: int | None,
) -> int:
    """Boot a kernel in the guest image, without a network, and give a shell in it; or run one command.

    Exits as the command does. What it writes is gone with the guest.

    \b
    Example:
      lab shell efa7df3e3bb5 -- uname -r
    """
    guest_shell.require_terminal(command)
    program = exact.find_qemu(qemu)
    with options.work(jobs) as work:
        opened = trees.open_tree(tree, progress=work.progress) if tree else None
        resolved = resolve(spec, opened, progress=work.progress)
        settings = dict(resolved.settings)
        accelerator = kvm.accelerator(accel, qemu, work.progress)
        kernel = resolved.obtain(work, cc=cc)
        root = guest_shell.prepare(kernel, command, settings=settings, progress=work.progress)
    return guest_shell.run(
        kernel, root, command, qemu=program, accelerator=accelerator, cpus=cpus, memory_mb=memory, settings=settings
    )
