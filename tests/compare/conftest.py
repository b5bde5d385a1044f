"""Comparisons of two kernel files in a test's own folders."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.compare import comparison
from lab.compare.results import AbResult

from ..fakes.guest import WORKLOAD, EventsFormula, FakeGuests, Formula, plan, pretend, write_workload
from ..fakes.work import quiet

Start = Callable[..., tuple[FakeGuests, Callable[[], AbResult]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "result"
    (folder / "runs").mkdir(parents=True)
    return folder


@pytest.fixture
def start(own_home: None, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Prepare a measurement with guests of a formula; call what it gives to measure."""

    def prepare(
        formula: Formula, *more: str, text: str = WORKLOAD, into: Path = folder, jobs: int = 1,
        deadline: float | None = None, counts: Formula = lambda *_: 1000.0, events: EventsFormula | None = None,
        **changes: object,
    ) -> tuple[FakeGuests, Callable[[], AbResult]]:  # fmt: skip
        guests = pretend(monkeypatch, tmp_path, FakeGuests(formula, counts, events))
        asked = plan(write_workload(tmp_path / "mine", text), *more, **changes)
        return guests, lambda: comparison.measure(asked, into, quiet(jobs=jobs, deadline=deadline))

    return prepare
