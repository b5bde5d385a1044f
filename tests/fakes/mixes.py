"""Kernels whose sources say in words what they cost and need, for searches among files and hunks.

A line `cost 12` of a C file adds 12 to what one operation costs. `uses NAME` builds only if some file `has NAME`, and
`gone NAME` only if none has. Run as a module, it is the lab with those kernels, as `tests.fakes.bisection` is.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.core.errors import BuildFailed
from lab.kernels import trees
from lab.kernels.build import TreeSource
from lab.kernels.kernel import Kernel, KernelSpec

from .bisection import build_time, kernel_of, main, note
from .kernel import commit_all, git, write_kernel


def commit(top: Path, files: dict[str, str], title: str = "a change") -> str:
    """A commit of some files, in a repository that is made first if need be."""
    if not (top / ".git").exists():
        write_kernel(top)
        git(top, "init", "-q", "-b", "main")
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return commit_all(top, title)


def text(*lines: str) -> str:
    """A file in which the lines are far apart, each in a function of its own."""
    return "".join(f"int f{number}(void)\n{{\n\t{line}\n" + "\tsame\n" * 8 + "}\n" for number, line in enumerate(lines))


def obtain(spec: KernelSpec, *_: object, **__: object) -> Kernel:
    """The kernel of a tree, by the words in its files."""
    assert isinstance(spec.source, TreeSource)
    repo, tree = trees.repository(spec.source.tree), spec.source.tree_id
    note("FAKE_BUILDS", tree)
    build_time()
    lines = repo.git("grep", "-nE", "^\\s*(cost|uses|has|gone) ", tree, "--", "*.c", "*.h").splitlines()
    found = [re.fullmatch(r"[0-9a-f]+:([^:]+):(\d+):\s*(\w+) (\w+).*", line) for line in lines]
    words = [(match[1], match[2], match[3], match[4]) for match in found if match]
    names = {name for _, _, verb, name in words if verb == "has"}
    for path, line, verb, name in words:
        if (verb == "uses" and name not in names) or (verb == "gone" and name in names):
            message = f"does not build with gcc: ../src/{path}:{line}:2: error: '{name}' undeclared"
            raise BuildFailed(f"{spec.source.describe} {message}")
    cost = sum(int(name) for _, _, verb, name in words if verb == "cost")
    return kernel_of(spec, spec.source, 1e6 / cost, "".join(lines).replace(tree, ""))


REPLACEMENTS: Mapping[tuple[Any, str], Callable[..., Any]] = {
    (KernelSpec, "obtain"): obtain,
    (KernelSpec, "files_read"): lambda *_, **__: set(),
}
"""What to put where kernels and the files that their builds read would be."""

if __name__ == "__main__":
    main(REPLACEMENTS)
