"""A machine that has KVM, emulated on a host that has none.

QEMU's TCG emulates AMD's SVM with nested paging, so Debian's generic kernel offers /dev/kvm in it. The root is the
host's own, by 9p and read-only, below an overlay in memory: there is no image, and nothing that happens in the machine
remains, but for the files of its shared folder. Its times say nothing about hardware.

QEMU 7.2 lets two CPUs that run at once wait for each other for ever after some twenty boots of guests, and where its
CPUs take turns, half of the guests do not come up. So a host with an older QEMU than 10 gets that of its backports,
which is downloaded and not installed.
"""

import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from lab.core import cpio
from lab.core.locks import make_once
from lab.guests import exact, image
from lab.kernels import debs, package_lists

from ..suite import MACHINE_LOST

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "kvm"
SHARE = Path("/mnt")
"""The shared folder, as the machine sees it."""

_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "kvm-amd")
_LOOK_S, _START_S, _COMMAND_S = 30, 1800, 7200
_QEMU = "qemu-system-x86_64"
_QEMU_PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data")
_LEAST_QEMU = (10, 0)
_CONSOLE = 8000  # characters
_LOCKUP = re.compile(r"soft lockup - CPU#\d+ stuck for \d{3,}s")


class Machine:
    """A running machine, in which commands run as root. folder: the shared one, which is kept."""

    def __init__(self, folder: Path, *, systemd: bool = False) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("server.sh", "systemd.sh"):
            shutil.copy(HERE / name, folder)
        program = "systemd.sh" if systemd else "server.sh"
        self._listener = socket.socket(socket.AF_UNIX)
        self._sockets = tempfile.TemporaryDirectory(prefix="lab-kvm-")
        self._listener.bind(f"{self._sockets.name}/control")
        self._listener.listen(1)
        started = time.monotonic()
        with (folder / "qemu.log").open("wb") as log:
            self._qemu = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *_argv(Path(self._sockets.name), folder, program)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._listener.settimeout(_START_S)
        self._control, _ = self._listener.accept()
        self._control.settimeout(_LOOK_S)
        self._pending = b""
        self._statuses: dict[int, int] = {}
        self._count = 0
        assert self._line(_START_S) == "up"
        self.up_s = time.monotonic() - started

    def start(self, *argv: str, env: Mapping[str, str] | None = None) -> int:
        """Start a command; its number."""
        self._count += 1
        exports = [f"export {name}={shlex.quote(value)}" for name, value in (env or {}).items()]
        # A shell without job control starts what it puts in the background deaf to Ctrl-C.
        run = shlex.join(["env", "--default-signal=INT", *argv])
        script = [f"echo $$ >{SHARE / str(self._count)}.pid", *exports, "cd /", f"exec {run}"]
        (self.folder / f"{self._count}.sh").write_text("\n".join(script) + "\n")
        try:
            self._control.sendall(b"%d\n" % self._count)
        except OSError:
            self.lost("is gone")
        return self._count

    def wait(self, number: int) -> subprocess.CompletedProcess[str]:
        while number not in self._statuses:
            ended, status = self._line(_COMMAND_S).split()
            self._statuses[int(ended)] = int(status)
        out, err = ((self.folder / f"{number}.{stream}").read_text(errors="replace") for stream in ("out", "err"))
        return subprocess.CompletedProcess(number, self._statuses[number], out, err)

    def process(self, number: int) -> int:
        """The process of a command, which leads a group of its own."""
        path = self.folder / f"{number}.pid"
        deadline = time.monotonic() + _START_S
        while not path.exists() or not path.read_text().endswith("\n"):
            assert time.monotonic() < deadline, f"{path} does not appear"
            time.sleep(0.1)
        return int(path.read_text())

    def put(self, path: Path, text: str, owner: str, mode: str = "755") -> None:
        source = self.folder / path.name
        source.write_text(text)
        install = ("install", "-D", f"--owner={owner}", f"--mode={mode}", str(SHARE / path.name), str(path))
        done = self.run(*install)
        assert done.returncode == 0, done.stderr

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return self.wait(self.start(*argv, env=env))

    def stop(self) -> None:
        """Switch the machine off, as by its plug."""
        self._qemu.kill()
        self._qemu.wait()
        self._control.close()
        self._listener.close()
        self._sockets.cleanup()

    def _line(self, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            try:
                piece = self._control.recv(4096)
            except TimeoutError:
                if _LOCKUP.search(self._console()):
                    self.lost("hangs")
                assert time.monotonic() < deadline, f"the machine does not answer; see {self.folder}"
                continue
            if not piece:
                self.lost("is gone")
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line.strip().decode()

    def _console(self) -> str:
        return (self.folder / "console.log").read_text(errors="replace")

    def lost(self, how: str) -> NoReturn:
        """End the run with a status of its own: the tests that are left say nothing about the lab."""
        said = self._console()[-_CONSOLE:] + (self.folder / "qemu.log").read_text(errors="replace")
        pytest.exit(f"the emulated machine {how}; run the tests again. Its console ends:\n{said}", MACHINE_LOST)


def _argv(sockets: Path, folder: Path, program: str) -> list[str]:
    parts = obtain()
    tsc = subprocess.run([parts / "tsc"], capture_output=True, text=True, check=True).stdout.strip()
    cmdline = [
        *("console=ttyS0", "loglevel=5", "mitigations=off", "panic=-1"),
        # Emulated timers are too coarse to measure the TSC by, and too late on a busy host for the kernel's check.
        *("tsc=reliable", f"tsc_early_khz={tsc}", "no_timer_check"),
        *("--", "/bin/bash", str(SHARE / program)),
    ]
    mount = "security_model=none,multidevs=remap"
    return [
        *("nice", *_qemu(parts), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        # Without la57: KVM would give its guests page tables of five levels.
        *("-machine", "q35", "-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max,la57=off"),
        *("-smp", "2", "-m", "4096"),
        *("-kernel", str(parts / "vmlinuz"), "-initrd", str(parts / "initrd.cpio"), "-append", " ".join(cmdline)),
        *("-virtfs", f"local,path=/,mount_tag=root,readonly=on,{mount}"),
        *("-virtfs", f"local,path={folder},mount_tag=share,{mount}"),
        *("-device", "virtio-rng-pci"),
        *("-chardev", f"file,id=console,path={folder / 'console.log'}", "-device", "isa-serial,chardev=console"),
        *("-chardev", f"socket,id=control,path={sockets / 'control'}", "-device", "isa-serial,chardev=control"),
    ]


def obtain() -> Path:
    """The folder with kernel, initrd and tsc, and perhaps a QEMU; made once."""
    make_once(BUILD, _make)
    return BUILD


def _make(folder: Path) -> None:
    """Debian's generic kernel, which is downloaded and not installed, and an initrd with its modules."""
    source = debs.resolve("linux-image-amd64")
    package = source.fetch()
    shutil.copy(next(debs.images(package)), folder / "vmlinuz")
    for name, options in (("init", ["-static"]), ("tsc", [])):
        subprocess.run(["gcc", "-O2", *options, "-o", folder / name, HERE / f"{name}.c"], check=True)
    modules = next(path for path in package.glob("**/lib/modules/*") if (path / "kernel").is_dir())
    (folder / "initrd.cpio").write_bytes(_initrd(modules, folder / "init"))
    if exact.find_qemu(_QEMU).numbers < _LEAST_QEMU:
        _unpack_qemu(folder / "qemu")


def _unpack_qemu(folder: Path) -> None:
    lists, suite = package_lists.all_suites(), f"{image.host_suite()}-backports"
    versions = {offer.package: offer.version for offer in lists.offers(_QEMU_PACKAGES) if offer.suite == suite}
    folder.mkdir()
    for name in _QEMU_PACKAGES:
        lists.download(f"{name}={versions[name]}", folder, hint="the machine of `make kvm` needs it")


def _qemu(parts: Path) -> list[str]:
    """The machine's QEMU, with the folders of its firmware."""
    own = parts / "qemu" / "usr"
    if not own.exists():
        return [_QEMU]
    firmware = (own / "share" / name for name in ("qemu", "seabios"))
    return [str(own / "bin" / _QEMU), *(word for path in firmware for word in ("-L", str(path)))]


def _initrd(modules: Path, init: Path) -> bytes:
    by_name = {path.name.partition(".ko")[0].replace("-", "_"): path for path in modules.glob("kernel/**/*.ko*")}
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        name = name.replace("-", "_")
        if name in order or name not in by_name:
            return  # a module that is built in has no file
        for needed in _field(by_name[name], "depends").split(","):
            add(needed)
        order[name] = by_name[name]

    for name in _MODULES:
        add(name)
    entries = [cpio.entry(name, 0o040755) for name in ("dev", "modules", "memory", "host", "root")]
    entries.append(cpio.entry("init", 0o100755, init.read_bytes()))
    entries += [cpio.entry(f"modules/{path.name}", 0o100644, path.read_bytes()) for path in order.values()]
    listed = "".join(f"/modules/{path.name}\n" for path in order.values())
    entries.append(cpio.entry("modules/order", 0o100644, listed.encode()))
    return b"".join(entries) + cpio.trailer()


def _field(module: Path, name: str) -> str:
    done = subprocess.run(["/sbin/modinfo", "-F", name, str(module)], capture_output=True, text=True, check=True)
    return done.stdout.strip()
