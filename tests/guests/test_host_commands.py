"""Commands of the host as workloads: what is brought along, how it is started, and what is refused."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.guests.host_commands import command_workload, left_here
from lab.guests.initrd import own_files
from lab.workloads import selection

from ..fakes.build import own_folders
from ..fakes.command import Lab


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_folders(monkeypatch, tmp_path / "lab")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_program_comes_with_its_loader_its_libraries_and_its_files(here: Path) -> None:
    (here / "data" / "deep").mkdir(parents=True)
    (here / "data" / "deep" / "words").write_text("b\na\n")
    (here / "elsewhere").write_text("x")
    folder = command_workload("sort -n 'data/deep/words'", [Path("data"), here / "elsewhere"])
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
    folder = command_workload("'./My Script.sh' 'a b'")
    workload, (case,) = selection.select(str(folder))
    assert workload.name == case.name == "my-script.sh" and not workload.clocked
    assert workload.command(case)[-2:] == ["/workload/bin/My Script.sh", "a b"]
    assert [*workload.own_files] == ["/workload/bin/My Script.sh"]


def test_the_same_command_is_the_same_workload_and_another_file_another(here: Path) -> None:
    file = here / "input"
    file.write_text("1")
    first = command_workload("sort input", [Path("input")])
    assert command_workload("sort input", [Path("input")]) == first
    file.write_text("2")
    assert command_workload("sort input", [Path("input")]) != first
    assert (first / "input").read_text() == "1"
    with pytest.raises(UserError, match="no such file"):
        command_workload("sort x", [Path("missing")])


def test_files_of_the_command_that_stay_here_are_named(here: Path) -> None:
    for name in ("input", "tool"):
        (here / name).write_text("1")
    (here / "data").mkdir()
    assert left_here(f"nice ./tool data missing input {here}/input", [Path("input")]) == ["./tool"]
    assert left_here("nice ./tool", [Path("./tool")]) == []
    # There it is by its name, and not by this path.
    assert left_here(f"cat ../{here.name}/input", [Path(f"../{here.name}/input")]) == []


def script(here: Path, name: str, first_line: str, text: str = "") -> str:
    (here / name).write_text(f"{first_line}\n{text}")
    (here / name).chmod(0o755)
    return f"./{name}"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "empty"), ("sort 'x", "quotation"), ("sort x > y", "without a shell, and > needs one"),
        ("sort x | uniq && echo", r"and \| needs one"), ("N=1 sort x", "sets a variable"),
        ("env N=1 sort x", "sets a variable"), ("no-such-program-here -x", "no program"),
    ],
)  # fmt: skip
def test_what_no_program_is_or_only_a_shell_understands_is_refused(here: Path, command: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        command_workload(command)
    assert "\n" not in refused.value.message and refused.value.hint


@pytest.mark.parametrize("word", ["'>'", '">"', r"\>", r'"a\" > b"', "'it'\"'\"'s > x'", r"it\'s"])
def test_quoted_operators_are_words_of_the_program(here: Path, word: str) -> None:
    workload, (case,) = selection.select(str(command_workload(f"expr 3 {word} 2")))
    assert workload.command(case)[-3:] == ["3", *shlex.split(word), "2"]


@pytest.mark.parametrize(("line", "started", "library"), [
    ("#!/bin/bash -e", ["bin/bash", "-e"], None),
    ("#!/usr/bin/env bash", ["bin/bash"], None),
    ("#!/usr/bin/awk -f", ["bin/", "-f"], None),
    ("#!/usr/bin/perl -w", ["bin/perl", "-w"], "lib/perl/strict.pm"),
    (f"#!/usr/bin/env -S {sys.executable} -u", ["bin/python", "-u"], "/json/__init__.pyc"),
])  # fmt: skip
def test_a_script_comes_with_its_interpreter(here: Path, line: str, started: list[str], library: str | None) -> None:
    if shutil.which(line[2:].split()[0]) is None:
        pytest.skip("its interpreter is not installed here")
    workload, (case,) = selection.select(str(command_workload(script(here, "it", line) + " 1", clocked=True)))
    assert workload.clocked
    words = workload.command(case)
    at = words.index("--library-path")
    assert words[at + 2].startswith(f"/workload/{started[0]}") and words[at + 3 :] == [
        *started[1:], "/workload/bin/it", "1",
    ]  # fmt: skip
    brought = workload.own_files
    assert {words[at - 1], words[at + 2], "/workload/bin/it", "/workload/lib/libc.so.6"} <= brought.keys()
    assert library is None or any(name.endswith(library) for name in brought)


def test_a_script_whose_first_line_names_nothing_is_the_shells(here: Path) -> None:
    workload, (case,) = selection.select(str(command_workload(script(here, "it", "#!"))))
    assert workload.command(case)[-1] == "/workload/bin/it"


def test_a_script_that_chooses_a_python_comes_as_that_python(here: Path) -> None:
    chooser = script(here, "python3", "#!/bin/bash", f'exec {shlex.quote(sys.executable)} "$@"')
    workload, (case,) = selection.select(str(command_workload(f"{chooser} -c pass")))
    *_, program, option, argument = workload.command(case)
    assert (program, option, argument, case.name) == ("/workload/bin/python3", "-c", "pass", "python3")
    assert workload.own_files[program].read_bytes() == Path(sys.executable).read_bytes()
    assert any(name.endswith("/json/__init__.pyc") for name in workload.own_files)


def test_python_runs_from_the_library_that_is_brought(here: Path) -> None:
    text = "import json; print(json.dumps(json.__file__))"
    folder = command_workload(script(here, "it.py", f"#!{sys.executable}", text))
    workload, (case,) = selection.select(str(folder))
    words = [word.replace("/workload/", f"{folder}/") for word in workload.command(case)]
    words = words[words.index("--library-path") - 1 :]
    done = subprocess.run(words, env={"PYTHONHOME": str(folder)}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f'"{folder}/lib/python') and done.stdout.endswith('json/__init__.pyc"\n')


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to make programs")
@pytest.mark.parametrize("way", ["$ORIGIN", "LD_LIBRARY_PATH"])
def test_a_program_finds_its_libraries_as_on_the_host(here: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    for name in ("lib", "bin"):
        (here / name).mkdir()
    (here / "f.c").write_text("int f(void) { return 0; }\n")
    (here / "m.c").write_text("int f(void);\nint main(void) { return f(); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "lib/libf.so", "f.c"], check=True)
    found = ["-Wl,-rpath,$ORIGIN/../lib"] if way == "$ORIGIN" else []
    subprocess.run(["gcc", "-o", "bin/m", "m.c", "-Llib", "-lf", *found], check=True)
    if way == "LD_LIBRARY_PATH":
        with pytest.raises(UserError, match=r"needs libf\.so, which this host does not have") as caught:
            command_workload("bin/m")
        assert "LD_LIBRARY_PATH" in (caught.value.hint or "")
        monkeypatch.setenv("LD_LIBRARY_PATH", "lib")
    workload, _ = selection.select(str(command_workload("bin/m")))
    assert "/workload/lib/libf.so" in workload.own_files


def run_in(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command by the program that runs commands in guests, compiled as for a guest."""
    workload, _ = selection.select(str(command_workload("true")))
    reaper = own_files(workload)[workload.program]
    return subprocess.run([reaper, str(here), *words], capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to make programs")
@pytest.mark.parametrize(("command", "left"), [
    ("true", 0),
    ("sleep 60 & kill $!; wait; echo done", 0),
    ("sleep 60 &", 1),
    ("setsid sleep 60 & (sleep 60 & sleep 60 &)", 3),
    ("mkfifo up; sh -c 'sleep 60 & sleep 60 & echo > up; wait' & read word < up", 1),
])  # fmt: skip
def test_processes_that_a_command_leaves_behind_are_ended_and_counted(here: Path, command: str, left: int) -> None:
    done = run_in(here, "/bin/sh", "-c", f"pwd; {command}")
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = done.stdout.split("\n")
    assert first == str(here)
    told = [f'{{"metrics": {{"left_processes": {left}}}}}'] if left else []
    assert [line for line in lines if line.startswith("{")] == told


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to make programs")
def test_a_command_ends_as_it_would_alone(here: Path) -> None:
    assert run_in(here, "/bin/sh", "-c", "exit 7").returncode == 7
    assert run_in(here, "/bin/sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV
    missing = run_in(here, "/no/program")
    assert (missing.returncode, missing.stderr) == (127, "/no/program: No such file or directory\n")


def test_a_file_that_would_take_the_place_of_the_labs_own_is_refused(here: Path) -> None:
    (here / "build").mkdir()
    for file in ("Makefile", "build/Makefile"):
        (here / file).write_text("all:\n")
    with pytest.raises(UserError, match="cannot have a file called Makefile"):
        command_workload("true", [Path("Makefile")])
    assert (command_workload("true", [Path("build")]) / "build" / "Makefile").read_text() == "all:\n"


def test_a_script_that_cannot_start_is_named(here: Path) -> None:
    with pytest.raises(UserError, match="no program '/no/ruby' on this host, the interpreter of it"):
        command_workload(script(here, "it", "#!/no/ruby"))
    (here / "it").chmod(0o644)
    with pytest.raises(UserError, match="it is not executable"):
        command_workload("./it")


def test_a_command_excludes_workloads_and_suites(lab: Lab) -> None:
    for words, said in (
        (["--exec", "true", "-w", "syscalls"], "--exec and --workload exclude each other"),
        (["--exec", "true", "--suite", "quick"], "--suite and --exec exclude each other"),
        (["--exec", "true", "--exec", "false"], "--exec takes one command, and 2 are given"),
        (["--file", "x"], "--file brings a file along"),
        (["--clocked"], "--clocked is about the command of --exec"),
    ):
        assert said in lab("ab", "--base", "deb:6.1", "--test", "deb:6.12", *words, status=2).err
