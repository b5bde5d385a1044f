"""The image's root as virtme-ng wants to see one: a folder with a shell in it. Measuring does not read from it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab import libraries
from lab.core import records
from lab.core.locks import make_once

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
    for name in libraries.run_inside(root, _BUSYBOX, ["--list"]).split():
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
