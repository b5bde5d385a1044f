"""`lab gc`: by age, then by size; never what a report needs, nor what somebody works with."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from filelock import FileLock

from lab import cli, garbage, records, results, store
from lab.garbage import Item
from lab.store import Build, BuildInputs

from . import fakeresult
from .fakebuild import own_folders

DAY = 86400.0
NOW = 100 * DAY


def _item(name: str, days: float, size: int = 10) -> Item:
    return Item(path=Path(name), kind="kernel", size=size, used=NOW - days * DAY)


@pytest.mark.parametrize(
    ("at_most", "wanted"),
    [
        (None, ["old"]),
        (30, ["old"]),
        (20, ["old", "week"]),
        (10, ["old", "week", "days"]),
        (0, ["old", "week", "days"]),
    ],
)
def test_what_goes(at_most: int | None, wanted: list[str]) -> None:
    found = [_item("days", 3), _item("old", 40), _item("now", 0.5), _item("week", 7)]
    chosen = garbage.choose(found, older_than_s=30 * DAY, at_most=at_most, now=NOW)
    assert [item.path.name for item in chosen] == wanted


def test_what_comes_from_the_future_is_not_old() -> None:
    assert garbage.choose([_item("ahead", -5)], older_than_s=0, at_most=0, now=NOW) == []


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_folders(monkeypatch, tmp_path)


def _kernel(name: str, days: float) -> Path:
    inputs = BuildInputs(tree_id=name, kconfig_sha256="", compiler="", linker="", make=[])
    key = store.key_of(inputs)
    build = Build(
        schema=1, key=key, inputs=inputs, spec=name, commit=name, tree="t", subject="", compiler_command="",
        release="6", files={},
    )  # fmt: skip
    folder = store.folder_of(key)
    folder.mkdir()
    records.save(folder / "build.json", build)
    (folder / "bzImage").write_bytes(b"x" * 3000)
    os.utime(folder / "build.json", (time.time() - days * DAY,) * 2)
    return folder


def _result(name: str, days: float, *, finished: bool = True) -> Path:
    folder = results.results_dir() / name
    fakeresult.store(folder, fakeresult.result(name=name))
    (folder / "guests" / "one").mkdir(parents=True)
    (folder / "guests" / "one" / "console").write_text("said")
    os.utime(folder / "result.json", (time.time() - days * DAY,) * 2)
    if not finished:
        (folder / "result.json").unlink()
    return folder


def test_reports_are_the_same_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = _kernel("old", 40), _kernel("new", 0)
    finished, stopped = _result("a", 40), _result("b", 40, finished=False)
    assert cli.run(["report", "a", "--format", "html"]) == 0
    before = capsys.readouterr().out
    assert cli.run(["gc", "--dry-run", "--json"]) == 0
    assert {row["kind"] for row in json.loads(capsys.readouterr().out)["removed"]} == {"kernel", "consoles"}
    assert old.is_dir() and (finished / "guests").is_dir()
    assert cli.run(["gc"]) == 0
    assert "MiB left" in capsys.readouterr().out
    assert not old.exists() and new.is_dir()
    assert not (finished / "guests").exists() and (stopped / "guests").is_dir()
    assert cli.run(["report", "a", "--format", "html"]) == 0
    assert capsys.readouterr().out == before


def test_a_result_that_is_written_to_is_left_alone() -> None:
    folder = _result("a", 40)
    with FileLock(folder / ".lock"):
        assert cli.run(["gc"]) == 0
    assert (folder / "guests").is_dir()


def test_when_there_is_no_more_room(capsys: pytest.CaptureFixture[str]) -> None:
    _kernel("new", 0)
    assert cli.run(["gc", "--size", "1K"]) == 0
    assert "used within a day" in capsys.readouterr().err
    assert cli.run(["gc", "--size", "much"]) == 2
