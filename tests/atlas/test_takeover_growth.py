"""Model versions: an edit makes nothing stale, a new version grows beside the complete one until it has all."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.atlas import assembly, columns, data, takeover
from lab.atlas import plan as atlas_plan
from lab.atlas.columns import KernelFacts, Place
from lab.atlas.data import Atlas, Cell
from lab.atlas.judgement import Judgement
from lab.atlas.plan import PlannedColumn
from lab.atlas.takeover import OnFile, Queue
from lab.cli import main
from lab.core import records
from lab.core.text import plural
from lab.guests import model_version
from lab.kernels.compilers import Program

from ..fakes.guest import FakeInstrument, kernel, write_workload
from ..fakes.work import quiet, stopped_after
from .conftest import MODELLED, Setup, gone

Capture = pytest.CaptureFixture[str]


class Lab:
    """A lab whose model has a version, and `lab atlas run` of a plan of three kernels. said: by the last one."""

    said = ""

    def __init__(self, setup: Setup, folder: Path, patch: pytest.MonkeyPatch, capsys: Capture) -> None:
        self.guests, self.place, found = setup()
        self.found = [*found, PlannedColumn("mine", "c", kernel("c").spec)]
        self.file, self.next = folder / "x86_64.json", folder / "x86_64.next.json"
        self.patch, self.capsys = patch, capsys
        patch.setattr(atlas_plan, "columns", lambda plan, guests, progress: self.found)
        patch.setattr(atlas_plan, "load", lambda path: self.place.plan)

    def raise_version(self, version: int, workload: str = "") -> None:
        """Guests give other numbers from here on. workload: the one that has them; all without any."""

        def current(workloads: Iterable[str]) -> int:
            return version if any(text.endswith(workload) for text in workloads) else 1

        def of(instrument: FakeInstrument, name: str) -> FakeInstrument:
            made = FakeInstrument(instrument.machine.name)
            made.identity = f"tlb some-machine 12345678 v{version}" if name.endswith(workload) else instrument.identity
            return made

        self.patch.setattr(model_version, "current", current)
        self.patch.setattr(FakeInstrument, "of", of)
        self.guests.formula = lambda arm, seed, case: 100.0 * version + seed

    def run(self, *words: str, guests: int = 1000) -> int:
        """Measure; the budget ends after so many guests. Returns how many there were."""
        before = len(self.guests.calls)
        with stopped_after(before + guests, self.guests.calls):
            arguments = ["--arch", "x86_64", "--output", str(self.file.parent), "-q", "-j", "1", *words]
            assert main.run(["atlas", "run", *arguments]) == 0
        self.said = self.capsys.readouterr().out
        return len(self.guests.calls) - before


@pytest.fixture
def lab(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Lab:
    made = Lab(setup, tmp_path, monkeypatch, capsys)
    assert made.run() == 9
    return made


def numbers(atlas: Atlas) -> set[int]:
    """The versions that an atlas's instructions and cycles are of, by the formula of the lab above."""
    cells = [cell for row in atlas.cells.values() for cell in row if isinstance(cell, Cell)]
    return {round(((1e6 / cell.cycles[0]) ** 2 - 1) / 100) for cell in cells}


def test_an_edit_that_changes_no_number_makes_nothing_stale(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin has other sources, and the model the version that it had; here and on another machine."""
    monkeypatch.setattr(Program, "digest", lambda _: "of sources with a comment more")
    before = data.load(lab.file).cells
    for taken in (0, 3):
        assert lab.run() == 0
        assert f"3 of 3 columns whole; 2 cases, 0 holes; {plural(taken, 'column')} taken" in lab.said
        assert data.load(lab.file).cells == before and not lab.next.exists()
        _forget(lab.place)


def test_a_version_grows_beside_the_complete_one_until_it_takes_its_place(lab: Lab) -> None:
    complete = lab.file.read_bytes()
    lab.raise_version(2)
    assert lab.run(guests=3) == 3
    assert lab.said.splitlines() == [
        f"{lab.file}: nothing taken over: it is of model version 1, guests here of 2",
        f"{lab.next}: 1 of 3 columns whole, 2 stale, next: a; 2 cases, 0 holes; 0 columns taken over",
        f"{lab.file}: model version 1, stays until 2 columns more are in x86_64.next.json",
    ]
    grown = data.load(lab.next)
    assert lab.file.read_bytes() == complete
    assert grown.model_version == 2 and [column.id for column in grown.columns] == ["c"] and numbers(grown) == {2}
    assert lab.run(guests=4) == 4, "a whole column, and a guest of the next"
    assert lab.file.read_bytes() == complete and len(data.load(lab.next).whole) == 2
    assert lab.run() == 2
    assert f"{lab.file}: 3 of 3 columns whole; " in lab.said
    assert f"{lab.file}: model version 2 takes the place of 1" in lab.said
    made = data.load(lab.file)
    assert made.model_version == 2 and len(made.whole) == 3 and numbers(made) == {2} and not lab.next.exists()
    assert lab.run() == 0


@pytest.mark.parametrize("is_new_machine", [False, True])
def test_a_version_about_one_workload_leaves_the_cells_of_others(
    is_new_machine: bool, lab: Lab, tmp_path: Path
) -> None:
    """Here, and on a machine that has only the file: no guest of `mine` runs again, and no column waits for one."""
    second = write_workload(tmp_path / "second", MODELLED.replace('name = "mine"', 'name = "second"'))
    workloads = (*lab.place.plan.workloads, second)
    lab.place = replace(lab.place, plan=msgspec.structs.replace(lab.place.plan, workloads=workloads))
    assert lab.run() == 9, "guests of `second` alone"
    before = data.load(lab.file)
    lab.raise_version(2, "second")
    if is_new_machine:
        _forget(lab.place)
    assert lab.run(guests=3) == 3
    old = f"{lab.file}: 3 columns not taken over: it is of model version 1, guests of second here of 2\n"
    assert lab.said.startswith(f"{old}{lab.next}: 1 of 3 columns whole, 2 stale, next: a; 4 cases, ")
    assert lab.run() == 6
    made = data.load(lab.file)
    assert made.model_version == 2 and len(made.whole) == 3 and not lab.next.exists()
    for case, cells in made.cells.items():
        assert (cells == before.cells[case]) is case.startswith("mine:")
    assert lab.run() == 0


def test_no_step_is_made_of_two_versions(lab: Lab) -> None:
    """All numbers change with the version, by a factor: a step between two versions would show it."""
    lab.raise_version(2)
    for _ in range(3):
        lab.run(guests=3)
        for file in filter(Path.exists, (lab.file, lab.next)):
            atlas = data.load(file)
            assert numbers(atlas) == {atlas.model_version}
            assert not any(Judgement(atlas).changes.values())


def test_sheets_of_the_older_version_are_kept(lab: Lab) -> None:
    before = {path: path.read_bytes() for path in lab.place.folder.glob("*/*.json") if path.name != "column.json"}
    lab.raise_version(2)
    lab.run()
    assert len(before) == 3 and {path: path.read_bytes() for path in before} == before
    assert len(list(_sheets(replace(lab.place, version=2), lab.found))) == len(lab.found)


def _sheets(place: Place, found: list[PlannedColumn]) -> list[columns.Sheet]:
    sheets = [place.load_sheet(column, text) for column in found for text in place.selections]
    return [sheet for sheet in sheets if sheet is not None]


def test_another_machine_goes_on_with_what_the_growing_file_has(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.raise_version(2)
    lab.run(guests=3)
    _forget(lab.place)
    assert lab.run() == 6
    made = data.load(lab.file)
    assert made.model_version == 2 and len(made.whole) == 3 and not lab.next.exists()


def _forget(place: Place) -> None:
    """Be a machine that measured nothing."""
    for path in place.folder.glob("*/*.json"):
        path.unlink()


def test_a_file_of_a_newer_model_is_left_alone(lab: Lab) -> None:
    newer = data.encode(msgspec.structs.replace(data.load(lab.file), model_version=2))
    for file in (lab.next, lab.file):
        file.write_bytes(newer)
        assert main.run(["atlas", "run", "--arch", "x86_64", "--output", str(lab.file.parent)]) == 2
        assert f"{lab.file} is of model version 2" in lab.capsys.readouterr().err or file == lab.next
        assert file.read_bytes() == newer


def test_other_guests_of_one_version_grow_beside_the_complete_one_as_well(lab: Lab) -> None:
    complete = lab.file.read_bytes()
    lab.patch.setattr(FakeInstrument, "identity", "tlb some-machine 12345678 another")
    assert lab.run(guests=3) == 3
    assert lab.file.read_bytes() == complete
    grown = data.load(lab.next)
    assert [column.id for column in grown.whole] == ["c"] and grown.model_version == 1
    assert "measured with an older guest" in str(grown.cells["mine:small"][0])


def test_a_package_that_left_the_archive_does_not_hold_a_version_up(lab: Lab) -> None:
    lab.raise_version(2)
    lab.found = lab.found[1:]
    assert lab.run() == 6
    assert [column.id for column in data.load(lab.file).columns] == ["b", "c"]
    assert data.load(lab.file.with_name("x86_64.json.old")).model_version == 1
    assert "x86_64.json.old: kept, because x86_64.json is now without a\n" in lab.said


def test_a_file_with_cases_that_the_plan_has_no_more_is_kept(lab: Lab) -> None:
    (workload,) = lab.place.plan.workloads
    lab.place = replace(lab.place, plan=msgspec.structs.replace(lab.place.plan, workloads=(f"{workload}:small",)))
    assert lab.run() == 9
    assert [case.name for case in data.load(lab.file).cases] == ["mine:small"]
    assert len(data.load(lab.file.with_name("x86_64.json.old")).cases) == 2
    assert "is now without mine:large\n" in lab.said


def test_a_kernel_that_cannot_be_had_for_now_holds_the_version_up(lab: Lab) -> None:
    lab.raise_version(2)
    with gone("c"):
        assert lab.run() == 6
    assert data.load(lab.file).model_version == 1 and len(data.load(lab.next).whole) == 2
    assert lab.run() == 3
    assert data.load(lab.file).model_version == 2


# ---- the stalest first


def stale(place: Place, found: list[PlannedColumn], on_file: OnFile | None = None) -> list[str]:
    here = takeover.fingerprints(place, found, quiet())
    empty = OnFile(path=Path("none"))
    return list(Queue(place=place, wanted=found, there=(), on_file=on_file or empty, here=here).stale)


Measured = Callable[[str, int, str], None]


@pytest.fixture
def aged(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> tuple[Place, list[PlannedColumn], Measured]:
    """Columns a to e, none measured; a function that makes a sheet of one, with its version and date."""
    _, place, found = setup()
    every = [PlannedColumn("mine", name, kernel(name).spec) for name in "abcde"]
    columns.measure(place, found[:1], quiet())
    (sheet,) = _sheets(place, found)
    (text,) = place.selections
    place.sheet(found[0], text).unlink()
    monkeypatch.setattr(model_version, "current", lambda workloads: 3)

    def measured(name: str, version: int, date: str) -> None:
        target = replace(place, version=version).sheet(every["abcde".index(name)], text)
        target.parent.mkdir(parents=True, exist_ok=True)
        records.save(target, msgspec.structs.replace(sheet, measured=date))

    return replace(place, version=3), every, measured


def test_never_measured_comes_first_then_the_oldest_version_then_the_oldest_date(aged: Any) -> None:
    place, found, measured = aged
    measured("b", 2, "2026-03-01")
    measured("c", 2, "2026-02-01")
    measured("d", 1, "2026-05-01")
    measured("e", 3, "2026-01-01")
    assert stale(place, found) == ["a", "d", "c", "b"]
    measured("a", 1, "2026-05-01")
    assert stale(place, found) == ["a", "d", "c", "b"], "equally stale: as wanted"
    assert stale(place, found[::-1]) == ["d", "a", "c", "b"]
    measured("d", 2, "2026-06-01")
    assert stale(place, found) == ["a", "c", "b", "d"], "the newest of its versions counts"


def test_what_another_machine_measured_counts_for_the_order(aged: Any) -> None:
    place, found, measured = aged
    measured("a", 1, "2026-03-01")
    older = assembly.assemble(replace(place, version=1), found[:1])
    (text,) = place.selections
    replace(place, version=1).sheet(found[0], text).unlink()
    assert stale(place, found[:2]) == ["a", "b"]
    assert stale(place, found[:2], OnFile(path=Path("none"), complete=older)) == ["b", "a"]


def test_a_kernel_that_could_not_be_had_comes_last(aged: Any) -> None:
    """Each try may cost a build, and would use up every budget."""
    place, found, measured = aged
    records.save(place.facts(found[0]).parent / "column.json", KernelFacts(hole="it does not build"))
    measured("b", 2, "2026-03-01")
    assert stale(place, found) == ["c", "d", "e", "b", "a"]


@pytest.mark.parametrize("change", ["fingerprint", "seeds", "cases", "settled"])
def test_a_sheet_is_stale_if_what_its_numbers_follow_from_changed(change: str, aged: Any) -> None:
    place, found, measured = aged
    measured("a", 3, "2026-01-01")
    (text,) = place.selections
    path = place.sheet(found[0], text)
    assert stale(place, found[:1]) == []
    sheet = place.load_sheet(found[0], text)
    assert sheet is not None
    name, cell = next(iter(sheet.cells.items()))
    assert isinstance(cell, Cell)
    changed: dict[str, Any] = {
        "fingerprint": {"fingerprint": "beef"},
        "seeds": {"cells": {**sheet.cells, name: Cell(cell.cycles[:2], cell.instructions[:2])}},
        "cases": {"cells": {name: cell}},
        "settled": {"settled": False},
    }
    records.save(path, msgspec.structs.replace(sheet, **changed[change]))
    assert stale(place, found[:1]) == ["a"]


def test_a_budget_that_ends_before_the_first_column_writes_nothing(lab: Lab) -> None:
    lab.file.unlink()
    lab.raise_version(2)
    assert lab.run(guests=1) == 1
    assert lab.said == f"{lab.file}: 0 of 3 columns whole, 3 stale, next: c; nothing to write yet\n"
    assert not lab.file.exists() and not lab.next.exists()
