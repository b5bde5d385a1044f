"""What must stay true of the whole tree."""

from __future__ import annotations

import ast
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from lab.cli import main
from lab.core import paths

TOP = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(path.relative_to(TOP).with_suffix("").parts)
    for path in (TOP / "lab").rglob("*.py")
    if path.name != "__init__.py" and "_rooms" not in path.parts
)


def test_no_room_is_a_package() -> None:
    for room in paths.ROOMS:
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
    """Each can be imported, and none leads back to itself: so any of them may be the first."""
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *MODULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(MODULES) > 40
    imported = {name: _imported(_source(name).body) for name in MODULES}
    assert sum(map(len, imported.values())) > 4 * len(MODULES)
    graphlib.TopologicalSorter(imported).prepare()  # raises CycleError, which names them


def _source(name: str) -> ast.Module:
    return ast.parse((TOP / (name.replace(".", "/") + ".py")).read_text())


def _imported(body: Iterable[ast.AST]) -> set[str]:
    """The lab's modules that are imported where these statements are, but for those inside functions and for types."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found |= _imported(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= _imported(ast.iter_child_nodes(node))
    return found & set(MODULES)


def test_only_the_command_line_prints_and_exits() -> None:
    for name in MODULES:
        if name.startswith("lab.cli"):
            continue
        for node in ast.walk(_source(name)):
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
    ctx = click.Context(main.lab)
    found = []
    for name in main.lab.list_commands(ctx):
        command = main.lab.get_command(ctx, name)
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
    known = set(main.lab.list_commands(click.Context(main.lab)))
    for path in _documents():
        for found in re.findall(r"(?:^|`)(?:\.venv/bin/)?lab ([a-z]+)", path.read_text(), re.MULTILINE):
            assert found in known, f"{path.name} speaks of `lab {found}`"
