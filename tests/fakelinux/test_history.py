"""Test histories: what a layout's words become, on a tree that is small enough to look at."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from lab.core import git as lab_git
from lab.core.git import Repo

from ..fakes.kernel import MMAP_C, change, commit_all, git, write_kernel
from . import kinds, layout, neutral
from .history import History, write
from .layout import LayoutError

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


def test_a_merge_has_what_both_sides_did(full: History) -> None:
    merge = full.only("merge")
    main, side = (full.find(parent) for parent in merge.parents)
    assert (main.kind, side.kind) == ("neutral", "culprit")
    fork = {full.commits[4].parents[0], main.parents[0]}
    assert fork == {full.commits[3].id}
    assert merge.effects == {"culprit"}
    assert main.effects == frozenset()
    assert "+= 2" in _show(full, merge.id, "mm/mmap.c")
    for neighbour in (main, full.commits[4], full.commits[5]):
        assert str(neighbour.symbol) in _show(full, merge.id, neighbour.paths[0])
    line = [commit.number for commit in full.first_parents()]
    assert line == [1, 2, 3, 4, *range(8, 21)]


def test_what_one_side_mends_stays_mended(tmp_path: Path, linux: Repo, patches: dict[str, Path]) -> None:
    text = "breaks-build merge(mends-build | neutral)"
    history = write(text, tmp_path / "made.git", linux, patches=patches, sources=SOURCES)
    assert [commit.builds for commit in history.commits] == [False, True, False, True]
    assert "unbuildable" not in _show(history, history.tip, "lib/broken.c")


def test_a_file_changed_on_both_sides_is_refused(tmp_path: Path, linux: Repo, patches: dict[str, Path]) -> None:
    with pytest.raises(LayoutError, match=r"lib/file\d\.c is changed on both sides"):
        write("merge(neutral | neutral*6)", tmp_path / "made.git", linux, patches=patches, sources=SOURCES)


def test_layout_and_seed_decide_every_id(tmp_path: Path, linux: Repo, patches: dict[str, Path]) -> None:
    def made(name: str, seed: int) -> list[str]:
        words = "neutral*4 culprit neutral*9"
        history = write(words, tmp_path / name, linux, seed=seed, patches=patches, sources=SOURCES)
        return [commit.id for commit in history.commits]

    assert made("one.git", 1) == made("two.git", 1)
    assert not set(made("three.git", 1)) & set(made("four.git", 2))


def test_more_neutral_commits_than_files(tmp_path: Path, linux: Repo, patches: dict[str, Path]) -> None:
    history = write("neutral*13", tmp_path / "made.git", linux, patches=patches, sources=SOURCES)
    touched = [commit.paths[0] for commit in history.commits]
    assert sorted(touched[:6]) == SOURCES, "each file once before any again"
    last = history.commits[12]
    content = _show(history, history.tip, last.paths[0])
    assert [content.count(str(history.commits[number].symbol)) > 0 for number in (0, 6, 12)] == [True] * 3


def test_branches_side_by_side(tmp_path: Path, linux: Repo, patches: dict[str, Path]) -> None:
    into = tmp_path / "made.git"
    one = write("neutral", into, linux, patches=patches, sources=SOURCES)
    two = write("neutral culprit", into, linux, branch="other", patches=patches, sources=SOURCES)
    assert (Repo(into).commit("main"), Repo(into).commit("other")) == (one.tip, two.tip)
    with pytest.raises(LayoutError, match="has a branch other already"):
        write("neutral", into, linux, branch="other", patches=patches, sources=SOURCES)


def test_another_start(tmp_path: Path, linux: Repo, patches: dict[str, Path]) -> None:
    top = tmp_path / "linux"
    change(top, 7)
    second = commit_all(top, "second")
    history = write("neutral", tmp_path / "made.git", linux, start="main", patches=patches, sources=SOURCES)
    assert history.commits[0].parents == (second,)
    with pytest.raises(LayoutError, match="no commit nowhere"):
        write("neutral", tmp_path / "made.git", linux, start="nowhere", branch="x", patches=patches, sources=SOURCES)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("neutral nuetral", "no kind of commit called 'nuetral'"),
        ("neutral)", "without a merge"),
        ("merge(neutral)", r"no '\|'"),
        ("merge(| neutral)", "needs a commit on its side"),
        ("merge neutral", r"no '\('"),
        ("neutral; rm", "cannot read '; rm'"),
    ],
)
def test_words_that_cannot_be_read(text: str, complaint: str) -> None:
    with pytest.raises(LayoutError, match=complaint):
        layout.parse(text)


@pytest.mark.parametrize("text", ["mends-build", "culprit culprit", "fix", "breaks-build breaks-build", "", "base"])
def test_histories_that_cannot_be(text: str, tmp_path: Path, linux: Repo, patches: dict[str, Path]) -> None:
    with pytest.raises(LayoutError):
        write(text, tmp_path / "made.git", linux, patches=patches, sources=SOURCES)
    assert not (tmp_path / "made.git").exists()


def _flat(items: list[layout.Item]) -> list[str]:
    flat = []
    for item in items:
        flat += [item] if isinstance(item, str) else [*_flat(list(item.side)), *_flat(list(item.main)), "merge"]
    return flat


@pytest.mark.parametrize("commits", [1, 2, 7, 64, 1024])
def test_linear_layouts_have_their_size_and_one_culprit(commits: int) -> None:
    for seed in range(5):
        words = _flat(layout.parse(layout.linear(commits, seed=seed)))
        assert (len(words), words.count("culprit")) == (commits, 1)
    assert _flat(layout.parse(layout.linear(commits, culprit_at=commits)))[-1] == "culprit"
    with pytest.raises(LayoutError, match="no place"):
        layout.linear(commits, culprit_at=commits + 1)


@pytest.mark.parametrize("number", [28, 64, 200])
def test_the_story_has_everything(number: int) -> None:
    for seed in range(5):
        words = _flat(layout.parse(layout.story(number, seed=seed)))
        assert words.count("neutral") == number
        assert set(words) == {*kinds.KINDS, "merge", "base"}
    with pytest.raises(LayoutError, match="at least 28"):
        layout.story(27)


def test_layouts_by_name() -> None:
    assert layout.named("linear64", seed=3) == layout.linear(64, seed=3)
    assert layout.named("linear10") == layout.linear(10)
    assert layout.named("story") == layout.story()
    assert layout.named("neutral culprit") == "neutral culprit"


def test_neutral_changes_differ_by_their_number() -> None:
    pick = layout.picker("test", 1)
    texts = [neutral.change(number, "mm/a.c", b"int a;\n", pick) for number in range(40)]
    assert {subject.split(" add a ")[1].rsplit(" ", 1)[0] for _, subject in texts} == {
        "helper", "table", "set of counters", "lookup",
    }  # fmt: skip
    for number, (content, subject) in enumerate(texts):
        assert content.startswith(b"int a;\n\nstatic ")
        assert neutral.symbol_of(number).encode() in content
        assert subject.startswith("mm/a: add a ")


def test_the_files_for_neutral_changes_are_nobody_elses() -> None:
    planted = "".join(path.read_text() for path in kinds.patches().values())
    sources = kinds.sources()
    assert len(sources) == len(set(sources)) > 150
    assert not [path for path in sources if f"b/{path}\n" in planted]
