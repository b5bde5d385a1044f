"""Test histories: what a layout's words become, on a tree that is small enough to look at."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from lab.core import git as lab_git
from lab.core.git import Repo

from ..fakes.kernel import MMAP_C, commit_all, git, write_kernel
from .history import History, write

SOURCES = [f"lib/file{number}.c" for number in range(6)]
FULL = (
    "slowdown base speedup neutral*2 merge(neutral*2 culprit | neutral) breaks-build neutral mends-build"
    " breaks-boot mends-boot breaks-workload neutral mends-workload fix follow-up neutral"
)


def _patch(path: str, before: str, after: str, subject: str) -> str:
    diff = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
    return (
        f"From: A <a@b>\nDate: Mon, 1 Jan 2024 00:00:00 +0000\nSubject: [PATCH] {subject}\n\nWhy.\n---\n{''.join(diff)}"
    )


@pytest.fixture
def linux(tmp_path: Path) -> Repo:
    """A tree of one commit, with files for neutral changes."""
    top = tmp_path / "linux"
    write_kernel(top)
    (top / "lib").mkdir()
    for name in (*SOURCES, "lib/broken.c"):
        (top / name).write_text(f"/* {name} */\nint first;\n\n\n\nint second;\n")
    git(top, "init", "-q", "-b", "main")
    commit_all(top, "root")
    return Repo(lab_git.rev_parse(top, "--absolute-git-dir"))


@pytest.fixture
def patches(tmp_path: Path) -> dict[str, Path]:
    """A patch for each effect: the culprit and its mends in one file, the others in another, one at a time."""
    texts = {"culprit": _patch("mm/mmap.c", MMAP_C, MMAP_C.replace("+= 1", "+= 2"), "align")}
    texts["fix"] = _patch("mm/mmap.c", MMAP_C.replace("+= 1", "+= 2"), MMAP_C.replace("+= 1", "+= 3"), "limit")
    texts["follow-up"] = _patch("mm/mmap.c", MMAP_C.replace("+= 1", "+= 3"), MMAP_C.replace("+= 1", "+= 4"), "hint")
    before = "/* lib/broken.c */\nint first;\n\n\n\nint second;\n"
    for effect in ("slow", "unbuildable", "unbootable", "panicking"):
        texts[effect] = _patch("lib/broken.c", before, before.replace("first", f"first_{effect}"), effect)
    found = {}
    for effect, text in texts.items():
        found[effect] = tmp_path / f"{effect}.patch"
        found[effect].write_text(text)
    return found


@pytest.fixture
def full(tmp_path: Path, linux: Repo, patches: dict[str, Path]) -> History:
    return write(FULL, tmp_path / "made.git", linux, patches=patches, sources=SOURCES)


def _show(history: History, commit: str, path: str) -> str:
    return Repo(history.repo).git("show", f"{commit}:{path}")


def test_every_word_becomes_a_commit_with_its_truth(full: History, linux: Repo) -> None:
    words = [commit.kind for commit in full.commits]
    assert words == [
        "slowdown", "speedup", "neutral", "neutral", "neutral", "neutral", "culprit", "neutral", "merge",
        "breaks-build", "neutral", "mends-build", "breaks-boot", "mends-boot", "breaks-workload", "neutral",
        "mends-workload", "fix", "follow-up", "neutral",
    ]  # fmt: skip
    assert [commit.number for commit in full.commits if not commit.builds] == [10, 11]
    assert [commit.number for commit in full.commits if commit.builds and not commit.boots] == [13]
    assert [commit.number for commit in full.commits if commit.boots and not commit.runs] == [15, 16]
    assert full.start == linux.commit("HEAD")
    assert full.base == full.only("slowdown").id
    assert full.tip == Repo(full.repo).commit("main")
    assert full.only("culprit").effects == {"culprit"}
    assert full.commits[-1].effects == {"culprit", "fix", "follow-up"}
    assert full.describe().splitlines()[6].split()[1:4] == [full.only("culprit").id[:12], "runs", "culprit"]


def test_the_commits_are_what_is_said_of_them(full: History) -> None:
    repo = Repo(full.repo)
    for commit in full.commits:
        author, subject, parents = repo.git("log", "-1", "--format=%an <%ae>%n%s%n%P", commit.id).split("\n")
        assert (author, subject) == ("Lab Test <lab@example.org>", commit.subject)
        assert tuple(parents.split()) == commit.parents
        changed = repo.git("diff", "--name-only", commit.parents[0], commit.id).split()
        assert tuple(changed) == commit.paths
        if commit.symbol is not None:
            assert commit.symbol in _show(full, commit.id, commit.paths[0])
            assert commit.symbol not in _show(full, commit.parents[0], commit.paths[0])
    assert repo.git("fsck", "--strict", "--connectivity-only") == ""
    assert "+= 4" in _show(full, full.tip, "mm/mmap.c")
    assert "Why." in repo.git("log", "-1", "--format=%B", full.only("culprit").id)
    assert full.only("mends-build").subject == 'Revert "unbuildable"'
