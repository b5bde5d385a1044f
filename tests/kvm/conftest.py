"""The machine that has KVM, with the lab in it as an ordinary user has it who may use KVM."""

import json
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..guest.conftest import BASE, TEST, Lab, lab, story
from .machine import HERE, SHARE, Machine

__all__ = ["lab", "story"]

KVM_GROUP = 4242
CASE = "alloc-burst:layout-4632k"
ARMS = ("--base", BASE, "--test", TEST)
AB = ("ab", *ARMS, "-w", CASE)
LIVE = ("--mode", "live", "--accel", "kvm", "--iterations", "1")

PLAN = """\
schema = 1
name = "kvm"
workloads = ["alloc-burst:layout-4632k"]
modes = ["exact", "live"]
bisect = false

[live]
accel = "kvm"
rounds = 6
iterations = 1

[[branch]]
tree = "kvm"
branch = "main"
"""

_YESTERDAY = """\
import sys
from datetime import UTC, datetime, timedelta
from lab.cli import main
from lab.nightly import run
yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
run.today = lambda: yesterday
sys.exit(main.run(["nightly", "run", "--plan", sys.argv[1]]))
"""


def _script(name: str) -> str:
    return (HERE / f"{name}.sh").read_text()


class QemuThread(NamedTuple):
    """A thread of a QEMU as it was seen at one look: its process, and the CPUs that it may use."""

    look: int
    process: int
    thread: int
    cpus: str


@dataclass
class KvmLab:
    """The lab in the machine. Its home is the host's, and what it writes there is gone with the machine."""

    machine: Machine
    lab: Lab
    groups: str = str(KVM_GROUP)

    def as_user(self, *argv: str) -> list[str]:
        """The argument list that runs a program as the lab's user, who may use KVM."""
        user = pwd.getpwnam(self.lab.user)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", f"--groups={self.groups}", "--", *argv]

    def environment(self) -> dict[str, str]:
        """The user's environment, in which the mode is not decided."""
        return {name: value for name, value in self.lab.environment().items() if name in ("HOME", "LOGNAME", "USER")}

    def start(self, *arguments: str) -> int:
        """Start a command of the lab; its number."""
        argv = self.as_user(str(self.lab.python), "-m", "lab", *arguments)
        return self.machine.start(*argv, env=self.environment())

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.machine.wait(self.start(*arguments))

    def json(self, *arguments: str) -> Any:
        """Run a command that must succeed; its document."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, status: int, *arguments: str) -> str:
        """Run a command that must fail with a status and one clear line; all that it said."""
        done = self.run(*arguments)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("lab: ")]) == 1, done.stderr
        return done.stderr

    def stop_when(self, folder: Path, files: int, signal: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start a command, signal all its processes once a folder has so many files; how it ended."""
        number = self.start(*arguments)
        process = str(self.machine.process(number))
        came = self.machine.run("bash", "-c", _script("until"), "until", process, str(files), str(folder))
        assert came.returncode == 0, self.machine.wait(number).stderr
        self.machine.run("kill", f"-{signal}", "--", f"-{process}")
        return self.machine.wait(number)

    def processes(self) -> list[str]:
        return self.machine.run("bash", "-c", "cat /proc/[0-9]*/comm").stdout.split()

    @contextmanager
    def watched(self) -> Iterator[list[QemuThread]]:
        """Look at the threads of QEMU meanwhile; the list is filled at the end."""
        seen: list[QemuThread] = []
        stop = Path(tempfile.mktemp(prefix="watched-", dir=self.machine.folder))  # noqa: S306 - nobody else is there
        watch = self.machine.start("bash", "-c", _script("watch"), "watch", str(SHARE / stop.name))
        try:
            yield seen
        finally:
            stop.touch()
            for line in self.machine.wait(watch).stdout.splitlines():
                look, task, cpus = line.split()
                _, _, process, _, thread, _ = task.split("/")
                seen.append(QemuThread(int(look), int(process), int(thread), cpus))


@dataclass(frozen=True)
class FirstNight:
    """A plan whose first night was yesterday, on the host; upstream has nothing new yet."""

    plan: Path
    upstream: Path
    tip: str

    def arrival(self) -> list[str]:
        """The command by which a commit that makes the case slower arrives upstream."""
        return ["git", "-C", str(self.upstream), "update-ref", "refs/heads/main", self.tip]


def cpus_of(seen: list[QemuThread]) -> dict[tuple[int, int], list[str]]:
    """The CPUs of the threads of each QEMU at each look, sorted."""
    found: dict[tuple[int, int], list[str]] = {}
    for one in seen:
        found.setdefault((one.look, one.process), []).append(one.cpus)
    return {key: sorted(cpus) for key, cpus in found.items()}


def counters(document: Any, *names: str) -> dict[str, tuple[float, float]]:
    """The first values of both arms, by metric, of a comparison's only case."""
    (case,) = document["cases"]
    return {m["name"]: (m["base"][0], m["test"][0]) for m in case["metrics"] if m["name"] in names}


def counted(document: Any) -> list[Any]:
    """The rounds of a comparison that count."""
    return [one for one in document["live"]["rounds"] if one["state"] in ("kept", "disturbed")]


@pytest.fixture(scope="session")
def exact(story: Lab) -> Any:
    """The comparison in exact mode, on the host."""
    return story.json(*AB, "--mode", "exact", "--seeds", "1")


_ROOT = """\
from lab.core.progress import Progress
from lab.guests import image, live_machine
live_machine.obtain_root(image.obtain(Progress())[1])
"""


@contextmanager
def switched_on(*, systemd: bool = False) -> Iterator[Machine]:
    """A machine with a shared folder of its own, and a /dev/kvm for the members of a group."""
    folder = Path(tempfile.mkdtemp(prefix="lab-kvm-", dir="/var/tmp"))
    machine = Machine(folder, systemd=systemd)
    print(f"{'systemd' if systemd else 'the machine'} is up after {machine.up_s:.0f} s")  # noqa: T201 - shown with `pytest -s`
    machine.run("chgrp", str(KVM_GROUP), "/dev/kvm")
    machine.run("chmod", "660", "/dev/kvm")
    try:
        yield machine
    finally:
        machine.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def ready(story: Lab, exact: Any) -> Lab:
    """The lab, once everything is made that only takes longer in a machine."""
    subprocess.run(story.as_user(str(story.python), "-c", _ROOT), env=story.environment(), cwd="/", check=True)
    return story


@pytest.fixture(scope="session")
def first_night(ready: Lab, exact: Any) -> FirstNight:
    """A clone of a repository whose only branch is before the story, and its first night."""
    trees = ready.home / ".local/share/kernel-ab-lab/trees"
    upstream, plan = ready.home / "kvm-upstream.git", ready.home / "kvm.toml"
    for path in (upstream, trees / "kvm.git", ready.home / ".local/share/kernel-ab-lab/nightly/kvm"):
        shutil.rmtree(path, ignore_errors=True)
    plan.write_text(PLAN)

    def run(*argv: str) -> str:
        done = subprocess.run(
            ready.as_user(*argv), env=ready.environment(), cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout.strip()

    run("git", "clone", "--quiet", "--bare", str(trees / "default.git"), str(upstream))
    base, tip = (exact[arm]["commit"] for arm in ("base", "test"))
    run("git", "-C", str(upstream), "update-ref", "refs/heads/main", base)
    run("git", "-C", str(upstream), "config", "uploadpack.allowFilter", "true")
    run(str(ready.python), "-m", "lab", "tree", "add", f"file://{upstream}", "--name", "kvm")
    run(str(ready.python), "-c", _YESTERDAY, str(plan))
    return FirstNight(plan=plan, upstream=upstream, tip=tip)


@pytest.fixture(scope="session")
def kvm(ready: Lab) -> Iterator[KvmLab]:
    with switched_on() as machine:
        yield KvmLab(machine, ready)
