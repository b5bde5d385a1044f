"""`lab ci` on clones of small repositories: what is compared, what is said, and the status of each end."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab.cli import main
from lab.compare import runs
from lab.core.errors import BuildFailed
from lab.guests import host_commands
from lab.guests.run import RunningGuests
from lab.kernels.build import is_input
from lab.kernels.kernel import Kernel, KernelSpec

from ..fakes import kernel_image
from ..fakes.build import own_folders
from ..fakes.command import Ended, Lab
from ..fakes.guest import Broken, FakeGuests, Formula, alike, kernel, pretend, slower_large, write_workload
from ..fakes.kernel import change, commit_all, git, make_kernel
from ..fakes.processes import program


@dataclass
class Clone:
    """A fresh clone in which `lab ci` runs: the base is `main`, the change the branch that is checked out."""

    top: Path
    origin: Path
    workload: str
    built: list[str]
    guests: FakeGuests
    lab: Lab

    def commit(self, message: str, *, path: str = "mm/mmap.c", text: str = "int place(void) { return 9; }\n") -> str:
        (self.top / path).parent.mkdir(exist_ok=True)
        (self.top / path).write_text(text)
        return commit_all(self.top, message)

    def ci(self, *words: str, base: str = "origin/main", status: int = 0) -> Ended:
        return self.lab("ci", "--base", base, "-w", self.workload, *words, status=status)

    @property
    def comment(self) -> str:
        return (self.top / "lab-ci" / "comment.md").read_text()

    @property
    def files(self) -> set[str]:
        return {path.name for path in (self.top / "lab-ci").iterdir()}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab) -> Clone:
    """A clone with no kernel, image, QEMU or guest behind it; a kernel is a file with its source in it."""
    origin, top, built = make_kernel(tmp_path / "origin"), tmp_path / "clone", list[str]()
    git(tmp_path, "clone", "-q", str(origin), str(top))
    git(top, "switch", "-q", "-c", "change")
    own_folders(monkeypatch, tmp_path)
    guests = pretend(monkeypatch, tmp_path, FakeGuests(slower_large))

    def obtain(spec: KernelSpec, *_: object, **__: object) -> Kernel:
        source = spec.tree_source
        if source is None:
            return replace(kernel("one"), spec=spec)
        text = git(top, "show", f"{source.tree_id}:mm/mmap.c")
        if "error" in text:
            raise BuildFailed(f"{source.describe} does not build: mm/mmap.c:1: error: no")
        if source.commit not in built:
            built.append(source.commit)
        path = tmp_path / f"kernel-{source.commit}"
        path.write_text(text)
        return replace(kernel(source.commit), spec=spec, bzimage=path)

    monkeypatch.setattr(KernelSpec, "obtain", obtain)
    monkeypatch.chdir(top)
    return Clone(top, origin, write_workload(tmp_path / "mine"), built, guests, lab)


def test_a_regression_is_red_and_the_comment_names_case_and_size(clone: Clone) -> None:
    base, head = git(clone.top, "rev-parse", "HEAD"), clone.commit("mm: map twice")
    said = clone.ci(status=1).out
    assert clone.built == [base, head]
    assert clone.comment.startswith("### Kernel comparison: regression\n")
    (row,) = [line for line in clone.comment.splitlines() if line.startswith("| `mine:large` | `throughput")]
    assert "| **regression** |" in row and "| -4" in row
    assert clone.files == {"comment.md", "report.html", "result.json"}
    assert json.loads((clone.top / "lab-ci" / "result.json").read_text())["verdict"] == "regression"
    assert "mm: map twice" in said


def faster(arm: str, seed: int, case: str) -> float:
    return slower_large("base" if arm == "test" else "test", seed, case)


@pytest.mark.parametrize(("formula", "word"), [(alike, "same"), (faster, "improvement")])
def test_everything_but_a_regression_is_green(clone: Clone, formula: Formula, word: str) -> None:
    clone.guests.formula = formula
    clone.commit("mm: map")
    clone.ci()
    assert clone.comment.startswith(f"### Kernel comparison: {word}\n")


@pytest.mark.parametrize("path", ["README", "Documentation/mm/thp.rst", "MAINTAINERS", ".mailmap"])
def test_a_change_that_no_kernel_is_built_from_is_green_and_nothing_runs(clone: Clone, path: str) -> None:
    (clone.top / path).parent.mkdir(parents=True, exist_ok=True)
    clone.commit("words", path=path, text="words\n")
    clone.ci()
    assert (clone.built, clone.guests.calls, clone.files) == ([], [], {"comment.md"})
    assert clone.comment.startswith("### Kernel comparison: nothing to measure\n")
    assert f"(1 file): `{path}`." in clone.comment


def test_a_change_outside_the_guests_kernel_is_green_and_no_guest_runs(clone: Clone) -> None:
    clone.commit("a driver", path="drivers/mine.c", text="int mine;\n")
    clone.ci()
    assert len(clone.built) == 2 and clone.guests.calls == []
    assert "the same kernel, byte for byte" in clone.comment
    assert "unfinished" not in clone.lab("report").out


HOSTILE = ["$(touch${IFS}pwned)", "a;touch${IFS}pwned", "x+fix.patch", "deb:6.12", "file:/etc/passwd", "v6@thp=never"]


@pytest.mark.parametrize("base", ["", "0" * 40, "origin/gone", *HOSTILE, "--output=/tmp/x", "-h"])
def test_no_baseline_is_green_with_words(clone: Clone, base: str) -> None:
    clone.commit("mm: map twice")
    clone.ci(base=base)
    assert (clone.built, clone.guests.calls) == ([], [])
    assert clone.comment.startswith("### Kernel comparison: no baseline\n")


def test_a_shallow_clone_has_no_baseline_until_the_base_is_fetched(
    clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = git(clone.top, "rev-parse", "HEAD")
    clone.commit("mm: map twice")
    clone.commit("mm: map thrice", text="int place(void) { return 10; }\n")
    git(clone.top, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{clone.top}", str(tmp_path / "shallow"))
    shallow = replace(clone, top=tmp_path / "shallow")
    monkeypatch.chdir(shallow.top)
    shallow.ci(base=base)
    assert "no baseline" in shallow.comment
    git(shallow.top, "fetch", "-q", "--depth=1", "origin", base)
    shallow.ci(base=base, status=1)
    assert clone.built[0] == base


def test_commits_of_the_base_since_then_are_not_the_changes(clone: Clone) -> None:
    clone.guests.formula = alike
    parted, head = git(clone.top, "rev-parse", "HEAD"), clone.commit("mm: map twice")
    change(clone.origin, 7)
    commit_all(clone.origin, "main goes on")
    git(clone.top, "fetch", "-q")
    clone.ci()
    assert clone.built == [parted, head]


def test_a_build_that_fails_is_no_regression(clone: Clone) -> None:
    clone.commit("mm: break", text="error\n")
    clone.ci(status=3)
    assert clone.guests.calls == []
    assert clone.comment.startswith("### Kernel comparison: not measured\n")
    assert "mm/mmap.c:1: error: no" in clone.comment and "nothing about the speed" in clone.comment


def test_a_case_that_failed_is_no_regression(clone: Clone) -> None:
    def broken(arm: str, seed: int, case: str) -> float:
        if case == "large":
            raise Broken("exited with status 3: no")
        return 100.0 + seed

    clone.guests.formula = broken
    clone.commit("mm: map")
    clone.ci(status=4)
    assert "regression" not in clone.comment and "failed" in clone.comment


def test_a_budget_ends_a_build_and_is_no_regression(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelSpec, "obtain", lambda spec, *_, **__: time.sleep(600))
    clone.commit("mm: map twice")
    clone.ci("--budget", "1s", status=4)
    assert "the budget was used up before both kernels were built" in clone.comment


@pytest.mark.parametrize("name", HOSTILE)
def test_the_name_of_a_branch_is_a_revision_and_nothing_else(clone: Clone, name: str) -> None:
    clone.guests.formula = alike
    head = clone.commit("mm: map | `code` @everyone <img>")
    name = name.replace(":", "-")
    git(clone.top, "update-ref", f"refs/heads/{name}", head)
    clone.ci("--test", name)
    assert clone.built[1] == head
    assert not list(clone.top.rglob("pwned"))
    assert name not in clone.comment


def test_misuse_is_neither_green_nor_red(clone: Clone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clone.ci("--mode", "live", status=2)
    clone.ci("--test", "gone", status=2)
    clone.ci("--kernel", "deb:1", "--kernel", "deb:2", "--kernel", "deb:3", status=2)
    clone.ci("--base-program", "x", status=2)
    monkeypatch.chdir(tmp_path)
    assert "is no kernel checkout" in clone.ci(status=2).err


def test_the_keys_of_a_cache(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> dict[str, str]:
        return dict(line.split("=", 1) for line in clone.ci("--cache-key").out.splitlines())

    clone.commit("mm: map twice")
    first = keys()
    assert first["key"].startswith(first["same-base"]) and first["same-base"].startswith(first["any"])
    assert keys() == first
    clone.commit("mm: map thrice", text="int place(void) { return 10; }\n")
    second = keys()
    assert second["key"] != first["key"] and second["same-base"] == first["same-base"]
    assert not (clone.top / "lab-ci").exists()


# ---- programs


def test_one_program_on_two_kernels(clone: Clone, tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).write_bytes(kernel_image.empty())
    words = ["--kernel", f"file:{tmp_path}/old", "--kernel", f"file:{tmp_path}/new"]
    clone.ci(*words, base="", status=1)
    assert clone.guests.calls and "file:" in clone.comment


def test_two_builds_of_a_program_on_one_kernel(clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = {}

    def measure(guest: runs.GuestRun, running: RunningGuests) -> runs.Run:
        arms[guest.arm.name] = guest.arm.settings
        return clone.guests.measure(guest, running)

    monkeypatch.setattr(runs, "measure", measure)
    (tmp_path / "kernel").write_bytes(kernel_image.empty())
    for name, text in (("base", "exit 0"), ("head", "exit 1")):
        (tmp_path / name).mkdir()
        program(tmp_path / name / "bench", text)
    words = ["ci", "--kernel", f"file:{tmp_path}/kernel", "--exec", f"{tmp_path}/head/bench 7", "--model", "none"]
    assert main.run([*words, "--base-program", str(tmp_path / "gone")]) == 0
    assert "no baseline" in clone.comment and not arms
    assert main.run([*words, "--base-program", str(tmp_path / "base" / "bench")]) in (0, 1, 4)
    assert arms == {"base": {"env.PROGRAM_OF": "base"}, "test": {"env.PROGRAM_OF": "head"}}


def test_both_builds_are_brought_and_started_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_folders(monkeypatch, tmp_path / "home")
    for name in ("one", "two"):
        program(tmp_path / name, f": {name}")
    folder = host_commands.command_workload(str(tmp_path / "two"), base_program=tmp_path / "one")
    assert (folder / "base" / "bin" / "two").read_text() == "#!/bin/sh\n: one\n"
    assert (folder / "head" / "bin" / "two").read_text() == "#!/bin/sh\n: two\n"
    text = (folder / "workload.toml").read_text()
    assert "ln -s $PROGRAM_OF/bin $PROGRAM_OF/lib /workload/" in text
    assert '"/workload/bin/two"' in text


# ---- what a kernel is built from


BUILT = [
    "mm/mmap.c", "Makefile", "Kbuild", "Documentation/Kconfig", "Documentation/Makefile", "tools/objtool/check.c",
    "tools/include/linux/types.h", "scripts/setlocalversion", "arch/x86/lib/x86-opcode-map.txt", "lib/COPYING",
    ".gitattributes", "samples/Kconfig", "tools/testing/Kconfig",
]  # fmt: skip
UNREAD = [
    "README", "COPYING", "Documentation/mm/index.rst", "drivers/net/README.txt", "tools/perf/builtin-top.c",
    "tools/testing/selftests/mm/thuge-gen.c", "LICENSES/preferred/GPL-2.0", "net/.gitignore", "rust/doc.rst",
]  # fmt: skip


@pytest.mark.parametrize("path", [*BUILT, *UNREAD])
def test_inputs_of_a_build(path: str) -> None:
    assert is_input(path) == (path in BUILT)
