"""Live mode's virtual machine: the options of `vng`, and the QEMU command that the lab starts.

virtme-ng composes the guest (`vng --dry-run` prints the command). The lab starts it: paused, so that it can pin the
threads before the guest's first instruction, and as its own child, so that no guest outlives the lab. All paths are
relative to the guest's folder, so every boot of an arm has the same command.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lab.core import process, records, toml
from lab.core.errors import GuestFailed, GuestFailure, HostFailed
from lab.core.locks import make_once
from lab.core.paths import data_folder
from lab.core.records import Record
from lab.guests import initrd
from lab.guests.run import CONSOLE, INITRD, REPORT, overridden
from lab.guests.topology import CpuSet, Shape

if TYPE_CHECKING:
    from qemu.qmp import QMPClient

Accelerator = Literal["kvm", "tcg"]

# In a guest's folder.
KERNEL, ROOT, QMP = "kernel", "root", "qmp.sock"

_SLOW = "if this machine is slow or busy, give it longer with --guest-timeout"


class LiveMachine(Record, frozen=True, kw_only=True):
    """`machines/live.toml`."""

    schema: int
    machine: str
    cmdline: list[str]
    settings: dict[str, str]


class LiveGuest(Record, frozen=True, kw_only=True):
    """A guest of live mode: all that its command line depends on, except the names of its files.

    cpu: QEMU's CPU model under KVM, as `lab.guests.kvm` found it.
    """

    qemu: str
    accelerator: Accelerator
    shape: Shape
    cpu_set: CpuSet
    memory_mb: int
    hugepage_kb: int | None
    arguments: list[str]
    cpu: str = "host"


@cache
def live_parameters() -> LiveMachine:
    """The parameters of live mode's guest."""
    return toml.load(data_folder("machines") / "live.toml", LiveMachine)


# ---- the command line


def vng_argv(guest: LiveGuest) -> list[str]:
    """The arguments of `vng`, without the program: no network, no balloon, the image's root and never the host's."""
    return [
        *("--run", f"./{KERNEL}", "--root", f"./{ROOT}", "--cwd", f"./{ROOT}", "--user", "root"),
        # The root's transport is not measured; a transport without a daemon on the host is the same everywhere.
        *("--force-9p", "--disable-microvm", "--disable-monitor"),
        *(["--disable-kvm"] if guest.accelerator == "tcg" else []),
        *("--qemu", guest.qemu, "--cpus", guest.shape.smp, "--memory", f"{guest.memory_mb}M"),
        "--verbose",
        *("--append", shlex.join(overridden(live_parameters().cmdline, guest.arguments))),
        f"--qemu-opts={' '.join(qemu_options(guest))}",
        *("--exec", "true"),
    ]


def qemu_options(guest: LiveGuest) -> list[str]:
    """QEMU's options beside those of virtme-ng: memory, accelerator, the root in RAM, report, control socket."""
    machine = [live_parameters().machine, "mem-merge=off", "dump-guest-core=off"]
    if guest.accelerator == "kvm":
        machine.append("accel=kvm")  # over virtme-ng's kvm:tcg: a guest that falls back to TCG measures nothing
    if guest.shape.nodes == 1:
        machine.append("memory-backend=mem0")
    return [
        *("-machine", ",".join(machine)),
        *(["-accel", "tcg,thread=multi"] if guest.accelerator == "tcg" else cpu_options(guest.cpu)),
        *_memory(guest),
        *("-initrd", INITRD),
        *("-chardev", f"file,id=report,path={REPORT}", "-device", "isa-serial,chardev=report"),
        *("-qmp", f"unix:{QMP},server=on,wait=off", "-S"),
    ]


def cpu_options(cpu: str) -> list[str]:
    """The option for a CPU model that is not virtme-ng's own. QEMU takes the last one."""
    return [] if cpu == "host" else ["-cpu", cpu]


def _memory(guest: LiveGuest) -> Iterator[str]:
    """Memory that is allocated before the guest starts: bound to the host's nodes, in huge pages if there are some."""
    nodes = guest.shape.nodes
    per_node = guest.shape.cores * guest.shape.threads
    for node in range(nodes):
        kind = "memory-backend-ram"
        options = [f"id=mem{node}", f"size={guest.memory_mb // nodes}M", "prealloc=on", "merge=off", "dump=off"]
        if per_node > 1:  # one thread takes seconds for some GiB
            options.append(f"prealloc-threads={per_node}")
        if guest.hugepage_kb:
            kind = "memory-backend-memfd"
            options += ["hugetlb=on", f"hugetlbsize={guest.hugepage_kb}K"]
        if guest.cpu_set.nodes:
            options += [f"host-nodes={guest.cpu_set.nodes[node]}", "policy=bind"]
        yield from ("-object", ",".join([kind, *options]))
        if nodes > 1:
            first = node * per_node
            cpus = f"{first}-{first + per_node - 1}" if per_node > 1 else f"{first}"
            yield from ("-numa", f"node,nodeid={node},memdev=mem{node},cpus={cpus}")


def qemu_argv(printed: str) -> list[str]:
    """QEMU's argument list from the output of `vng --dry-run`, with the guest's output where the lab looks for it."""
    lines = [line for line in printed.splitlines() if line.strip()]
    argv = shlex.split(lines[-1]) if lines else []
    if "-kernel" not in argv or "-append" not in argv:
        raise HostFailed(f"vng --dry-run printed no QEMU command: {lines[-1] if lines else 'nothing'}")
    # The init of virtme-ng's own root is not used, and its command is in a file with a random name.
    append = argv.index("-append") + 1
    argv[append] = argv[append].partition(" init=")[0]
    return [_redirected(word) for word in argv]


def _redirected(word: str) -> str:
    """The console goes to a file of its own; a script's ports have no input, and their output is dropped."""
    kind, _, rest = word.partition(",id=")
    name, _, options = rest.partition(",")
    if kind not in ("file", "stdio") or name == "report":
        return word
    if name == "console":
        return f"file,id=console,path={CONSOLE}"
    return f"null,id={name}" if options else word


# ---- virtme-ng


def find_vng() -> str:
    """The `vng` to use: the one beside this Python, else one on the path."""
    path = shutil.which("vng", path=_search_path())
    if path is None:
        raise HostFailed(
            "virtme-ng is not installed; live mode boots its guests with it",
            hint=f"run `{sys.executable} -m pip install virtme-ng`",
        )
    return path


def vng_version() -> str:
    """The version of the virtme-ng that this Python sees; empty for one from elsewhere."""
    try:
        return metadata.version("virtme-ng")
    except metadata.PackageNotFoundError:
        return ""


def _search_path() -> str:
    """vng calls programs that are installed beside it."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def link_files(folder: Path, kernel: Path, root: Path) -> None:
    """Put a kernel and a root at the command line's paths."""
    (folder / KERNEL).symlink_to(kernel)
    (folder / ROOT).symlink_to(root)


def compose(guest: LiveGuest, kernel: Path, root: Path, timeout_s: float) -> tuple[list[str], list[str]]:
    """The `vng` command of a guest, and the QEMU command that `vng` prints for it within a time."""
    argv = vng_argv(guest)
    return ["vng", *argv], list(_composed(tuple(argv), kernel, root, timeout_s))


@cache
def _composed(argv: tuple[str, ...], kernel: Path, root: Path, timeout_s: float) -> tuple[str, ...]:
    """Run `vng --dry-run` in a folder like a guest's: it reads the kernel, and looks for the root."""
    with process.scratch("lab-vng-") as folder:
        link_files(folder, kernel, root)
        command = [find_vng(), "--dry-run", *argv]
        # A home of its own: the user's configuration is for other guests.
        env = {**os.environ, "PATH": _search_path(), "HOME": str(folder), "TMPDIR": str(folder)}
        try:
            printed = process.run(command, cwd=folder, env=env, timeout_s=timeout_s)
        except process.CommandFailed as error:
            raise HostFailed(f"vng cannot put a guest together: {error.message}", hint="run `lab doctor`") from error
        except process.TimedOut as error:
            raise HostFailed(f"vng does not put a guest together: {error.message}", hint=_SLOW) from error
        return tuple(qemu_argv(printed.decode(errors="replace")))


# ---- the root that virtme-ng wants to see: a folder with a shell in it; nothing reads it while measuring


# The mount points of a guest: an image has only its packages' folders.
_MOUNT_POINTS = ("dev", "proc", "sys", "run", "tmp", "root", "home", "mnt", "opt", "srv", "var")
_FILES = {
    "etc/passwd": "root::0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/fstab": "",
    "etc/hosts": "127.0.0.1 localhost\n",
}

# virtme-ng finds the ports of a script under the names that udev gives them. The image has no udev.
_UDEV = """\
#!/bin/sh
mkdir -p /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
    ln -sf "../${port##*/}" "/dev/virtio-ports/$(cat "$port/name")"
done
"""
# virtme-ng starts a shell with `su`, which Debian's busybox does not have. There is one user.
_SU = """\
#!/bin/sh
command=
while [ $# -gt 0 ]; do
    case "$1" in
    -c) command=$2; shift ;;
    -s) shift ;;
    esac
    shift
done
cd /
if [ -n "$command" ]; then exec /bin/sh -c "$command"; fi
exec /bin/sh -l
"""
_PROGRAMS = {
    "lib/systemd/systemd-udevd": _UDEV,
    "bin/udevadm": "#!/bin/sh\n",
    "bin/su": _SU,
    "bin/bash": '#!/bin/sh\nexec /bin/sh "$@"\n',
}


def obtain_root(image: Path) -> Path:
    """The root of an image with busybox under all its names; made once, of links to the image's own files.

    image: the image's folder.
    """
    target = image / f"live-{records.digest([_MOUNT_POINTS, _FILES, _PROGRAMS])[:8]}"
    make_once(target, lambda partial: _make_root(partial / "root", image / "root"))
    return target / "root"


def _make_root(target: Path, root: Path) -> None:
    shutil.copytree(root, target, symlinks=True, copy_function=_hard_link)
    for name in initrd.run_inside(root, initrd.BUSYBOX, ["--list"]).split():
        applet = target / "bin" / name
        if not applet.exists() and not applet.is_symlink():
            applet.symlink_to("busybox")
    for name in _MOUNT_POINTS:
        (target / name).mkdir(exist_ok=True)
    for name, text in _FILES.items():
        path = target / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    for name, text in _PROGRAMS.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def _hard_link(source: str, target: str) -> str:
    """A hard link; a copy if the file system or its rules forbid links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return target


# --- the threads of a guest that was started paused: each vCPU's on its host CPU, all others off those ---

_LOOK_S = 0.01

# It logs an error for each attempt while QEMU does not listen yet, and takes Ctrl-C meanwhile for a fault of its own.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL + 1)


def pin_and_start(process: subprocess.Popen[bytes], folder: Path, cpu_set: CpuSet, *, timeout_s: float) -> None:
    """Pin the threads of a paused QEMU, then let its guest run. Returns early if QEMU has ended.

    timeout_s: until QEMU listens, which allocates the guest's memory first, and for each of its answers.
    Threads that QEMU starts later inherit the CPUs of the thread that starts them.
    """
    import asyncio  # with qemu.qmp, only when there is a guest

    from qemu.qmp import QMPError

    try:
        asyncio.run(_pin_and_start(process, folder, cpu_set, timeout_s))  # Ctrl-C ends its children, too
    except (QMPError, EOFError, OSError) as error:
        if process.poll() is None:
            raise GuestFailed(
                GuestFailure.QEMU_DIED, f"QEMU does not answer on {folder / QMP}: {error}", hint=_SLOW
            ) from error


async def _pin_and_start(process: subprocess.Popen[bytes], folder: Path, cpu_set: CpuSet, timeout_s: float) -> None:
    import asyncio

    from qemu.qmp import QMPClient

    client = QMPClient()
    if not await _connect(client, process, folder / QMP, timeout_s):
        return
    try:
        threads = vcpu_threads(await asyncio.wait_for(client.execute("query-cpus-fast"), timeout_s))
        pin(process.pid, threads, cpu_set)
        await asyncio.wait_for(client.execute("cont"), timeout_s)
    finally:
        await client.disconnect()


def vcpu_threads(answer: Any) -> list[int]:
    """The thread of each vCPU by number, from the answer to `query-cpus-fast`."""
    return [row["thread-id"] for row in sorted(answer, key=lambda row: int(row["cpu-index"]))]


def pin(pid: int, threads: Sequence[int], cpu_set: CpuSet, *, proc: Path = Path("/proc")) -> None:
    """Put each vCPU's thread on its host CPU, and the others on the CPUs that are left, if any are."""
    for thread, cpu in zip(threads, cpu_set.cpus, strict=True):
        os.sched_setaffinity(thread, {cpu})
    if not cpu_set.others:
        return
    for path in (proc / str(pid) / "task").iterdir():
        if int(path.name) not in threads:
            with suppress(ProcessLookupError):  # a helper that has ended by now
                os.sched_setaffinity(int(path.name), set(cpu_set.others))


async def _connect(client: QMPClient, process: subprocess.Popen[bytes], socket: Path, timeout_s: float) -> bool:
    """Connect as soon as QEMU listens, which allocates the guest's memory first. False if it has ended.

    The path goes through the folder's descriptor: a socket's path has at most 107 bytes, a result's can have more.
    """
    import asyncio

    from qemu.qmp import ConnectError

    deadline = time.monotonic() + timeout_s
    folder = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        while process.poll() is None:
            with suppress(ConnectError):
                await asyncio.wait_for(client.connect(f"/proc/self/fd/{folder}/{socket.name}"), timeout_s)
                return True
            if time.monotonic() > deadline:
                message = f"QEMU did not listen on {socket} within {timeout_s:.0f} s"
                raise GuestFailed(GuestFailure.QEMU_DIED, message, hint=_SLOW)
            await asyncio.sleep(_LOOK_S)
    finally:
        os.close(folder)
    return False
