"""Commands of the host as workloads: what is brought along, how it is started, and what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lab.cli import main
from lab.core.errors import UserError
from lab.guests import initrd
from lab.workloads import selection

from ..fakes.build import own_folders


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_folders(monkeypatch, tmp_path / "lab")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_program_comes_with_its_loader_its_libraries_and_its_files(here: Path) -> None:
    (here / "data" / "deep").mkdir(parents=True)
    (here / "data" / "deep" / "words").write_text("b\na\n")
    (here / "elsewhere").write_text("x")
    folder = initrd.command_workload("sort -n 'data/deep/words'", [Path("data"), here / "elsewhere"])
    workload, (case,) = selection.select(str(folder))
    *_, loader, flag, libraries, program, option, argument = workload.command(case)
    assert (flag, option, argument) == ("--library-path", "-n", "data/deep/words")
    brought = workload.own_files
    assert brought[program].read_bytes() == Path(shutil.which("sort") or "").read_bytes()
    assert os.access(brought[program], os.X_OK)
    assert loader in brought and f"{libraries}/libc.so.6" in brought
    assert brought["/workload/data/deep/words"].read_text() == "b\na\n"
    assert brought["/workload/elsewhere"].read_text() == "x"


def test_a_script_is_started_as_it_is(here: Path) -> None:
    script = here / "My Script.sh"
    script.write_text('#!/bin/sh\necho \'{"metrics": {"done": 1}}\'\n')
    script.chmod(0o755)
    folder = initrd.command_workload("'./My Script.sh' 'a b'")
    workload, (case,) = selection.select(str(folder))
    assert workload.name == "my-script.sh"
    assert workload.command(case)[-2:] == ["/workload/bin/My Script.sh", "a b"]
    assert [*workload.own_files] == ["/workload/bin/My Script.sh"]


def test_the_same_command_is_the_same_workload_and_another_file_another(here: Path) -> None:
    file = here / "input"
    file.write_text("1")
    first = initrd.command_workload("sort input", [Path("input")])
    assert initrd.command_workload("sort input", [Path("input")]) == first
    file.write_text("2")
    assert initrd.command_workload("sort input", [Path("input")]) != first
    assert (first / "input").read_text() == "1"


@pytest.mark.parametrize(
    ("command", "files", "said"),
    [
        ("", [], "empty"),
        ("sort 'open", [], "no command"),
        ("no-such-program-here -x", [], "no program"),
        ("sort x", [Path("missing")], "no such file"),
    ],
)
def test_what_cannot_be_run_is_refused(command: str, files: list[Path], said: str) -> None:
    with pytest.raises(UserError, match=said):
        initrd.command_workload(command, files)


def test_a_command_excludes_workloads_and_suites(capsys: pytest.CaptureFixture[str]) -> None:
    specs = ["ab", "--base", "deb:6.1", "--test", "deb:6.12"]
    for words, said in (
        (["--exec", "true", "-w", "syscalls"], "--exec and --workload exclude each other"),
        (["--exec", "true", "--suite", "quick"], "--suite and --exec exclude each other"),
        (["--file", "x"], "--file brings a file along"),
    ):
        assert main.run([*specs, *words]) == 2
        assert said in capsys.readouterr().err
