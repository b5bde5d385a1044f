"""Workload files: the shipped ones are sound, and mistakes are named with their line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab import workloads
from lab.commands.workload import workload as command
from lab.errors import UserError

GOOD = """\
schema = 1
name = "mine"
story = "a story"
memory_mb = 512
vcpus = 1
program = "/usr/bin/mine"
argv = ["--case", "{case}"]
case_pattern = 'size-[0-9]+k'

[[metric]]
name = "throughput"
unit = "op/s"
better = "higher"
primary = true
description = "operations per second"

[[metric]]
name = "faults"
unit = "faults"
better = "lower"
description = "page faults"

[[case]]
name = "small"
control = true

[[case]]
name = "large"
"""


def folder(tmp_path: Path, text: str) -> str:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "workload.toml").write_text(text)
    return str(place)


def test_every_shipped_workload_loads_and_has_cases() -> None:
    found = workloads.list_workloads()
    assert "alloc-burst" in [each.name for each in found]
    for each in found:
        assert each.name == each.folder.name
        assert each.primary.better != "neither"


def test_the_default_sweep_of_alloc_burst_fits_its_own_pattern() -> None:
    loaded = workloads.load("alloc-burst")
    for case in loaded.cases:
        assert re.fullmatch(loaded.case_pattern, case.name), case.name
    assert {case.name for case in loaded.cases if case.control} == {
        "layout-512k",
        "layout-1400k",
        "layout-1800k",
        "burst-512k-1800k",
        "layout-1400k-malloc-fixed",
        "burst-512k-1800k-malloc",
    }


def test_select_takes_all_or_some_cases_once_each() -> None:
    loaded, cases = workloads.select("alloc-burst")
    assert cases == list(loaded.cases)
    _, cases = workloads.select("alloc-burst:layout-4632k,layout-4632k,single-128m")
    assert [case.name for case in cases] == ["layout-4632k", "single-128m"]


def test_a_case_outside_the_sweep_may_fit_the_pattern() -> None:
    loaded, cases = workloads.select("alloc-burst:layout-6000k-malloc")
    assert [case.name for case in cases] == ["layout-6000k-malloc"]
    assert not cases[0].control
    assert loaded.command(cases[0]) == ["/usr/bin/alloc-burst", "--case", "layout-6000k-malloc"]


def test_a_folder_is_a_workload_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, GOOD)
    assert workloads.load(path).image_files == ("/usr/bin/mine",)
    monkeypatch.chdir(tmp_path)
    loaded, cases = workloads.select("./mine:size-12k,small")
    assert loaded.folder == tmp_path / "mine"
    assert [case.name for case in cases] == ["size-12k", "small"]
    assert loaded.metric("faults").unit == "faults"


@pytest.mark.parametrize(
    ("ref", "hint"),
    [
        ("aloc-burst", "did you mean alloc-burst?"),
        ("nothing-like-it", "alloc-burst"),
        ("", "alloc-burst"),
        ("alloc-burst:layout-4632", "did you mean layout-4632k"),
        ("alloc-burst:zzz", "lab workload show alloc-burst"),
        ("alloc-burst:", "alloc-burst:layout-512k"),
        ("alloc-burst:layout-512k,", "alloc-burst:layout-512k"),
        ("alloc-burst:burst-2m", "burst-2m-8m"),
    ],
)
def test_unknown_names_come_with_a_hint(ref: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        workloads.select(ref)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_a_folder_without_a_workload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no workload\.toml"):
        workloads.load(str(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('name = "mine"', "name = ", 2, "not valid TOML"),
        ('name = "large"\n', 'name = "large', 28, "not valid TOML"),
        ("memory_mb = 512", 'memory_mb = "much"', 4, "memory_mb"),
        ("memory_mb = 512", "memory_mb = 1", 4, "memory_mb"),
        ("memory_mb = 512", "memmory_mb = 512", 4, "unknown key 'memmory_mb'"),
        ('better = "lower"', 'better = "smaller"', 20, "metric"),
        ('better = "lower"', 'beter = "lower"', 20, "unknown key 'beter'"),
        ('unit = "faults"\n', "", 17, "unit"),
        ("control = true", "controll = true", 25, "unknown key 'controll'"),
        ('name = "large"', 'name = "small"', 28, "two [[case]] are called 'small'"),
        ('name = "large"', 'name = "A B"', 28, "case"),
        ("primary = true\n", "", None, "no metric is primary"),
        ('better = "lower"', 'better = "lower"\nprimary = true', 21, "2 metrics are primary"),
        ('better = "higher"', 'better = "neither"', 13, "primary metric must be better"),
        ("'size-[0-9]+k'", "'size-[0-9+k'", 8, "not a regular expression"),
        ("schema = 1", "schema = 2", 1, "schema 2"),
        ('"{case}"]', '"x"]', 7, "{case}"),
        ('program = "/usr/bin/mine"', 'program = "mine"', 6, "program"),
        ("[[case]]", "[case]", None, ""),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, old: str, new: str, line: int | None, message: str) -> None:
    assert old in GOOD
    path = folder(tmp_path, GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        workloads.load(path)
    assert message in caught.value.message
    assert "workload.toml" in caught.value.message
    if line is not None:
        assert f"workload.toml:{line}: " in caught.value.message


def test_a_misspelt_key_comes_with_what_was_meant(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        workloads.load(folder(tmp_path, GOOD.replace("primary = true", "primry = true")))
    assert caught.value.hint == "did you mean primary?"


def test_list_and_show_print_text_and_json() -> None:
    runner = CliRunner()
    listed = runner.invoke(command, ["list"], catch_exceptions=False)
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert names == sorted(names)
    assert {"aio-hugetlbfs", "alloc-burst", "pointer-chase"} <= set(names)
    document = json.loads(runner.invoke(command, ["list", "--json"], catch_exceptions=False).stdout)
    assert [workload["name"] for workload in document["workloads"]] == names
    shown = runner.invoke(command, ["show", "alloc-burst"], catch_exceptions=False).stdout
    assert "* throughput" in shown
    assert "layout-4632k" in shown
    document = json.loads(runner.invoke(command, ["show", "alloc-burst", "--json"], catch_exceptions=False).stdout)
    assert [metric["name"] for metric in document["metrics"] if metric["primary"]] == ["throughput"]
