"""Instructions that perf counted in hardware beside exact mode's, by guests that never boot."""

import math
from pathlib import Path
from typing import Any

import pytest

from lab.compare import live, measurement, result_folders
from lab.compare.live_results import Counted, ModelCheck
from lab.compare.plan import Plan
from lab.compare.results import CaseResult
from lab.compare.runs import GuestRun, Run
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure
from lab.core.progress import Progress
from lab.guests import hardware
from lab.guests.perf_stat import SIDES, metric_name
from lab.guests.plugin import Brackets, Instrument, Model
from lab.guests.run import RunningGuests
from lab.stats.verdict import Metric, Outcome, compare_metric

from ..fakes.guest import WORKLOAD, FakeGuests, plan, pretend, write_workload
from ..fakes.work import quiet

OPERATIONS = 500.0


class CountingGuests(FakeGuests):
    """Guests of exact mode: a whole program has 9,000,000 user instructions, its window fewer, in 500 operations."""

    def __init__(self) -> None:
        super().__init__(lambda arm, seed, case: 1.0)
        self.brackets: list[tuple[str, Brackets | None]] = []
        self.failure: GuestFailed | None = None

    def measure(self, guest: GuestRun, running: RunningGuests) -> Run:
        if self.failure:
            raise self.failure
        run = super().measure(guest, running)
        assert guest.bench.instrument is not None and guest.bench.instrument.model == Model.COUNT
        brackets = guest.bench.instrument.brackets
        self.brackets.append((guest.arm.name, brackets))
        whole = {"counted_operations": 1.0, "user_instructions": 9e6, "kernel_instructions": 2e6}
        window = {"counted_operations": OPERATIONS, "user_instructions": 1.0, "kernel_instructions": 2.0}
        for costs in run.costs.values():
            costs |= whole if brackets is Brackets.CASE else window
        records.save(guest.record_path, run)
        return run


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CountingGuests:
    made = CountingGuests()
    pretend(monkeypatch, tmp_path, made)
    counting = Instrument(library=tmp_path / "plugin" / "libcost.so", machine=hardware.load(), model=Model.COUNT)
    monkeypatch.setattr(measurement, "load_instrument", lambda machine, model: counting)
    # It boots two guests more, once for each user and program.
    monkeypatch.setattr(measurement, "require_fixed_work", lambda guests: None)
    return made


def counted(base: tuple[float, float], test: tuple[float, float]) -> CaseResult:
    """A case in which perf counted so many instructions, in user and in kernel mode."""
    events = zip(SIDES, zip(base, test, strict=True), strict=True)
    metrics = [
        compare_metric(Metric(name=metric_name(event), unit="instructions", better="neither"), [b], [t], exact=False)
        for event, (b, t) in events
    ]
    primary = compare_metric(
        Metric(name="throughput", unit="op/s", better="higher", primary=True), [1.0], [1.0], exact=False
    )
    return CaseResult(
        workload="mine", case="large", group="mine", control=False, verdict=Outcome.SAME, metrics=[primary, *metrics]
    )


def check(tmp_path: Path, *cases: CaseResult, text: str = WORKLOAD, progress: Progress | None = None) -> Any:
    asked: Plan = plan(write_workload(tmp_path / "mine", text))
    folder = result_folders.new_folder(tmp_path / "result")
    return live.check_model(asked, folder, cases, quiet(progress=progress or Progress()))


def test_counts_of_whole_programs_are_divided_by_the_operations_of_their_windows(
    tmp_path: Path, guests: CountingGuests
) -> None:
    found = check(tmp_path, counted((9_090_000.0, 2_200_000.0), (9e6, 1e6)))
    assert found == {
        "mine:large": {
            "base": ModelCheck(
                operations=500.0,
                user=Counted(perf=18_180.0, model=18_000.0, ratio=1.01),
                kernel=Counted(perf=4_400.0, model=4_000.0, ratio=1.1),
            ),
            "test": ModelCheck(
                operations=500.0,
                user=Counted(perf=18_000.0, model=18_000.0, ratio=1.0),
                kernel=Counted(perf=2_000.0, model=4_000.0, ratio=0.5),
            ),
        }
    }
    assert sorted(guests.brackets, key=str) == sorted(
        [(arm, brackets) for arm in ("base", "test") for brackets in (None, Brackets.CASE)], key=str
    )
    assert {cases for _, _, cases in guests.calls} == {("large",)}, "only what perf counted"


@pytest.mark.parametrize(
    "case",
    [
        counted((math.nan, math.nan), (math.nan, math.nan)),
        counted((9e6, math.nan), (9e6, 2e6)),
        counted((9e6, 0.0), (9e6, 2e6)),
    ],
)
def test_without_counts_of_both_sides_in_both_arms_no_guest_runs(
    tmp_path: Path, guests: CountingGuests, case: CaseResult
) -> None:
    assert check(tmp_path, case) == {} and not guests.calls


def test_a_guest_that_fails_costs_no_verdict(
    tmp_path: Path, guests: CountingGuests, capsys: pytest.CaptureFixture[str]
) -> None:
    guests.failure = GuestFailed(GuestFailure.QEMU_DIED, "no memory")
    assert check(tmp_path, counted((9e6, 2e6), (9e6, 2e6)), progress=Progress()) == {}
    assert "the model is not checked: no memory" in capsys.readouterr().err
