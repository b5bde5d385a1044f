"""Taking over an atlas of another machine: the numbers of equal guests stand beside new ones; others are named."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from lab.atlas import assembly, columns, data, takeover, text
from lab.atlas import plan as atlas_plan
from lab.atlas.columns import Place
from lab.atlas.data import NOT_MEASURED, Atlas, Bisected, Cell
from lab.atlas.judgement import Judgement
from lab.atlas.plan import PlannedColumn
from lab.atlas.takeover import TakenOver
from lab.core import records

from ..fakes import atlas as fake
from ..fakes import capabilities
from ..fakes.build import own_folders
from ..fakes.command import Ended, Lab
from ..fakes.guest import FakeGuests, FakeInstrument, kernel
from ..fakes.work import quiet
from ..fuzz.damages import FILES
from .conftest import Setup

STEP = Bisected(case="mine:small", base="a", test="b", commit="0123456789ab", subject="a change")


@dataclass
class Other:
    """The columns a and b as another machine measured them, and a plan that has c as well."""

    guests: FakeGuests
    place: Place
    found: list[PlannedColumn]
    atlas: Atlas
    file: Path

    def taken(self, atlas: Atlas | None = None, found: list[PlannedColumn] | None = None) -> TakenOver:
        if atlas is not None:
            self.file.write_bytes(data.encode(atlas))
        found = found or self.found
        on_file = takeover.read(self.file, self.place)
        return takeover.take_over(on_file.atlases, self.place, found, takeover.fingerprints(self.place, found, quiet()))

    def run(self, taken: TakenOver, found: list[PlannedColumn] | None = None) -> Atlas:
        """Measure what lacks, and put the atlas together."""
        found = found or self.found
        columns.measure(self.place, found, quiet(), taken.sure)
        return assembly.assemble(self.place, found, taken)


def dearer(arm: str, seed: int, case: str) -> float:
    return 20.0 + seed


@pytest.fixture
def other(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Other:
    guests, place, found = setup()
    columns.measure(place, found[:1], quiet())
    guests.formula = lambda arm, seed, case: 50.0 + seed  # b is slower: a step
    columns.measure(place, found, quiet())
    atlas = replace(assembly.assemble(place, found), bisected=(STEP,))
    file = tmp_path / "x86_64.json"
    file.write_bytes(data.encode(atlas))
    own_folders(monkeypatch, tmp_path / "here")
    guests.calls.clear()
    return Other(guests, place, [*found, PlannedColumn("mine", "c", kernel("c").spec)], atlas, file)


def test_a_new_kernel_costs_one_column_on_a_machine_that_measured_nothing(other: Other) -> None:
    taken = other.taken()
    made = other.run(taken)
    assert taken.left == () and len(other.guests.calls) == 3
    assert [column.id for column in made.columns] == ["a", "b", "c"]
    assert made.columns[:2] == other.atlas.columns and made.fingerprints == other.atlas.fingerprints
    for case, cells in made.cells.items():
        assert cells[:2] == other.atlas.cells[case] and isinstance(cells[2], Cell)
    assert made.bisected == (STEP,)
    assert made.cases[0].profile == other.atlas.cases[0].profile != ()


def test_steps_keep_their_functions_and_one_to_a_new_kernel_says_that_it_has_none(other: Other) -> None:
    other.guests.formula = lambda arm, seed, case: 10.0 + seed
    made = other.run(other.taken())
    judged = Judgement(made)
    steps = {(change.base.id, change.test.id): change for change in judged.changes["cycles"]}
    assert judged.explained(steps["a", "b"]) == Judgement(other.atlas).explained(steps["a", "b"]) is not None
    assert judged.explained(steps["b", "c"]) is None
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(text.case(judged, made.cases[0], 120))
    assert console.export_text().count(text._NO_FUNCTIONS) == 1


@pytest.mark.parametrize("series", ["mine", "older"])
def test_a_kernel_that_the_archive_has_no_more_stays_in_its_place(series: str, other: Other) -> None:
    atlas = replace(other.atlas, columns=(replace(other.atlas.columns[0], series=series), *other.atlas.columns[1:]))
    found = other.found[1:]
    taken = other.taken(atlas, found)
    made = other.run(taken, found)
    assert [column.id for column in made.columns] == (["a", "b", "c"] if series == "mine" else ["b", "c"])
    assert taken.left == (() if series == "mine" else ("1 column not taken over: the plan has no series older",))


Change = Callable[[Atlas], Atlas]
REFUSED: dict[str, tuple[Change, str]] = {
    "seeds": (lambda atlas: replace(atlas, seeds=4), "nothing taken over: its cells have 4 seeds, the plan's 3"),
    "version": (
        lambda atlas: replace(atlas, model_version=0),
        "nothing taken over: it is of model version 0, guests here of 1",
    ),
    "cases": (lambda atlas: replace(atlas, cases=atlas.cases[:1]), "2 columns not taken over: {text} has other cases"),
    "fingerprint": (
        lambda atlas: replace(atlas, fingerprints={"mine microvm": "beef", "mine q35": "beef"}),
        "2 columns not taken over: guests of mine on {machine} have fingerprint {own} here, beef there",
    ),
    "machine": (
        lambda atlas: replace(atlas, columns=tuple(replace(one, machine="bochs") for one in atlas.columns)),
        "2 columns not taken over: guests of mine on bochs have fingerprint none here, none there",
    ),
    "spec": (
        lambda atlas: replace(atlas, columns=tuple(replace(one, spec=one.version) for one in atlas.columns)),
        "2 columns not taken over: only packages are the same kernel everywhere",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_the_same_is_named_in_a_line_and_measured_here(kind: str, other: Other) -> None:
    change, line = REFUSED[kind]
    machine = other.atlas.columns[0].machine
    own = other.atlas.fingerprints[f"mine {machine}"]
    taken = other.taken(change(other.atlas))
    assert taken.left == (line.format(text=other.place.selections[0], machine=machine, own=own),)
    other.guests.formula = dearer
    made = other.run(taken)
    assert len(other.guests.calls) == 9
    assert all(len(set(cells)) == 1 for cells in made.cells.values()), "no number of the other atlas"


@pytest.mark.parametrize("damage", [name for name in FILES if name != "folder"])
def test_a_damaged_file_is_named_and_costs_its_columns(damage: str, other: Other) -> None:
    records.write_atomic(other.file, records.sealed(data.encode(other.atlas)))
    FILES[damage](other.file)
    with capabilities.none():
        on_file = takeover.read(other.file, other.place)
    if other.file.exists():
        (line,) = on_file.unfit
        assert line.startswith("nothing taken over: ") and str(other.file) in line
    assert on_file.atlases == []
    assert len(other.run(TakenOver()).columns) == 3 and len(other.guests.calls) == 9


def test_an_atlas_of_another_architecture_is_named(other: Other) -> None:
    other.file.write_bytes(data.encode(replace(other.atlas, architecture="arm64")))
    assert takeover.read(other.file, other.place).unfit == (f"nothing taken over: {other.file} is of arm64",)


@pytest.mark.parametrize(("hole", "boots"), [
    ("panic: it did not boot", 3),
    ("unsupported: needs a newer kernel", 3),
    ("no number: the cost model saw nothing of the case", 3),
    ("qemu-died: killed", 6),
    ("measured with an older guest, of fingerprint beef", 6),
    (NOT_MEASURED, 6),
])  # fmt: skip
def test_a_hole_that_another_machine_may_fill_is_measured_here(hole: str, boots: int, other: Other) -> None:
    cells = {**other.atlas.cells, "mine:small": (hole, other.atlas.cells["mine:small"][1])}
    made = other.run(other.taken(replace(other.atlas, cells=cells)))
    assert len(other.guests.calls) == boots
    assert made.cells["mine:small"][0] == hole if boots == 3 else isinstance(made.cells["mine:small"][0], Cell)


def test_what_a_spec_names_stays_until_this_machine_has_measured_its_own(other: Other) -> None:
    """Another kernel may be meant by it here: its numbers are those of the file, and stale."""
    named = [column._replace(version=column.spec.text) for column in other.found[:2]]
    ids = {old.id: new.id for old, new in zip(other.found, named, strict=False)}
    atlas = replace(
        other.atlas,
        columns=tuple(
            replace(one, id=new.id, version=new.version, spec=new.version)
            for one, new in zip(other.atlas.columns, named, strict=True)
        ),
        bisected=(replace(STEP, base=ids["a"], test=ids["b"]),),
    )
    taken = other.taken(atlas, named)
    assert taken.left == () and len(taken.sheets) == 2 and taken.sure == frozenset()
    assert assembly.assemble(other.place, named, taken).cells == other.atlas.cells
    other.guests.formula = dearer
    columns.measure(other.place, named[:1], quiet(), taken.sure)
    made = assembly.assemble(other.place, named, other.taken(atlas, named))
    assert made.cells["mine:small"][0] != other.atlas.cells["mine:small"][0]
    assert made.cells["mine:small"][1] == other.atlas.cells["mine:small"][1]


def test_cells_of_this_machine_come_before_the_files_unless_an_older_guest_gave_them(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(FakeInstrument, "identity", "tlb some-machine 12345678 another")
        columns.measure(other.place, other.found[:2], quiet())
    made = other.run(other.taken())
    assert len(other.guests.calls) == 9
    for case, cells in other.atlas.cells.items():
        assert made.cells[case][:2] == cells
    other.guests.formula = dearer
    columns.measure(other.place, other.found[:1], quiet())
    made = other.run(other.taken())
    assert made.cells["mine:small"][0] != other.atlas.cells["mine:small"][0]
    assert made.cells["mine:small"][1] == other.atlas.cells["mine:small"][1]


@pytest.fixture
def run(other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab) -> Callable[..., Ended]:
    """`lab atlas run` of the plan."""
    monkeypatch.setattr(atlas_plan, "columns", lambda plan, guests, progress: other.found)
    monkeypatch.setattr(atlas_plan, "load", lambda path: other.place.plan)
    return lambda *more: lab("atlas", "run", "--arch", "x86_64", "--output", str(tmp_path), "-q", "-j", "1", *more)


def test_the_command_says_what_it_took_over(run: Callable[..., Ended], other: Other) -> None:
    assert run().out == f"{other.file}: 3 of 3 columns whole; 2 cases, 0 holes; 2 columns taken over\n"
    assert len(other.guests.calls) == 3 and len(data.load(other.file).columns) == 3
    run("--only", "b", "--anew")
    assert len(other.guests.calls) == 6 and len(data.load(other.file).columns) == 3
    assert not other.file.with_name("x86_64.json.old").exists()


def test_the_command_keeps_a_file_of_which_it_left_something(run: Callable[..., Ended], other: Other) -> None:
    other.file.write_bytes(data.encode(fake.atlas()))
    assert run().out.splitlines() == [
        f"nothing taken over: {other.file} is made up",
        f"{other.file}: 3 of 3 columns whole; 2 cases, 0 holes; 0 columns taken over",
        f"{other.file}.old: kept, because x86_64.json is now without what it had",
    ]
    assert data.load(other.file.with_name("x86_64.json.old")) == fake.atlas()
