"""`lab ab`: exit status, several architectures, and `--watch`."""

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from lab.cli import ab, main
from lab.compare import result_folders
from lab.compare.request import ComparisonRequest
from lab.compare.results import AbResult
from lab.core.errors import BuildFailed
from lab.workloads import selection
from lab.workloads.selection import Suite

from ..fakes import kernel_image
from ..fakes.build import own_folders
from ..fakes.guest import Broken, FakeGuests, Formula, Unsupported, plan, pretend, write_workload
from ..fakes.result import case, result
from ..fakes.work import quiet


def asked(**more: object) -> ComparisonRequest:
    values = {"base": "v1", "test": "v2", "workload": ("alloc-burst:layout-4632k",), **more}
    return msgspec.convert(values, ComparisonRequest)


def slower_large(arm: str, seed: int, case: str) -> float:
    """The case `large` is worse."""
    return (100.0 if arm == "base" or case == "small" else 50.0 + seed) + seed


def compare_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, *more: str) -> int:
    """Compare two kernels by the cases `small`, which raises an error, and `large`, which is worse."""

    def formula(arm: str, seed: int, case: str) -> float:
        if case == "small":
            raise error
        return slower_large(arm, seed, case)

    return compare(tmp_path, monkeypatch, formula, "-w", write_workload(tmp_path / "mine"), *more)


def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, formula: Formula, *more: str) -> int:
    """Compare two kernel files in guests that a formula stands for."""
    own_folders(monkeypatch, tmp_path)
    pretend(monkeypatch, tmp_path, FakeGuests(formula))
    for name in ("base", "test"):
        (tmp_path / name).write_bytes(kernel_image.empty())
    arms = [f"file:{tmp_path}/base", f"file:{tmp_path}/test"]
    return main.run(["ab", *arms, "--json", *more])


class _Asked(Exception):
    """The options of a comparison, in place of its result."""


def parsed(monkeypatch: pytest.MonkeyPatch, *words: str) -> ComparisonRequest:
    """What a command line asks for."""

    def stop(request: ComparisonRequest, *_: object) -> None:
        raise _Asked(request)

    monkeypatch.setattr(ab, "plan_of", stop)
    with pytest.raises(_Asked) as asked:
        main.lab.main(["ab", *words], standalone_mode=False)
    request: ComparisonRequest = asked.value.args[0]
    return request


def test_two_kernels_and_a_command_need_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    by_options = parsed(monkeypatch, "--base", "deb:6.1", "--test", "deb:6.12", "-w", "syscalls:getppid")
    assert parsed(monkeypatch, "deb:6.1", "deb:6.12", "-w", "syscalls:getppid") == by_options
    by_options = parsed(monkeypatch, "--base", "deb:6.1", "--test", "deb:6.12", "--exec", "true -x 'a b'")
    assert parsed(monkeypatch, "deb:6.1", "deb:6.12", "--", "true", "-x", "a b") == by_options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("deb:6.1",), "1 kernel to compare"),
        (("deb:6.1", "deb:6.12", "deb:7.1"), "3 kernels to compare"),
        (("deb:6.1", "deb:6.12", "--base", "deb:6.1"), "--base or --test"),
        (("deb:6.1", "deb:6.12", "-w", "boot", "--", "true"), "--exec and --workload exclude each other"),
        (("HEAD", "HEAD", "--watch"), "--watch is for uncommitted work"),
        (("HEAD", "worktree", "--watch", "--json"), "for one"),
        (("HEAD", "worktree", "--watch", "--mode", "live"), "--watch requires --mode exact"),
        (("HEAD", "worktree", "--watch", "--fail-on", "regression"), "for one"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["ab", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--fail-on", "regression")])
def test_a_case_that_failed_ends_with_status_4_and_the_others_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert compare_with(tmp_path, monkeypatch, Broken("exited with status 3: no"), *more) == 4
    said = capsys.readouterr()
    small, large = json.loads(said.out)["cases"]
    assert (small["failed"]["arms"], small["failed"]["kind"]) == (["base", "test"], "workload")
    assert (large["failed"], large["verdict"]) == (None, "regression")
    message = "1 of 2 cases failed, the first in both arms: base arm, seed 1: mine:small exited with status 3: no"
    assert message in said.err and "tries it again" in said.err


@pytest.mark.parametrize("more", [(), ("-q",)])
def test_a_quiet_comparison_prints_the_result_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert compare(tmp_path, monkeypatch, slower_large, "-w", write_workload(tmp_path / "mine"), *more) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "regression"
    assert (said.err == "") == bool(more)


@pytest.mark.parametrize(("more", "status"), [((), 0), (("--fail-on", "regression"), 1)])
def test_a_case_that_a_kernel_lacks_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...], status: int,
) -> None:  # fmt: skip
    assert compare_with(tmp_path, monkeypatch, Unsupported("is not supported on this kernel: no"), *more) == status
    document = json.loads(capsys.readouterr().out)
    small, large = document["cases"]
    assert (small["failed"]["kind"], large["verdict"]) == ("unsupported", "regression")
    assert document["reason"].endswith("; 1 of 2 cases unsupported")


def test_a_suite_selects_its_cases_and_groups_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = write_workload(tmp_path / "mine")
    suite = Suite(name="tiny", description="d", groups={"big": (f"{mine}:large",), "rest": (f"{mine}:sm*",)})
    monkeypatch.setattr(selection, "suites", lambda: {"tiny": suite})
    assert compare(tmp_path, monkeypatch, slower_large, "--suite", "tiny") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["suite"] == "tiny"
    assert [(case["case"], case["group"], case["verdict"]) for case in document["cases"]] == [
        ("large", "big", "regression"), ("small", "rest", "same"),
    ]  # fmt: skip


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
        ab._watch(asked(test="worktree"), quiet())
    first, failed, last = capsys.readouterr().out.splitlines()
    assert "layout-512k  0.0 %" in first and "same" in first and "last save" not in first
    assert failed.endswith("mm/mmap.c:7: error (log: /log)")
    assert "+50.0 %" in last and "regression, +50.0 % against the last save" in last
    assert [bool(last) for last in before] == [False, True, True]
    assert warmed == [1], "after the first turn alone"


@pytest.mark.parametrize("error", [BuildFailed("mm/mmap.c:7: error"), KeyboardInterrupt()])
def test_a_turn_that_gives_nothing_leaves_no_result(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(plan: object, folder: Path, work: object) -> AbResult:
        assert folder.is_dir()
        raise error

    own_folders(monkeypatch, tmp_path)
    monkeypatch.setattr(ab, "plan_of", lambda *_: plan("alloc-burst"))
    monkeypatch.setattr(result_folders, "store_plan", lambda *_: None)
    monkeypatch.setattr(ab, "measure", measure)
    with pytest.raises(type(error)):
        ab._turn(asked(), None, quiet())
    assert list(result_folders.results_dir().iterdir()) == []
