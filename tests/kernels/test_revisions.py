"""From text to one kernel, in a repository with known commits."""

import os
from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.core.git import Repo
from lab.kernels import revisions, trees
from lab.kernels.kernel import resolve

from ..fakes.kernel import UPSTREAM, change, commit_all, fingerprint, git
from .conftest import tree_of

pytestmark = pytest.mark.usefixtures("own_home")

PATCH = """diff --git a/mm/mmap.c b/mm/mmap.c
--- a/mm/mmap.c
+++ b/mm/mmap.c
@@ -3,5 +3,5 @@
 \tint addr = 0;
\x20
-\taddr += 3;
+\taddr += 9;
\x20
 \treturn addr;
"""


@pytest.fixture
def fix(tmp_path: Path) -> Path:
    path = tmp_path / "fix.patch"
    path.write_text(PATCH)
    return path


def test_a_revision(linux: Path) -> None:
    found = tree_of("v1.0^{}@thp=never", linux)
    assert found.commit == found.build_commit == git(linux, "rev-parse", "v1.0^{commit}")
    assert found.tree_id == git(linux, "rev-parse", "v1.0^{tree}")
    assert (found.subject, found.describe) == ("root", "v1.0")


@pytest.mark.parametrize(("suffix", "expected"), [("", "HEAD~1"), ("^", "HEAD~2"), ("~1", "HEAD~2")])
def test_an_upstream_id_is_found_as_its_backport(linux: Path, suffix: str, expected: str) -> None:
    spec = resolve(UPSTREAM[:12] + suffix, str(linux))
    source = spec.tree_source
    assert source is not None and source.commit == git(linux, "rev-parse", expected)
    taken = git(linux, "rev-parse", "HEAD~1")[:12]
    assert spec.note == (
        f"efa7df3e3bb5 is not in tree '{source.tree}'; taking {taken} "
        f'("mm: align"), its backport ("commit {UPSTREAM} upstream.")'
    )


def test_a_commit_of_the_tree_itself_comes_before_a_backport(linux: Path) -> None:
    own = git(linux, "rev-parse", "HEAD~2")
    commit_all(linux, f"confusing\n\ncommit {own} upstream.")
    spec = resolve(own[:12], str(linux))
    assert spec.tree_source is not None and spec.tree_source.commit == own and spec.note is None


def test_patches_give_a_commit_to_build(linux: Path, fix: Path) -> None:
    before = fingerprint(linux)
    found = tree_of(f"HEAD+{fix}", linux)
    assert found.commit == git(linux, "rev-parse", "HEAD")
    assert found.patches == ("fix.patch",)
    repo = trees.open_tree(str(linux)).repo
    assert repo.tree_id(found.build_commit) == found.tree_id != repo.tree_id(found.commit)
    assert "addr += 9" in repo.git("show", f"{found.build_commit}:mm/mmap.c")
    assert repo.git("log", "-1", "--format=%an <%ae> %P", found.build_commit) == (
        f"kernel-ab-lab <lab@localhost> {found.commit}"
    )
    assert tree_of(f"HEAD+{fix}", linux) == found
    assert fingerprint(linux) == before


def test_worktree_is_content_and_nothing_of_the_users_is_touched(linux: Path) -> None:
    git(linux, "config", "core.hooksPath", "hooks")
    (linux / ".git" / "info" / "exclude").write_text("secret\n")
    assert tree_of(f"worktree:{linux}").build_commit == git(linux, "rev-parse", "HEAD")
    change(linux, 5)
    (linux / "new.c").write_text("new\n")
    (linux / "staged.c").write_text("staged\n")
    git(linux, "add", "staged.c")
    (linux / "Makefile").unlink()
    for ignored in ("x.o", "secret"):
        (linux / ignored).write_text("not for the kernel")
    before = fingerprint(linux)
    found = tree_of(f"worktree:{linux}")
    assert fingerprint(linux) == before
    repo = trees.open_tree(str(linux)).repo
    assert repo.git("ls-tree", "-r", "--name-only", found.tree_id).split() == [
        ".gitignore", "Kbuild", "Kconfig", "MAINTAINERS", "include/asm-generic/vmlinux.lds.h", "mm/mmap.c", "new.c",
        "staged.c",
    ]  # fmt: skip
    assert "addr += 5" in repo.git("show", f"{found.build_commit}:mm/mmap.c")
    assert found.describe.endswith("-dirty") and found.subject == "uncommitted work on mm: later"
    assert tree_of(f"worktree:{linux}") == found
    commit_all(linux, "the same content")
    assert tree_of(f"worktree:{linux}").tree_id == found.tree_id


def test_worktree_sees_a_change_that_keeps_size_and_time(linux: Path) -> None:
    path = linux / "mm" / "mmap.c"
    for number, hide in ((7, "--no-assume-unchanged"), (8, "--assume-unchanged")):
        git(linux, "update-index", hide, "mm/mmap.c")
        times = path.stat()
        change(linux, number)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        found = tree_of(f"worktree:{linux}")
        assert f"addr += {number}" in trees.open_tree(str(linux)).repo.git("show", f"{found.tree_id}:mm/mmap.c")


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A room with one set of two patches, of which the second needs the first."""
    folder = tmp_path / "home" / "kernels" / "patches" / "twice"
    folder.mkdir(parents=True)
    (folder / "0001-first.patch").write_text(PATCH)
    (folder / "0002-second.patch").write_text(PATCH.replace("+= 9", "+= 11").replace("+= 3", "+= 9"))
    (folder.parent / "empty").mkdir()
    monkeypatch.setenv("LAB_HOME", str(tmp_path / "home"))
    return folder


def test_a_set_of_patches_is_applied_in_order(linux: Path, shipped: Path) -> None:
    found = tree_of("HEAD+twice", linux)
    assert found.patches == ("0001-first.patch", "0002-second.patch")
    same = tree_of(f"HEAD+{shipped / '0001-first.patch'}+{shipped / '0002-second.patch'}", linux)
    assert same == found
    assert found.tree_id != tree_of(f"HEAD+{shipped / '0001-first.patch'}", linux).tree_id


@pytest.mark.parametrize(("text", "hint"), [
    ("HEAD+twiec", "did you mean twice?"),
    ("HEAD+empty", "one of the lab's own: twice"),
    ("HEAD+", "one of the lab's own: twice"),
])  # fmt: skip
def test_an_unknown_set_says_which_there_are(linux: Path, shipped: Path, text: str, hint: str) -> None:
    with pytest.raises(UserError, match="no such patch: '") as caught:
        resolve(text, str(linux))
    assert hint in (caught.value.hint or "")


def test_worktree_of_a_linked_checkout_with_a_patch_and_with_a_split_index(
    linux: Path, tmp_path: Path, fix: Path
) -> None:
    git(linux, "worktree", "add", "-q", str(tmp_path / "second"), "HEAD~1")
    assert tree_of(f"worktree:{tmp_path / 'second'}").commit == git(linux, "rev-parse", "HEAD~1")
    assert tree_of(f"worktree:{linux}+{fix}").tree_id == tree_of(f"HEAD+{fix}", linux).tree_id
    git(linux, "update-index", "--split-index")
    change(linux, 6)
    before = fingerprint(linux)
    found = tree_of(f"worktree:{linux}")
    assert "addr += 6" in trees.open_tree(str(linux)).repo.git("show", f"{found.tree_id}:mm/mmap.c")
    assert fingerprint(linux) == before


def test_unknown_names_say_what_to_do(linux: Path, fix: Path) -> None:
    cases = {
        "v1.1": ("unknown revision 'v1.1'", "did you mean v1.0?"),
        "0123456789ab": ("unknown revision '0123456789ab'", "lab tree add"),
        "HEAD~9": ("though HEAD does", "reach back"),
        f"{UPSTREAM[:12]}~9": ("where efa7df3e3bb5 is", "reach back"),
        "zzz@thp": ("unknown revision", "@key=value"),
        "HEAD+gone.patch": ("no such patch: 'gone.patch'", "a file called *.patch"),
        f"HEAD~1+{fix}": ("fix.patch does not apply to v1.0-1-g", "rebase"),
        "worktree:nowhere": ("nowhere: no such folder", ""),
        f"worktree:{linux / '.git'}": ("bare", ""),
        "file:nothing": ("nothing: no such file", ""),
    }
    for text, (message, hint) in cases.items():
        with pytest.raises(UserError) as caught:
            resolve(text, str(linux))
        assert message in caught.value.message, text
        assert hint in (caught.value.hint or ""), text
    with pytest.raises(UserError, match=r"mm/mmap\.c, the hunk at line 3"):
        resolve(f"HEAD~1+{fix}", str(linux))


@pytest.mark.parametrize(("text", "message", "hint"), [
    ("HEAD", "HEAD is of a checkout", "--tree default"),
    ("HEAD~2", "HEAD~2 is of a checkout", "--tree PATH"),
    ("@^", "is of a checkout", "--tree"),
    ("v6.12", "has none", "deb:6.12 is Debian's kernel, src:6.12 its source"),
    ("6.12.4", "has none", "lab tree add https://git.kernel.org"),
    ("v6.13-rc1", "has none", "--tree stable"),
    ("rpm:6.1", "no kind of kernel is called 'rpm:'", "give the package as file:PATH.rpm"),
    ("dep:6.1", "no kind of kernel is called 'dep:'", "did you mean deb:?"),
])  # fmt: skip
def test_outside_of_a_checkout_nothing_is_taken_for_the_default_trees(
    text: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trees, "open_tree", lambda *_, **__: pytest.fail("the default tree is imported"))
    with pytest.raises(UserError) as caught:
        resolve(text)
    assert message in caught.value.message and hint in (caught.value.hint or "")


def test_an_ambiguous_id_lists_the_candidates(linux: Path) -> None:
    seen: dict[str, str] = {}
    tree = git(linux, "rev-parse", "HEAD^{tree}")
    for number in range(2000):
        commit = git(linux, "commit-tree", tree, "-m", f"subject {number}")
        if commit[:4] in seen and seen[commit[:4]] != commit:
            break
        seen[commit[:4]] = commit
    with pytest.raises(UserError) as caught:
        resolve(commit[:4], str(linux))
    assert commit[:16] in caught.value.message and seen[commit[:4]][:16] in caught.value.message
    assert f'("subject {number}")' in caught.value.message


# ---- backports


OTHER = "efa7df3" + "0" * 33


@pytest.mark.parametrize(
    ("line", "is_form"),
    [
        (f"commit {UPSTREAM} upstream.", True),
        (f"    commit {UPSTREAM} upstream", True),
        (f"[ Upstream commit {UPSTREAM} ]", True),
        (f"(cherry picked from commit {UPSTREAM})", True),
        (f"This reverts commit {UPSTREAM}.", False),
        (f"see commit {UPSTREAM} upstream.", False),
        ("commit efa7df3 upstream.", False),
    ],
)
def test_forms_of_a_line_that_names_the_upstream_commit(line: str, is_form: bool) -> None:
    found = [(UPSTREAM, line.strip())] if is_form else []
    assert revisions.upstream_of(f"subject\n\n{line}\n\ntext") == found


def test_the_newest_of_several_is_taken(linux: Path) -> None:
    again = commit_all(linux, f"mm: align, again\n\n(cherry picked from commit {UPSTREAM})")
    commit_all(linux, f'Revert "mm: align"\n\nThis reverts commit {UPSTREAM}.')
    found = revisions.find(Repo(linux / ".git"), UPSTREAM[:12], head="HEAD")
    assert found is not None and found.commit == again


def test_an_ambiguous_prefix_lists_what_it_may_mean(linux: Path) -> None:
    commit_all(linux, f"other\n\n[ Upstream commit {OTHER} ]")
    with pytest.raises(UserError) as caught:
        revisions.find(Repo(linux / ".git"), "efa7df3", head="HEAD")
    assert UPSTREAM in caught.value.message and OTHER in caught.value.message
    assert revisions.find(Repo(linux / ".git"), UPSTREAM[:8], head="HEAD") is not None
