"""Histories whose commits say in a file what they do, and kernels and guests that do just that, in a moment.

The file `fate` of a commit holds a number, the commit's throughput, or the way it fails: `build`, `panic`, `host`.
Run as a module, `python -m tests.fakes.bisection bisect ...` is the lab itself with those fakes, for tests that kill
it. What is built and run is noted in the files named by FAKE_BUILDS and FAKE_RUNS, a line each.
"""

import hashlib
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lab.compare.runs import GuestRun, Run
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure
from lab.core.git import Repo
from lab.guests.channel import CaseOutcome, GuestReport
from lab.guests.run import RunningGuests
from lab.kernels import trees
from lab.kernels.build import TreeSource
from lab.kernels.kernel import Kernel, KernelSpec

from .guest import HEAD, save_run, surroundings
from .kernel import WHO, commit_all, git, write_kernel

WORKLOAD = HEAD + '[[case]]\nname = "large"\n\n[[case]]\nname = "small"\n'
Dice = random.Random


def dice(seed: object) -> Dice:
    """Chance that is the same each time."""
    return random.Random(str(seed))  # noqa: S311


Fates = Sequence[float | str]


def start(top: Path, fate: float | str = 100.0) -> str:
    """A repository with the old end; its commit."""
    write_kernel(top)
    git(top, "init", "-q", "-b", "main")
    return commit(top, "start", fate)


def commit(top: Path, title: str, fate: float | str, path: str = "mm/file.c") -> str:
    """One commit more, with a change of its own to a file."""
    for name, text in _files(title, fate, path).items():
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text(text)
    return commit_all(top, title)


def _files(title: str, fate: float | str, path: str = "mm/file.c") -> dict[str, str]:
    return {"fate": str(fate), path: f"{title}\n"}


def line(top: Path, fates: Fates) -> list[str]:
    """A history without branches, as `commit` makes it, but all at once; all commits, the old end first."""
    start(top, fates[0])
    with Repo(top / ".git").fast_import() as stream:
        for number, fate in enumerate(fates[1:], start=1):
            title = f"change {number}"
            said = _data(f"{title}\n")
            files = "".join(f"M 644 inline {name}\n{_data(text)}" for name, text in _files(title, fate).items())
            parent = "from refs/heads/main^0\n" if number == 1 else ""
            stream.write(f"commit refs/heads/main\ncommitter {WHO}\n{said}{parent}{files}".encode())
    git(top, "reset", "-q", "--hard")
    return git(top, "rev-list", "--reverse", "HEAD").split()


def _data(text: str) -> str:
    return f"data {len(text)}\n{text}\n"


def write_workload(folder: Path) -> str:
    """A workload; what `--workload` is given for its first case."""
    folder.mkdir(exist_ok=True)
    (folder / "workload.toml").write_text(WORKLOAD)
    return f"{folder}:large"


def note(variable: str, text: str) -> None:
    """A line in the file that a variable names."""
    if path := os.environ.get(variable):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)


def build_time() -> None:
    time.sleep(float(os.environ.get("FAKE_BUILD_S", "0")))


@cache
def _content(tree: str, tree_id: str) -> tuple[str, str]:
    """The fate in a tree of git, and what of it makes the kernel."""
    repo = trees.repository(tree)
    return repo.git("show", f"{tree_id}:fate"), repo.git("ls-tree", "-r", tree_id, "--", "mm", "fate")


def obtain(spec: KernelSpec, *_: object, **__: object) -> Kernel:
    """The kernel of a commit: a file that holds its fate. Trees that differ in `docs` alone give the same one."""
    assert isinstance(spec.source, TreeSource)
    fate, code = _content(spec.source.tree, spec.source.tree_id)
    note("FAKE_BUILDS", spec.source.commit)
    build_time()
    if fate == "build":
        raise BuildFailed(f"{spec.source.describe} does not build with gcc: mm/file.c:1: error: no")
    return kernel_of(spec, spec.source, fate, code)


def kernel_of(spec: KernelSpec, source: TreeSource, fate: object, code: str) -> Kernel:
    """A kernel that is a file with its fate, and known by its code."""
    key = hashlib.sha256(code.encode()).hexdigest()
    path = Path(os.environ["XDG_CACHE_HOME"]) / "fake-kernels" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    records.write_atomic(path, f"{fate}\n{code}".encode())
    return Kernel(spec=spec, key=key, release="6.99", commit=source.commit, bzimage=path, vmlinux=None, symbols=None)


Value = Callable[[float, int, str], float]


def plain(value: float, seed: int, case: str) -> float:
    """What a guest measures: the fate, with something of the seed that is the same for all kernels."""
    return value * (1 + seed % 7 / 100) if case == "large" else 50.0


def wobbly(value: float, seed: int, case: str) -> float:
    """Seeds that move kernels apart a little, so that three do not decide the ends."""
    return value * (1 + dice(f"{value} {seed}").uniform(-0.003, 0.003))


class Guests:
    """Stands in for `runs.measure`.

    Under a cost model, cycles are a million divided by the throughput. counts: the instructions by the fate. whole:
    likewise what is beside the caller's cost. settings: likewise what the guest reports of its own.
    """

    def __init__(self, value: Value = plain) -> None:
        self.value = value
        self.counts: Callable[[float], float] = lambda fate: 1000.0
        self.whole: Callable[[float], dict[str, float]] = lambda fate: {}
        self.settings: Callable[[float], dict[str, str]] = lambda fate: {}
        self.calls: list[tuple[str, int]] = []
        self.failures: dict[str, int] = {}

    def measure(self, guest: GuestRun, running: RunningGuests) -> Run:
        bench, arm, seed, cases = guest.bench, guest.arm, guest.seed, guest.cases
        fate = arm.kernel.image(bench.machine).read_text().partition("\n")[0]
        commit = arm.kernel.commit or ""
        note("FAKE_RUNS", f"{bench.folder.name} {commit} {seed}")
        self.calls.append((commit, seed))
        time.sleep(float(os.environ.get("FAKE_RUN_S", "0")))
        if fate in ("panic", "oops", "no-report"):
            raise GuestFailed(GuestFailure(fate), "the guest's kernel panicked: Oh dear")
        if fate == "workload":
            raise GuestFailed(GuestFailure.WORKLOAD, "the command exited with status 1: Oh dear")
        if fate == "host" or self.failures.get(commit, 0) > 0:
            self.failures[commit] = self.failures.get(commit, 0) - 1
            raise GuestFailed(GuestFailure.QEMU_DIED, "QEMU died with signal 9: no message")
        outcomes = [
            CaseOutcome(
                name=case.name, begin_ns=0, end_ns=1, ended=True, status=0,
                metrics={"throughput": self.value(float(fate), seed, case.name)},
            )
            for case in cases
        ]  # fmt: skip
        modelled = {
            outcome.name: {
                "cycles_per_op": 1e6 / outcome.metrics["throughput"],
                "instructions_per_op": self.counts(float(fate)),
                **self.whole(float(fate)),
            }
            for outcome in outcomes
        }
        report = GuestReport(cases=outcomes, complete=True, settings=self.settings(float(fate)))
        return save_run(guest, report, modelled)


def replacements(folder: Path, guests: Guests) -> Mapping[tuple[Any, str], Any]:
    """What to put where kernels, image, QEMU and guests would be."""
    from lab.bisection import proof

    folder.mkdir(parents=True, exist_ok=True)
    return {
        **surroundings(folder, guests.measure),
        (KernelSpec, "obtain"): obtain,
        (proof.Prover, "_explained"): lambda self, folder, result: ([], []),
    }


def main(more: Mapping[tuple[Any, str], Any] = MappingProxyType({})) -> None:
    """The lab, with fakes. more: others that stand in the places of these."""
    from lab.cli import main as cli_main

    fakes = {**replacements(Path(os.environ["XDG_CACHE_HOME"]) / "fake", Guests()), **more}
    for (where, name), what in fakes.items():
        setattr(where, name, what)
    sys.argv[0] = "lab"
    cli_main.main()


if __name__ == "__main__":
    main()
