"""A plan of kernels whose guests follow a formula."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.atlas import columns, plan
from lab.atlas.columns import Place
from lab.atlas.data import FunctionCost
from lab.atlas.plan import PlannedColumn
from lab.compare import profiles
from lab.guests import model_version

from ..fakes.build import own_folders
from ..fakes.guest import WORKLOAD, FakeGuests, FakeInstrument, kernel, pretend, write_workload

Setup = Callable[..., tuple[FakeGuests, Place, list[PlannedColumn]]]


def plain(arm: str, seed: int, case: str) -> float:
    return 100.0 + seed


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Guests of a formula, the plan of two kernels, and its columns."""
    own_folders(monkeypatch, tmp_path)

    def prepare(formula: Any = plain, **more: Any) -> tuple[FakeGuests, Place, list[PlannedColumn]]:
        guests = pretend(monkeypatch, tmp_path, FakeGuests(formula, **more))
        monkeypatch.setattr(model_version, "current", lambda workloads: 1)
        monkeypatch.setattr("lab.compare.measurement.load_instrument", lambda machine, model: FakeInstrument(machine))
        monkeypatch.setattr(columns, "require_fixed_work", lambda ready: None)
        monkeypatch.setattr(profiles, "of_guest", lambda guest, root: {one.name: None for one in guest.cases})
        monkeypatch.setattr(columns, "functions_of", lambda profile: [FunctionCost("do_it", 10.0, 20.0)])
        workload = write_workload(tmp_path / "mine", WORKLOAD.replace('model = "none"', 'model = "tlb"'))
        path = tmp_path / "plan.toml"
        path.write_text(
            f'schema = 1\nworkloads = ["{workload}"]\n[[series]]\nname = "mine"\nkernels = ["file:/boot/a"]\n'
        )
        found = [PlannedColumn("mine", name, kernel(name).spec) for name in ("a", "b")]
        return guests, Place(plan=plan.load(path), guests="x86_64", version=1), found

    return prepare
