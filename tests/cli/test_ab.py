"""`lab ab` with guests that never boot: exit status, its document, replays, and `--watch`."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from lab.cli import ab
from lab.compare import result_folders
from lab.compare.request import ComparisonRequest
from lab.compare.results import AbResult
from lab.core.errors import BuildFailed, UserError
from lab.workloads import selection
from lab.workloads.selection import Suite

from ..fakes import kernel_image
from ..fakes.command import Ended, Lab
from ..fakes.guest import Broken, FakeGuests, Formula, Unsupported, alike, plan, pretend, slower_large, write_workload
from ..fakes.result import case, result
from ..fakes.work import quiet

pytestmark = pytest.mark.usefixtures("own_home")


def unsure(arm: str, seed: int, case: str) -> float:
    return 100.0 if arm == "base" else 100.0 + (-1) ** seed * (1.3 + seed / 100)


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lab: Lab) -> Lab:
    """Run `lab ab` on two kernel files; the first argument is the guests' formula."""
    workload = write_workload(tmp_path / "mine")
    arms = [f"file:{tmp_path / name}" for name in ("base", "test")]
    for name in ("base", "test"):
        (tmp_path / name).write_bytes(kernel_image.empty() + name.encode())

    def run(formula: Formula, *words: str, status: int = 0) -> Ended:
        pretend(monkeypatch, tmp_path, FakeGuests(formula))
        chosen = [] if "--suite" in words else ["-w", workload]
        return lab("ab", *arms, *chosen, "--max-seeds", "6", *words, status=status)

    return run


def parsed(monkeypatch: pytest.MonkeyPatch, lab: Lab, *words: str) -> ComparisonRequest:
    asked: list[ComparisonRequest] = []

    def stop(request: ComparisonRequest, *_: object) -> None:
        asked.append(request)
        raise UserError("that is all")

    monkeypatch.setattr(ab, "plan_of", stop)
    lab("ab", *words, status=2)
    return asked[0]


def test_two_kernels_and_a_command_need_no_options(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    by_options = parsed(monkeypatch, lab, "--base", "deb:6.1", "--test", "deb:6.12", "-w", "syscalls:getppid")
    assert parsed(monkeypatch, lab, "deb:6.1", "deb:6.12", "-w", "syscalls:getppid") == by_options
    by_options = parsed(monkeypatch, lab, "--base", "deb:6.1", "--test", "deb:6.12", "--exec", "true -x 'a b'")
    assert parsed(monkeypatch, lab, "deb:6.1", "deb:6.12", "--", "true", "-x", "a b") == by_options


def test_a_file_of_the_command_that_stays_here_is_named(
    monkeypatch: pytest.MonkeyPatch, lab: Lab, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ab, "plan_of", Mock(side_effect=UserError("that is all")))
    Path("data.txt").write_text("b\na\n")
    said = lab("ab", "deb:6.1", "deb:6.12", "--", "sort", "data.txt", status=2).err
    assert "data.txt is a file here, and the guest does not have it; bring it with --file data.txt\n" in said
    assert (
        "is a file here"
        not in lab("ab", "deb:6.1", "deb:6.12", "--file", "data.txt", "--", "sort", "data.txt", status=2).err
    )


@pytest.mark.parametrize(("words", "said"), [
    (("deb:6.1",), "1 kernel to compare"),
    (("deb:6.1", "deb:6.12", "deb:7.1"), "3 kernels to compare"),
    (("deb:6.1", "deb:6.12", "--base", "deb:6.1"), "--base or --test"),
    (("deb:6.1", "deb:6.12", "-w", "boot", "--", "true"), "--exec and --workload exclude each other"),
    (("HEAD", "HEAD", "--watch"), "--watch is for uncommitted work"),
    (("HEAD", "worktree", "--watch", "--json"), "for one"),
    (("HEAD", "worktree", "--watch", "--mode", "live"), "--watch requires --mode exact"),
    (("HEAD", "worktree", "--watch", "--fail-on", "regression"), "for one"),
])  # fmt: skip
def test_options_that_contradict_each_other_are_refused(words: tuple[str, ...], said: str, lab: Lab) -> None:
    assert said in lab("ab", *words, status=2).err


@pytest.mark.parametrize(("formula", "words", "status"), [
    (alike, [], 0),
    (slower_large, [], 0),
    (slower_large, ["--fail-on", "regression"], 1),
    (slower_large, ["--fail-on", "unknown, regression"], 1),
    (slower_large, ["--fail-on", "improvement"], 0),
    (alike, ["--fail-on", "regression", "--require-verdict"], 0),
    (unsure, [], 0),
    (unsure, ["--require-verdict"], 5),
    (unsure, ["--fail-on", "unknown", "--require-verdict"], 1),
])  # fmt: skip
def test_verdicts_and_statuses(compare: Lab, formula: Formula, words: list[str], status: int) -> None:
    compare(formula, *words, status=status)


def without_small(error: Exception) -> Formula:
    """Guests in which the case `small` raises an error, and `large` is slower."""

    def formula(arm: str, seed: int, case: str) -> float:
        if case == "small":
            raise error
        return slower_large(arm, seed, case)

    return formula


@pytest.mark.parametrize("more", [(), ("--fail-on", "regression")])
def test_a_case_that_failed_ends_with_status_4_and_the_others_are_judged(compare: Lab, more: tuple[str, ...]) -> None:
    said = compare(without_small(Broken("exited with status 3: no")), "--json", *more, status=4)
    small, large = said.document["cases"]
    assert (small["failed"]["arms"], small["failed"]["kind"]) == (["base", "test"], "workload")
    assert (large["failed"], large["verdict"]) == (None, "regression")
    message = "1 of 2 cases failed, the first in both arms: base arm, seed 1: mine:small exited with status 3: no"
    assert message in said.err and "tries it again" in said.err


@pytest.mark.parametrize(("more", "status"), [((), 0), (("--fail-on", "regression"), 1)])
def test_a_case_that_a_kernel_lacks_is_no_failure(compare: Lab, more: tuple[str, ...], status: int) -> None:
    without = without_small(Unsupported("is not supported on this kernel: no"))
    document = compare(without, "--json", *more, status=status).document
    small, large = document["cases"]
    assert (small["failed"]["kind"], large["verdict"]) == ("unsupported", "regression")
    assert document["reason"].endswith("; 1 of 2 cases unsupported")


def test_a_suite_selects_its_cases_and_groups_them(
    compare: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = str(tmp_path / "mine")
    suite = Suite(name="tiny", description="d", groups={"big": (f"{mine}:large",), "rest": (f"{mine}:sm*",)})
    monkeypatch.setattr(selection, "suites", lambda: {"tiny": suite})
    document = compare(slower_large, "--suite", "tiny", "--json").document
    assert document["suite"] == "tiny"
    assert [(case["case"], case["group"], case["verdict"]) for case in document["cases"]] == [
        ("large", "big", "regression"), ("small", "rest", "same"),
    ]  # fmt: skip


def test_json_is_one_document_on_stdout(compare: Lab, lab: Lab) -> None:
    said = compare(slower_large, "--json")
    document = said.document
    assert (document["schema"], document["verdict"]) == ("lab.ab/1", "regression")
    assert "guests" in said.err
    assert lab("report", document["result"], "--json").document == document
    assert [row["result"] for row in lab("report", "--json").document["results"]] == [document["result"]]
    quiet = compare(slower_large, "--json", "-q")
    assert quiet.document["verdict"] == "regression" and quiet.err == ""


def test_replay_that_differs_names_the_numbers(
    compare: Lab, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(arm: str, seed: int, case: str) -> float:
        return slower_large(arm, seed, case) + ((arm, seed, case) == ("test", 4, "large"))

    compare(slower_large)
    pretend(monkeypatch, tmp_path, FakeGuests(differs))
    said = lab("replay", "latest", status=4)
    assert "large throughput test seed 4: 58.0 became 59.0" in said.out
    assert "please report" in said.err


def test_replay_boots_the_very_guests_that_were_booted(
    compare: Lab, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From seed 7 on only what is undecided is run; a case's numbers depend on what ran before it in its guest.
    def formula(arm: str, seed: int, case: str) -> float:
        return unsure(arm, seed, case) if case == "large" else 100.0

    compare(formula, "--max-seeds", "8")
    again = pretend(monkeypatch, tmp_path, FakeGuests(formula))
    lab("replay", "latest")
    assert {seed: cases for _, seed, cases in again.calls} == {
        **dict.fromkeys(range(1, 7), ("small", "large")),
        **dict.fromkeys((7, 8), ("large",)),
    }


def test_a_result_folder_is_taken_once(compare: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    compare(slower_large, "--result", str(folder))
    before = (folder / "result.json").read_bytes()
    assert "already holds a result" in compare(alike, "--result", str(folder), status=2).err
    words = [sys.executable, "-m", "lab", "ab", "--resume", str(folder)]
    with result_folders.claimed(folder):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "another lab is writing to" in done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / "result.json").read_bytes() == before


# ---- --watch


ASKED = ComparisonRequest(base="v1", test="worktree", workload=("alloc-burst:layout-4632k",))


def test_every_save_is_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A save that builds and one that does not, a save without a change, and the base's values once."""
    steady = case("layout-512k", [100.0] * 3, [100.0] * 3)
    slower = case("layout-512k", [100.0] * 3, [150.0] * 3)
    turns = iter([result(steady), BuildFailed("mm/mmap.c:7: error", log=Path("/log")), result(slower)])
    saves = iter(["a", "a", "b", "b", "c"])
    before: list[object] = []
    warmed: list[int] = []

    def turn(asked: object, last: object, work: object) -> AbResult:
        before.append(last)
        found = next(turns)
        if isinstance(found, Exception):
            raise found
        return found

    def source(text: str, tree: object) -> SimpleNamespace:
        try:
            return SimpleNamespace(source=next(saves))
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(ab, "_turn", turn)
    monkeypatch.setattr(ab, "_warm", lambda *_: warmed.append(len(before)))
    monkeypatch.setattr(ab, "resolve", source)
    monkeypatch.setattr(ab, "_POLL_S", 0)
    with pytest.raises(KeyboardInterrupt):
        ab._watch(ASKED, quiet())
    first, failed, last = capsys.readouterr().out.splitlines()
    assert "layout-512k  0.0 %" in first and "same" in first and "last save" not in first
    assert failed.endswith("mm/mmap.c:7: error (log: /log)")
    assert "+50.0 %" in last and "regression, +50.0 % against the last save" in last
    assert [bool(last) for last in before] == [False, True, True]
    assert warmed == [1], "after the first turn alone"


@pytest.mark.parametrize("error", [BuildFailed("mm/mmap.c:7: error"), KeyboardInterrupt()])
def test_a_turn_that_gives_nothing_leaves_no_result(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(plan: object, folder: Path, work: object) -> AbResult:
        assert folder.is_dir()
        raise error

    monkeypatch.setattr(ab, "plan_of", lambda *_: plan("alloc-burst"))
    monkeypatch.setattr(result_folders, "store_plan", lambda *_: None)
    monkeypatch.setattr(ab, "measure", measure)
    with pytest.raises(type(error)):
        ab._turn(ASKED, None, quiet())
    assert list(result_folders.results_dir().iterdir()) == []
