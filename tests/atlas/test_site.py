"""The site: every page is there, every link leads somewhere, every number is that of the data; it is fast."""

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from msgspec.structs import replace

from lab.atlas import data, site, text
from lab.atlas.data import Cell
from lab.atlas.site import Site
from lab.guests import model_version
from lab.guests.model_version import ModelVersion

from ..fakes import atlas as fake
from ..fakes.result import HOSTILE


def test_every_link_leads_to_a_page_of_the_site(tmp_path: Path) -> None:
    one = fake.atlas(4, 9, steps={(1, 4): 1.2}, holes={(2, 3): "panic"})
    other = replace(one, architecture="arm64")
    growing = {0: fake.growing(one, 3), 1: fake.growing(one, 3)}
    site.write([one, other, one], tmp_path, growing, ["", "", "contention"])
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) == 3 * (2 + 4 + 9) + 2 * (2 + 4 + 3)
    assert "Atlas of x86_64, contention" in (tmp_path / "contention-x86_64/index.html").read_text()
    for page in pages:
        for link in map(unescape, re.findall(r'<a [^>]*href="([^"]*)"', page.read_text())):
            name, _, anchor = unquote(link).partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.is_file(), f"{page} links to {link}"
            if anchor and ".." not in anchor:
                assert f'id="{anchor}"' in target.read_text(), f"{page} links to {link}"


def test_the_matrix_says_what_the_data_says(tmp_path: Path) -> None:
    atlas = fake.atlas(4, 9, steps={(1, 4): 1.2}, holes={(2, 3): "panic: it did not boot"})
    site.write([atlas], tmp_path)
    page = (tmp_path / "index.html").read_text()
    embedded = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    for case, row in zip(atlas.cases, embedded["cases"], strict=True):
        means = [cell.mean("cycles") if isinstance(cell, Cell) else None for cell in atlas.cells[case.name]]
        assert row["cycles"] == means
    assert embedded["cases"][1]["steps"]["cycles"] == [4]
    assert embedded["holes"][embedded["cases"][2]["holes"]["3"]] == "panic: it did not boot"
    assert data.load(tmp_path / "atlas.json") == atlas


def test_a_newer_atlas_is_beside_the_complete_one_as_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = [
        ModelVersion(number=number, reason=reason) for number, reason in ((1, "the first"), (2, "it got right"))
    ]
    monkeypatch.setattr(model_version, "history", lambda: tuple(versions))
    complete = fake.atlas(4, 9, holes={(0, 8): "not measured yet", (1, 7): "panic: it did not boot"})
    file = tmp_path / "x86_64.json"
    file.write_bytes(data.encode(complete))
    data.growing(file).write_bytes(data.encode(fake.growing(complete, 3)))
    count = site.write_files([file], tmp_path / "site")
    assert count == sum(path.is_file() for path in (tmp_path / "site").rglob("*"))
    line = "Model version 2: 2 of 9 columns measured so far; "
    for folder, way, cell in (
        ("", "next/index.html", "check syscalls:case-2@6.9.1-1<"),
        ("next", "../index.html", "check syscalls:case-2@6.9.1-1 --data x86_64.next.json<"),
    ):
        top = tmp_path / "site" / folder
        page = (top / "index.html").read_text()
        assert f'{line}<a href="{way}">' in page and "<p>it got right</p>" in page
        page = (top / "case" / "syscalls-case-2.html").read_text()
        assert f'{line}<a href="../{way}">' in page and cell in page
        assert data.load(top / "atlas.json").model_version == (2 if folder else 1)


@pytest.mark.parametrize(
    ("guests", "table", "option"), [("arm64", "", "--arch arm64"), ("x86_64", "contention", "--table contention")]
)
def test_the_commands_of_another_architecture_and_of_a_further_table_name_it(
    guests: str, table: str, option: str, tmp_path: Path
) -> None:
    site.write([replace(fake.atlas(2, 3), architecture=guests)], tmp_path, tables=[table])
    page = (tmp_path / "case" / "syscalls-case-1.html").read_text()
    assert f"lab atlas check syscalls:case-1@6.3.1-1 {option}<" in page


def test_a_case_s_page_has_its_step_its_functions_or_that_there_are_none_its_code_and_its_commands(
    tmp_path: Path,
) -> None:
    atlas = fake.atlas(4, 9, steps={(1, 4): 1.2})
    site.write([atlas], tmp_path)
    newest = atlas.columns[-1].id
    page = (tmp_path / "case" / "syscalls-case-1.html").read_text()
    for words in (
        "do_it +50 cycles: 100 % of +50", "OPERATION(1)", f"lab atlas check syscalls:case-1@{newest}",
        "lab ab --base deb:suite/6.4.1-1 --test deb:suite/6.5.1-1 -w syscalls:case-1",
        "https://example.org/a", "Synthetic",
    ):  # fmt: skip
        assert words in page, words
    site.write([replace(atlas, explained=())], tmp_path / "unknown")
    for name in ("index.html", "case/syscalls-case-1.html"):
        assert text._NO_FUNCTIONS not in (tmp_path / name).read_text()
        assert text._NO_FUNCTIONS in (tmp_path / "unknown" / name).read_text()


def test_words_of_others_are_text_and_nothing_else(tmp_path: Path) -> None:
    site.write([fake.atlas(3, 6, steps={(1, 4): 1.2}, holes={(0, 1): HOSTILE}, words=HOSTILE)], tmp_path)
    for page in tmp_path.rglob("*.html"):
        written = page.read_text()
        assert "<script>alert" not in written and "<img" not in written


def test_an_atlas_without_any_number_is_still_a_site(tmp_path: Path) -> None:
    empty = fake.atlas(2, 3, holes={(case, index): "not measured yet" for case in range(2) for index in range(3)})
    assert site.write([empty], tmp_path) > 0
    assert list(Site(empty).reference.id) == list(empty.columns[1].id)
