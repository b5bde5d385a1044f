"""`lab workload check`: sound or not, one line each, and the smallest case run where a kernel is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli import main
from lab.compare import check, runs
from lab.compare.runs import Run
from lab.core.errors import GuestFailed, GuestFailure
from lab.kernels.kernel import Kernel
from lab.workloads.spec import Case

from ..fakes.build import own_folders
from ..fakes.guest import WORKLOAD, FakeGuests, kernel, pretend, write_workload

SIZED = WORKLOAD.replace('name = "large"', 'name = "large"\nmemory_mb = 300').replace(
    'name = "small"', 'name = "small"\nmemory_mb = 400'
)


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGuests:
    own_folders(monkeypatch, tmp_path)
    monkeypatch.setattr(Kernel, "configuration", lambda kernel: None)
    return pretend(monkeypatch, tmp_path, FakeGuests(lambda arm, seed, case: 12.5))


@pytest.fixture
def kernel_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A spec that resolves without being looked at."""
    monkeypatch.setattr(check, "resolve", lambda text, **_: kernel("boot").spec)
    return "file:/boot/boot"


def test_what_is_sound_and_what_is_not(guests: FakeGuests, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = write_workload(tmp_path / "mine", SIZED)
    bad = write_workload(tmp_path / "bad", SIZED.replace("vcpus = 1", "vcpus = 0"))
    assert main.run(["workload", "check", mine, bad, "nothing"]) == 2
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{mine}: ok, 2 cases, 0.0 MiB in the guest"
    assert said[1].startswith(f"{bad}: {bad}/workload.toml:5: ")
    assert "no workload is called 'nothing'" in said[2]
    assert guests.calls == []


def test_the_smallest_case_is_run(
    guests: FakeGuests, kernel_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = write_workload(tmp_path / "mine", SIZED)
    assert main.run(["workload", "check", mine, "--run", kernel_file, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "lab.workload-check/1"
    (row,) = document["workloads"]
    assert (row["ok"], row["case"], row["metrics"]) == (True, "large", {"throughput": 12.5, "faults": 100.0})
    assert guests.calls == [("check", 1, ("large",))]


def test_a_case_that_fails_is_told_with_its_status(
    guests: FakeGuests,
    kernel_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object) -> Run:
        raise GuestFailed(GuestFailure.WORKLOAD, "mine:large exited with status 3: no", log=Path("/x/report.jsonl"))

    monkeypatch.setattr(runs, "measure", fails)
    mine = write_workload(tmp_path / "mine", SIZED)
    assert main.run(["workload", "check", mine, "--run", kernel_file]) == 4
    assert capsys.readouterr().out == f"{mine}: mine:large exited with status 3: no (log: /x/report.jsonl)\n"


def test_without_sizes_the_first_case_is_the_smallest() -> None:
    assert check.smallest([Case(name="b"), Case(name="a")]).name == "b"
