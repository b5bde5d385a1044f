"""Real kernel builds: another layout of the same code, and the default tree."""

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.core.progress import QUIET
from lab.kernels import default_tree

from ..fakes.kernel import git
from .conftest import TEST, Lab

pytestmark = [pytest.mark.guest, pytest.mark.build]


def test_another_layout_has_its_functions_elsewhere_boots_and_costs_the_same(story: Lab) -> None:
    plain, other = story.json("kernel", "build", TEST, f"{TEST}+layout-1")["kernels"]
    assert plain["build"] != other["build"] and plain["release"] == other["release"]
    one, two = (_functions(Path(kernel["files"]["System.map"])) for kernel in (plain, other))
    assert one.keys() == two.keys()
    moved = sum(one[name] != two[name] for name in one)
    lines = sum(one[name] % 64 != two[name] % 64 for name in one)
    assert moved > 0.9 * len(one) and lines > 0.5 * len(one)
    result = story.ab(TEST, f"{TEST}+layout-1", "-w", "alloc-burst:layout-4632k")
    assert result["verdict"] == "same"


def _functions(system_map: Path) -> dict[str, int]:
    """The addresses of functions whose names are unique."""
    rows = [line.split() for line in system_map.read_text().splitlines()]
    names = [name for _, kind, name in rows if kind in "tT"]
    seen, twice = set[str](), set[str]()
    for name in names:
        (twice if name in seen else seen).add(name)
    return {name: int(address, 16) for address, kind, name in rows if kind in "tT" and name not in twice}


def test_the_default_tree_is_the_package_and_the_story(story: Lab, tmp_path: Path) -> None:
    repo = next(story.home.glob(".local/share/*/trees/default.git"))
    given = default_tree.source(tmp_path, QUIET)
    subprocess.run(["tar", "-C", str(tmp_path), "-xf", str(given.archive)], check=True)
    top = tmp_path / default_tree.PACKAGE
    git(top, "init", "-q")
    git(top, "-c", "core.looseCompression=0", "add", "-A", "-f")
    tree = ["-c", "safe.directory=*", f"--git-dir={repo}"]
    assert git(top, *tree, "rev-parse", "main^{tree}") == git(top, "write-tree")
    assert git(top, *tree, "rev-list", "--count", "main") == "4"
    shutil.rmtree(top)
