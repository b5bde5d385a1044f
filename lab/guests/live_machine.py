"""Live mode's virtual machine: what `vng` is asked for, and the QEMU command line that it gives. Pure.

virtme-ng puts the guest together (`vng --dry-run` prints the command), the lab starts it: paused, so that its
threads are pinned before the guest's first instruction, and as its own child, so that no guest outlives the lab.
All paths are relative to the guest's folder, which makes the command the same for every boot of an arm.

virtme-ng: finding it, and the QEMU command that it makes for a guest.

The image's root as virtme-ng wants to see one: a folder with a shell in it. Measuring does not read from it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from lab.core import process, records, toml
from lab.core.errors import HostFailed
from lab.core.locks import make_once
from lab.core.paths import room
from lab.core.records import Record
from lab.guests import initrd
from lab.guests.topology import Seat, Shape

Accelerator = Literal["kvm", "tcg"]

# In a guest's folder.
KERNEL, ROOM, INITRD, QMP = "kernel", "room", "initrd.cpio", "qmp.sock"
CONSOLE, REPORT = "console.log", "report.jsonl"


class LiveMachine(Record, frozen=True, kw_only=True):
    """`machines/live.toml`."""

    schema: int
    machine: str
    cmdline: list[str]
    settings: dict[str, str]


class Guest(Record, frozen=True, kw_only=True):
    """Everything that a guest's command line depends on, besides the names of its files."""

    qemu: str
    accelerator: Accelerator
    shape: Shape
    seat: Seat
    memory_mb: int
    hugepage_kb: int | None
    arguments: list[str]


@cache
def load_live_machine() -> LiveMachine:
    """The parameters of live mode's guest."""
    return toml.load(room("machines") / "live.toml", LiveMachine)


def vng_words(guest: Guest, *, kernel: str = KERNEL) -> list[str]:
    """The arguments of `vng`, without the program: no network, no balloon, the image's root and never the host's."""
    return [
        *("--run", f"./{kernel}", "--root", f"./{ROOM}", "--cwd", f"./{ROOM}", "--user", "root"),
        # The root's transport is not measured; one that needs no daemon on the host is the same everywhere.
        *("--force-9p", "--disable-microvm", "--disable-monitor"),
        *(["--disable-kvm"] if guest.accelerator == "tcg" else []),
        *("--qemu", guest.qemu, "--cpus", guest.shape.smp, "--memory", f"{guest.memory_mb}M", "--verbose"),
        *("--append", shlex.join([*load_live_machine().cmdline, *guest.arguments])),
        f"--qemu-opts={' '.join(qemu_words(guest))}",
        *("--exec", "true"),
    ]


def qemu_words(guest: Guest) -> list[str]:
    """What QEMU is given beside virtme-ng's own: memory, accelerator, the root in RAM, report, control socket."""
    machine = [load_live_machine().machine, "mem-merge=off", "dump-guest-core=off"]
    if guest.accelerator == "kvm":
        machine.append("accel=kvm")  # over virtme-ng's kvm:tcg: a guest that falls back to TCG measures nothing
    if guest.shape.nodes == 1:
        machine.append("memory-backend=mem0")
    return [
        *("-machine", ",".join(machine)),
        *(["-accel", "tcg,thread=multi"] if guest.accelerator == "tcg" else []),
        *_memory(guest),
        *("-initrd", INITRD),
        *("-chardev", f"file,id=report,path={REPORT}", "-device", "isa-serial,chardev=report"),
        *("-qmp", f"unix:{QMP},server=on,wait=off", "-S"),
    ]


def _memory(guest: Guest) -> Iterator[str]:
    """Memory that is there before the guest starts: bound to the host's nodes, of huge pages where there are some."""
    nodes = guest.shape.nodes
    each = guest.memory_mb // nodes
    per_node = guest.shape.cores * guest.shape.threads
    for node in range(nodes):
        kind = "memory-backend-ram"
        options = [f"id=mem{node}", f"size={each}M", "prealloc=on", "merge=off", "dump=off"]
        if guest.hugepage_kb:
            kind = "memory-backend-memfd"
            options += ["hugetlb=on", f"hugetlbsize={guest.hugepage_kb}K"]
        if guest.seat.nodes:
            options += [f"host-nodes={guest.seat.nodes[node]}", "policy=bind"]
        yield from ("-object", ",".join([kind, *options]))
        if nodes > 1:
            first = node * per_node
            cpus = f"{first}-{first + per_node - 1}" if per_node > 1 else f"{first}"
            yield from ("-numa", f"node,nodeid={node},memdev=mem{node},cpus={cpus}")


def qemu_argv(printed: str) -> list[str]:
    """QEMU's argument list from what `vng --dry-run` printed, with the guest's output where the lab looks for it."""
    lines = [line for line in printed.splitlines() if line.strip()]
    words = shlex.split(lines[-1]) if lines else []
    if "-kernel" not in words or "-append" not in words:
        raise HostFailed(f"vng --dry-run printed no QEMU command: {lines[-1] if lines else 'nothing'}")
    at = words.index("-append") + 1
    # What virtme-ng's own root would start goes unused, and is in a file whose name is drawn by lot.
    words[at] = words[at].partition(" init=")[0]
    return [_here(word) for word in words]


def _here(word: str) -> str:
    """The console goes into a file of its own; nothing comes in, and what a script would say goes nowhere."""
    kind, _, rest = word.partition(",id=")
    name, _, options = rest.partition(",")
    if kind not in ("file", "stdio") or name == "report":
        return word
    if name == "console":
        return f"file,id=console,path={CONSOLE}"
    return f"null,id={name}" if options else word


def find() -> str:
    """The `vng` to use: the one beside this Python, else one on the path."""
    found = shutil.which("vng", path=search_path())
    if found is None:
        raise HostFailed("virtme-ng is not installed; live mode boots its guests with it", hint="run `make setup`")
    return found


def version() -> str:
    """The version of the virtme-ng that this Python sees; empty for one from elsewhere."""
    try:
        return metadata.version("virtme-ng")
    except metadata.PackageNotFoundError:
        return ""


def compose(guest: Guest, kernel: Path, room: Path) -> tuple[list[str], list[str]]:
    """The `vng` command of a guest, and the QEMU command that it makes of it."""
    words = vng_words(guest)
    return ["vng", *words], list(_composed(tuple(words), kernel, room))


@cache
def _composed(words: tuple[str, ...], kernel: Path, room: Path) -> tuple[str, ...]:
    """Ask vng in a folder like a guest's: it looks at the kernel, and wants to see the root."""
    with tempfile.TemporaryDirectory(prefix="lab-vng-") as name:
        folder = Path(name)
        (folder / KERNEL).symlink_to(kernel)
        (folder / ROOM).symlink_to(room)
        # Its files and its configuration are the user's for other guests than these.
        env = {**os.environ, "PATH": search_path(), "HOME": name, "TMPDIR": name}
        try:
            printed = process.run([find(), "--dry-run", *words], cwd=folder, env=env, timeout_s=60)
        except process.CommandFailed as error:
            raise HostFailed(f"vng cannot put a guest together: {error.message}", hint="run `lab doctor`") from error
        return tuple(qemu_argv(printed.decode(errors="replace")))


def search_path() -> str:
    """vng calls programs that are installed beside it."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


_BUSYBOX = "/bin/busybox"
# Where a guest mounts something: an image holds only what its packages do.
_MOUNT_POINTS = ("dev", "proc", "sys", "run", "tmp", "root", "home", "mnt", "opt", "srv", "var")
_FILES = {
    "etc/passwd": "root::0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/fstab": "",
    "etc/hosts": "127.0.0.1 localhost\n",
}

# virtme-ng talks to a script by ports that it finds under the names that udev gives them. The image has no udev.
_UDEV = """\
#!/bin/sh
mkdir -p /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
    ln -sf "../${port##*/}" "/dev/virtio-ports/$(cat "$port/name")"
done
"""
# The way to its shell is `su`, which Debian's busybox is built without. There is one user.
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


def obtain(image: Path) -> Path:
    """The root of an image with busybox under all its names; made once, of links to the image's own files.

    image: the image's folder.
    """
    made_of = records.digest([_MOUNT_POINTS, _FILES, _PROGRAMS])
    target = image / f"live-{made_of[:8]}"
    make_once(target, lambda partial: _make(partial / "root", image / "root"))
    return target / "root"


def _make(target: Path, root: Path) -> None:
    shutil.copytree(root, target, symlinks=True, copy_function=_link)
    for name in initrd.run_inside(root, _BUSYBOX, ["--list"]).split():
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


def _link(source: str, target: str) -> str:
    """A hard link; a copy where the file system or its rules forbid one."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return target
