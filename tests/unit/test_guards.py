"""What must stay true of the whole tree."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from lab import cli, rooms

TOP = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(path.relative_to(TOP).with_suffix("").parts)
    for path in (TOP / "lab").rglob("*.py")
    if path.name != "__init__.py" and "_rooms" not in path.parts
)


def test_no_room_is_a_package() -> None:
    for room in rooms.ROOMS:
        assert not list((TOP / room).rglob("__init__.py")), f"{room} would shadow a module"


@pytest.mark.parametrize("words", [["-c", "{}"], ["-m", "timeit", "-n", "1", "-r", "1", "{}"]])
def test_the_standard_library_is_found_from_the_top_folder(words: list[str]) -> None:
    program = "import bisect, random, tempfile; bisect.insort([1], 2); tempfile.mkdtemp"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, *(word.format(program) for word in words)], cwd=TOP, env=env, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_module_is_called_like_one_of_the_standard_library() -> None:
    assert not {name.split(".")[-1] for name in MODULES if name.count(".") == 1} & set(sys.stdlib_module_names)


def test_every_module_imports_alone() -> None:
    # Each in a fresh set of modules, as if it were the first that is imported.
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    for loaded in [m for m in sys.modules if m == 'lab' or m.startswith('lab.')]: del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *MODULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(MODULES) > 40


def test_only_the_command_line_prints_and_exits() -> None:
    for name in MODULES:
        if name.startswith(("lab.commands", "lab.cli")):
            continue
        tree = ast.parse((TOP / (name.replace(".", "/") + ".py")).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("sys.exit", "exit", "click.echo"), f"{name}:{node.lineno}"


def test_no_shell_is_ever_used() -> None:
    for path in [*(TOP / "lab").rglob("*.py"), *(TOP / "ansible").rglob("*.py")]:
        text = path.read_text()
        assert not re.search(r"shell=True|os\.system|os\.popen|subprocess\.getoutput", text), path
    for path in (TOP / "ansible").rglob("*.yml"):
        assert not re.search(r"^\s*(ansible\.builtin\.)?shell:", path.read_text(), re.MULTILINE), path


def _commands() -> list[str]:
    ctx = click.Context(cli.lab)
    found = []
    for name in cli.lab.list_commands(ctx):
        command = cli.lab.get_command(ctx, name)
        found += [f"{name} {sub}" for sub in command.commands] if isinstance(command, click.Group) else [name]
    return found


def _documents() -> list[Path]:
    """What people wrote; the reference that Sphinx makes from the commands themselves proves nothing."""
    return [TOP / "README.md", *(path for path in (TOP / "docs").rglob("*.md") if path.parent.name != "commands")]


@pytest.mark.parametrize("name", _commands())
def test_every_command_is_documented(name: str) -> None:
    texts = [path.read_text() for path in _documents()]
    first, _, second = name.partition(" ")
    # `lab kernel build`, or one of several: `lab kernel build|list|gc`
    mention = rf"lab {first}\b" + (rf" [\w\\|{{}},]*\b{second}\b" if second else "")
    assert any(re.search(mention, text) for text in texts), f"`lab {name}` is in neither README.md nor docs/"


def test_every_documented_command_exists() -> None:
    known = set(cli.lab.list_commands(click.Context(cli.lab)))
    for path in _documents():
        for found in re.findall(r"(?:^|`)(?:\.venv/bin/)?lab ([a-z]+)", path.read_text(), re.MULTILINE):
            assert found in known, f"{path.name} speaks of `lab {found}`"
