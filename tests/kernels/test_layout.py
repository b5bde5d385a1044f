"""Kernels of one source with another layout: only the linker script differs, and only in its order."""

import re
from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.kernels import layout, trees
from lab.kernels.kernel import resolve
from lab.kernels.spec import parse, with_layout

from ..fakes.kernel import SCRIPT, commit_all, git
from .conftest import tree_of

pytestmark = pytest.mark.usefixtures("own_home")


def test_each_number_is_another_patch_to_the_linker_script_alone_and_always_the_same(linux: Path) -> None:
    plain, other = tree_of("HEAD", linux), tree_of("HEAD+layout-2", linux)
    assert other.commit == plain.commit and other.patches == ("layout-2",)
    assert other.tree_id != plain.tree_id and other.build_commit != plain.build_commit
    repo = trees.open_tree(str(linux)).repo
    assert repo.git("diff", "--name-only", plain.tree_id, other.tree_id) == layout.SCRIPT
    numbers = [tree_of(f"HEAD+layout-{number}", linux).tree_id for number in (1, 2, 3, 1)]
    assert len({*numbers}) == 3 and numbers[0] == numbers[3]


def test_every_statement_stays_and_groups_come_before_it() -> None:
    new = layout.rewrite(SCRIPT, 1)
    lines = [line for line in new.splitlines(keepends=True) if not re.match(r"\s*\*[a-z0-9]\.o\(", line)]
    assert "".join(lines) == SCRIPT
    for section in ("TEXT_MAIN", "DATA_MAIN"):
        groups = re.findall(rf"\*(\S)\.o\({section}\)", new)
        assert len(groups) == len({*groups}) == 36 and groups != sorted(groups)
        assert new.index(f"*a.o({section})") < new.index(f"*({section}")


@pytest.mark.parametrize(("text", "number", "expected"), [
    ("v6.12", 1, "v6.12+layout-1"),
    ("v6.12@thp=never", 2, "v6.12+layout-2@thp=never"),
    ("v6.12+fix.patch%CONFIG_SLUB=y@thp=never", 1, "v6.12+fix.patch+layout-1%CONFIG_SLUB=y@thp=never"),
    ("v6.12+layout-3", 1, "v6.12+layout-4"),
    ("v6.12+layout-3+fix.patch", 2, "v6.12+fix.patch+layout-5"),
])  # fmt: skip
def test_a_spec_with_another_layout(text: str, number: int, expected: str) -> None:
    assert with_layout(text, number) == expected
    assert f"layout-{expected.partition('layout-')[2][0]}" in parse(expected).patches


@pytest.mark.parametrize("name", ["layout-0", "layout-", "layout-x", "layout-01", "layout"])
def test_what_is_no_layout(linux: Path, name: str) -> None:
    assert layout.number_of(name) is None
    with pytest.raises(UserError):
        resolve(f"HEAD+{name}", str(linux))


def test_a_tree_without_such_a_script_is_refused(linux: Path) -> None:
    with pytest.raises(UserError, match=r"'HEAD\+layout-1\+layout-2' has 2 layouts"):
        resolve("HEAD+layout-1+layout-2", str(linux))
    (linux / layout.SCRIPT).write_text("*(.text.hot .text .text.fixup)\n")
    commit_all(linux, "as before v4.14")
    with pytest.raises(UserError, match=r"cannot be laid out anew: \S+ does not place TEXT_MAIN"):
        resolve("HEAD+layout-1", str(linux))
    git(linux, "rm", "-q", layout.SCRIPT)
    commit_all(linux, "without it")
    with pytest.raises(UserError, match="cannot be laid out anew: it has no include"):
        resolve("HEAD+layout-1", str(linux))
