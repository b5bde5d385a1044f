"""What must stay true of the whole tree."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.core import paths

from . import suite
from .docs import dryrun

TOP = Path(__file__).resolve().parents[1]
MODULES = sorted(
    ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__")
    for path in (TOP / "lab").rglob("*.py")
    if "_data" not in path.parts
)
# A package imports only from those before it.
ORDER = (
    "core", "stats", "kernels", "workloads", "guests", "compare", "bisection", "report", "cluster", "history",
    "atlas", "nightly", "cli",
)  # fmt: skip
MOST_LINES, MOST_PARAMETERS = 600, 8


def test_no_data_folder_is_a_package() -> None:
    for folder in paths.DATA_FOLDERS:
        assert not list((TOP / folder).rglob("__init__.py")), f"{folder} would shadow a module"


def test_no_module_is_called_like_one_of_the_standard_library() -> None:
    assert not {name.split(".")[-1] for name in MODULES if name.count(".") == 1} & set(sys.stdlib_module_names)


def test_every_module_imports_alone() -> None:
    """Any module may be the first that a program imports."""
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *MODULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_temporary_folder_goes_with_a_lab_that_is_killed() -> None:
    """`process.scratch` makes those; what `tempfile` makes stays."""
    made = [
        f"{path.relative_to(TOP)}: {name}"
        for path in (TOP / "lab").rglob("*.py")
        for name in re.findall(r"mkdtemp|mkstemp|TemporaryDirectory|NamedTemporaryFile", path.read_text())
    ]
    assert not made


def test_the_guard_sees_every_import() -> None:
    body = ast.parse(
        "from typing import TYPE_CHECKING\nfrom lab.core import git, errors as e\n"
        "if TYPE_CHECKING:\n    from lab.guests.run import Arm\n"
        "def f():\n    import lab.compare.comparison\n    from lab import history\n"
        "importlib.import_module('lab.cli.main')\n"
    )
    assert _imported("lab.kernels.store", body) == {
        "lab.core.git", "lab.core.errors", "lab.guests.run", "lab.compare.comparison", "lab.history", "lab.cli.main",
    }  # fmt: skip


def test_packages_import_only_from_those_below_them() -> None:
    assert {name.split(".")[1] for name in MODULES if name.count(".") > 1} == set(ORDER)
    upward = [
        f"{name} imports {other}"
        for name, others in IMPORTS.items()
        for other in sorted(others)
        if _level(other) > _level(name)
    ]
    assert not upward


def test_no_module_leads_back_to_itself() -> None:
    assert sum(map(len, IMPORTS.values())) > 4 * len(MODULES), "the imports were read"
    graphlib.TopologicalSorter(IMPORTS).prepare()  # raises CycleError, which names them


def test_modules_and_parameter_lists_stay_short() -> None:
    lines = {name: len(_path(name).read_text().splitlines()) for name in MODULES}
    assert not {name: size for name, size in lines.items() if size > MOST_LINES}
    assert not {name: count for name, count in _parameters() if count > MOST_PARAMETERS}


def _parameters() -> Iterator[tuple[str, int]]:
    """The functions by name, and how many parameters each has; commands of click have one for each option."""
    for name in MODULES:
        for node in ast.walk(ast.parse(_path(name).read_text())):
            if isinstance(node, ast.FunctionDef) and not any("command" in ast.unparse(d) for d in node.decorator_list):
                every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                yield f"{name}:{node.name}", len([one for one in every if one.arg not in ("self", "cls")])


def _level(name: str) -> int:
    """The place of a module's package in the order; `lab` itself is below all, `lab.__main__` above."""
    package = name.split(".")[1] if "." in name else ""
    return ORDER.index(package) if package in ORDER else len(ORDER) if package else -1


def _path(name: str) -> Path:
    path = TOP / name.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imported(name: str, tree: ast.AST) -> set[str]:
    """The lab's modules that a module imports anywhere: at its top, in functions, for types, by `import_module`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & set(MODULES) or {str(node.module)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {text.value for text in node.args if isinstance(text, ast.Constant)}
    return (found & set(MODULES)) - {name, "lab"}


IMPORTS = {name: _imported(name, ast.parse(_path(name).read_text())) for name in MODULES}


def test_only_the_command_line_prints_and_exits() -> None:
    for name in MODULES:
        if name.startswith("lab.cli"):
            continue
        for node in ast.walk(ast.parse(_path(name).read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("sys.exit", "exit", "click.echo"), f"{name}:{node.lineno}"


def test_no_shell_is_ever_used() -> None:
    for path in [*(TOP / "lab").rglob("*.py"), *(TOP / "ansible").rglob("*.py")]:
        text = path.read_text()
        assert not re.search(r"shell=True|os\.system|os\.popen|subprocess\.getoutput", text), path
    for path in (TOP / "ansible").rglob("*.yml"):
        assert not re.search(r"^\s*(ansible\.builtin\.)?shell:", path.read_text(), re.MULTILINE), path


_AGES = {"lab/cli/gc.py", "lab/guests/kvm.py", "lab/kernels/package_lists.py"}
"""The modules that ask how old a file is, which only the clock on the wall can say."""


def test_no_duration_is_measured_by_a_clock_that_can_be_set() -> None:
    found = {
        str(path.relative_to(TOP))
        for path in (TOP / "lab").rglob("*.py")
        if "_data" not in path.parts and re.search(r"\btime\.time(_ns)?\(|\bfrom time import\b", path.read_text())
    }
    assert found == _AGES


def test_every_test_is_of_make_test_or_of_a_shard() -> None:
    table = suite.load()
    listed = {path for shard in table.shard for path in shard.tests}
    assert not [path for path in listed if not (TOP / path).exists()]
    for path in (TOP / "tests").rglob("test_*.py"):
        name, text = str(path.relative_to(TOP)), path.read_text()
        if path.parent.name in ("guest", "kvm"):
            is_all_smoke = re.search(r"^pytestmark = .*smoke", text, re.MULTILINE)
            assert is_all_smoke or name in listed, f"no shard has {name}"
        elif others := set(re.findall(r"\bmark\.(browser|long|vagrant)\b", text)):
            marks = " ".join(shard.marks for shard in table.shard if name.startswith(shard.tests))
            found = set(re.findall(r"\w+", marks))
            assert others <= found, f"no shard has the tests of {name} marked {others}"


def test_contributing_has_the_table_of_shards() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| (\d+) \|$", (TOP / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert rows == [(shard.name, str(shard.minutes)) for shard in suite.load().shard]


def _documents() -> list[Path]:
    """What people wrote; the reference that Sphinx makes from the commands themselves proves nothing."""
    return [TOP / "README.md", *(path for path in (TOP / "docs").rglob("*.md") if path.parent.name != "commands")]


@pytest.mark.parametrize("words", [*dryrun.names()], ids=" ".join)
def test_every_command_is_documented(words: tuple[str, ...]) -> None:
    texts = [path.read_text() for path in _documents()]
    first, second = (*words, "")[:2]
    # `lab kernel build`, or one of several: `lab kernel build|list|gc`
    mention = rf"lab {first}\b" + (rf" [\w\\|{{}},]*\b{second}\b" if second else "")
    assert any(re.search(mention, text) for text in texts), f"`lab {first} {second}` is in neither README.md nor docs/"


def test_every_documented_command_exists() -> None:
    known = {words[0] for words in dryrun.names()}
    for path in _documents():
        for found in re.findall(r"(?:^|`)(?:\.venv/bin/)?lab ([a-z]+)", path.read_text(), re.MULTILINE):
            assert found in known, f"{path.name} speaks of `lab {found}`"
