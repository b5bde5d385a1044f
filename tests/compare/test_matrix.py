"""The matrix: every combination measured once, each judged against the baseline, failures kept apart."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab import report
from lab.cli import main
from lab.compare import matrix, matrix_results, measurement, result_folders
from lab.compare.matrix import MatrixRequest
from lab.compare.matrix_results import Cell, MatrixPlan, MatrixResult
from lab.core.errors import GuestFailed, GuestFailure
from lab.kernels.kernel import KernelSpec
from lab.report.inputs import StoredMatrix
from lab.stats.verdict import Outcome

from ..fakes import kernel_image
from ..fakes.guest import WORKLOAD, FakeGuests, FakeInstrument, Formula, Unsupported, kernel, pretend, write_workload
from ..fakes.work import quiet

pytestmark = pytest.mark.usefixtures("own_home")

FACTORS = {"always-always": 1.0, "always-never": 1.0, "never-always": 0.5, "never-never": 2.0}


def by_setting(arm: str, seed: int, case: str) -> float:
    """The large case depends on the settings; the control does not."""
    return (100.0 + seed) * (1.0 if case == "small" else factor_of(arm, seed))


def factor_of(arm: str, seed: int) -> float:
    """By the arm's name in files; what differs from 1 has some spread."""
    factor = FACTORS[arm.replace("thp-", "", 1).replace("thp.defrag-", "", 1)]
    return factor * (1 + seed * 1e-4 * (factor != 1.0))


def a_plan(workload: str, kernel_files: list[str], settings: list[str], **changes: Any) -> MatrixPlan:
    """A plan of kernel files that exist only in name."""
    asked = MatrixRequest(
        kernel=tuple(f"{name}=file:/boot/{name}" for name in kernel_files), settings=tuple(settings),
        workload=(workload,), model="none", max_seeds=6,
    )  # fmt: skip
    return msgspec.structs.replace(asked.plan([kernel(name).spec for name in kernel_files], None), **changes)


Start = Callable[..., tuple[FakeGuests, Callable[[], MatrixResult]]]
TWO_AXES = ["thp=always,never", "thp.defrag=always,never"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return result_folders.new_folder(tmp_path / "result")


@pytest.fixture
def start(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Prepare a matrix with guests of a formula; call what it gives to measure."""

    def prepare(
        formula: Formula, *, files: list[str] | None = None, settings: list[str] | None = None, jobs: int = 1,
        text: str = WORKLOAD, **changes: Any,
    ) -> tuple[FakeGuests, Callable[[], MatrixResult]]:  # fmt: skip
        guests = pretend(monkeypatch, tmp_path, FakeGuests(formula))
        workload = write_workload(tmp_path / "mine", text)
        plan = a_plan(workload, files or ["k"], TWO_AXES if settings is None else settings, **changes)
        if not (folder / "plan.json").exists():
            result_folders.store_plan(folder, plan)
        return guests, lambda: matrix.measure(plan, folder, quiet(jobs=jobs))

    return prepare


def cells_of(result: MatrixResult, case: str = "large") -> dict[str, Cell]:
    return {cell.arm: cell for cell in result.cells if cell.case == case}


def test_every_arm_is_judged_against_the_baseline(start: Start, folder: Path) -> None:
    _, measure = start(by_setting)
    result = measure()
    large = cells_of(result)
    assert {arm: cell.verdict for arm, cell in large.items()} == {
        "thp=always thp.defrag=always": None,
        "thp=always thp.defrag=never": Outcome.SAME,
        "thp=never thp.defrag=always": Outcome.REGRESSION,
        "thp=never thp.defrag=never": Outcome.IMPROVEMENT,
    }
    assert {cell.verdict for cell in cells_of(result, "small").values()} == {None, Outcome.SAME}
    slower = large["thp=never thp.defrag=always"]
    assert slower.values == [(100.0 + seed) * 0.5 * (1 + seed * 1e-4) for seed in range(1, 7)]
    assert slower.comparison is not None and slower.comparison.ratio == pytest.approx(0.5, rel=1e-3)
    assert slower.mean == pytest.approx(sum(slower.values[k] or 0 for k in range(3)) / 3), "what all arms have"
    assert large["thp=always thp.defrag=always"].mean == large["thp=always thp.defrag=never"].mean == 102.0
    assert slower.holm is True and slower.means["faults"] == 100.0
    assert result.summary == ("against thp=always thp.defrag=always: 1 regression, 1 improvement, 4 same")
    assert matrix_results.load_result(folder) == result


def test_a_kernel_is_made_ready_once_however_many_settings_it_has(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, measure = start(lambda *_: 100.0, files=["a", "b"], settings=["thp=always,madvise,never"])
    asked = []

    def obtain(spec: Any, *_: object, **__: object) -> Any:
        asked.append(spec.source.path)
        return kernel(Path(spec.source.path).name)

    monkeypatch.setattr(KernelSpec, "obtain", obtain)
    result = measure()
    assert asked == ["/boot/a", "/boot/b"]
    assert {arm.arm.build for arm in result.arms} == {"key of a", "key of b"}
    assert [arm.arm.settings["thp"] for arm in result.arms] == ["always", "madvise", "never"] * 2


def test_numbers_without_spread_take_three_seeds_and_only_open_arms_go_on(start: Start) -> None:
    guests, measure = start(by_setting)
    measure()
    seeds: dict[str, int] = {}
    for arm, seed in guests.boots:
        seeds[arm] = max(seeds.get(arm, 0), seed)
    assert seeds == {
        "thp-always-thp.defrag-always": 6,  # the baseline, with which the open ones are paired
        "thp-always-thp.defrag-never": 3,
        "thp-never-thp.defrag-always": 6,
        "thp-never-thp.defrag-never": 6,
    }


def breaking(arm: str, seed: int, case: str) -> float:
    if arm == "thp-never-thp.defrag-always":
        raise GuestFailed(GuestFailure.REFUSED, f"{arm} arm, seed {seed}: the guest refused the setting")
    return by_setting(arm, seed, case)


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_guest_that_fails_is_shown_and_the_others_go_on(start: Start, jobs: int) -> None:
    guests, measure = start(breaking, jobs=jobs)
    result = measure()
    bad = [cell for cell in result.cells if cell.failed]
    assert {(cell.arm, cell.case) for cell in bad} == {
        ("thp=never thp.defrag=always", "small"), ("thp=never thp.defrag=always", "large"),
    }  # fmt: skip
    assert {cell.failed for cell in bad} == {"thp-never-thp.defrag-always arm, seed 1: the guest refused the setting"}
    assert all(cell.mean is None and cell.comparison is None for cell in bad)
    assert cells_of(result)["thp=never thp.defrag=never"].verdict == Outcome.IMPROVEMENT
    assert result.summary.endswith("1 improvement, 3 same, 2 failed")
    assert guests.boots.count(("thp-never-thp.defrag-always", 1)) == 1
    if jobs == 1:
        assert ("thp-never-thp.defrag-always", 2) not in guests.boots


def test_a_case_that_a_kernel_lacks_is_no_failure(start: Start) -> None:
    def lacks(arm: str, seed: int, case: str) -> float:
        if arm == "thp-never-thp.defrag-always" and case == "large":
            raise Unsupported("is not supported on this kernel: madvise: Invalid argument")
        return by_setting(arm, seed, case)

    _, measure = start(lacks)
    result = measure()
    assert result.failed == []
    assert result.summary.endswith("1 improvement, 4 same, 1 unsupported")
    cell = cells_of(result, "large")["thp=never thp.defrag=always"]
    assert result.state(cell) == "unsupported"
    assert cell.reasons == [
        "unsupported: thp-never-thp.defrag-always arm, seed 1: "
        "mine:large is not supported on this kernel: madvise: Invalid argument"
    ]


def test_a_baseline_that_fails_leaves_numbers_and_no_verdict(start: Start) -> None:
    def formula(arm: str, seed: int, case: str) -> float:
        if arm == "thp-always-thp.defrag-always":
            raise GuestFailed(GuestFailure.PANIC, "it died")
        return by_setting(arm, seed, case)

    guests, measure = start(formula)
    result = measure()
    others = [cell for cell in result.cells if not cell.failed]
    assert len(others) == 6 and all(cell.mean and cell.verdict is None for cell in others)
    assert result.summary == "against thp=always thp.defrag=always: 6 measured, 2 failed"
    assert max(seed for _, seed in guests.boots) == 3, "nothing more could be decided"


def test_any_metric_can_be_shown(start: Start) -> None:
    _, measure = start(by_setting, metric="faults")
    result = measure()
    assert {(cell.metric, cell.unit, cell.better, cell.mean) for cell in result.cells} == {
        ("faults", "faults", "lower", 100.0)
    }
    assert {cell.verdict for cell in result.cells} == {None, Outcome.SAME}


# --- the command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `lab matrix` on one kernel file; the first argument is the guests' formula."""
    workload = write_workload(tmp_path / "mine")
    (tmp_path / "k").write_bytes(kernel_image.empty())

    def run(formula: Formula, *words: str) -> int:
        pretend(monkeypatch, tmp_path, FakeGuests(formula))
        asked = ["--kernel", f"file:{tmp_path}/k", "--set", TWO_AXES[0], "--set", TWO_AXES[1], "-w", workload]
        return main.run(["matrix", *([] if "--resume" in words else asked), "--model", "none", *words])

    return run


def test_the_command_prints_one_document_and_report_the_same(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(by_setting, "--json") == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["schema"] == "lab.matrix/1" and len(document["cells"]) == 8
    assert "8 cells: 4 arms of 1 kernel, 2 cases, 6 to 12 seeds: 24 guests, " in said.err
    assert main.run(["report", document["result"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document
    assert main.run(["report", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["result"] for row in listed["matrices"]] == [document["result"]] and listed["results"] == []
    assert main.run(["report"]) == 0
    assert "matrix" in capsys.readouterr().out


def test_a_stored_matrix_is_shown_and_replayed(command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(by_setting) == 0
    text = capsys.readouterr().out
    assert main.run(["report", "latest"]) == 0
    assert capsys.readouterr().out == text
    assert main.run(["replay", "latest", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["differences"], document["environment"]) == ([], [])


def test_a_failed_cell_is_status_4_after_everything_was_printed(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(breaking) == 4
    said = capsys.readouterr()
    assert "✗" in said.out and "failed: thp-never-thp.defrag-always arm, seed 1" in said.out
    (complaint,) = [line for line in said.err.splitlines() if line.startswith("lab: ")]
    assert "2 of 8 cells failed" in complaint
    reference = complaint.split("lab matrix --resume ")[1].split("`")[0]
    assert command(by_setting, "--resume", reference) == 0
    assert "failed:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--set", "thp.defrag=bogus"], "--set thp.defrag is given twice"),
        (["--set", "sysctl.vm/../x=1,2"], "not the name of a sysctl"),
        (["--metric", "throughputs"], "did you mean throughput"),
        (["--against", "thp=sometimes"], "is no arm"),
        (["--mode", "live"], "live mode"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert command(by_setting, *words) == 2
    assert complaint in capsys.readouterr().err
    assert not list(result_folders.results_dir().glob("*"))


# --- modelled cycles beside the count of instructions

MODELLED = WORKLOAD.replace('model = "none"', 'model = "tlb"')


def slower_if_never(arm: str, seed: int, case: str) -> float:
    return 60.0 if "never" in arm and case == "large" else 100.0


@pytest.fixture
def modelled(start: Start, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MatrixResult]:
    """Measure a matrix of two arms, of which modelled cycles and instructions disagree in the large case."""
    monkeypatch.setattr(measurement, "load_instrument", lambda machine, model: FakeInstrument())

    def measured(**changes: Any) -> MatrixResult:
        guests, measure = start(slower_if_never, settings=["thp=always,never"], text=MODELLED, model="auto", **changes)
        guests.counts = lambda arm, seed, case: 800.0 if "never" in arm and case == "large" else 1000.0
        return measure()

    return measured


def test_cells_of_which_cycles_and_instructions_disagree_are_unknown(
    modelled: Callable[..., MatrixResult], folder: Path
) -> None:
    result = modelled()
    never = cells_of(result)["thp=never"]
    assert never.reasons == ["unknown: model +29.1 %, instructions -20.0 %: rests on the model"]
    assert never.instructions is not None and never.instructions.ratio == pytest.approx(0.8)
    assert cells_of(result, "small")["thp=never"].verdict == Outcome.SAME
    stored = StoredMatrix(raw=result, folder=folder)
    for name in ("text", "md", "html"):
        text = report.render(name, stored)
        assert "rests on the model" in text and "-20.0 %" in text.replace("instructions -20.0 %", ""), name
    assert "instructions (instructions_per_op) against thp=always" in report.render("text", stored)
    rows = list(csv.DictReader(io.StringIO(report.render("csv", stored))))
    assert {row["instructions_ratio"] for row in rows if row["case"] == "large"} == {"", "0.8"}


@pytest.mark.parametrize(("metric", "word"), [("cycles", "regression"), ("instructions", "improvement")])
def test_the_users_choice_decides_every_cell(
    modelled: Callable[..., MatrixResult], folder: Path, metric: str, word: str
) -> None:
    result = modelled(metric=metric)
    assert cells_of(result)["thp=never"].verdict == word
    text = report.render("text", StoredMatrix(raw=result, folder=folder))
    assert f"(lower is better; --metric {metric})" in text.splitlines()[0]
    assert f"# --metric {metric}" in text.partition("repeat: ")[2]
