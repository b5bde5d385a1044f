"""The file of an atlas, and how kernels and cases are found in it; the terminal shows what it holds."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab.atlas import assembly, check, data, text
from lab.atlas.data import Atlas, Cell, FunctionCost
from lab.atlas.judgement import Judgement
from lab.core.errors import UserError
from lab.core.text import plain
from lab.workloads import selection

from ..fakes import atlas as fake
from ..fakes.command import Lab
from ..fakes.result import HOSTILE


@pytest.fixture
def atlas() -> Atlas:
    return fake.atlas(6, 9, steps={(1, 4): 1.2}, holes={(2, 3): "panic: it did not boot"})


@pytest.fixture
def file(tmp_path: Path, atlas: Atlas) -> Path:
    path = tmp_path / "atlas.json"
    path.write_bytes(data.encode(atlas))
    return path


def test_a_file_gives_the_atlas_again_and_one_from_before_versions_is_of_the_first(file: Path, atlas: Atlas) -> None:
    assert data.load(file) == atlas
    assert len(file.read_text().splitlines()) > len(atlas.cases) + len(atlas.columns)
    document = json.loads(file.read_bytes())
    del document["model_version"]
    file.write_text(json.dumps(document))
    assert data.load(file) == atlas and atlas.model_version == 1


def test_an_atlas_that_grows_is_none_of_those_that_come_with_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "folder", lambda: tmp_path)
    for name in ("arm64", "x86_64"):
        (tmp_path / f"{name}.json").touch()
    data.growing(tmp_path / "x86_64.json").touch()
    assert [path.name for path in data.shipped()] == ["x86_64.json", "arm64.json"]
    for name in (data.PLAN, "further"):
        (tmp_path / f"{name}.toml").touch()
    assert data.tables() == ["further"]
    (tmp_path / "further").mkdir()
    table = tmp_path / "further" / "x86_64.json"
    table.write_bytes(data.encode(fake.atlas(2, 3)))
    assert data.shipped()[-1] == table
    assert data.load(table="further") == fake.atlas(2, 3)


def test_costs_have_the_bases_of_the_cells(atlas: Atlas) -> None:
    """Guests of an architecture can be modelled in one model version, and not in the one before."""

    def with_cells(change: Callable[[Cell], Cell]) -> Atlas:
        rows = atlas.cells.items()
        cells = {name: tuple(change(one) if isinstance(one, Cell) else one for one in row) for name, row in rows}
        return replace(atlas, cells=cells)

    assert atlas.bases == ("cycles", "instructions")
    assert with_cells(lambda cell: replace(cell, cycles=())).bases == ("instructions",)
    late = with_cells(lambda cell: Cell((), (), nanoseconds=cell.cycles))
    assert late.bases == ("nanoseconds",)
    steps = [(change.case.name, change.test.id) for change in Judgement(atlas).steps("cycles")]
    assert steps and [(one.case.name, one.test.id) for one in Judgement(late).steps("nanoseconds")] == steps


def test_a_file_that_is_no_atlas_is_named(tmp_path: Path, atlas: Atlas) -> None:
    path = tmp_path / "bad.json"
    document = json.loads(data.encode(atlas))
    document["cells"]["syscalls:case-1"].pop()
    for content in ("{}", "[", json.dumps(document)):
        path.write_text(content)
        with pytest.raises(UserError, match=r"bad\.json is no atlas"):
            data.load(path)


def test_without_an_atlas_there_is_a_line_and_the_way_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    monkeypatch.setattr(data, "folder", lambda: tmp_path)
    for words in (["show", "fork-exit"], ["diff", "6.1", "6.12"]):
        assert lab("atlas", *words, status=2).err == (
            "lab: no atlas of x86_64 comes with this version; measure one: `lab atlas run --arch x86_64 --output DIR`, "
            "then give --data DIR/x86_64.json\n"
        )
    (tmp_path / "arms.toml").touch()
    (tmp_path / "arms").mkdir()
    (tmp_path / "arms" / "arm64.json").touch()
    said = lab("atlas", "show", "fork-exit", "--table", "arms", status=2).err
    assert said == "lab: no atlas of x86_64 comes with this version, there is arm64; give --arch arm64\n"


def test_kernels_and_cases_are_found_by_parts_of_their_names(atlas: Atlas) -> None:
    assert atlas.find("6.4").version == "6.4.1-1" and atlas.find("v6.4.1").version == "6.4.1-1"
    assert atlas.find("6.1.1-1~deb12u1").series == "Debian 12"
    with pytest.raises(UserError, match=r"no kernel 5\.10"):
        atlas.find("5.10")
    assert atlas.case("case-2") is atlas.case("syscalls:case-2")
    with pytest.raises(UserError, match="no case 'cas-2'"):
        atlas.case("cas-2")


def test_a_pair_is_of_one_series_where_one_has_both() -> None:
    made = fake.atlas(2, 9)
    twin = replace(made.columns[4], id="6.2.1-1", version="6.2.1-1")
    both = replace(
        made, columns=(*made.columns, twin), cells={name: (*row, row[4]) for name, row in made.cells.items()}
    )
    assert both.find("6.2").version == "6.2.1-1"
    assert [one.version for one in both.pair("6.1", "6.2")] == ["6.1.1-1~deb12u1", "6.2.1-1~deb12u1"]
    assert [one.version for one in both.pair("6.2", "6.5")] == ["6.2.1-1", "6.5.1-1"]


def test_cases_of_vcpus_that_contend_have_their_number_in_their_names(atlas: Atlas) -> None:
    """Waiting vCPUs execute more instructions or fewer: the count contradicts no change of cycles."""
    changed = fake.atlas(2, 9, steps={(0, 4): 1.2}, instructions={(0, 4): 0.8})
    name = "contention@4:fstat"
    case = replace(changed.cases[0], name=name)
    cells = {name: changed.cells[changed.cases[0].name]}
    contended = replace(changed, cases=(case,), cells=cells, explained=())
    assert contended.case("fstat@4") == contended.case(name) == case
    named = check.named(contended, f"fstat@4@{contended.columns[4].id}")
    assert named == (case, contended.columns[4])
    assert not Judgement(changed).steps("cycles")
    assert [change.test for change in Judgement(contended).steps("cycles")] == [contended.columns[4]]


def test_the_csv_has_every_number_and_the_reason_of_every_hole(atlas: Atlas) -> None:
    rows = list(csv.DictReader(io.StringIO(data.rows(atlas))))
    assert len(rows) == 6 * 9
    for row in rows:
        cell = atlas.cells[row["case"]][atlas.at(row["kernel"])]
        if isinstance(cell, Cell):
            assert tuple(float(row[f"cycles_{seed}"]) for seed in (1, 2, 3)) == cell.cycles and not row["hole"]
        else:
            assert row["hole"] == cell and not row["cycles"] and not row["instructions_1"]


def test_functions_are_compared_by_what_moved_most() -> None:
    old = [FunctionCost("kept", 50.0, 100.0), FunctionCost("inlined", 30.0, 60.0)]
    new = [FunctionCost("kept", 90.0, 170.0), FunctionCost("kept", 1.0, 2.0, True)]
    found = data.explained("c", "a", "b", old, new, most=2)
    assert [(one.name, one.delta("cycles")) for one in found.functions] == [("kept", 40.0), ("inlined", -30.0)]
    assert found.total.cycles == (80.0, 91.0)


def test_every_case_of_syscalls_has_its_code() -> None:
    workload = selection.load("syscalls")
    for case in workload.cases:
        code = assembly.code_of(workload, case.name)
        assert code.startswith("OPERATION(") and '{ "' in code
    assert "SYS(mprotect, area, argument" in assembly.code_of(workload, "mprotect-private-4k")
    assert assembly.code_of(selection.load("boot"), "boot") == ""


def test_a_case_is_shown_with_its_step_and_its_reason(atlas: Atlas) -> None:
    shown = plain(lambda width: text.case(Judgement(atlas), atlas.case("case-1"), width))
    assert "step 6.4.1-1 to 6.5.1-1 (2026-01-05): +20." in shown and "do_it +50 cycles: 100 % of +50" in shown
    assert 'published: 0123456789ab ("a change")' in shown and "SYNTHETIC" in shown
    assert "panic: it did not boot" in plain(lambda width: text.case(Judgement(atlas), atlas.case("case-2"), width))


def test_cycles_of_an_experimental_machine_are_called_so(atlas: Atlas) -> None:
    for model, said in (("tlb zen4 v5", "zen4, m"), ("tlb neoverse-n1 v5", "neoverse-n1, experimental, m")):
        assert said in text.about(replace(atlas, environment={"model": model}))
    assert "experimental" not in text.about(atlas)


def test_a_pair_of_two_builders_says_so(atlas: Atlas) -> None:
    base, test = atlas.pair("6.1", "6.4")
    shown = plain(lambda width: text.pair(Judgement(atlas), base, test, width))
    assert "note: two compilers: gcc-12, and gcc-14" in shown
    assert "1 case without numbers in one of the two" in shown


def test_the_commands_print_the_same_as_json(file: Path, lab: Lab) -> None:
    at = ("--data", str(file))
    changes = lab("atlas", "show", "case-1", *at, "--json").document["changes"]
    assert [one["verdict"] for one in changes] == ["regression"]
    cases = lab("atlas", "diff", "6.4", "6.5", *at, "--json").document["cases"]["cycles"]
    assert (cases[0]["case"], cases[0]["verdict"]) == ("syscalls:case-1", "regression")
    assert "case-1" in lab("atlas", "diff", "6.4", "6.6", *at).out
    lab("atlas", "show", "nothing", *at, status=2)


def test_hostile_words_are_escaped_in_the_terminal() -> None:
    made = fake.atlas(2, 9, steps={(1, 4): 1.2}, words=HOSTILE)
    shown = plain(lambda width: text.case(Judgement(made), made.case("case-1"), width))
    assert "\x1b" not in shown and "\u202e" not in shown
