"""The means that a command has for its guests and builds: cores, time, a place for progress, other machines."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from lab.core.progress import Progress

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Other machines that do a command's work. Threads may share it. `GuestExecutor` and `Builder` are its methods."""

    def stop(self) -> None:
        """Cancel everything that is under way, for good."""


def default_jobs() -> int:
    """All cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The means of a command for its guests and builds, handed down to all code that measures or builds.

    jobs: guests at a time, and make's parallelism.
    deadline: on the monotonic clock; None without a budget.
    progress: takes the progress.
    executor: None if this machine does all of it.
    """

    progress: Progress
    jobs: int = field(default_factory=default_jobs)
    deadline: float | None = None
    executor: Executor | None = None

    @property
    def out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    @property
    def remaining_s(self) -> float:
        """The seconds until the deadline; infinity without one."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def until(self, deadline: float | None) -> Work:
        return dataclasses.replace(self, deadline=deadline)

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call a function with each item: one after the other here, all at once if an executor does the work.

        Waits for all of them, then raises the exception of the first item's call, if it had one.
        """
        if self.executor is None or len(items) < 2:
            return [function(item) for item in items]
        with ThreadPoolExecutor(max_workers=len(items)) as pool:
            try:
                futures = [pool.submit(function, item) for item in items]
                wait(futures)
            except BaseException:
                self.executor.stop()
                raise
        return [future.result() for future in futures]
