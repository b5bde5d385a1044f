"""The means of a command that keeps quiet and does one thing at a time."""

from collections.abc import Iterator, Sized
from contextlib import contextmanager
from typing import Any

import pytest

from lab.core.executor import Work
from lab.core.progress import Progress


def quiet(**changes: Any) -> Work:
    return Work(**{"progress": Progress(quiet=True), "jobs": 1, **changes})


@contextmanager
def stopped_after(count: int, calls: Sized) -> Iterator[None]:
    """The budget is over after so many calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Work, "out_of_time", property(lambda _: len(calls) >= count))
        yield
