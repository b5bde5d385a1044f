"""What a worker is given to do, and what it gives back.

A guest's record is made by the machine that asked, from what the guest gave: so it says what it would say had the
guest run there. What the guest's kernel did wrong is an answer like any other; only what is the worker's own trouble
is raised, and tried again elsewhere.

What dask's workers are given when a command joins their cluster: they find out what they can do, and say so.

It reaches those that come later, too, so a worker that was started anew is of use again.

What a machine's guests and builds depend on, and so which machines may stand in for one another. Pure but for
`here`, which looks at this one.

A worker carries its fingerprints as dask's resources, and a task asks for the one that it needs: so it lands only
where it gives the same numbers, and waits while there is no such worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin

from lab.cluster import share as cluster_share
from lab.cluster.share import Share
from lab.compare import exact as compare_exact
from lab.compare import runs
from lab.compare.runs import Bench, Got
from lab.core import paths, records
from lab.core.errors import BuildFailed, GuestFailed, LabError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.core.records import Record
from lab.guests import exact, plugin
from lab.guests.exact import Qemu
from lab.guests.plugin import COSTS
from lab.guests.run import Arm, Running
from lab.kernels import build as kernel_build
from lab.kernels import compilers
from lab.kernels.build import BuildRequest
from lab.kernels.compilers import Compiler
from lab.workloads.spec import Case

logger = logging.getLogger(__name__)
Task = TypeVar("Task")
Done = TypeVar("Done")


class WorkerTrouble(Exception):
    """A worker cannot do what it was given, by no fault of the task. Of one word, so that it travels."""


def packed(function: Callable[[Task], Done], task: Task) -> bytes:
    """A task and what does it, for `perform`: of one piece, as a scheduler of another version would spoil them."""
    return pickle.dumps((function, task))


def perform(given: bytes) -> Any:
    """Do a packed task on this machine."""
    function, task = pickle.loads(given)  # noqa: S301  (who reaches the scheduler may run anything anyway)
    try:
        return function(task)
    except WorkerTrouble:
        raise
    except Exception as error:
        logger.exception("a task failed")
        raise WorkerTrouble(f"{type(error).__name__}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """An error on its way home: its class's own words, and the name of the file that says more."""

    message: str
    hint: str | None
    kind: str = ""
    log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTask:
    """One guest. Paths in it are those of the machine that asks; image and slice: digests of what is at them."""

    share: str
    bench: Bench
    arm: Arm
    image: str
    slice: str
    seed: int
    cases: tuple[Case, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestDone:
    """What a guest gave, or how it failed; and the files that it left, by name."""

    got: Got | None
    wrong: Wrong | None
    files: dict[str, bytes]


def find_qemu(command: str) -> Qemu:
    """The emulator of that path, else the one that is called like it."""
    return exact.find_qemu(command if Path(command).is_file() else Path(command).name)


def run_guest(task: GuestTask) -> GuestDone:
    """Boot a task's guest on this machine."""
    try:
        bench, arm = _at_home(task)
        with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=paths.cache_dir("guests")) as folder:
            return _run(task, dataclasses.replace(bench, folder=Path(folder)), arm)
    except (LabError, OSError) as error:
        raise WorkerTrouble(_words(error)) from None


def _at_home(task: GuestTask) -> tuple[Bench, Arm]:
    """A task's bench and arm with this machine's files; refused where they are not the same guest."""
    share = Share(task.share)
    bench = dataclasses.replace(task.bench, qemu=find_qemu(task.bench.qemu.path), slice=share.fetch(task.slice))
    if bench.instrument is not None:
        bench = dataclasses.replace(bench, instrument=dataclasses.replace(bench.instrument, library=plugin.obtain()))
    if (found := compare_exact.environment_of(bench).fingerprint) != task.fingerprint:
        raise WorkerTrouble(f"its guests are others: fingerprint {found}, and {task.fingerprint} is asked for")
    image = share.fetch(task.image)
    kernel = dataclasses.replace(task.arm.kernel, bzimage=image, vmlinux=image)
    return bench, dataclasses.replace(task.arm, kernel=kernel)


def _run(task: GuestTask, bench: Bench, arm: Arm) -> GuestDone:
    guest = runs.fresh_folder(bench, arm, task.seed, task.cases)
    argv = runs.arguments(bench, arm, guest)
    got, wrong = None, None
    try:
        got = runs.execute(argv, guest, bench, arm, task.seed, task.cases, Running())
    except GuestFailed as error:
        if error.kind.blames == "host":
            raise
        wrong = _wrong(error, error.kind)
    if task.seed != runs.PROFILED_SEED:
        (guest / COSTS).unlink(missing_ok=True)
    files = {path.name: path.read_bytes() for path in guest.iterdir() if path.is_file()}
    return GuestDone(got=got, wrong=wrong, files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTask:
    """One kernel, which goes into the share under the request's key."""

    share: str
    request: BuildRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildDone:
    """How a build ended: well where nothing is wrong; else with its log. Or not begun, for want of a tree of git."""

    wrong: Wrong | None = None
    log: bytes = b""
    missing: str | None = None


def build_kernel(task: BuildTask) -> BuildDone:
    """Build a task's kernel on this machine, and share it."""
    share = Share(task.share)
    try:
        source = cluster_share.at_home(share, task.request.source)
        compiler = compilers.identify(task.request.compiler.command)
        request = dataclasses.replace(task.request, source=source, compiler=compiler)
        build = kernel_build.obtain(request, Work(progress=Progress(quiet=True)))
        share.put_kernel(build, task.request.key)
    except cluster_share.Missing as missing:
        return BuildDone(missing=str(missing))
    except BuildFailed as error:
        log = error.log.read_bytes() if error.log and error.log.is_file() else b""
        return BuildDone(wrong=_wrong(error), log=log)
    except (LabError, OSError, ValueError) as error:
        raise WorkerTrouble(_words(error)) from None
    return BuildDone()


def _wrong(error: LabError, kind: str = "") -> Wrong:
    return Wrong(message=error.message, hint=error.hint, kind=kind, log=error.log.name if error.log else None)


def _words(error: Exception) -> str:
    return error.message if isinstance(error, LabError) else str(error)


_GUESTS = "lab-guests-"
_BUILDS = "lab-builds-"
_WORDS = {
    "lab": "the lab itself",
    "qemu": "QEMU",
    "parameters": "machines/exact.toml",
    "plugin": "the cost plugin, or what compiles it",
}


class Facts(Record, frozen=True, kw_only=True):
    """What the numbers of a machine's guests depend on, besides what a task brings along.

    lab: digest of its modules. parameters: of exact mode's machine. plugin: of the cost plugin's sources and their
    compiler; empty where there is none.
    """

    lab: str
    qemu: str
    parameters: str
    plugin: str

    @property
    def fingerprint(self) -> str:
        """Equal ones give equal numbers."""
        return records.digest(self)[:16]


def here(qemu: Qemu) -> Facts:
    """This machine's, with a QEMU of it."""
    try:
        cost = plugin.digest()
    except LabError:
        cost = ""
    return Facts(lab=_own(), qemu=qemu.version, parameters=records.digest(exact.exact_machine()), plugin=cost)


@cache
def _own() -> str:
    top = Path(__file__).resolve().parents[1]
    return records.digest({str(path.relative_to(top)): records.file_digest(path) for path in sorted(top.rglob("*.py"))})


def differences(mine: Facts, other: Facts) -> list[str]:
    """In what two machines differ, in words."""
    pairs = [(name, getattr(mine, name), getattr(other, name)) for name in _WORDS]
    return [
        f"{_WORDS[name]} ({theirs or 'none'} there, {own or 'none'} here)" if name == "qemu" else _WORDS[name]
        for name, own, theirs in pairs
        if own != theirs
    ]


def guests_resource(facts: Facts) -> str:
    """What a worker has as many of as it runs guests at a time."""
    return _GUESTS + facts.fingerprint


def builds_resource(compiler: Compiler) -> str:
    """What a worker has one of for each compiler that it can build with: a build uses all of its cores."""
    return _BUILDS + records.digest([compiler.family, compiler.version, compiler.linker])[:16]


def able(workers: Mapping[str, Mapping[str, float]], resource: str) -> dict[str, int]:
    """The workers that carry a resource, and how much of it; workers: their resources by address."""
    return {address: int(has[resource]) for address, has in workers.items() if has.get(resource)}


T = TypeVar("T")


class RunsGuests(WorkerPlugin):
    """Carries the fingerprint of a worker's guests, as often as it has threads."""

    def __init__(self, qemu: str) -> None:
        self.qemu = qemu
        self.name = f"lab-guests-{qemu}"

    async def setup(self, worker: Worker) -> None:
        """Called by dask on every worker."""
        await asyncio.to_thread(_sweep)
        facts = await asyncio.to_thread(_or_none, lambda: look(self.qemu))
        if facts is not None:
            await worker.set_resources(**{guests_resource(facts): worker.state.nthreads})


class Builds(WorkerPlugin):
    """Carries a compiler, once."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.name = f"lab-builds-{command}"

    async def setup(self, worker: Worker) -> None:
        """Called by dask on every worker."""
        found = await asyncio.to_thread(_or_none, lambda: compilers.identify(self.command))
        if found is not None:
            await worker.set_resources(**{builds_resource(found): 1})


def look(qemu: str) -> Facts:
    """What this machine's guests depend on."""
    return here(find_qemu(qemu))


def look_and_tell(qemu: str) -> Facts | str:
    """The same, or why it runs none."""
    try:
        return look(qemu)
    except LabError as error:
        return error.message


def _or_none(find: Callable[[], T]) -> T | None:
    try:
        return find()
    except LabError:
        return None


def _sweep() -> None:
    """Remove what guests of killed workers left."""
    for folder in paths.cache_dir("guests").iterdir():
        if not Path(f"/proc/{folder.name.split('-')[0]}").exists():
            shutil.rmtree(folder, ignore_errors=True)
