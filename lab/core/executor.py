"""Whether others do the work: machines that guests and builds of this command are given to, if there are any.

A command that was given a cluster enters `joined` with it once; whatever measures or builds asks for it here. So the
way down to a single guest need not know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Crew(Protocol):
    """Machines that work for this one. All of it may be called from several threads at once."""

    def machines(self, bench: Any) -> int:
        """How many there are whose guests give the same numbers as this machine's."""

    def guests(self, bench: Any) -> int:
        """How many guests they run at a time, all together."""

    def measure(self, bench: Any, arm: Any, seed: int, cases: Sequence[Any], fingerprint: str, running: Any) -> Any:
        """What `runs.measure` does: the record is saved, and the guest's folder filled, here."""

    def build(self, spec: Any, source: Any, compiler: Any, request: str, meter: Any) -> Any:
        """The kernel of a request, now in this machine's store; None when it has to be built here."""

    def stop(self) -> None:
        """Let go of everything that is under way, for good."""


_crew: list[Crew] = []


def crew() -> Crew | None:
    """The machines that this command was given; None for this one alone."""
    return _crew[-1] if _crew else None


@contextmanager
def joined(given: Crew) -> Iterator[None]:
    """Have others do the work of what is inside."""
    _crew.append(given)
    try:
        yield
    finally:
        _crew.remove(given)


def each(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """A function of each item: one after the other here, all at once where others do the work.

    What one of them raises is raised when all have ended; the first item's counts.
    """
    given = crew()
    if given is None or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(max_workers=len(items)) as pool:
        try:
            futures = [pool.submit(function, item) for item in items]
            wait(futures)
        except BaseException:
            given.stop()
            raise
    return [future.result() for future in futures]


def over(deadline: float | None) -> bool:
    """Whether a budget, as a time on the monotonic clock, is used up."""
    return deadline is not None and time.monotonic() > deadline
