"""What dask's workers are given when a command joins their cluster: they find out what they can do, and say so.

It reaches those that come later, too, so a worker that was started anew is of use again.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin

from lab.cluster import fingerprint
from lab.cluster.fingerprint import Facts
from lab.cluster.tasks import find_qemu
from lab.core import paths
from lab.core.errors import LabError
from lab.kernels import compilers

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
            await worker.set_resources(**{fingerprint.guests_resource(facts): worker.state.nthreads})


class Builds(WorkerPlugin):
    """Carries a compiler, once."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.name = f"lab-builds-{command}"

    async def setup(self, worker: Worker) -> None:
        """Called by dask on every worker."""
        found = await asyncio.to_thread(_or_none, lambda: compilers.identify(self.command))
        if found is not None:
            await worker.set_resources(**{fingerprint.builds_resource(found): 1})


def look(qemu: str) -> Facts:
    """What this machine's guests depend on."""
    return fingerprint.here(find_qemu(qemu))


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
