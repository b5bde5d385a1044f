"""Telling people how far long work is: bars on a terminal, plain lines elsewhere, always on stderr."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab.core.text import visible_lines

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_STEP = re.compile(rb"^  [A-Z][A-Z0-9_+]* +\S", re.MULTILINE)
_PLAIN_EVERY_S = 15.0


class Meter:
    """Where progress goes. Quiet ones say nothing; use as a context manager around the whole command."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._stopped = threading.Event()
        self._last_news = ""
        self._bars: Progress | None = None

    def __enter__(self) -> Meter:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._bars is not None:
            self._bars.stop()

    @property
    def shows_bars(self) -> bool:
        """Whether there is a terminal for them."""
        return self._bars is not None

    def cancelled(self) -> bool:
        """Whether the command is over (Ctrl-C): long work asks this."""
        return self._stopped.is_set()

    def say(self, text: str) -> None:
        """One line of news."""
        if self.quiet:
            return
        text = visible_lines(text)
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def news(self, text: str, share: float | None = None) -> None:
        """`say`, for those that also know how much is done: each text is said once."""
        if share is None and text != self._last_news:
            self.say(text)
            self._last_news = text

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Task]:
        """A piece of work with a number of steps, if known."""
        task = self.open_task(label, total)
        try:
            yield task
        finally:
            task.close()

    def open_task(self, label: str, total: int | None) -> Task:
        """The same for whoever closes it."""
        return Task(self, label, total, self._bars)


class Task:
    """One bar. `count` is how many steps were done."""

    def __init__(self, meter: Meter, label: str, total: int | None, bars: Progress | None) -> None:
        self.meter, self.label, self.total, self.count = meter, label, total, 0
        self._bars = bars
        self._id: TaskID | None = bars.add_task(label, total=total) if bars is not None else None
        self._started = self._said = time.monotonic()

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Some steps further."""
        self.count += steps
        if self._bars is not None and self._id is not None:
            total = None if self.total is None else max(self.total, self.count)
            self._bars.update(self._id, completed=self.count, total=total, description=f"{self.label} {note}".rstrip())
        elif time.monotonic() - self._said > _PLAIN_EVERY_S:
            self._said = time.monotonic()
            self.meter.say(self._plain(note))

    def grow(self, steps: int) -> None:
        """More work turned up."""
        self.total = (self.total or 0) + steps

    def close(self) -> None:
        """The bar goes away."""
        if self._bars is not None and self._id is not None:
            self._bars.remove_task(self._id)

    def _plain(self, note: str) -> str:
        spent = time.monotonic() - self._started
        if self.total and 0 < self.count < self.total:
            left = spent * (self.total - self.count) / self.count
            return f"{self.label}: {self.count} of {self.total}, about {left:.0f} s left {note}".rstrip()
        return f"{self.label}: {self.count} steps in {spent:.0f} s {note}".rstrip()


@contextmanager
def follow_log(log: Path, meter: Meter, label: str, total: int | None) -> Iterator[Task]:
    """Advance a bar by make's own steps (`  CC  file.o`) as they appear in its log."""
    stop = threading.Event()
    with meter.task(label, total) as task:
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
        last_look = stop.is_set()
        if log.exists():
            with log.open("rb") as stream:
                stream.seek(position)
                text = stream.read()
            whole = text[: text.rfind(b"\n") + 1]
            position += len(whole)
            task.advance(len(_STEP.findall(whole)))
        if last_look:
            return
        stop.wait(0.5)
