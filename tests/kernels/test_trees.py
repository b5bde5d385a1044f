"""The lab's own repositories: made whole or not at all, and a user's checkout is only read."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from lab.core.errors import HostFailed, UserError
from lab.core.git import Repo
from lab.core.progress import QUIET
from lab.kernels import debs, default_tree, trees
from lab.kernels.kernel import resolve
from lab.kernels.package_lists import Offer

from ..fakes.command import Lab
from ..fakes.kernel import MMAP_C, commit_all, fingerprint, git, write_kernel

pytestmark = pytest.mark.usefixtures("own_home")


def _patch(folder: Path, number: int, old: int, new: int, body: str) -> Path:
    path = folder / f"{number:04}-x.patch"
    path.write_text(
        f"From 0 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nDate: Mon, 1 Jan 2024 00:00:0{number} +0000\n"
        f"Subject: [PATCH {number}/3] mm: a rather long\n subject\n\n{body}\n---\n mm/mmap.c | 2 +-\n\n"
        "diff --git a/mm/mmap.c b/mm/mmap.c\n--- a/mm/mmap.c\n+++ b/mm/mmap.c\n"
        "@@ -3,5 +3,5 @@\n \tint addr = 0;\n \n"
        f"-\taddr += {old};\n+\taddr += {new};\n \n \treturn addr;\n"
    )
    return path


@pytest.fixture
def package(tmp_path: Path) -> default_tree.Source:
    """A source archive with all that can be in one."""
    top = tmp_path / "package" / "linux-source-6.12"
    write_kernel(top)
    (top / "built.o").write_text("ignored by .gitignore, and yet part of the package")
    (top / "scripts").mkdir()
    (top / "scripts" / 'odd "näme"').write_text("x")
    (top / "scripts" / "run.sh").write_text("#!/bin/sh\n")
    (top / "scripts" / "run.sh").chmod(0o755)
    (top / "scripts" / "link").symlink_to("../Kbuild")
    archive = tmp_path / "package" / "linux-source-6.12.tar.xz"
    with tarfile.open(archive, "w:xz") as out:
        out.add(top, arcname=top.name)
    return default_tree.Source(archive=str(archive), version="6.12.1-1~deb12u1")


@pytest.fixture
def story(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "story"
    folder.mkdir()
    return [
        _patch(folder, 0, 1, 0, "The root."),
        _patch(folder, 1, 0, 7, "commit efa7df3e3bb5da8e6abbe37727417f32a37fba47 upstream."),
        _patch(folder, 2, 7, 1, "The fix."),
    ]


def test_the_import_is_the_package_to_the_byte_each_time(
    tmp_path: Path, package: default_tree.Source, story: list[Path]
) -> None:
    head = default_tree.build(tmp_path / "a.git", package, story, QUIET)
    repo = Repo(tmp_path / "a.git")
    top = tmp_path / "package" / "linux-source-6.12"
    git(top, "init", "-q")
    git(top, "add", "-A", "-f")
    assert repo.tree_id(head) == git(top, "write-tree")
    assert repo.git("log", "--format=%s").splitlines() == ["mm: a rather long subject"] * 3
    assert "addr += 7" in repo.git("show", "HEAD~1:mm/mmap.c")
    assert "addr += 0" in repo.git("show", "HEAD~2:mm/mmap.c")
    assert repo.describe(head) == "debian/6.12.1-1_deb12u1"
    assert repo.names() == ["main", "debian/6.12.1-1_deb12u1"]
    assert default_tree.build(tmp_path / "b.git", package, story, QUIET) == head


def test_an_interrupted_import_leaves_nothing_that_looks_finished(
    package: default_tree.Source, story: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(default_tree, "source", lambda *_: package)
    monkeypatch.setattr(default_tree, "story", lambda: story)
    with monkeypatch.context() as patch:
        patch.setattr(default_tree, "_commit_story", die)
        with pytest.raises(KeyboardInterrupt):
            trees.import_default()
    assert trees.names() == []
    stale = trees.trees_dir() / ".default.git.partial"  # as a killed process leaves it
    stale.mkdir()
    (stale / "tree.json").write_text("half")
    assert trees.names() == []
    assert trees.import_default().head
    assert not stale.exists()


def test_a_users_checkout_is_only_read(linux: Path) -> None:
    before = fingerprint(linux)
    added = trees.add(str(linux))
    assert (added.name, added.head) == ("linux", git(linux, "rev-parse", "HEAD"))
    assert added.repo.subject(added.head) == "mm: later"
    added.repo.patched_tree(added.head, [])
    added.repo.commit_tree(added.repo.tree_id(added.head), [added.head], "x", seconds=0)
    assert fingerprint(linux) == before
    assert trees.open_tree(str(linux / "mm")).name == "linux"


def _series(repo: Path, folder: Path) -> list[Path]:
    """Commits that each build on the one before, as patches: change, change again, move, delete and add."""
    before = git(repo, "rev-parse", "HEAD")
    mmap, moved = repo / "mm" / "mmap.c", repo / "mm" / "moved.c"
    for number in (5, 6):
        mmap.write_text(mmap.read_text() + f"int added_{number};\n")
        commit_all(repo, f"add {number}")
    mmap.rename(moved)
    commit_all(repo, "move")
    moved.write_text(moved.read_text().replace("added_5", "changed_5"))
    commit_all(repo, "change what was moved")
    moved.unlink()
    mmap.write_text("int anew;\n")
    commit_all(repo, "delete it and add another")
    git(repo, "format-patch", "--quiet", "-M", "-o", str(folder), before)
    return sorted(folder.iterdir())


def test_a_series_of_patches_leads_where_its_commits_do(linux: Path, tmp_path: Path) -> None:
    repo = Repo(linux / ".git")
    start = repo.tree_id("HEAD")
    patches = _series(linux, tmp_path / "series")
    assert len(patches) == 5
    for count in range(6):
        assert repo.patched_tree(start, patches[:count]) == repo.tree_id(f"HEAD~{5 - count}")


def test_what_is_no_kernel_is_refused(tmp_path: Path, linux: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for origin, message in ((str(plain), "is not a git repository"), (str(tmp_path / "no"), "no such folder")):
        with pytest.raises(UserError, match=message):
            trees.add(origin)
    git(plain, "init", "-q")
    with pytest.raises(UserError, match="no commit"):
        trees.add(str(plain))
    (plain / "Kbuild").touch()
    commit_all(plain, "x")
    for origin in (str(plain), f"file://{plain}"):
        with pytest.raises(UserError, match="it has no Kconfig"):
            trees.add(origin, "p")
    with pytest.raises(HostFailed, match="cannot clone"):
        trees.add(f"file://{tmp_path}/nothing")
    assert trees.names() == []


def test_names_do_not_collide_and_an_address_is_cloned(linux: Path) -> None:
    added = trees.add(f"file://{linux}", "mine")
    assert (added.name, added.record.kind) == ("mine", "clone")
    assert added.source.describe(added.head).startswith("v1.0-2-g")
    assert trees.open_tree("mine").head == added.head
    trees.add(str(linux))
    for name in (None, "default"):
        with pytest.raises(UserError, match="already"):
            trees.add(str(linux), name)
    with pytest.raises(UserError, match="cannot be a tree's name"):
        trees.add(str(linux), "../evil")
    with pytest.raises(UserError) as caught:
        trees.open_tree("linus")
    assert caught.value.hint == "did you mean linux?"


def test_a_history_ends_where_the_users_does(linux: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{linux}", "shallow")
    for commits in ("2", "3"):
        opened = trees.open_tree(str(tmp_path / "shallow"))
        assert opened.repo.git("rev-list", "--count", opened.head) == commits
        git(tmp_path / "shallow", "fetch", "-q", "--depth=9")


def test_commands(linux: Path, lab: Lab) -> None:
    assert lab("tree", "add", str(linux), "--name", "mine").out.startswith("mine: v1.0-2-g")
    assert lab("tree", "list").out.split()[:3] == ["mine", "local", str(linux)]
    assert lab("tree", "list", "--json").document["schema"] == "lab.trees/1"


def test_a_hostile_git_environment_changes_nothing(
    linux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "home" / ".gitconfig"
    config.parent.mkdir()
    config.write_text("[apply]\n\twhitespace = fix\n[color]\n\tui = always\n[core]\n\tautocrlf = true\n")
    monkeypatch.setenv("HOME", str(config.parent))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent")
    added = trees.add(str(linux))
    assert added.repo.git("show", f"{added.head}~2:mm/mmap.c") + "\n" == MMAP_C
    assert added.repo.patched_tree(added.head, []) == added.repo.tree_id(added.head)


def test_the_checkout_that_one_stands_in_is_the_tree_if_it_is_a_kernels(
    linux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(linux / "mm")
    assert trees.current() == str(linux)
    assert trees.open_tree().origin == str(linux)
    assert trees.open_tree(trees.current()).name == trees.open_tree().name
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert trees.current() == trees.DEFAULT
    git(other, "init", "-q")
    (other / "README").write_text("not a kernel\n")
    commit_all(other, "one")
    assert trees.current() == trees.DEFAULT


def test_a_source_package_is_a_tree_of_one_commit(
    package: default_tree.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads: list[str] = []

    class Lists:
        def download(self, label: str, folder: Path, *, hint: str) -> str:
            downloads.append(label)
            (folder / "usr" / "src").mkdir(parents=True)
            shutil.copy(package.archive, folder / "usr" / "src" / "linux-source-7.2.tar.xz")
            return "7.2.12-1~bpo13+1"

    offer = Offer("trixie-backports", "linux-source-7.2", "7.2.12-1~bpo13+1")
    monkeypatch.setattr(debs, "source_of", lambda body, progress: (Lists(), offer))
    source = resolve("src:trixie-backports/7.2%NUMA=n").tree_source
    assert source is not None and source.tree == "linux-source-7.2_7.2.12-1-bpo13-1"
    assert (source.commit, source.describe) == (source.build_commit, "linux-source-7.2 7.2.12-1~bpo13+1")
    assert resolve("src:trixie-backports/7.2").tree_source == source
    assert downloads == ["linux-source-7.2=7.2.12-1~bpo13+1"]
    repo = trees.open_tree(source.tree).repo
    assert "Kbuild" in repo.top_level(source.commit)
    assert repo.git("rev-list", "--count", source.commit).strip() == "1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_checkout_of_somebody_else_is_refused_and_not_taken_for_none(
    linux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, where the runner's user owns the checkout: the default tree is not measured instead."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (linux, linux / ".git"):
        os.chown(path, 65534, 65534)
    monkeypatch.chdir(linux)
    with pytest.raises(UserError, match="belongs to another user"):
        trees.current()
    subprocess.run(["git", "config", "--global", "--add", "safe.directory", str(linux)], check=True)
    assert trees.current() == str(linux)
