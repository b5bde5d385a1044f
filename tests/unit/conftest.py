"""What unit tests of several modules need."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import bisector as bisectors
from . import fakenights
from .bisector import Bisector
from .fakenights import Nights


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
