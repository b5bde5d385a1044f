"""`lab workload check`: sound or not, one line each, and the smallest case run where a kernel is given."""

import json
from pathlib import Path

import msgspec
import pytest

from lab.cli import main
from lab.compare import check, comparison, measurement, result_folders, runs
from lab.compare.runs import GuestRun, Run
from lab.core.errors import UserError
from lab.guests.run import RunningGuests
from lab.kernels.kernel import Kernel

from ..fakes.build import own_folders
from ..fakes.guest import WORKLOAD, FakeGuests, FakeInstrument, kernel, plan, pretend, write_workload
from ..fakes.work import quiet

SIZED = WORKLOAD.replace('name = "large"', 'name = "large"\nmemory_mb = 300').replace(
    'name = "small"', 'name = "small"\nmemory_mb = 400'
)


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGuests:
    own_folders(monkeypatch, tmp_path)
    monkeypatch.setattr(Kernel, "configuration", lambda kernel: None)
    monkeypatch.setattr(check, "load_instrument", lambda machine, model: FakeInstrument())
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
    assert row["clocked"] is False
    assert guests.calls == [("check", 1, ("large",))] * 2


class Clocked(FakeGuests):
    """Guests whose large case does less where an instruction takes longer, but for its fixed share."""

    def __init__(self, fixed: float) -> None:
        super().__init__(lambda arm, seed, case: 12.5)
        self.fixed = fixed

    def measure(self, guest: GuestRun, running: RunningGuests) -> Run:
        run = super().measure(guest, running)
        pace = self.fixed + (1 - self.fixed) * 16 / 2**guest.bench.parameters.shift
        work = {case: 1.0 if case == "small" else pace for case in run.cases}
        costs = {
            case: {"cycles_p50": 1.0, "counted_operations": 4000 * pace, "user_instructions": 10.0}
            for case, pace in work.items()
        }
        return msgspec.structs.replace(run, costs=costs)


def test_work_that_follows_the_clock_is_found_and_refused(
    guests: FakeGuests,
    kernel_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = write_workload(tmp_path / "mine", SIZED)
    monkeypatch.setattr(runs, "measure", Clocked(0.0).measure)
    assert main.run(["workload", "check", mine, "--run", kernel_file]) == 2
    assert capsys.readouterr().out == (
        f"{mine}: mine:large does as much work as the clock lets it: 4,000 operations where an instruction takes "
        "16 ns, 1,000 operations where it takes 64; give it a fixed number of operations; or measure it as it is, by "
        "--clocked for a command, or by clocked = true in its workload.toml\n"
    )
    monkeypatch.setattr(runs, "measure", Clocked(0.999).measure)
    assert main.run(["workload", "check", mine, "--run", kernel_file]) == 0
    assert capsys.readouterr().out.endswith("its work does not follow the clock\n")
    write_workload(tmp_path / "mine", SIZED.replace("vcpus", "clocked = true\nvcpus"))
    monkeypatch.setattr(runs, "measure", Clocked(0.0).measure)
    assert main.run(["workload", "check", mine, "--run", kernel_file]) == 0
    assert capsys.readouterr().out.endswith("its work follows the clock, as it says\n")


def test_a_comparison_refuses_it_too_and_asks_once(
    guests: FakeGuests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "load_instrument", lambda machine, model: FakeInstrument())
    mine = write_workload(tmp_path / "mine", WORKLOAD.replace('model = "none"', 'model = "tlb"'))
    for found in (Clocked(0.0), guests):
        monkeypatch.setattr(runs, "measure", found.measure)
        folder = result_folders.new_folder(None)
        with pytest.raises(UserError, match="mine:large does as much work as the clock lets it: 4,000 operations"):
            comparison.measure(plan(mine, model="auto"), folder, quiet())
        assert not list((folder / "runs").iterdir())
    assert guests.calls == [], "the second time it is known"
    write_workload(
        tmp_path / "mine", (tmp_path / "mine/workload.toml").read_text().replace("vcpus", "clocked = true\nvcpus")
    )
    assert comparison.measure(plan(mine, model="auto"), result_folders.new_folder(None), quiet()).verdict == "same"
