"""A plan of kernels whose guests follow a formula."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.atlas import columns, plan
from lab.atlas.columns import Place
from lab.atlas.data import FunctionCost
from lab.atlas.plan import PlannedColumn
from lab.compare import profiles
from lab.core.errors import GuestFailed, GuestFailure, HostFailed
from lab.guests import model_version
from lab.kernels.kernel import KernelSpec

from ..fakes.build import own_folders
from ..fakes.guest import WORKLOAD, FakeGuests, FakeInstrument, kernel, pretend, write_workload

MODELLED = WORKLOAD.replace('model = "none"', 'model = "tlb"')

Setup = Callable[..., tuple[FakeGuests, Place, list[PlannedColumn]]]


def plain(arm: str, seed: int, case: str) -> float:
    return 100.0 + seed


def died(case: str) -> GuestFailed:
    """What a formula raises for a case that kills its guest."""
    error = GuestFailed(GuestFailure.PANIC, "it died")
    error.case = case
    return error


@contextmanager
def gone(name: str) -> Iterator[None]:
    """A kernel of that name cannot be had for now."""
    obtain = KernelSpec.obtain

    def refuse(spec: KernelSpec, *more: Any, **rest: Any) -> Any:
        if spec.text.endswith(f"/{name}"):
            raise HostFailed(f"cannot download {name}: 404")
        return obtain(spec, *more, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KernelSpec, "obtain", refuse)
        yield


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
        workload = write_workload(tmp_path / "mine", MODELLED)
        path = tmp_path / "plan.toml"
        path.write_text(
            f'schema = 1\nworkloads = ["{workload}"]\n[[series]]\nname = "mine"\nkernels = ["file:/boot/a"]\n'
        )
        found = [PlannedColumn("mine", name, kernel(name).spec) for name in ("a", "b")]
        return guests, Place(plan=plan.load(path), guests="x86_64", version=1), found

    return prepare
