"""Guests whose vCPUs contend: verdicts that rest on a price, and one case over the numbers of vCPUs."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from lab.compare import contention, judge, measurement, runs
from lab.compare.contention import Change
from lab.compare.results import CONTENTION_NOTE, CaseResult
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.guests.run import Arm
from lab.kernels.architecture import MachineType
from lab.stats.verdict import Outcome
from lab.workloads import selection
from lab.workloads.spec import Case

from ..fakes import result as fake

PLAN: Any = SimpleNamespace(threshold=0.02, alpha=0.01)


def series(vcpus: int, *, modelled: bool = True) -> Any:
    return SimpleNamespace(bench=SimpleNamespace(workload=selection.load(f"contention@{vcpus}"), modelled=modelled))


def case(vcpus: int, base: float, test: float) -> CaseResult:
    return fake.case(
        "fstat", [base + i for i in range(6)], [test + i for i in range(6)], workload=f"contention@{vcpus}"
    )


def test_a_case_says_what_it_is_on_each_number_of_vcpus_and_its_speed_up() -> None:
    cases = [case(1, 1000, 1000), case(4, 2000, 4000)]
    alone, together = contention.with_curves(cases, [series(1), series(4)], PLAN)
    assert alone.notes[0] == together.notes[0] == "on 1 and 4 vCPUs: same, +99.9 %"
    assert not [metric for metric in alone.metrics if metric.name == "speedup"]
    (speedup,) = [metric for metric in together.metrics if metric.name == "speedup"]
    assert [value for value in speedup.base if value] == pytest.approx([2.0] * 6, rel=0.01)
    assert [value for value in speedup.test if value] == pytest.approx([1.0] * 6, rel=0.01)
    assert speedup.verdict == Outcome.REGRESSION
    late = [series(1, modelled=False), series(4, modelled=False)]
    _, together = contention.with_curves(cases, late, PLAN)
    assert not [metric for metric in together.metrics if metric.name == "speedup"], "a latency is no time of work"


def test_one_number_of_vcpus_is_no_curve() -> None:
    (only,) = contention.with_curves([case(4, 2000, 4000)], [series(4)], PLAN)
    assert only.notes == []


@pytest.mark.parametrize(
    ("ratio", "other", "turned"), [(1.5, 0.9, True), (1.5, 0.99, False), (1.5, 1.1, False), (0.7, 1.1, True)]
)
def test_a_change_rests_on_the_price_if_another_price_turns_it(ratio: float, other: float, turned: bool) -> None:
    assert contention.is_turned(ratio, other, 0.02) is turned


def test_what_rests_on_the_price_is_unknown_and_says_why() -> None:
    decided = case(4, 1000, 2000).primary
    opened = decided.unknown("rests on the price of a move: +50.0 % at 100 and -9.0 % at 300 cycles")
    assert opened.verdict == Outcome.UNKNOWN and "rests on the price" in opened.reason
    assert (opened.ratio, opened.interval, opened.more_blocks) == (decided.ratio, decided.interval, None)


def test_arms_that_changed_run_again_at_both_ends_of_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first seed of `mmap` turns, and the middle of three does not; `lock` turns on one arm alone."""
    ran: list[tuple[int, list[str], list[int], list[str]]] = []
    ratios = {("lock", "b"): {1: 0.8, 3: 0.8}, ("lock", "c"): {1: 1.4, 3: 1.4}, ("mmap", "b"): {1: 0.9, 3: 1.2}}

    class AtPrice:
        def __init__(self, *, bench: int, cases: object) -> None:
            self.price, self.seeds = bench, 0

        def change(self, case: Case, metric: str, arms: tuple[str, str]) -> float:
            return 1.6 if self.price == 300 else ratios[case.name, arms[1]][self.seeds]

    def run(other: AtPrice, cases: Sequence[Case], seeds: Sequence[int], arms: Sequence[Arm], _: Work) -> None:
        other.seeds += len(seeds)
        ran.append((other.price, [case.name for case in cases], list(seeds), [arm.name for arm in arms]))

    monkeypatch.setattr(contention, "Series", AtPrice)
    monkeypatch.setattr(contention, "_range", lambda _: (100, 300))
    monkeypatch.setattr(contention, "at_price", lambda _, price: price)
    monkeypatch.setattr(contention, "_run", run)
    one, alone = series(4), series(4)
    alone.bench.workload = msgspec.structs.replace(alone.bench.workload, name="syscalls", contends=False)
    one.cases = [one.bench.workload.case(name) for name in ("lock", "mmap-t")]
    one.cases[1] = msgspec.structs.replace(one.cases[1], name="mmap")
    up = case(4, 1000, 1500).primary
    changes = [
        Change(f"{of.name} {arm}", where, of, up, ("a", arm))
        for where, of, arm in ((one, one.cases[0], "b"), (one, one.cases[0], "c"), (one, one.cases[1], "b"),
                               (alone, one.cases[0], "d"))
    ]  # fmt: skip
    arms: Any = [SimpleNamespace(name=name) for name in "abcd"]
    found = contention.resting_on_price(changes, arms, 0.02, Mock())
    assert found == {"lock b": "rests on the price of a move: -20.0 % at 100 cycles and +60.0 % at 300 cycles"}
    assert ran == [
        *((price, ["lock", "mmap"], [1], ["a", "b", "c"]) for price in (100, 300)),
        *((price, ["lock", "mmap"], [2, 3], ["a", "b"]) for price in (100, 300)),
    ]


def test_the_model_ends_turns_of_a_workload_whose_own_number_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(measurement, "load_instrument", lambda _, model: None if model == "none" else made(model))

    def made(model: str) -> Mock:
        asked.append(model)
        return Mock()

    def bench(name: str, model: str = "auto") -> runs.Bench:
        plan = Mock(model=model, machine=None)
        return measurement._bench(selection.load(name), Path("root"), MachineType.MICROVM, Mock(), plan, Path())

    late, busy = bench("latency@2"), bench("contention@2")
    assert asked == ["tlb", "tlb"] and late.instrument and busy.modelled and not late.modelled
    assert judge.metric_of(late.workload, None, modelled=late.modelled).name == "latency_mid"
    assert bench("latency@2", "tlb").modelled
    for name in ("latency@2", "contention@2"):
        with pytest.raises(UserError, match="need a cost model"):
            bench(name, "none")


def test_results_say_what_is_not_modelled_of_vcpus_that_contend() -> None:
    document = fake.result(case(4, 1000, 2000))
    around = document.environment
    guests = {name: msgspec.structs.replace(shape, vcpus=4, contends=True) for name, shape in around.guests.items()}
    assert msgspec.structs.replace(around, guests=guests).turns_note == CONTENTION_NOTE
    plain = {name: msgspec.structs.replace(shape, vcpus=4) for name, shape in around.guests.items()}
    assert "take turns" in msgspec.structs.replace(around, guests=plain).turns_note
