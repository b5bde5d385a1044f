"""What holds for all tests of a run, in however many processes."""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.guests import exact

from .fakes import bisector as bisectors
from .fakes import nights as fakenights
from .fakes.bisector import Bisector
from .fakes.nights import Nights

# pytest-xdist's processes inherit it from the first one, and so share the home that guest tests work in.
os.environ.setdefault("LAB_TEST_RUN", uuid.uuid4().hex)


def run_home() -> Path:
    """The home of this run's guest tests, which is removed at the end."""
    return Path(f"/var/tmp/lab-test-{os.environ['LAB_TEST_RUN']}")  # noqa: S108 - nobody can guess it


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The first process ends last."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(run_home(), ignore_errors=True)


@pytest.fixture(autouse=True)
def _unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that stand for QEMU would run once more to say that they have no sandbox."""
    monkeypatch.setattr(exact, "sandbox", lambda qemu: ())


@pytest.fixture
def bisector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bisector:
    """`lab bisect` in a test's own folders."""
    return bisectors.make(tmp_path, monkeypatch, capsys)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Nights:
    """Nights of a plan in a test's own folders."""
    return fakenights.make(tmp_path, monkeypatch, capsys)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell without job control has what it starts in the background ignore interrupts: not in this test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
