"""The executor of a dask cluster: guests and builds on its workers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed.client import FutureCancelledError

from lab.cluster import share, worker
from lab.cluster.share import Share
from lab.cluster.worker import BuildDone, BuildTask, Done, Facts, GuestDone, GuestTask, Task, WorkerTrouble, Wrong
from lab.compare import runs
from lab.compare.runs import Bench, Run
from lab.core import paths, records
from lab.core.errors import BuildFailed, GuestFailed, GuestFailure, HostFailed
from lab.core.progress import Progress
from lab.guests.exact import Qemu
from lab.guests.run import Arm, Running
from lab.kernels.build import BuildRequest
from lab.kernels.compilers import Compiler
from lab.kernels.store import Build
from lab.workloads.spec import Case

_LOOK_EVERY_S = 5.0
_PATIENCE_S = 60.0
"""How long a task waits for a worker, when there is none left that could do it."""
_RETRIES = 2


class ClusterExecutor:
    """Guests and builds by the workers that match this machine; what they need and give moves through the share."""

    def __init__(self, client: Client, share: Share, progress: Progress) -> None:
        self._client, self._share, self._progress = client, share, progress
        self._lock = threading.RLock()
        self._sources = threading.Lock()
        self._guests: dict[str, str] = {}  # the resource of each QEMU here, by its path
        self._builds: dict[str, str] = {}  # that of each compiler, by its command
        self._digests: dict[Path, str] = {}
        self._under_way: set[Future[Any]] = set()
        self._stopped = False

    # ---- who there is

    def machines(self, bench: Bench) -> int:
        """How many workers give the same numbers as this machine."""
        return len(self._able(self._resource(bench.qemu)))

    def guests(self, bench: Bench) -> int:
        """How many guests they run at a time."""
        return max(1, sum(self._able(self._resource(bench.qemu)).values()))

    def _workers(self) -> dict[str, dict[str, float]]:
        try:
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        except OSError as error:
            raise self._gone(error) from error
        return {address: dict(one["resources"]) for address, one in found.items()}

    def _able(self, resource: str) -> dict[str, int]:
        return worker.able(self._workers(), resource)

    def _resource(self, qemu: Qemu) -> str:
        """What workers carry whose guests are like those of this QEMU here; asked for and told of once."""
        with self._lock:
            if qemu.path not in self._guests:
                mine = worker.here(qemu)
                self._client.register_plugin(worker.RunsGuests(qemu.path))
                self._guests[qemu.path] = worker.guests_resource(mine)
                self._introduce(mine, qemu)
            return self._guests[qemu.path]

    def _introduce(self, mine: Facts, qemu: Qemu) -> None:
        """Say who is there, and why some are of no use; an error if all are."""
        told: dict[str, Facts | str] = self._client.run(worker.look_and_tell, qemu.path)
        able = self._able(worker.guests_resource(mine))
        for address, other in told.items():
            if address not in able:
                why = other if isinstance(other, str) else f"differs in {', '.join(worker.differences(mine, other))}"
                self._progress.log(f"cluster: {address} is left out: {why}")
        if not able:
            raise HostFailed(
                f"none of the cluster's {len(told)} workers gives the same numbers as this machine",
                hint="they need the same lab, the same QEMU and the same compiler; see docs/cluster.md",
            )
        self._progress.log(f"cluster: {len(able)} of {len(told)} workers match, {sum(able.values())} guests at a time")

    # ---- guests

    def measure(
        self, bench: Bench, arm: Arm, seed: int, cases: Sequence[Case], fingerprint: str, running: Running
    ) -> Run:
        """Run a guest elsewhere; its record and its folder are as if it had run here."""
        task = GuestTask(
            share=self._share.url,
            bench=bench,
            arm=arm,
            image=self._shared(arm.kernel.image(bench.machine)),
            slice=self._shared(bench.slice),
            seed=seed,
            cases=tuple(cases),
            fingerprint=fingerprint,
        )
        try:
            done: GuestDone = self._do(worker.run_guest, task, self._resource(bench.qemu), running)
        except WorkerTrouble as error:
            raise HostFailed(f"the cluster cannot run {arm.name} arm, seed {seed}: {error}") from None
        guest = runs.fresh_folder(bench, arm, seed, cases)
        for name, content in done.files.items():
            (guest / Path(name).name).write_bytes(content)
        if done.got is None:
            raise _guest_failed(done.wrong, guest)
        return runs.keep(runs.arguments(bench, arm, guest), guest, done.got, bench, arm, seed, cases, fingerprint)

    def _shared(self, path: Path) -> str:
        """The digest of a file that is in the share now."""
        with self._lock:
            if path not in self._digests:
                digest = records.file_digest(path)
                self._share.put(path, digest)
                self._digests[path] = digest
            return self._digests[path]

    # ---- kernels

    def build(self, request: BuildRequest, progress: Progress) -> Build | None:
        """A kernel from the share, or built by a worker with the same compiler; None where none can."""
        if (known := self._share.fetch_kernel(request.key)) is not None:
            return known
        resource = self._builder(request.compiler)
        if not self._able(resource):
            progress.log(f"cluster: no worker has {request.compiler.version}; building here")
            return None
        progress.log(f"building {request.text} on the cluster")
        try:
            done = self._build(request, resource)
        except WorkerTrouble as error:
            progress.log(f"cluster: {error}; building {request.text} here")
            return None
        if done.wrong is not None:
            log = paths.cache_dir("logs") / f"build-cluster-{request.key[:12]}.log"
            log.write_bytes(done.log)
            raise BuildFailed(done.wrong.message, hint=done.wrong.hint, log=log)
        return self._share.fetch_kernel(request.key)

    def _build(self, request: BuildRequest, resource: str) -> BuildDone:
        """Have it built; what a worker misses of the source is put into the share, and it asked again."""
        task = BuildTask(share=self._share.url, request=request)
        offered: set[str] = set()
        while True:
            done: BuildDone = self._do(worker.build_kernel, task, resource, Running())
            if done.missing is None:
                return done
            if done.missing in offered:
                raise WorkerTrouble(f"its sources do not reach the workers by {self._share.url}")
            offered.add(done.missing)
            with self._sources:
                share.offer(self._share, request.source, done.missing)

    def _builder(self, compiler: Compiler) -> str:
        with self._lock:
            if compiler.command not in self._builds:
                self._client.register_plugin(worker.Builds(compiler.command))
                self._builds[compiler.command] = worker.builds_resource(compiler)
            return self._builds[compiler.command]

    # ---- having something done

    def _do(self, function: Callable[[Task], Done], task: Task, resource: str, running: Running) -> Done:
        with self._lock:
            if self._stopped:
                raise HostFailed("stopped")
            given = worker.packed(function, task)
            future = self._client.submit(worker.perform, given, resources={resource: 1}, pure=False, retries=_RETRIES)
            self._under_way.add(future)
        remote = _Remote(future)
        running.add(remote)
        try:
            done: Done = self._await(future, resource)
            return done
        finally:
            running.discard(remote)
            with self._lock:
                self._under_way.discard(future)

    def _await(self, future: Future[Any], resource: str) -> Any:
        """What a task gives; patient with workers that are about to come back."""
        seen = time.monotonic()
        while True:
            try:
                return future.result(timeout=_LOOK_EVERY_S)
            except TimeoutError:
                if self._able(resource):
                    seen = time.monotonic()
                elif time.monotonic() - seen > _PATIENCE_S:
                    future.cancel()
                    raise HostFailed(
                        "no worker is left that matches this machine", hint="start some, then go on"
                    ) from None
            except KilledWorker as error:
                raise HostFailed(
                    f"the workers that were given it died: {error}", hint="have they memory for their guests?"
                ) from error
            except (FutureCancelledError, asyncio.CancelledError, concurrent.futures.CancelledError) as error:
                raise HostFailed("stopped, or the cluster's scheduler is gone") from error
            except OSError as error:
                raise self._gone(error) from error

    def _gone(self, error: OSError) -> HostFailed:
        return HostFailed(f"the cluster's scheduler does not answer: {error}", hint="is it still there? Then go on")

    def stop(self) -> None:
        """Let go of everything that is under way, for good."""
        with self._lock:
            self._stopped = True
            for future in self._under_way:
                future.cancel()


class _Remote:
    """A guest elsewhere, as one that can be stopped. What runs already runs to its end, and is not waited for."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def kill(self) -> None:
        """Let go of it."""
        self._future.cancel()


def _guest_failed(wrong: Wrong | None, guest: Path) -> GuestFailed:
    if wrong is None:
        return GuestFailed(GuestFailure.NO_REPORT, "the worker gave nothing", log=guest)
    return GuestFailed(
        GuestFailure(wrong.kind), wrong.message, hint=wrong.hint, log=guest / wrong.log if wrong.log else None
    )
