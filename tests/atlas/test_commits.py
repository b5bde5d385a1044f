"""Steps are bisected between the sources of two kernels, and the atlas keeps the commit."""

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab.atlas import commits, data, text
from lab.atlas.data import Bisected
from lab.atlas.judgement import Judgement
from lab.bisection import session
from lab.compare import result_folders
from lab.core import records
from lab.core.executor import Work
from lab.core.progress import QUIET
from lab.kernels import trees
from lab.kernels.kconfig import Needs
from lab.kernels.kernel import Kernel, KernelSpec

from ..docs import blocks
from ..fakes import atlas as fake
from ..fakes import bisection as fakebisect
from ..fakes import bisector as bisectors
from ..fakes import mixes
from ..fakes.bisector import Bisector
from ..fakes.command import Lab
from ..fakes.guest import HEAD
from ..fakes.kernel import git
from ..fakes.mixes import text as source


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A tree with two tagged releases; the second of the commits between them loses a fifth. The commits."""
    made = bisectors.make(tmp_path, monkeypatch, capsys)
    fakebisect.start(made.tree)
    git(made.tree, "tag", "v6.5.1")
    found = [fakebisect.commit(made.tree, f"mm: change {number}", fate) for number, fate in enumerate((100, 80, 80))]
    git(made.tree, "tag", "v6.6.1")
    trees.add(str(made.tree), "linux")
    return found


def stored(tmp_path: Path) -> tuple[Path, str]:
    """The file of an atlas whose first case is that of the fake workload, with a step between the two releases."""
    made = fake.atlas(2, 9, steps={(0, 5): 1.25})
    name = f"{tmp_path / 'mine'}:large"
    case = replace(made.cases[0], name=name)
    cells = {name: made.cells["syscalls:case-0"], made.cases[1].name: made.cells[made.cases[1].name]}
    path = tmp_path / "atlas.json"
    path.write_bytes(data.encode(replace(made, cases=(case, made.cases[1]), cells=cells, explained=())))
    return path, name


def test_a_step_is_bisected_and_the_atlas_keeps_its_commit(
    tmp_path: Path, tree: list[str], lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    obtained, made = set[frozenset[str]](), KernelSpec.obtain

    def obtain(spec: KernelSpec, *args: Any, needs: Needs, **more: Any) -> Kernel:
        obtained.add(needs.optional)
        return made(spec, *args, needs=needs, **more)

    monkeypatch.setattr(KernelSpec, "obtain", obtain)
    file, case = stored(tmp_path)
    with (tmp_path / "mine" / "workload.toml").open("a") as workload:
        workload.write('\n[[case]]\nname = "with-keys"\n\n[case_kconfig]\nwith-keys = ["CONFIG_KEYS"]\n')
    # A case of the atlas that is not searched, but which its kernels are built for.
    file.write_bytes(file.read_bytes().replace(b"syscalls:case-1", case.replace("large", "with-keys").encode()))
    said = lab("atlas", "bisect", case, "6.5", "6.6", "--data", str(file)).out
    assert f'{tree[1][:12]} ("mm: change 1")' in said
    kept = data.load(file)
    judged = Judgement(kept)
    (step,) = judged.changes["cycles"]
    found = judged.bisected(step)
    assert found is not None and found.commit == tree[1]
    plan = session.load(result_folders.open_folder(found.result)).plan
    assert plan.built_in == ["CONFIG_KEYS"] and plan.command[:3] == ["lab", "atlas", "bisect"]
    assert obtained == {frozenset(["CONFIG_KEYS"])}, "of all commits, and of the proof"
    assert commits.added(kept, replace(found, subject="another")).bisected == (replace(found, subject="another"),)
    again = lab("atlas", "bisect", case, "6.5", "6.6", "--data", str(file), "--resume", found.result, "--json").document
    assert again == {**records.plain(found), "carried": []}
    other = f"{tmp_path / 'mine'}:small"
    file.write_bytes(data.encode(kept).replace(case.encode(), other.encode()))
    refused = lab("atlas", "bisect", other, "6.5", "6.6", "--data", str(file), "--resume", found.result, status=2)
    assert f"{found.result} is about {case}, not about {other}" in refused.err


def test_the_hunks_of_one_step_are_tried_on_the_others(
    bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hunks make two of four more steps; one does not show between the built kernels, one is of other needs."""
    for (where, name), what in mixes.REPLACEMENTS.items():
        monkeypatch.setattr(where, name, what)
    names = ["large", "like-it", "as-well", "still", "other-needs"]
    cases = "".join(f'[[case]]\nname = "{name}"\n\n' for name in names)
    cases += '[case_kconfig]\nother-needs = ["CONFIG_KEYS"]\n'
    (tmp_path / "mine" / "workload.toml").write_text(HEAD + cases)
    bisector.guests.value = lambda value, seed, case: value * (1 + seed / 100) if case != "still" else 50.0
    old, new = source("x", "cost 100", "y"), source("X", "cost 130", "Y")
    ends = mixes.commit(bisector.tree, {"mm/slow.c": old}), mixes.commit(bisector.tree, {"mm/slow.c": new})
    answer = bisector.search(*ends, "--by", "hunks", words="old new")
    made = fake.atlas(5, 9, steps={(number, 5): 1.3 for number in range(5)})
    full = [f"{tmp_path / 'mine'}:{name}" for name in names]
    cells = dict(zip(full, made.cells.values(), strict=True))
    renamed = tuple(replace(one, name=name) for one, name in zip(made.cases, full, strict=True))
    judged = Judgement(replace(made, cases=renamed, cells=cells, explained=(), known=()))
    step = next(one for one in judged.changes["cycles"] if one.case.name == full[0])
    found = commits.bisect(judged.atlas, step.case, step.base, step.test, ["lab"], Work(progress=QUIET), answer.result)
    assert found.proof == "proved by fresh seeds (-23.1 %; the older kernel with them -23.1 %)"

    def carried(among: Judgement = judged, deadline: float | None = None) -> list[Bisected]:
        return list(commits.carried(among, found, Work(progress=QUIET, deadline=deadline)))

    assert carried(deadline=-math.inf) == [], "no time"
    others = carried()
    assert others == [replace(found, case=f"mine:{name}", share=1.0) for name in ("like-it", "as-well")]
    boots = len(bisector.guests.calls)
    assert carried() == others and len(bisector.guests.calls) == boots
    known = [replace(found, case=name, subject="else") for name in full[1:3]]
    assert carried(Judgement(commits.added(commits.added(judged.atlas, known[0]), known[1]))) == []
    monkeypatch.setattr(commits, "LEAST_SHARE", 1.01)
    assert carried() == []


@pytest.mark.parametrize("built", [False, True])
def test_hunks_between_two_sources_stand_beside_the_step_of_their_packages(
    tmp_path: Path, lab: Lab, built: bool
) -> None:
    atlas = fake.atlas(2, 9, steps={(0, 5): 1.25})
    (step,) = Judgement(atlas).changes["cycles"]
    ends = [replace(end, id=f"src-{end.id}", version=f"src:{end.upstream}", spec=f"src:{end.upstream}",
                    release=end.upstream if built else "7.9.9") for end in (step.base, step.test)]  # fmt: skip
    cells = {name: (*row, *row[:2]) for name, row in atlas.cells.items()}
    found = Bisected(
        case=step.case.name, base=ends[0].id, test=ends[1].id, subject="fs/pipe.c (2 of 3 hunks)", share=0.785,
        proof="proved by fresh seeds (+15.3 %; the other way does not build)",
    )  # fmt: skip
    atlas = replace(atlas, columns=(*atlas.columns, *ends), cells=cells, bisected=(found,))
    (tmp_path / "atlas.json").write_bytes(data.encode(atlas))
    atlas = data.load(tmp_path / "atlas.json")
    said = text.reasons(Judgement(atlas), step)
    line = f"bisected: {found.subject}, 78 % of the step: {found.proof}"
    assert (line in said) == built
    shown = lab("atlas", "causes", "--data", str(tmp_path / "atlas.json")).out
    assert f"Of 1 step of 5 % and more between packages {int(built)} have the cause" in " ".join(shown.split())


@pytest.mark.parametrize(("proof", "row"), [
    ("proved by fresh seeds (+15.3 %; the older kernel with them +15.0 %)", "1 1 1"),
    ("proved by fresh seeds (+15.3 %; the other way does not build)", "1 1 0"),
    ("not proved", "1 1 0"),
    ("", "1 0 0"),
])  # fmt: skip
def test_steps_with_a_cause_are_counted_by_their_size(tmp_path: Path, lab: Lab, proof: str, row: str) -> None:
    """Of a step of 25 % and one of 7 % between two sources the first may have a cause."""
    atlas = fake.atlas(2, 9, steps={(0, 5): 1.25, (1, 5): 1.07})
    built = tuple(replace(one, version=f"src:{one.upstream}", spec=f"src:{one.upstream}") for one in atlas.columns)
    ends = {"base": built[4].id, "test": built[5].id}
    found = Bisected(case=atlas.cases[0].name, **ends, subject="mm/slow.c (1 of 3 hunks)", share=1.0, proof=proof)
    atlas = replace(atlas, columns=built, bisected=(found,) if proof else ())
    (tmp_path / "atlas.json").write_bytes(data.encode(atlas))
    rows = [line.split() for line in lab("atlas", "causes", "--data", str(tmp_path / "atlas.json")).out.splitlines()]
    (small,) = (line for line in rows if line[:3] == ["all", "5", "%"])
    (large,) = (line for line in rows if line[:3] == ["all", "10", "%"])
    assert large[-3:] == row.split() and small[-3:] == ["2", *row.split()[1:]]


def test_the_page_of_findings_has_the_count_of_the_shipped_atlas(lab: Lab) -> None:
    page = Path(__file__).parents[2] / "docs" / "findings.md"
    (shown,) = (one for one in blocks.commands(page.read_text()) if one.text == "lab atlas causes")
    assert not blocks.mismatch(shown.output, lab("atlas", "causes").out, exact=True)


def test_kernels_that_no_tree_has_are_refused_with_the_way_to_one(tmp_path: Path, tree: list[str], lab: Lab) -> None:
    file, _ = stored(tmp_path)
    said = lab("atlas", "bisect", "case-1", "6.7", "6.8", "--data", str(file), status=2).err
    assert "no tree known here leads from 6.7.1-1 to 6.8.1-1" in said and "lab tree add" in said
