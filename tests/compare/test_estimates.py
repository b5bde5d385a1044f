"""The time that is announced: by the table, by what guests took here, and as a range."""

import dataclasses
from pathlib import Path
from unittest.mock import Mock

import pytest

from lab.compare import estimates
from lab.workloads import selection

from ..fakes.guest import write_workload
from ..fakes.work import quiet

pytestmark = pytest.mark.usefixtures("own_home")


def seconds(name: str, *cases: str, built: bool = True, model: str | None = None) -> float:
    workload = selection.load(name)
    chosen = [workload.case(case) for case in cases] if cases else list(workload.cases)
    return estimates.guest_seconds(workload, chosen, built=built, model=model or workload.model)


def test_the_table_has_every_case_of_the_labs_own_workloads_and_no_other() -> None:
    assert estimates._table().workload.keys() == {workload.name for workload in selection.list_workloads()}
    for workload in selection.list_workloads():
        cases = {case.name for case in workload.cases} if workload.isolate else {"guest", "each"}
        assert estimates._table().workload[workload.name].keys() == cases


def test_more_work_takes_longer() -> None:
    assert seconds("alloc-burst", "layout-512k") < seconds("alloc-burst")
    assert seconds("alloc-burst") < seconds("alloc-burst", built=False)
    assert seconds("alloc-burst", model="none") < seconds("alloc-burst", model="tlb")
    assert seconds("alloc-burst", model="tlb") < seconds("alloc-burst", model="full")


def test_guests_that_go_on_from_a_state_take_less() -> None:
    workload = selection.load("alloc-burst")
    six = {
        once: estimates.guest_seconds(workload, workload.cases, 6, built=False, model="tlb", boots_once=once)
        for once in (True, False)
    }
    assert seconds("alloc-burst", built=False) < six[True] < six[False]
    assert six[False] == pytest.approx(6 * seconds("alloc-burst", built=False))
    assert estimates.guest_seconds(workload, workload.cases, 0, built=False, model="tlb") == 0.0


def test_vcpus_that_contend_take_longer() -> None:
    one, four = (selection.load("contention").at(vcpus) for vcpus in (1, 4))
    for boots_once in (False, True):
        few, many = (
            estimates.guest_seconds(workload, workload.cases, 6, built=False, model="tlb", boots_once=boots_once)
            for workload in (one, four)
        )
        assert few < many


def test_guests_that_ran_here_correct_it(tmp_path: Path) -> None:
    workload = selection.load("alloc-burst")
    before, other = seconds("alloc-burst"), seconds("pointer-chase")
    for _ in range(3):
        estimates.learn(workload, workload.cases, 3 * before, built=True, model="tlb")
    assert seconds("alloc-burst") == pytest.approx(3 * before)
    assert seconds("pointer-chase") == pytest.approx(3 * other), "a slow machine is slow at all of it"
    for _ in range(40):
        estimates.learn(workload, workload.cases, before, built=True, model="tlb")
    assert seconds("alloc-burst") == pytest.approx(before, rel=0.05)
    mine = write_workload(tmp_path / "mine")
    estimates.learn(selection.load(mine), selection.load(mine).cases, 40.0, built=True, model="none")
    assert seconds(mine, model="none") == pytest.approx(40.0)
    assert seconds("pointer-chase") == pytest.approx(other, rel=0.05), "what a user measures says nothing of others"


def test_a_memo_that_cannot_be_written_stops_nothing() -> None:
    workload, before = selection.load("alloc-burst"), seconds("alloc-burst")
    estimates._memo_path(workload.name).mkdir()
    estimates.learn(workload, workload.cases, 3 * before, built=True, model="tlb")
    assert seconds("alloc-burst") == before


@pytest.mark.parametrize(("likely", "more", "said"), [
    (41.2, 122.7, "about 41 s, 160 s if nothing is decided sooner"),
    (7.0, 0.3, "about 7 s"),
    (0.2, 0.7, "about 1 s"),
    (1234, 97531, "about 1200 s, 99000 s if nothing is decided sooner"),
])  # fmt: skip
def test_a_likely_time_has_two_digits(likely: float, more: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    assert estimates.announced(12, 0, likely, more, quiet(jobs=1)) == f"12 guests, 1 at a time: {said}"


def test_other_work_on_the_machine_is_counted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    work = quiet(jobs=2)
    for load, said in ((0.0, "about 10 s"), (6.0, "about 40 s beside other work")):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        line = estimates.announced(1, 11, 20.0, 0.0, work)
        assert line == f"1 guest (11 of 12 are there), 2 at a time: {said}"
    assert estimates.crowding(dataclasses.replace(work, executor=Mock())) == 1.0
