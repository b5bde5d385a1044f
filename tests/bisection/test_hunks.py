"""Hunks as git splits files, and mixes of two versions of a file."""

import random
from pathlib import Path

import pytest

from lab.bisection import hunks
from lab.bisection.hunks import Hunk
from lab.bisection.sources import DIFF
from lab.core import git as lab_git
from lab.core.git import Repo

from ..fakes.kernel import commit_all, git

Files = dict[str, tuple[str, bytes]]


def _commits(top: Path, old: dict[str, bytes | None], new: dict[str, bytes | None]) -> tuple[Files, Files, list[Hunk]]:
    """Both versions as git has them, and the hunks between them."""
    top.mkdir()
    git(top, "init", "-q")
    trees = []
    for files in (old, new):
        for name, content in files.items():
            path = top / name
            path.parent.mkdir(exist_ok=True, parents=True)
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content)
        trees.append(commit_all(top, "a version"))
    repo = Repo(lab_git.rev_parse(top, "--absolute-git-dir"))
    found = list(hunks.parse(repo.git(*DIFF, *trees) + "\n"))
    return repo.files(trees[0], list(old)), repo.files(trees[1], list(old)), found


def _edited(lines: list[bytes], draw: random.Random) -> list[bytes]:
    made = []
    for line in lines:
        what = draw.random()
        if what < 0.1:
            continue
        made.append(b"changed %d\n" % draw.randrange(9) if what < 0.2 else line)
        if what > 0.9:
            made += [b"more %d\n" % number for number in range(draw.randrange(1, 4))]
    return made


@pytest.mark.parametrize("seed", range(12))
def test_no_hunk_is_the_new_file_and_all_are_the_old_one(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    lines = [b"line %d\n" % number for number in range(draw.randrange(60))]
    ends = [b"".join(made).removesuffix(draw.choice([b"\n", b""])) for made in (lines, _edited(lines, draw))]
    old, new, found = _commits(tmp_path / "git", {"a.c": ends[0], "b": b"b"}, {"a.c": ends[1]})
    before, after = old.get("a.c"), new.get("a.c")
    assert hunks.mixed(before, after, [(hunk, False) for hunk in found]) == after
    assert hunks.mixed(before, after, [(hunk, True) for hunk in found]) == (before if found else after)
    some = [(hunk, draw.random() < 0.5) for hunk in found]
    turned = [(hunk.turned, not taken) for hunk, taken in some]
    assert hunks.mixed(before, after, some) == hunks.mixed(after, before, turned), "a turned hunk leads back"


def test_one_hunk_of_three_is_taken_alone(tmp_path: Path) -> None:
    lines = [b"%d\n" % number for number in range(40)]
    after = [*lines]
    after[5:6], after[20:20], after[30:32] = [b"five\n"], [b"more\n", b"and more\n"], []
    old, new, found = _commits(tmp_path / "git", {"a.c": b"".join(lines)}, {"a.c": b"".join(after)})
    assert len(found) == 3
    for taken in range(3):
        choice = [(hunk, place == taken) for place, hunk in enumerate(found)]
        made = hunks.mixed(old["a.c"], new["a.c"], choice)
        assert made is not None
        text = made[1]
        assert (b"five" in text, b"more" in text, b"28\n" not in text) == (taken != 0, taken != 1, taken != 2)
        if found[taken].old_count:
            at = 1 + text.splitlines().index({0: b"5", 2: b"28"}[taken])
            away = hunks.distances(at, choice)
            assert [far == 0 for far in away] == [place == taken for place in range(3)]
            at = 1 + text.splitlines().index(b"more")
            assert hunks.distances(at, choice)[1] == hunks.distances(at + 1, choice)[1] == 0, "as the new end has it"


def test_the_function_of_a_hunk_behind_a_label(tmp_path: Path) -> None:
    head = b"int outer(void)\n{\n\tint value;\nretry:\n" + b"\tsame();\n" * 9
    _, _, found = _commits(tmp_path / "git", {"a.c": head + b"\told();\n}\n"}, {"a.c": head + b"\tnew();\n}\n"})
    assert [hunk.functions for hunk in found] == [{"outer"}]


def test_new_gone_and_binary_files_are_taken_whole(tmp_path: Path) -> None:
    old, new, found = _commits(
        tmp_path / "git",
        {"gone.c": b"int gone;\n", "logo.bin": b"\0one", "new.c": None},
        {"gone.c": None, "logo.bin": b"\0two", "new.c": b"int fresh;\n"},
    )
    assert {hunk.path for hunk in found} == {"gone.c", "logo.bin", "new.c"} and all(hunk.whole for hunk in found)
    for hunk in found:
        path = hunk.path
        assert hunks.mixed(old.get(path), new.get(path), [(hunk, True)]) == old.get(path)
        assert hunks.mixed(old.get(path), new.get(path), [(hunk, False)]) == new.get(path)
    assert "fresh" in next(hunk for hunk in found if hunk.path == "new.c").words


def test_the_functions_and_names_of_a_hunk() -> None:
    lines = ["-static int slow(struct page *page, int count)", " int kept(void)", "+\treturn page->spare;"]
    hunk = Hunk(path="mm/a.c", function="static void outer(void)", lines=lines)
    assert hunk.functions == {"outer", "slow", "kept"} and hunk.heads() == {"slow"}
    assert {"slow", "struct", "page", "spare"} <= hunk.words


def test_the_words_of_a_hunk_are_not_those_of_its_comments() -> None:
    lines = ["+/*", "+ * Remarks on one line", "+ */", "-\t*slot = value;", "+\t// another", "+\t/* closed */"]
    assert Hunk(path="mm/a.c", lines=lines).words == {"slot", "value"}


def test_the_names_of_one_end() -> None:
    """A new name links hunks if it is defined in one; a function that is called and not defined may be in both ends."""
    lines = ["-static int slow(void)", "+static int quick(void)", "+\tvalue = slow_path(LIMIT);", "+#define LIMIT(a) 4"]
    both = "#define MORE\nint value;\n"
    old = f"{both}/* quick */\nstatic int slow(void)"
    new = f"{both}/* slow */\nstatic int quick(void)\n\tvalue = slow_path(LIMIT);\n#define LIMIT(a) 4"
    assert hunks.one_sided([Hunk(path="mm/a.c", lines=lines)], [old], [new]) == ["LIMIT", "quick", "slow"]


def test_hunks_in_system_calls_and_in_assembly_are_in_the_functions_that_profiles_name() -> None:
    hunk = Hunk(path="mm/mincore.c", function="SYSCALL_DEFINE3(mincore, unsigned long, start,", lines=["+a"])
    assert hunk.functions == {"__do_sys_mincore", "__se_sys_mincore", "__x64_sys_mincore"}
    hunk = Hunk(path="arch/x86/lib/memset_64.S", function="SYM_FUNC_START(__memset)", lines=["+\trep stosb"])
    assert hunk.functions == {"__memset", "memset"}


SOURCE = Path(__file__).with_name("inlined.c").read_text()


def test_functions_that_a_compiler_put_into_a_caller_have_its_share() -> None:
    named = {"walk": 0.8, "kept": 0.1}
    symbols = {"walk", "kept"}
    assert hunks.inlined(SOURCE, named, symbols) == {"may": 0.8, "hidden": 0.8}, "hidden is in both: the larger share"
    assert hunks.inlined(SOURCE, named, symbols | {"may"}) == {"hidden": 0.1}, "may is a function of its own"
    assert hunks.inlined(SOURCE, {"other": 1.0}, symbols) == {}


def test_the_labels_of_assembly_are_those_inside_of_functions_too() -> None:
    source = """\
SYM_CODE_START(entry_SYSCALL_64)
	jmp	other_function
syscall_return_via_sysret:
	call	not_a_label
SYM_INNER_LABEL(entry_SYSRETQ_unsafe_stack, SYM_L_GLOBAL)
.Llocal:
SYM_CODE_END(entry_SYSCALL_64)
SYM_FUNC_START_LOCAL(memset_orig)
SYM_FUNC_ALIAS_MEMFUNC(memset, __memset)
SYM_TYPED_FUNC_START(__memset)
EXPORT_SYMBOL(memset)
"""
    assert hunks.labels(source) == {
        "entry_SYSCALL_64", "syscall_return_via_sysret", "entry_SYSRETQ_unsafe_stack", "memset_orig", "memset",
        "__memset",
    }  # fmt: skip
