"""Progress of long work on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab.core.text import span, visible_lines

if TYPE_CHECKING:
    from rich import progress as rich_progress

logger = logging.getLogger(__name__)

_STEP = re.compile(rb"^  [A-Z][A-Z0-9_+]* +\S", re.MULTILINE)
_PLAIN_EVERY_S = 15.0
_TELLING = 0.05
"""The share of all steps from which on the time of the finished steps predicts that of the others."""


class Progress:
    """Shows the progress of a command; a context manager around all of it. A quiet one shows nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._stopped = threading.Event()
        self._said: set[str] = set()
        self._bars: rich_progress.Progress | None = None

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich import progress as rich_progress
            from rich.console import Console

            columns = (
                rich_progress.TextColumn("{task.description}"),
                rich_progress.BarColumn(),
                rich_progress.MofNCompleteColumn(),
                rich_progress.TextColumn("{task.fields[left]}"),
            )
            self._bars = rich_progress.Progress(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._bars is not None:
            self._bars.stop()

    @property
    def shows_bars(self) -> bool:
        """True on a terminal."""
        return self._bars is not None

    def cancelled(self) -> bool:
        """True once the command is over (Ctrl-C); long work checks it."""
        return self._stopped.is_set()

    def log(self, text: str) -> None:
        if self.quiet:
            logger.debug("%s", text)
            return
        text = visible_lines(text)
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def log_once(self, text: str) -> None:
        """`log`, unless the command has shown the line before."""
        if text not in self._said:
            self._said.add(text)
            self.log(text)

    def task(self, label: str, total: int | None) -> Task:
        """A bar for a number of steps, if that is known."""
        return Task(self, label, total, self._bars)


class Task:
    """One bar, a context manager. `count` is the number of steps that are done.

    The time that is left follows from the steps that were done here: neither from those of an earlier command, nor from
    the time before the first step was due.
    """

    def __init__(self, progress: Progress, label: str, total: int | None, bars: rich_progress.Progress | None) -> None:
        self.progress, self.label, self.total, self.count = progress, label, total, 0
        self._known = 0
        self._bars = bars
        self._id: rich_progress.TaskID | None = bars.add_task(label, total=total, left="") if bars is not None else None
        self._started = self._logged = time.monotonic()

    def __enter__(self) -> Task:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def advance(self, steps: int = 1, note: str = "", *, known: bool = False) -> None:
        """Count steps as done, and show it. known: an earlier command did them."""
        self.count += steps
        self._known += steps * known
        if self._bars is not None:
            self._show(note)
        elif time.monotonic() - self._logged > _PLAIN_EVERY_S:
            self._logged = time.monotonic()
            self.progress.log(self._plain(note))

    def expect(self, steps: int, label: str | None = None) -> None:
        """Set the number of further steps, if it is known; the total never becomes smaller."""
        self.label = label or self.label
        self.total = max(self.total or 0, self.count + steps)
        if not self.count:
            self._started = time.monotonic()
        self._show()

    def close(self) -> None:
        """Remove the bar."""
        if self._bars is not None and self._id is not None:
            self._bars.remove_task(self._id)

    def _show(self, note: str = "") -> None:
        if self._bars is not None and self._id is not None:
            total = None if self.total is None else max(self.total, self.count)
            label = f"{self.label} {note}".rstrip()
            self._bars.update(self._id, completed=self.count, total=total, description=label, left=self._left())

    def _left(self) -> str:
        """The time that is left; empty if nothing tells."""
        done = self.count - self._known
        if not self.total or not done or not self.total * _TELLING <= self.count < self.total:
            return ""
        return f"about {span((time.monotonic() - self._started) * (self.total - self.count) / done)} left"

    def _plain(self, note: str) -> str:
        if self.total and self.count < self.total:
            left = ", ".join(filter(None, [f"{self.label}: {self.count} of {self.total}", self._left()]))
            return f"{left} {note}".rstrip()
        return f"{self.label}: {self.count} steps in {span(time.monotonic() - self._started)} {note}".rstrip()


QUIET = Progress(quiet=True)
"""The progress of work that no user follows."""


@contextmanager
def follow_log(log: Path, progress: Progress, label: str, total: int | None) -> Iterator[Task]:
    """Advance a bar by make's own steps (`  CC  file.o`) as they appear in its log."""
    stop = threading.Event()
    with progress.task(label, total) as task:
        reader = threading.Thread(target=_follow, args=(log, task, stop), daemon=True)
        reader.start()
        try:
            yield task
        finally:
            stop.set()
            reader.join(timeout=2)


def _follow(log: Path, task: Task, stop: threading.Event) -> None:
    position = 0
    while True:
        is_last = stop.is_set()
        if log.exists():
            with log.open("rb") as stream:
                stream.seek(position)
                text = stream.read()
            whole = text[: text.rfind(b"\n") + 1]
            position += len(whole)
            task.advance(len(_STEP.findall(whole)))
        if is_last:
            return
        stop.wait(0.5)
