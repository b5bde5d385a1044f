"""Stored results: found again by several names, and never written to by two labs."""

import os
from pathlib import Path

import pytest

from lab.compare import result_folders, results
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure, UserError
from lab.core.progress import QUIET, Progress
from lab.stats import multiple, verdict
from lab.stats.verdict import Metric

from ..fakes.guest import plan

pytestmark = pytest.mark.usefixtures("own_home")


def _stored(name: str, age_s: int = 0) -> Path:
    folder = result_folders.new_folder(result_folders.results_dir() / name)
    records.save(folder / "plan.json", plan("mine"))
    os.utime(folder / "plan.json", (1e9 - age_s, 1e9 - age_s))
    return folder


def test_a_new_folder_is_new_each_time_and_sorts_by_time() -> None:
    folders = [result_folders.new_folder(None) for _ in range(5)]
    assert len(set(folders)) == 5
    assert all((folder / "runs").is_dir() and folder.parent == result_folders.results_dir() for folder in folders)


def test_a_chosen_folder_must_not_hold_a_result(tmp_path: Path) -> None:
    folder = result_folders.new_folder(tmp_path / "deep" / "result")
    assert (folder / "runs").is_dir()
    assert result_folders.new_folder(folder) == folder, "nothing was measured yet"
    records.save(folder / "plan.json", plan("mine"))
    with pytest.raises(UserError, match="already holds a result") as caught:
        result_folders.new_folder(folder)
    assert f"lab ab --resume {folder}" in str(caught.value.hint)


def test_results_are_found_by_id_beginning_latest_and_path(tmp_path: Path) -> None:
    old, new = _stored("20261121-090000-aaaa", 10), _stored("20261121-100000-bbbb", 5)
    older_but_later_named = _stored("20261122-000000-cccc", 20)
    assert result_folders.open_folder(old.name) == old and result_folders.open_folder("20261121-10") == new
    assert result_folders.open_folder("latest") == new
    assert result_folders.open_folder("20261122") == older_but_later_named
    elsewhere = result_folders.new_folder(tmp_path / "elsewhere")
    records.save(elsewhere / "plan.json", plan("mine"))
    assert result_folders.open_folder(str(elsewhere)) == elsewhere
    assert result_folders.load_plan(elsewhere) == plan("mine")
    with pytest.raises(UserError, match="ambiguous: 20261121-090000-aaaa, 20261121-100000-bbbb"):
        result_folders.open_folder("20261121")


@pytest.mark.parametrize("unknown", ["nothing", "latest", "../..", "/", "$(touch x)"])
def test_what_is_no_result_is_refused(unknown: str) -> None:
    with pytest.raises(UserError, match="there is no result"):
        result_folders.open_folder(unknown)


def test_an_unfinished_result_says_how_to_go_on() -> None:
    folder = _stored("20261121-090000-aaaa")
    with pytest.raises(UserError, match="is not finished") as caught:
        result_folders.load_result(folder)
    assert f"lab ab --resume {folder.name}" in str(caught.value.hint)
    assert result_folders.finished() == []
    (folder / "result.json").write_text('{"schema": "of a later lab"}')
    assert result_folders.finished() == []


# ---- live mode


def compared(name: str, base: list[float], test: list[float], better: verdict.Better = "lower") -> verdict.Comparison:
    found = verdict.compare_metric(Metric(name=name, unit="faults", better=better), base, test, exact=False)
    return multiple.mark_secondary([found])[0]


def test_steady_counters_that_changed_stand_beside_an_unknown() -> None:
    faults = compared("page_faults", [882.0] * 6, [1904.0] * 6)
    latency = compared("latency", [100.0, 150.0, 120.0, 90.0, 200.0, 110.0], [900.0 + i for i in range(6)])
    equal = compared("vmas", [1.0] * 6, [1.0] * 6)
    rate = compared("hits", [10.0] * 6, [20.0] * 6, better="higher")
    assert results.steady_changes([latency, faults, equal]) == [faults]
    assert results.counter_evidence([latency, faults, equal]) == "its counters say regression: page_faults +115.9 %"
    assert results.counter_evidence([rate, faults]).endswith(
        "regression: page_faults +115.9 %; improvement: hits +100.0 %"
    )
    assert results.counter_evidence([latency, equal]) == ""


def test_latest_is_finished_or_can_go_on() -> None:
    done, begun = _stored("20261121-090000-aaaa"), _stored("20261121-100000-bbbb")
    (done / "result.json").write_text("{}")
    assert result_folders.open_folder("latest") == done
    assert result_folders.open_folder("latest", unfinished=True) == begun
    assert result_folders.unfinished() == [begun]
    (begun / "result.json").write_text("{}")
    assert result_folders.open_folder("latest", unfinished=True) == begun


def test_a_folder_in_which_nothing_was_measured_is_deleted() -> None:
    empty, begun = _stored("20261121-090000-aaaa"), _stored("20261121-100000-bbbb")
    (begun / "runs").mkdir(exist_ok=True)
    (begun / "runs" / "base-1.json").write_text("{}")
    for folder in (empty, begun):
        with pytest.raises(KeyboardInterrupt), result_folders.claimed(folder), result_folders.kept(folder, QUIET):
            raise KeyboardInterrupt
    assert not empty.exists() and begun.exists()


def test_a_result_that_is_written_to_is_not_deleted() -> None:
    folder = _stored("20261121-090000-aaaa")
    with result_folders.claimed(folder), pytest.raises(UserError, match="another lab is writing"):
        result_folders.delete(folder)
    result_folders.delete(folder)
    assert not folder.exists()


@pytest.mark.parametrize(("error", "said"), [
    (KeyboardInterrupt(), "stopped; 1 run is kept. To go on: lab ab --resume "),
    (GuestFailed(GuestFailure.PANIC, "it panicked"), "stopped; 1 run is kept. To go on: lab ab --resume "),
    (GuestFailed(GuestFailure.REFUSED, "no such setting"), ""),
    (GuestFailed(GuestFailure.WORKLOAD, "it exited with status 3"), ""),
    (UserError("no such case"), ""),
])  # fmt: skip
def test_only_what_can_end_otherwise_is_to_go_on(
    error: BaseException, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one.json").touch()
    with pytest.raises(type(error)), result_folders.kept(tmp_path, Progress()):
        raise error
    shown = capsys.readouterr().err
    assert shown.startswith(said) if said else not shown
