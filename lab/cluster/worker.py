"""The side of a cluster's workers: the abilities of a worker, and the tasks that it runs.

A worker publishes the fingerprint of its guests, and of each compiler, as dask resources. A task names the resource
that it needs, so it runs only where it gives the same numbers, and waits while no such worker is there.

The machine that asked makes a guest's record from the guest's output, so the record does not depend on where the guest
ran. A failure of the guest's kernel is a result like any other. Only a worker's own failure is raised, and then another
worker tries the task.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin

from lab.cluster.share import MissingTree, Share, localize_source
from lab.compare import runs
from lab.compare.runs import GuestOutput, GuestRun
from lab.core import paths, process, records
from lab.core.errors import BuildFailed, GuestFailed, LabError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.core.records import Record
from lab.guests import exact, plugin
from lab.guests.exact import Qemu
from lab.guests.run import RunningGuests
from lab.kernels import architecture, compilers
from lab.kernels import build as kernel_build
from lab.kernels.build import BuildRequest
from lab.kernels.compilers import Compiler

logger = logging.getLogger(__name__)
Task = TypeVar("Task")
Result = TypeVar("Result")

_DIFFERENCES = {
    "lab": "the lab itself",
    "qemu": "QEMU",
    "parameters": "a machine of exact mode (machines/ARCH/exact.toml)",
    "plugin": "the cost plugin, or its compiler",
}


# ---- abilities of a worker


class Facts(Record, frozen=True, kw_only=True):
    """Everything on a machine that decides the numbers of its guests, besides the contents of a task.

    lab: digest of its modules. parameters: of exact mode's machine of every architecture. plugin: of the cost plugin's
    sources and their compiler; empty if it cannot be built.
    """

    lab: str
    qemu: str
    parameters: str
    plugin: str

    @property
    def fingerprint(self) -> str:
        """Machines with equal fingerprints give equal numbers."""
        return records.digest(self)[:16]

    def differences(self, other: Facts) -> list[str]:
        """The names of the facts that differ on another machine."""
        names = [name for name in _DIFFERENCES if getattr(self, name) != getattr(other, name)]
        versions = f" ({other.qemu or 'none'} there, {self.qemu or 'none'} here)"
        return [_DIFFERENCES[name] + (versions if name == "qemu" else "") for name in names]


def local_facts(qemu: Qemu) -> Facts:
    """The facts of this machine, with one of its QEMUs."""
    try:
        cost = plugin.PROGRAM.digest()
    except LabError:
        cost = ""
    parameters = records.digest({name: exact.exact_machine(name) for name in architecture.names()})
    return Facts(lab=_lab_digest(), qemu=qemu.version, parameters=parameters, plugin=cost)


@cache
def _lab_digest() -> str:
    top = Path(__file__).resolve().parents[1]
    return records.digest({str(path.relative_to(top)): records.file_digest(path) for path in sorted(top.rglob("*.py"))})


def report_facts(qemu: str) -> Facts | str:
    """The facts of this machine, or the reason why it runs no guests."""
    try:
        return local_facts(find_qemu(qemu))
    except LabError as error:
        return error.message


def find_qemu(command: str) -> Qemu:
    """The emulator at a path, else the one with its name."""
    return exact.find_qemu(command if Path(command).is_file() else Path(command).name)


def guests_resource(facts: Facts) -> str:
    """The dask resource of matching workers; each has as many of it as it runs guests at a time."""
    return f"lab-guests-{facts.fingerprint}"


def builds_resource(compiler: Compiler) -> str:
    """The dask resource of workers with a compiler; each has one of it, because a build uses all cores."""
    return "lab-builds-" + records.digest([compiler.family, compiler.version, compiler.linker])[:16]


class GuestPlugin(WorkerPlugin):
    """Sets a worker's resource for guests. dask also runs it on workers that join later."""

    def __init__(self, qemu: str) -> None:
        self.qemu = qemu
        self.name = f"lab-guests-{qemu}"

    async def setup(self, worker: Worker) -> None:
        """Called by dask on every worker."""
        await asyncio.to_thread(_remove_stale_folders)
        facts = await asyncio.to_thread(report_facts, self.qemu)
        if isinstance(facts, Facts):
            await worker.set_resources(**{guests_resource(facts): worker.state.nthreads})


class BuildPlugin(WorkerPlugin):
    """Sets a worker's resource for builds with a compiler."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.name = f"lab-builds-{command}"

    async def setup(self, worker: Worker) -> None:
        """Called by dask on every worker."""
        try:
            compiler = await asyncio.to_thread(compilers.identify, self.command)
        except LabError:
            return
        await worker.set_resources(**{builds_resource(compiler): 1})


def _remove_stale_folders() -> None:
    """Remove the folders of guests whose worker was killed."""
    for folder in paths.cache_dir("guests").iterdir():
        if not Path(f"/proc/{folder.name.split('-')[0]}").exists():
            shutil.rmtree(folder, ignore_errors=True)


# ---- tasks


class WorkerTrouble(Exception):
    """A worker cannot run a task, through no fault of the task. It has one argument, so that it can be pickled."""


def pack(function: Callable[[Task], Result], task: Task) -> bytes:
    """A task and its function for `perform`, in one piece, which a scheduler of another version does not change."""
    return pickle.dumps((function, task))


def perform(packed: bytes) -> Any:
    """Run a packed task on this machine."""
    function, task = pickle.loads(packed)  # noqa: S301  (who reaches the scheduler may run anything anyway)
    try:
        return function(task)
    except WorkerTrouble:
        raise
    except (LabError, OSError) as error:
        raise WorkerTrouble(error.message if isinstance(error, LabError) else str(error)) from None
    except Exception as error:
        logger.exception("a task failed")
        raise WorkerTrouble(f"{type(error).__name__}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteError:
    """An error on its way to the machine that asked. log: the name of the file that says more. case: a guest's."""

    message: str
    hint: str | None
    kind: str = ""
    log: str | None = None
    case: str = ""

    @classmethod
    def of(cls, error: LabError, kind: str = "") -> RemoteError:
        """An error in this form."""
        case = error.case if isinstance(error, GuestFailed) else ""
        log = error.log.name if error.log else None
        return cls(message=error.message, hint=error.hint, kind=kind, log=log, case=case)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTask:
    """One guest. Its paths are those of the machine that asks; image and root: digests of files in the share."""

    share: str
    guest: GuestRun
    image: str
    root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestResult:
    """The output of a guest or its failure, and the files that it left, by name."""

    output: GuestOutput | None
    error: RemoteError | None
    files: dict[str, bytes]


def run_guest(task: GuestTask) -> GuestResult:
    """Boot a task's guest on this machine."""
    guest = _localize(task)
    with process.scratch(f"{os.getpid()}-", paths.cache_dir("guests")) as folder:
        guest = dataclasses.replace(guest, bench=dataclasses.replace(guest.bench, folder=folder))
        runs.make_folder(guest)
        output, failure = None, None
        try:
            output = runs.boot(guest, RunningGuests())
        except GuestFailed as error:
            if error.kind.blames == "host":
                raise
            failure = RemoteError.of(error, error.kind)
        if guest.seed != runs.PROFILED_SEED:
            (guest.folder / plugin.COSTS).unlink(missing_ok=True)
        files = {path.name: path.read_bytes() for path in guest.folder.iterdir() if path.is_file()}
    return GuestResult(output=output, error=failure, files=files)


def _localize(task: GuestTask) -> GuestRun:
    """A task's guest with this machine's files. Refuses the task if the guest would be a different one."""
    share, guest = Share(task.share), task.guest
    bench = dataclasses.replace(guest.bench, qemu=find_qemu(guest.bench.qemu.path), packed_root=share.fetch(task.root))
    if bench.instrument is not None:
        bench = dataclasses.replace(bench, instrument=dataclasses.replace(bench.instrument, library=plugin.obtain()))
    if (fingerprint := bench.with_fingerprint().fingerprint) != bench.fingerprint:
        raise WorkerTrouble(f"its guests have the fingerprint {fingerprint}, not {bench.fingerprint}")
    image = share.fetch(task.image)
    kernel = dataclasses.replace(guest.arm.kernel, bzimage=image, vmlinux=image)
    return dataclasses.replace(guest, bench=bench, arm=dataclasses.replace(guest.arm, kernel=kernel))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTask:
    """One kernel to build and put into the share, under the key of its request."""

    share: str
    request: BuildRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The end of a build: success without an error. missing: the git tree that it needs to begin."""

    error: RemoteError | None = None
    log: bytes = b""
    missing: str | None = None


def build_kernel(task: BuildTask) -> BuildResult:
    """Build a task's kernel on this machine, and share it."""
    share = Share(task.share)
    try:
        source = localize_source(share, task.request.source)
        compiler = compilers.identify(task.request.compiler.command)
        request = dataclasses.replace(task.request, source=source, compiler=compiler)
        build = kernel_build.obtain(request, Work(progress=Progress(quiet=True)))
        share.put_kernel(build, task.request.key)
    except MissingTree as missing:
        return BuildResult(missing=str(missing))
    except BuildFailed as error:
        log = error.log.read_bytes() if error.log and error.log.is_file() else b""
        return BuildResult(error=RemoteError.of(error), log=log)
    return BuildResult()
