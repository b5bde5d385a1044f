"""The matrix: every combination measured once, each judged against the baseline, failures kept apart."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab import report
from lab.compare import matrix, matrix_results, measurement, result_folders
from lab.compare.matrix import MatrixRequest
from lab.compare.matrix_results import Cell, MatrixPlan, MatrixResult
from lab.core.errors import GuestFailed, GuestFailure
from lab.kernels.kernel import KernelSpec
from lab.report.inputs import StoredMatrix
from lab.stats.verdict import Outcome

from ..fakes import kernel_image
from ..fakes.command import Ended, Lab
from ..fakes.guest import WORKLOAD, FakeGuests, FakeInstrument, Formula, Unsupported, kernel, pretend, write_workload
from ..fakes.work import quiet

pytestmark = pytest.mark.usefixtures("own_home")

FACTORS = {"thp-never-thp.defrag-always": 0.5, "thp-never-thp.defrag-never": 2.0}


def by_setting(arm: str, seed: int, case: str) -> float:
    """The large case depends on the settings, and what differs has some spread; the control does not."""
    factor = 1.0 if case == "small" else FACTORS.get(arm, 1.0)
    return (100.0 + seed) * factor * (1 + seed * 1e-4 * (factor != 1.0))


def a_plan(workload: str, kernel_files: Sequence[str], settings: Sequence[str], **changes: Any) -> MatrixPlan:
    """A plan of kernel files that exist only in name."""
    asked = MatrixRequest(
        kernel=tuple(f"{name}=file:/boot/{name}" for name in kernel_files), settings=tuple(settings),
        workload=(workload,), model="none", max_seeds=6,
    )  # fmt: skip
    return msgspec.structs.replace(asked.plan([kernel(name).spec for name in kernel_files], None), **changes)


Measure = Callable[..., MatrixResult]
Start = Callable[..., tuple[FakeGuests, Callable[[], MatrixResult]]]
TWO_AXES = ("thp=always,never", "thp.defrag=always,never")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return result_folders.new_folder(tmp_path / "result")


@pytest.fixture
def start(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Prepare a matrix of kernel files with guests of a formula; call what it gives to measure."""

    def prepare(
        formula: Formula, *, files: Sequence[str] = ("k",), settings: Sequence[str] = TWO_AXES, jobs: int = 1,
        text: str = WORKLOAD, **changes: Any,
    ) -> tuple[FakeGuests, Callable[[], MatrixResult]]:  # fmt: skip
        guests = pretend(monkeypatch, tmp_path, FakeGuests(formula))
        plan = a_plan(write_workload(tmp_path / "mine", text), files, settings, **changes)
        result_folders.store_plan(folder, plan)
        return guests, lambda: matrix.measure(plan, folder, quiet(jobs=jobs))

    return prepare


def cells_of(result: MatrixResult, case: str = "large") -> dict[str, Cell]:
    return {cell.arm: cell for cell in result.cells if cell.case == case}


def test_every_arm_is_judged_against_the_baseline_and_only_open_ones_go_on(start: Start, folder: Path) -> None:
    guests, measure = start(by_setting)
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
    last_seeds = dict(sorted(guests.boots))
    assert last_seeds == {
        "thp-always-thp.defrag-always": 6,  # the baseline, with which the open ones are paired
        "thp-always-thp.defrag-never": 3,
        **dict.fromkeys(FACTORS, 6),
    }


def test_a_kernel_is_made_ready_once_for_all_its_settings(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert result.failed == [] and result.summary.endswith("1 improvement, 4 same, 1 unsupported")
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
def command(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Run `lab matrix` on one kernel file; the first argument is the guests' formula."""
    workload = write_workload(tmp_path / "mine")
    (tmp_path / "k").write_bytes(kernel_image.empty())

    def run(formula: Formula, *words: str, status: int = 0) -> Ended:
        pretend(monkeypatch, tmp_path, FakeGuests(formula))
        asked = ["--kernel", f"file:{tmp_path}/k", "--set", TWO_AXES[0], "--set", TWO_AXES[1], "-w", workload]
        return lab("matrix", *([] if "--resume" in words else asked), "--model", "none", *words, status=status)

    return run


def test_the_command_prints_a_document_that_is_shown_listed_and_replayed(command: Lab, lab: Lab) -> None:
    ended = command(by_setting, "--json")
    document = ended.document
    assert document["schema"] == "lab.matrix/1" and len(document["cells"]) == 8
    assert "8 cells: 4 arms of 1 kernel, 2 cases, 6 to 12 seeds: 24 guests, " in ended.err
    assert lab("report", document["result"], "--json").document == document
    listed = lab("report", "--json").document
    assert [row["result"] for row in listed["matrices"]] == [document["result"]] and listed["results"] == []
    assert "matrix" in lab("report").out
    replayed = lab("replay", "latest", "--json").document
    assert (replayed["differences"], replayed["environment"]) == ([], [])
    assert command(by_setting).out == lab("report", "latest").out


def test_a_failed_cell_is_status_4_after_everything_was_printed(command: Lab) -> None:
    ended = command(breaking, status=4)
    assert "✗" in ended.out and "failed: thp-never-thp.defrag-always arm, seed 1" in ended.out
    (complaint,) = [line for line in ended.err.splitlines() if line.startswith("lab: ")]
    assert "2 of 8 cells failed" in complaint
    reference = complaint.split("lab matrix --resume ")[1].split("`")[0]
    assert "failed:" not in command(by_setting, "--resume", reference).out


@pytest.mark.parametrize(("words", "complaint"), [
    (["--set", "thp.defrag=bogus"], "--set thp.defrag is given twice"),
    (["--set", "sysctl.vm/../x=1,2"], "not the name of a sysctl"),
    (["--metric", "throughputs"], "did you mean throughput"),
    (["--against", "thp=sometimes"], "is no arm"),
    (["--mode", "live"], "live mode"),
])  # fmt: skip
def test_bad_input_is_refused_before_any_work(command: Lab, words: list[str], complaint: str) -> None:
    assert complaint in command(by_setting, *words, status=2).err
    assert not list(result_folders.results_dir().glob("*"))


# --- modelled cycles beside the count of instructions


@pytest.fixture
def modelled(start: Start, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measure a matrix of two arms, of which modelled cycles and instructions disagree in the large case."""
    monkeypatch.setattr(measurement, "load_instrument", lambda machine, model: FakeInstrument())
    text = WORKLOAD.replace('model = "none"', 'model = "tlb"')

    def slower_if_never(arm: str, seed: int, case: str) -> float:
        return 60.0 if "never" in arm and case == "large" else 100.0

    def measured(**changes: Any) -> MatrixResult:
        guests, measure = start(slower_if_never, settings=["thp=always,never"], text=text, model="auto", **changes)
        guests.counts = lambda arm, seed, case: 800.0 if "never" in arm and case == "large" else 1000.0
        return measure()

    return measured


def test_cells_of_which_cycles_and_instructions_disagree_are_unknown(modelled: Measure, folder: Path) -> None:
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
def test_the_users_choice_decides_every_cell(modelled: Measure, folder: Path, metric: str, word: str) -> None:
    result = modelled(metric=metric)
    assert cells_of(result)["thp=never"].verdict == word
    text = report.render("text", StoredMatrix(raw=result, folder=folder))
    assert f"(lower is better; --metric {metric})" in text.splitlines()[0]
    assert f"# --metric {metric}" in text.partition("repeat: ")[2]
