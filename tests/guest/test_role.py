"""The role that builds kernels, from the wheel, by an ordinary user: a tree of few objects with real make and gcc."""

import os
import shutil
from pathlib import Path

import pytest

from ..fakes.build import make_buildable
from .conftest import Lab, elsewhere

pytestmark = [pytest.mark.guest, pytest.mark.smoke]


def test_a_kernel_of_few_objects_is_built_once_and_a_broken_one_is_named(lab: Lab) -> None:
    # A kernel of the store would come from the role as it was.
    with elsewhere(lab) as empty:
        tree = make_buildable(empty.home / "linux")
        if os.geteuid() == 0:
            for path in (tree, *tree.rglob("*")):
                shutil.chown(path, lab.user)
        (built,) = empty.json("kernel", "build", "HEAD", "--tree", str(tree))["kernels"]
        assert built["release"] == "6.99.0"
        assert {"bzImage", "System.map"} <= {name for name, path in built["files"].items() if Path(path).stat().st_size}
        (again,) = empty.json("kernel", "build", "HEAD~0", "--tree", str(tree))["kernels"]
        assert again == {**built, "spec": again["spec"]}
        (tree / "mm" / "mmap.c").write_text("int place(void) { return nothing; }\n")
        line = empty.refused(3, "kernel", "build", f"worktree:{tree}")
        assert "mmap.c" in line and "nothing" in line
