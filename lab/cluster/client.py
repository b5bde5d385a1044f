"""The executor of a dask cluster: guests and builds on its workers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed.client import FutureCancelledError

from lab.cluster import share, worker
from lab.cluster.share import Share
from lab.cluster.worker import (
    BuildResult,
    BuildTask,
    Facts,
    GuestResult,
    GuestTask,
    Result,
    Task,
    WorkerTrouble,
)
from lab.compare import runs
from lab.compare.runs import Bench, GuestExecutor, GuestRun, Run
from lab.core import paths, records
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, HostFailed
from lab.core.progress import Progress
from lab.guests.exact import Qemu
from lab.guests.run import RunningGuests
from lab.kernels.build import Builder, BuildRequest
from lab.kernels.compilers import Compiler
from lab.kernels.store import Build

_POLL_S = 5.0
_WAIT_S = 60.0
"""The time that a task waits for a matching worker when none is left."""
_RETRIES = 2


class ClusterExecutor(GuestExecutor, Builder):
    """Runs guests and builds on the workers that match this machine. Files move through the share."""

    def __init__(self, client: Client, share: Share, progress: Progress) -> None:
        self._client, self._share, self._progress = client, share, progress
        self._lock = threading.RLock()
        self._sources = threading.Lock()
        self._guests: dict[str, str] = {}  # resources by the path of a QEMU here
        self._builds: dict[str, str] = {}  # resources by the command of a compiler here
        self._digests: dict[Path, str] = {}
        self._futures: set[Future[Any]] = set()
        self._stopped = False

    # ---- workers

    def machines(self, bench: Bench) -> int:
        """The number of workers that give the same numbers as this machine."""
        return len(self._workers_with(self._guests_resource(bench.qemu)))

    def guests(self, bench: Bench) -> int:
        """The number of guests that these run at a time."""
        return max(1, sum(self._workers_with(self._guests_resource(bench.qemu)).values()))

    def _workers_with(self, resource: str) -> dict[str, int]:
        """The addresses of the workers that have a resource, and its amount."""
        try:
            info = self._client.scheduler_info(n_workers=-1)["workers"]
        except OSError as error:
            raise _gone(error) from error
        amounts = {address: int(one["resources"].get(resource, 0)) for address, one in info.items()}
        return {address: amount for address, amount in amounts.items() if amount}

    def _guests_resource(self, qemu: Qemu) -> str:
        """The resource of the workers whose guests are like those of a QEMU here. The first call reports on them."""
        with self._lock:
            if qemu.path not in self._guests:
                facts = worker.local_facts(qemu)
                self._client.register_plugin(worker.GuestPlugin(qemu.path))
                self._guests[qemu.path] = worker.guests_resource(facts)
                self._report_workers(facts, qemu)
            return self._guests[qemu.path]

    def _report_workers(self, facts: Facts, qemu: Qemu) -> None:
        """Show which workers do not match, and why. Raises `HostFailed` if none does."""
        reports: dict[str, Facts | str] = self._client.run(worker.report_facts, qemu.path)
        matching = self._workers_with(worker.guests_resource(facts))
        for address, report in reports.items():
            if address not in matching:
                why = report if isinstance(report, str) else f"differs in {', '.join(facts.differences(report))}"
                self._progress.log(f"cluster: {address} is left out: {why}")
        if not matching:
            raise HostFailed(
                f"none of the cluster's {len(reports)} workers gives the same numbers as this machine",
                hint="they need the same lab, the same QEMU and the same compiler; see docs/cluster.md",
            )
        self._progress.log(
            f"cluster: {len(matching)} of {len(reports)} workers match, {sum(matching.values())} guests at a time"
        )

    def _builds_resource(self, compiler: Compiler) -> str:
        with self._lock:
            if compiler.command not in self._builds:
                self._client.register_plugin(worker.BuildPlugin(compiler.command))
                self._builds[compiler.command] = worker.builds_resource(compiler)
            return self._builds[compiler.command]

    # ---- guests

    def measure(self, guest: GuestRun, running: RunningGuests) -> Run:
        """Run a guest on a worker. Its record and its folder are the same as if it had run here."""
        task = GuestTask(
            share=self._share.url,
            guest=guest,
            image=self._put(guest.arm.kernel.image(guest.bench.machine)),
            root=self._put(guest.bench.packed_root),
        )
        try:
            done: GuestResult = self._run(worker.run_guest, task, self._guests_resource(guest.bench.qemu), running)
        except WorkerTrouble as error:
            raise HostFailed(f"the cluster cannot run {guest.arm.name} arm, seed {guest.seed}: {error}") from None
        runs.make_folder(guest)
        for name, content in done.files.items():
            (guest.folder / Path(name).name).write_bytes(content)
        if (failed := done.error) is not None:
            log = guest.folder / failed.log if failed.log else None
            raise GuestFailed(GuestFailure(failed.kind), failed.message, hint=failed.hint, log=log, case=failed.case)
        assert done.output is not None  # noqa: S101  (a guest that did not fail has an output)
        return runs.save_run(guest, done.output)

    def _put(self, path: Path) -> str:
        """Put a file into the share; returns its digest."""
        with self._lock:
            if path not in self._digests:
                digest = records.file_digest(path)
                self._share.put(path, digest)
                self._digests[path] = digest
            return self._digests[path]

    # ---- builds

    def build(self, request: BuildRequest, progress: Progress) -> Build | None:
        """Take a kernel from the share, or have a worker with the same compiler build it; None if no worker can."""
        if (known := self._share.fetch_kernel(request.key)) is not None:
            return known
        resource = self._builds_resource(request.compiler)
        if not self._workers_with(resource):
            progress.log(f"cluster: no worker has {request.compiler.version}; building here")
            return None
        progress.log(f"building {request.text} on the cluster")
        try:
            done = self._build(request, resource)
        except WorkerTrouble as error:
            progress.log(f"cluster: {error}; building {request.text} here")
            return None
        if done.error is not None:
            log = paths.cache_dir("logs") / f"build-cluster-{request.key[:12]}.log"
            log.write_bytes(done.log)
            raise BuildFailed(done.error.message, hint=done.error.hint, log=log)
        return self._share.fetch_kernel(request.key)

    def _build(self, request: BuildRequest, resource: str) -> BuildResult:
        """Run a build; if the worker lacks a part of the source, share that and try again."""
        task = BuildTask(share=self._share.url, request=request)
        shared: set[str] = set()
        while True:
            done: BuildResult = self._run(worker.build_kernel, task, resource, RunningGuests())
            if done.missing is None:
                return done
            if done.missing in shared:
                raise WorkerTrouble(f"its sources do not reach the workers by {self._share.url}")
            shared.add(done.missing)
            with self._sources:
                share.share_source(self._share, request.source, done.missing)

    # ---- tasks

    def _run(self, function: Callable[[Task], Result], task: Task, resource: str, running: RunningGuests) -> Result:
        packed = worker.pack(function, task)
        with self._lock:
            if self._stopped:
                raise HostFailed("stopped")
            future = self._client.submit(worker.perform, packed, resources={resource: 1}, pure=False, retries=_RETRIES)
            self._futures.add(future)
        remote = _Remote(future)
        running.add(remote)
        try:
            result: Result = self._wait(future, resource)
            return result
        finally:
            running.discard(remote)
            with self._lock:
                self._futures.discard(future)

    def _wait(self, future: Future[Any], resource: str) -> Any:
        """The result of a task. While no worker matches, wait a while for one to come back."""
        seen = time.monotonic()
        while True:
            try:
                return future.result(timeout=_POLL_S)
            except TimeoutError:
                if self._workers_with(resource):
                    seen = time.monotonic()
                elif time.monotonic() - seen > _WAIT_S:
                    future.cancel()
                    raise HostFailed(
                        "no worker is left that matches this machine", hint="start some, then go on"
                    ) from None
            except KilledWorker as error:
                raise HostFailed(
                    f"every worker that ran this task died: {error}",
                    hint="check that workers have enough memory for a guest",
                ) from error
            except (FutureCancelledError, asyncio.CancelledError, concurrent.futures.CancelledError) as error:
                raise HostFailed("stopped, or the cluster's scheduler is gone") from error
            except OSError as error:
                raise _gone(error) from error

    def stop(self) -> None:
        """Cancel everything that is under way, for good."""
        with self._lock:
            self._stopped = True
            for future in self._futures:
                future.cancel()


class _Remote:
    """A task as `RunningGuests` stops it. dask cannot end a guest that runs already, and nothing waits for its end."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def kill(self) -> None:
        self._future.cancel()


def _gone(error: OSError) -> HostFailed:
    return HostFailed(f"the cluster's scheduler does not answer: {error}", hint="check that it still runs, then go on")
