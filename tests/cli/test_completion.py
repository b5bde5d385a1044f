"""Completion: the scripts for the shells, and what they offer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli import main, options
from lab.compare import result_folders

from ..fakes.command import Lab
from ..fakes.kernel import make_kernel
from ..fakes.processes import program

pytestmark = pytest.mark.usefixtures("own_home")

BASH = """\
{script}
COMP_LINE='{line}' COMP_POINT=$((${{#COMP_LINE}})) COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
{setting}
_lab_completion {lab}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a branch and a tag, and beside it a program called lab."""
    top = tmp_path_factory.mktemp("completion")
    linux = make_kernel(top / "linux")
    for words in (["branch", "topic/wide"], ["tag", "v6.99"]):
        subprocess.run(["git", "-C", linux, *words], check=True)
    program(top / "lab", f'exec {sys.executable} -m lab "$@"')
    return linux


def _complete(folder: Path, line: str, setting: str = "") -> list[str]:
    """What bash is offered at the end of a line; `line` is what was typed."""
    script = main.BashCompletion(main.lab, {}, "lab", "_LAB_COMPLETE").source()
    program = BASH.format(script=script, line=line, setting=setting, lab=folder.parent / "lab")
    top = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        ["bash", "--norc", "-c", program],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(top)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(("line", "offered"), [
    ("lab bi", ["bisect"]),
    ("lab ab --base v6.", ["v6.99"]),
    ("lab ab --test=top", ["topic/wide"]),
    ("lab ab --base deb:trixie-b", ["trixie-backports/"]),
    ("lab ab --base fil", ["file:"]),
    ("lab ab --base file:../linux/Makef", ["../linux/Makefile"]),
    ("lab ab -w alloc-b", ["alloc-burst"]),
    ("lab ab -w alloc-burst:layout-18", ["layout-1800k"]),
    ("lab aa HEAD -w alloc-burst:layout-4632k,layout-18", ["layout-4632k,layout-1800k"]),
    ("lab ab --suite qu", ["quick"]),
    ("lab ab --machine zen", ["zen4"]),
    ("lab ab -w nosuch:x", []),
])  # fmt: skip
def test_bash_is_offered(folder: Path, line: str, offered: list[str]) -> None:
    assert _complete(folder, line) == offered


def test_a_bash_that_does_not_split_at_colons_is_offered_the_whole_word(folder: Path) -> None:
    whole = "COMP_WORDBREAKS=' '"
    assert _complete(folder, "lab ab -w alloc-burst:layout-18", whole) == ["alloc-burst:layout-1800k"]


def test_results_are_offered_by_id_the_newest_first() -> None:
    for name in ("20260101-000000-aaaa", "20260102-000000-bbbb"):
        made = result_folders.new_folder(result_folders.results_dir() / name)
        (made / "plan.json").write_text("{}")
    assert [item.value for item in options.complete_result(None, None, "2026")] == [  # type: ignore[arg-type]
        "20260102-000000-bbbb", "20260101-000000-aaaa",
    ]  # fmt: skip


def test_what_cannot_be_found_is_not_offered_and_no_error() -> None:
    def fail(_: str) -> list[str]:
        raise OSError("no disk")

    assert options.Complete(fail)(None, None, "x") == []  # type: ignore[arg-type]


def test_commands_are_completed_without_importing_them() -> None:
    program = (
        "import sys; from lab.cli import main; status = main.run([])\n"
        "print([name for name in sys.modules if name.startswith('lab.cli.')], file=sys.stderr)\n"
    )
    asked = {"_LAB_COMPLETE": "bash_complete", "COMP_LINE": "lab b", "COMP_WORDBREAKS": ": "}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("plain,bisect\n", "['lab.cli.main']\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_reads_its_script(shell: str, lab: Lab) -> None:
    said = lab("completion", shell)
    assert f"_LAB_COMPLETE={shell}_complete" in said.out and said.err == ""
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=said.out, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
