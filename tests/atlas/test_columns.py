"""Measuring: each cell once, whatever interrupts it; what fails is a hole with its reason, and never a number."""

import dataclasses
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from filelock import FileLock
from msgspec.structs import replace

from lab.atlas import assembly, check, columns, data
from lab.atlas.columns import Place
from lab.atlas.data import NOT_MEASURED, Atlas, Cell
from lab.atlas.plan import PlannedColumn
from lab.compare import profiles
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure, HostFailed, UserError

from ..fakes import capabilities
from ..fakes.command import Lab
from ..fakes.guest import WORKLOAD, Broken, FakeInstrument, Unsupported, write_workload
from ..fakes.work import quiet, stopped_after
from ..fuzz.damages import FILES
from .conftest import Setup, died, gone


def measured(place: Place, found: list[PlannedColumn], **work: Any) -> Atlas:
    columns.measure(place, found, quiet(**work))
    return assembly.assemble(place, found)


def test_every_cell_has_its_numbers_by_seed(setup: Setup) -> None:
    guests, place, found = setup()
    atlas = measured(place, found)
    assert sorted(guests.boots) == sorted([("kernel", seed) for seed in (1, 2, 3)] * 2)
    cell = atlas.cells["mine:small"][1]
    assert cell == Cell(tuple(round(1e6 / (100.0 + seed) ** 0.5, 3) for seed in (1, 2, 3)), (1000.0,) * 3)
    assert [column.id for column in atlas.columns] == ["a", "b"] and atlas.cases[0].metrics[0] == "cycles_per_op"
    assert atlas.cases[0].profile[0].name == "do_it"


def test_without_a_model_the_time_of_the_workload_decides(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, place, found = setup()
    monkeypatch.setattr("lab.compare.measurement.load_instrument", lambda machine, model: None)
    write_workload(tmp_path / "mine", WORKLOAD)
    assert str(measured(place, found[:1]).cells["mine:small"][0]).startswith("no number: throughput is no time")
    write_workload(tmp_path / "mine", WORKLOAD.replace('unit = "op/s"', 'unit = "ns"'))
    atlas = measured(place, found[1:])
    assert atlas.cells["mine:small"][0] == Cell((), (), nanoseconds=(101.0, 102.0, 103.0))
    assert atlas.bases == ("nanoseconds",) and atlas.cases[0].metrics == ("throughput", "")


def test_a_plan_s_model_decides_for_a_workload_without_one(setup: Setup, tmp_path: Path) -> None:
    _, place, found = setup()
    write_workload(tmp_path / "mine", WORKLOAD)
    atlas = measured(dataclasses.replace(place, plan=replace(place.plan, model="tlb")), found)
    assert atlas.bases == ("cycles", "instructions") and atlas.cases[0].metrics[0] == "cycles_per_op"


def test_other_guests_are_measured_anew_and_old_numbers_are_holes_until_then(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    guests, place, found = setup()
    measured(place, found)
    monkeypatch.setattr(FakeInstrument, "identity", "tlb some-machine 12345678 another")
    columns.measure(place, found[:1], quiet())
    atlas = assembly.assemble(place, found)
    assert len(guests.calls) == 9
    assert isinstance(atlas.cells["mine:small"][0], Cell)
    assert str(atlas.cells["mine:small"][1]).startswith("measured with an older guest")


@pytest.mark.parametrize(("error", "seeds", "hole"), [
    (Unsupported("needs a newer kernel"), (1, 2, 3), "unsupported: mine:large needs a newer kernel"),
    (Broken("fell over"), (2,), "workload: mine:large fell over"),
])  # fmt: skip
def test_a_case_that_a_kernel_lacks_or_that_fails_with_one_seed_is_a_hole(
    setup: Setup, error: Broken, seeds: tuple[int, ...], hole: str
) -> None:
    def formula(arm: str, seed: int, case: str) -> float:
        if case == "large" and seed in seeds:
            raise error
        return 100.0

    _, place, found = setup(formula)
    atlas = measured(place, found)
    assert atlas.cells["mine:large"] == (hole,) * 2
    assert isinstance(atlas.cells["mine:small"][0], Cell)


def test_a_guest_that_ends_all_cases_is_a_hole_of_each_and_has_no_profile(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def formula(arm: str, seed: int, case: str) -> float:
        raise GuestFailed(GuestFailure.QEMU_DIED, "kernel arm, seed 1: QEMU ended")

    _, place, found = setup(formula)
    monkeypatch.setattr(profiles, "of_guest", Mock(side_effect=AssertionError))
    assert measured(place, found).cells["mine:small"] == (f"{GuestFailure.QEMU_DIED.value}: QEMU ended",) * 2


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_case_that_kills_a_guest_is_in_none_behind_it_however_many_run_at_a_time(setup: Setup, jobs: int) -> None:
    others = threading.Event()

    def formula(arm: str, seed: int, case: str) -> float:
        if (seed, case) == (1, "small"):
            assert others.wait(5 if jobs > 1 else 0) or jobs == 1
        if (seed, case) == (1, "large"):
            raise died("large")
        if seed == 3:
            others.set()
        return 100.0 + seed

    guests, place, found = setup(formula)
    atlas = measured(place, found[:1], jobs=jobs)
    both, small = ("small", "large"), ("small",)
    begun = [cases for _, seed, cases in guests.calls if seed == 3]
    assert begun == ([both, small] if jobs > 1 else [small])
    assert {seed: cases for _, seed, cases in guests.calls} == {1: small, 2: small, 3: small}, "the last of each"
    assert atlas.cells["mine:large"] == ("panic: it died",)
    assert isinstance(atlas.cells["mine:small"][0], Cell)


def test_a_death_that_only_came_with_a_case_of_another_death_costs_nothing(setup: Setup) -> None:
    third = threading.Event()

    def formula(arm: str, seed: int, case: str) -> float:
        if (seed, case) == (1, "large"):
            assert third.wait(5)
        if (seed, case) in {(1, "large"), (3, "small")} and not (seed == 3 and third.is_set()):
            if seed == 3:
                third.set()
            raise died(case)
        return 100.0 + seed

    _, place, found = setup(formula)
    atlas = measured(place, found[:1], jobs=3)
    assert atlas.cells["mine:large"] == ("panic: it died",)
    assert isinstance(atlas.cells["mine:small"][0], Cell), "it lives where it is canonical"


def test_the_reason_says_when_qemu_made_the_kernel_die() -> None:
    error = GuestFailed(
        GuestFailure.PANIC, "kernel arm (deb:6.12), seed 1: the guest's kernel panicked: Fatal exception"
    )
    reason = columns._reason(error)
    assert reason == "panic: the guest's kernel panicked: Fatal exception"
    error.wrong_flags = True
    assert columns._reason(error).startswith(f"{reason}; QEMU 7.2 has wrong flags")


def test_a_package_that_is_gone_is_a_hole_of_all_cases_and_is_tried_again(setup: Setup) -> None:
    guests, place, found = setup()
    with gone("a"):
        atlas = measured(place, found)
    assert atlas.columns[0].hole == "cannot download a: 404"
    assert atlas.cells["mine:small"][0] == "cannot download a: 404" and isinstance(atlas.cells["mine:small"][1], Cell)
    assert isinstance(measured(place, found).cells["mine:small"][0], Cell) and len(guests.calls) == 6


def test_a_column_that_the_budget_cuts_goes_on_with_the_seed_that_is_missing(setup: Setup) -> None:
    guests, place, found = setup()
    with stopped_after(2, guests.calls):
        assert columns.measure(place, found[:1], quiet()) == {"a": False}
    assert [path.name for path in place.folder.glob("a/*.json")] == ["column.json"] and len(guests.calls) == 2
    assert columns.measure(place, found[:1], quiet()) == {"a": True}
    assert len(guests.calls) == 3


def test_two_do_not_measure_the_same_columns(setup: Setup) -> None:
    _, place, found = setup()
    with FileLock(place.folder / ".lock"), pytest.raises(UserError, match="another lab atlas is at work"):
        columns.measure(place, found, quiet())


def test_checking_measures_again_and_tells_what_differs_in_one_version_of_the_model(setup: Setup) -> None:
    guests, place, found = setup()
    atlas = measured(place, found)
    wanted = [check.Wanted(atlas.cases[0], atlas.columns[1])]
    specs = {one.spec.text: one.spec for one in found}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "resolve", lambda text, tree=None, progress=None: specs[text])
        (same,) = check.check(atlas, place.plan, wanted, quiet())
        assert same.is_equal and same.fingerprint == "" and len(guests.calls) == 9
        guests.formula = lambda arm, seed, case: 100.0 + seed + 1e-3
        (other,) = check.check(atlas, place.plan, wanted, quiet())
    with pytest.raises(UserError, match="of model version 2, guests here are of 1"):
        check.check(replace(atlas, model_version=2), place.plan, wanted, quiet())
    assert not other.is_equal and len(guests.calls) == 12, "none of another version"
    assert list(check.lines([same, other]))[-1] == "1 of 2 cells equal to the last digit"


# ---- damaged files


@pytest.mark.parametrize("damage", FILES)
@pytest.mark.parametrize("name", ["column.json", "mine.json"])
def test_a_damaged_file_of_a_column_costs_no_other_and_is_made_again(
    name: str, damage: str, setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    guests, place, found = setup()
    before = measured(place, found)
    (path,) = (one for one in (place.folder / "b").glob("*.json") if (one.name == "column.json") == (name[0] == "c"))
    FILES[damage](path)
    records.forget_warnings()
    with capabilities.none():
        now = assembly.assemble(place, found)
        if damage == "folder":
            with pytest.raises(HostFailed, match=f"{place.folder}/b"):
                measured(place, found)
        else:
            again = measured(place, found)
            assert (again.cells, again.columns) == (before.cells, before.columns)
            assert str(path) in caplog.text, "the file is named"
    for case, cells in before.cells.items():
        assert now.cells[case][0] == cells[0], "of the other column"
        for cell in now.cells[case][1:]:
            assert cell in (cells[1], NOT_MEASURED)
    assert len(guests.calls) == (9 if name == "mine.json" else 6)


@pytest.mark.parametrize("damage", FILES)
def test_a_damaged_atlas_is_named(damage: str, setup: Setup, tmp_path: Path, lab: Lab) -> None:
    _, place, found = setup()
    path = tmp_path / "x86_64.json"
    records.write_atomic(path, records.sealed(data.encode(measured(place, found))))
    words = ("atlas", "show", "mine:large", "--data", str(path))
    lab(*words)
    FILES[damage](path)
    with capabilities.none():
        said = lab(*words, status=2)
    assert path.name in said.err and not said.out
