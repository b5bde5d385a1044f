"""Guests of a package's kernel that run `probe.c`: programs whose counters can be worked out by hand.

Cases are run many to a guest, and every guest is booted once: a window depends on nothing outside of it.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.core import cpio
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests import channel, exact, hardware, plugin, run
from lab.guests.hardware import Machine
from lab.guests.plugin import Brackets, Model, Window
from lab.kernels.kernel import Kernel, common_machine, resolve

from .conftest import NEW, Lab

TOP = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Everything that guests of the probe are made of. known: the windows of those that ran, by model and case."""

    folder: Path
    kernel: Kernel
    plugin: Path
    machine: Machine
    known: dict[Model, dict[str, Window]] = field(default_factory=dict)

    def boot(
        self, *cases: str, model: Model | None, vcpus: int = 1, brackets: Brackets = Brackets.WINDOW,
        more: Sequence[str] = (),
    ) -> tuple[bytes, bytes]:  # fmt: skip
        """Run cases of the probe in one guest; gives what guest and plugin reported. more: arguments of QEMU's."""
        out = self.folder / "cost.jsonl"
        out.unlink(missing_ok=True)
        machine = common_machine(self.kernel)
        guest = exact.ExactGuest(
            qemu=exact.find_qemu(), machine=machine, vcpus=vcpus, memory_mb=640, cmdline=exact.cmdline([])
        )
        root = self._initrd(cases)
        argv = guest.argv(kernel=self.kernel.image(machine), folder=self.folder, root=root)
        if model:
            argv += ["-plugin", plugin.argument(self.plugin, self.machine, model=model, brackets=brackets, out=out)]
        ended = run.boot([*argv, *more], folder=self.folder, timeout_s=300)
        report = run.read_report(ended)
        assert [case.status for case in report.cases] == [0] * len(cases)
        return ended.report.read_bytes(), out.read_bytes() if model else b""

    def output(self, *cases: str, model: Model, **how: Any) -> list[Window]:
        return plugin.parse(self.boot(*cases, model=model, **how)[1].splitlines())

    def measure(self, *cases: str, model: Model) -> None:
        """Run cases that have one window each in one guest, if it is the first time."""
        if model not in self.known:
            windows = self.output(*cases, model=model)
            assert all(window.own and window.complete for window in windows)
            self.known[model] = dict(zip(cases, windows, strict=True))

    def _initrd(self, cases: tuple[str, ...]) -> Path:
        path = self.folder / "initrd.cpio"
        job = channel.encode_job(settings=exact.exact_machine().settings)
        commands = [(f"probe-{number}", ["/probe", *case.split()]) for number, case in enumerate(cases)]
        with path.open("wb") as stream:
            for inode, name in enumerate(("init", "probe"), start=1):
                stream.write(cpio.entry(name, 0o100755, (self.folder / name).read_bytes(), inode=inode))
            stream.write(channel.pack_job(job, channel.encode_cases(0, commands)))
            # As the lab does: the archive must not end where the firmware puts its tables.
            stream.write(bytes(-stream.tell() % MIB + MIB))
        return path


def make(lab: Lab, folder: Path, kernel: str = NEW) -> Bench:
    """A guest of a package's kernel with init and the probe."""
    subprocess.run(["make", "-s", "-C", TOP / "images" / "guest", f"OUT={folder}"], check=True)
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-fno-pie", "-static", "-no-pie"]
    subprocess.run(["gcc", *flags, "-o", folder / "probe", Path(__file__).with_name("probe.c")], check=True)
    (built,) = lab.json("kernel", "build", kernel)["kernels"]
    resolved = resolve(f"file:{built['files']['vmlinux']}").obtain(Work(progress=Progress(quiet=True)))
    return Bench(folder=folder, kernel=resolved, plugin=plugin.obtain(), machine=hardware.load("sapphire-rapids"))
