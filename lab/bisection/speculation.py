"""Building ahead: while a commit is measured, the kernels of both commits that may be next.

It runs at the lowest priority, so it takes the cores that guests leave idle: those of the last guests of a commit are
some on any machine. Exact mode's numbers do not depend on the load. A build for the outcome that did not come is
stopped as Ctrl-C stops it, so make removes what is half done and the build folder stays good.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from lab.core.errors import LabError

_PATIENCE_S = 0.1
_HURRY_EVERY_S = 1.0
_LOWEST_PRIORITY = 19


class Speculation:
    """One builder in the background. Its failures are not told: the kernel is asked for again when it is its turn.

    obtain: builds a candidate by its number. interrupt: stops a build of this process, if one is going on. hurry: gives
    one the caller's priority.
    """

    def __init__(
        self, obtain: Callable[[int], object], interrupt: Callable[[], None], hurry: Callable[[], None]
    ) -> None:
        self._obtain, self._interrupt, self._hurry = obtain, interrupt, hurry
        self._thread: threading.Thread | None = None
        self._building: int | None = None
        self._cancelled = threading.Event()

    def build(self, ahead: Sequence[int]) -> None:
        """Build these, one after the other, until told otherwise."""
        self.settle(None)
        self._cancelled.clear()
        self._thread = threading.Thread(target=self._work, args=(ahead,), daemon=True)
        self._thread.start()

    def settle(self, wanted: int | None) -> None:
        """Leave the compilers to the caller: what it wants itself is finished, anything else is stopped."""
        self._cancelled.set()
        while self._thread is not None and self._thread.is_alive():
            if wanted is None or self._building != wanted:
                self._interrupt()
                self._thread.join(timeout=_PATIENCE_S)
            else:
                # Now it is what the search waits for: on a busy machine the lowest priority would get nothing.
                self._hurry()
                self._thread.join(timeout=_HURRY_EVERY_S)
        self._thread = None

    def _work(self, ahead: Sequence[int]) -> None:
        # On Linux a priority is one thread's: this one's, and make's and all compilers', which inherit it.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
        for number in ahead:
            if self._cancelled.is_set():
                return
            self._building = number
            with suppress(LabError, ValueError, KeyboardInterrupt):
                self._obtain(number)
            self._building = None
