"""Sampling: which guests are booted, in which order, when it is enough, and what is kept whatever happens."""

import random
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lab.compare import runs, sampling
from lab.compare.runs import GuestRun, Run
from lab.core import executor, records
from lab.core.errors import GuestFailed, GuestFailure, HostFailed
from lab.guests.run import RunningGuests
from lab.stats.verdict import Comparison, Metric, Outcome, compare_metric

from ..fakes.guest import FAULTS, WORKLOAD, Broken, Formula, alike, plan
from .conftest import Start
from .test_state import a_run

BOTH = ("small", "large")
ALONE = WORKLOAD.replace("[[metric]]", "isolate = true\n[[metric]]", 1)
ASKED: Any = SimpleNamespace(threshold=0.02, alpha=0.01, max_seeds=24, metric=None)
CASE: Any = SimpleNamespace(name="large")


def halved(arm: str, seed: int, case: str) -> float:
    """The test arm is a half, and not by the same factor on each seed."""
    return (100.0 if arm == "base" else 50.0 + seed / 10) + seed


def noisy(arm: str, seed: int, case: str) -> float:
    """Not decided by ten seeds: swings in both directions, of the size of the threshold. The control is equal."""
    return 100.0 if case == "small" or arm == "base" else 100.0 + (-1) ** seed * (1.3 + seed / 100)


def test_three_seeds_do_not_decide_where_windows_disagree(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    guests, measure = start(alike)
    plain = guests.measure

    def scattered(guest: GuestRun, running: RunningGuests) -> Run:
        run = msgspec.structs.replace(plain(guest, running), windows={"large": [100.0, 104.0, 98.0]})
        records.save(guest.record_path, run)
        return run

    monkeypatch.setattr(runs, "measure", scattered)
    result = measure()
    assert result.verdict == Outcome.SAME and result.seeds == [1, 2, 3, 4, 5, 6]


def test_no_seed_is_spent_on_what_none_can_settle(start: Start) -> None:
    def wild(arm: str, seed: int, case: str) -> float:
        return 100.0 if case == "small" or arm == "base" else 100.0 + (-1) ** seed * (20 + seed)

    guests, measure = start(wild, max_seeds=24)
    large = measure().cases[1]
    assert max(seed for _, seed in guests.boots) == 6
    assert large.primary.reason == "interval wider than ±2 %; 24 seeds cannot settle it"


def test_after_six_seeds_only_what_is_undecided_is_run_again(start: Start) -> None:
    guests, measure = start(noisy, max_seeds=10)
    result = measure()
    assert {seed: cases for _, seed, cases in guests.calls} == {
        **dict.fromkeys(range(1, 7), BOTH),
        **dict.fromkeys(range(7, 11), ("large",)),
    }
    assert result.seeds == list(range(1, 11)), "and not one more"
    assert [(case.case, case.verdict, len(case.metrics[0].base)) for case in result.cases] == [
        ("small", "same", 6),
        ("large", "unknown", 10),
    ]
    assert result.verdict == Outcome.UNKNOWN


@pytest.mark.parametrize(("seeds", "formula"), [(1, alike), (2, noisy), (5, alike), (8, noisy)])
def test_a_fixed_number_of_seeds_is_what_is_run(start: Start, seeds: int, formula: Formula) -> None:
    guests, measure = start(formula, seeds=seeds, fixed_seeds=True, max_seeds=24)
    assert measure().seeds == list(range(1, seeds + 1))
    assert len(guests.calls) == 2 * seeds
    assert {cases for _, _, cases in guests.calls} == {BOTH}


def test_equal_arms_begin_with_three_seeds_and_others_with_six() -> None:
    asked = plan("mine", max_seeds=24)
    assert (asked.seed_range(three_decide=True), asked.seed_range(three_decide=False)) == ((3, 24), (6, 24))
    assert plan("mine", max_seeds=2).seed_range(three_decide=True) == (2, 6)
    assert plan("mine", seeds=2, fixed_seeds=True).seed_range(three_decide=True) == (2, 2)


def test_the_budget_is_kept_and_what_is_known_is_judged(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(executor, "time", SimpleNamespace(monotonic=lambda: now_s))

    def slow(arm: str, seed: int, case: str) -> float:
        nonlocal now_s
        now_s += 0.04
        return noisy(arm, seed, case)

    guests, measure = start(slow, deadline=0.4, max_seeds=200)
    result = measure()
    assert now_s < 0.5, "at most the guest that ran then, and its pair's"
    assert 2 <= len(guests.calls) <= 12
    assert result.verdict == Outcome.UNKNOWN
    assert result.seeds == list(range(1, len(guests.calls) // 2 + 1)), "whole pairs only"


def test_a_budget_too_small_for_one_pair_says_how_to_go_on(start: Start, folder: Path) -> None:
    guests, measure = start(alike, deadline=time.monotonic() - 1)
    with pytest.raises(HostFailed, match="budget was used up") as caught:
        measure()
    assert f"lab ab --resume {folder}" in str(caught.value.hint)
    assert guests.calls == []
    assert not (folder / "result.json").exists()


def test_going_on_measures_nothing_twice(start: Start) -> None:
    def breaks(arm: str, seed: int, case: str) -> float:
        if (arm, seed, case) == ("test", 5, "small"):
            raise GuestFailed(GuestFailure.PANIC, "it died")
        return noisy(arm, seed, case)

    first, measure = start(breaks, max_seeds=8)
    with pytest.raises(GuestFailed, match="it died"):
        measure()
    second, measure = start(noisy, max_seeds=8)
    result = measure()
    kept = set(first.boots) - {("test", 5)}
    assert ("base", 5) in kept
    assert not kept & set(second.boots) and kept | set(second.boots) == {
        (arm, seed) for arm in ("base", "test") for seed in range(1, 9)
    }
    third, measure = start(noisy, max_seeds=8)
    assert measure().cases == result.cases and third.calls == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fingerprint", "of another time"), ("kernel", "of another time"), ("commands", {"small": ["/usr/bin/other"]}),
        ("windows", {"small": [1.0, 2.0]}),
    ],
)  # fmt: skip
def test_runs_of_something_else_are_not_used(start: Start, folder: Path, field: str, value: object) -> None:
    _, measure = start(alike)
    measure()
    path = runs.run_path(folder, "mine-test-0002")
    run = records.load(path, dict)
    run[field] = value
    records.save(path, run)
    guests, measure = start(alike)
    measure()
    assert guests.calls == [("test", 2, BOTH)]


@pytest.mark.parametrize("jobs", [1, 3])
def test_one_guest_that_fails_keeps_the_others_and_stops_the_rest(start: Start, folder: Path, jobs: int) -> None:
    def breaks(arm: str, seed: int, case: str) -> float:
        if (arm, seed) == ("test", 2):
            raise GuestFailed(GuestFailure.PANIC, "test arm: it died")
        return alike(arm, seed, case)

    guests, measure = start(breaks, jobs=jobs, seeds=40, fixed_seeds=True)
    with pytest.raises(GuestFailed, match="it died"):
        measure()
    kept = {path.stem for path in (folder / "runs").iterdir()}
    assert {"mine-base-0001", "mine-test-0001"} <= kept
    assert kept == {f"mine-{arm}-{seed:04d}" for arm, seed in guests.boots} - {"mine-test-0002"}
    assert len(guests.calls) < 40, "the rest was not begun"
    assert not (folder / "result.json").exists()


@pytest.mark.parametrize("jobs", [1, 3])
def test_ctrl_c_stops_all_guests(start: Start, folder: Path, jobs: int) -> None:
    sleeping = subprocess.Popen(["sleep", "600"])

    def interrupted(arm: str, seed: int, case: str) -> float:
        if seed == 2:
            assert guests.running is not None
            guests.running.add(sleeping)
            raise KeyboardInterrupt
        return alike(arm, seed, case)

    guests, measure = start(interrupted, jobs=jobs, seeds=40, fixed_seeds=True)
    try:
        with pytest.raises(KeyboardInterrupt):
            measure()
        assert sleeping.wait(timeout=5) == -9
    finally:
        sleeping.kill()
    assert {"mine-base-0001", "mine-test-0001"} <= {path.stem for path in (folder / "runs").iterdir()}
    assert len(guests.calls) < 40


def test_side_by_side_gives_what_one_after_another_gives(start: Start, folder: Path) -> None:
    _, measure = start(noisy, max_seeds=8)
    alone = measure()
    for path in (folder / "runs").iterdir():
        path.unlink()
    guests, measure = start(noisy, jobs=4, max_seeds=8)
    assert measure().cases == alone.cases
    assert len(guests.calls) == 16


# --- cases that fail ---


def test_a_case_that_fails_costs_itself(start: Start) -> None:
    def breaks(arm: str, seed: int, case: str) -> float:
        if (arm, case) == ("test", "small"):
            raise Broken("exited with status 3: no")
        return halved(arm, seed, case)

    guests, measure = start(breaks)
    result = measure()
    small, large = result.cases
    assert (small.word, small.verdict, small.is_measured) == ("failed", Outcome.UNKNOWN, False)
    assert small.failed is not None and small.failed.arms == ["test"]
    assert str(small.failed) == (
        "failed in the test arm only: test arm, seed 1: mine:small exited with status 3: no "
        "(log: guests/mine-test-0001/report.jsonl)"
    )
    assert (large.word, result.verdict, result.seeds) == ("regression", Outcome.REGRESSION, [1, 2, 3, 4, 5, 6])
    assert result.reason == "1 of 1 case worse; 1 of 2 cases failed"
    assert {seed: cases for _, seed, cases in guests.calls} == {
        **dict.fromkeys((1, 2, 3), BOTH), **dict.fromkeys((4, 5, 6), ("large",)),
    }, "in neither arm after the look in which it failed"  # fmt: skip


@pytest.mark.parametrize("text", [WORKLOAD, ALONE])
def test_a_case_that_kills_its_guest_costs_itself(start: Start, text: str) -> None:
    def dies(arm: str, seed: int, case: str) -> float:
        if (arm, case) == ("base", "large"):
            raise GuestFailed(GuestFailure.PANIC, f"base arm, seed {seed}: it panicked", case="large")
        return alike(arm, seed, case)

    guests, measure = start(dies, text=text)
    result = measure()
    small, large = result.cases
    assert (small.word, large.word, result.verdict) == ("same", "failed", Outcome.SAME)
    assert str(large.failed) == "failed in the base arm only: base arm, seed 1: it panicked"
    assert result.reason == "1 case within threshold; 1 of 2 cases failed"
    assert sum(1 for *_, cases in guests.calls if "large" in cases) == 1, "not again, in either arm"


def test_a_case_that_fails_everywhere_is_named_so_and_tried_again(start: Start) -> None:
    def breaks(arm: str, seed: int, case: str) -> float:
        if case == "small":
            raise Broken("was killed")
        return alike(arm, seed, case)

    _, measure = start(breaks)
    assert str(measure().cases[0].failed).startswith("failed in both arms: base arm, seed 1: mine:small was killed")
    guests, measure = start(alike)
    assert [case.word for case in measure().cases] == ["same", "same"] and len(guests.calls) == 6


def test_when_every_case_fails_so_does_the_comparison(start: Start, folder: Path) -> None:
    def breaks(arm: str, seed: int, case: str) -> float:
        raise Broken("was killed")

    _, measure = start(breaks)
    with pytest.raises(GuestFailed, match="base arm, seed 1: mine:small was killed"):
        measure()
    assert not (folder / "result.json").exists()


# --- a guest for each case ---


def test_each_case_gets_a_guest_of_its_own_and_arms_take_turns_within_it(start: Start, folder: Path) -> None:
    guests, measure = start(alike, text=ALONE)
    result = measure()
    assert result.verdict == Outcome.SAME and result.seeds == [1, 2, 3]
    assert guests.calls[:8] == [
        ("base", 1, ("small",)), ("test", 1, ("small",)), ("base", 1, ("large",)), ("test", 1, ("large",)),
        ("test", 2, ("small",)), ("base", 2, ("small",)), ("test", 2, ("large",)), ("base", 2, ("large",)),
    ]  # fmt: skip
    assert len(guests.calls) == 12 == len(list((folder / "runs").iterdir()))
    assert {path.stem for path in (folder / "runs").glob("*0002.json")} == {
        f"mine+{case}-{arm}-0002" for case in BOTH for arm in ("base", "test")
    }


def test_numbers_that_are_printed_undeclared_are_compared_where_the_workload_is_open(start: Start) -> None:
    text = WORKLOAD.replace(FAULTS, "").replace("[[metric]]", "open_metrics = true\n[[metric]]", 1)
    _, measure = start(halved, text=text)
    metrics = {metric.name: metric for metric in measure().cases[0].metrics}
    assert metrics.keys() == {"throughput", "faults"}
    assert (metrics["faults"].unit, metrics["faults"].better, metrics["faults"].ratio) == ("as printed", "neither", 1.0)


# ---- when seeds are enough


CYCLES = Metric(name="cycles", unit="cycles", better="lower", primary=True)


def weighed(base: list[float], test: list[float], *, three_decide: bool = False) -> Comparison:
    compared = compare_metric(CYCLES, base, test, exact=True)
    return sampling.weigh(compared, three_decide=three_decide, threshold=0.02, max_seeds=24)


@pytest.mark.parametrize(("factor", "word"), [(1.0, "same"), (1.01, "same"), (1.5, "regression"), (0.5, "improvement")])
def test_three_seeds_decide_only_where_nothing_differs(factor: float, word: str) -> None:
    base = [100.0, 100.0, 100.0]
    test = [100.0 * factor] * 3
    found = weighed(base, test)
    assert (found.verdict, found.reason, found.more_blocks) == (Outcome.UNKNOWN, f"{word} in 3 of 3 seeds, 6 decide", 3)
    assert weighed(base, test, three_decide=True).verdict == word
    assert weighed(base * 2, test * 2).verdict == word


def test_an_effect_of_one_seed_is_named_and_never_the_same() -> None:
    found = weighed([100.0] * 6, [100.0] * 5 + [148.0])
    assert found.verdict == Outcome.UNKNOWN and found.reason.startswith("1 of 6 seeds: +48.0 %; interval wider than")
    # So many others that the average is inside the threshold, whose noise hides nothing.
    noise = [100.0, 100.1, 99.9, 100.05, 99.95] * 8
    whole = compare_metric(CYCLES, [100.0] * 41, [*noise, 103.0], exact=True)
    assert whole.verdict == Outcome.SAME
    found = weighed([100.0] * 41, [*noise, 103.0])
    assert (found.verdict, found.reason, found.more_blocks) == (
        Outcome.UNKNOWN, "1 of 41 seeds: +3.0 %; 24 seeds cannot settle it", None,
    )  # fmt: skip
    assert weighed([100.0] * 40, noise).verdict == Outcome.SAME


def test_what_twice_the_most_seeds_would_not_settle_says_so_after_six() -> None:
    swings = [100.0 + (-1) ** seed * 20 for seed in range(6)]
    found = weighed([100.0] * 6, swings)
    assert not sampling.can_be_settled(found, 24)
    assert found.reason == "interval wider than ±2 %; 24 seeds cannot settle it"
    assert sampling.can_be_settled(weighed([100.0] * 5, swings[:5]), 24), "too early to tell"
    assert sampling.can_be_settled(found, 4000) and not sampling.can_be_settled(found, 100)
    mild = [100.0 + (-1) ** seed * 2 for seed in range(6)]
    assert sampling.can_be_settled(weighed([100.0] * 6, mild), 24)
    nothing = compare_metric(CYCLES, [float("nan")] * 6, [1.0] * 6, exact=True)
    assert not sampling.can_be_settled(nothing, 24), "no number of seeds gives it a number"


# ---- the whole cost


@pytest.mark.parametrize(("base", "test", "word", "deferred"), [
    ({}, {}, "improvement", (0, 0)),
    ({}, {"nr_dirty": 90, "nr_writeback": 10}, "unknown", (0, 200_000)),
    ({"nr_dirty": 100}, {"nr_dirty": 100}, "improvement", (200_000, 200_000)),
    ({"nr_dirty": 100}, {"nr_dirty": -7}, "improvement", (200_000, 0)),
])  # fmt: skip
def test_pages_that_are_still_to_be_written_are_deferred_work(
    base: dict[str, int], test: dict[str, int], word: str, deferred: tuple[int, int]
) -> None:
    """100 pages of 4,000 cycles, left by two operations, take back what each gains."""
    each = {"base": base, "test": test}
    pair = tuple(a_run(arm, vmstat=vmstat, costs={"counted_operations": 2}) for arm, vmstat in each.items())
    series: Any = SimpleNamespace(paired=lambda *_: [pair] * 6)
    primary = compare_metric(msgspec.structs.replace(CYCLES, name="cycles_per_op"), [1e6] * 6, [8e5] * 6, exact=True)
    nothing = compare_metric(msgspec.structs.replace(CYCLES, name="deferred_cycles"), [0.0] * 6, [0.0] * 6, exact=True)
    hopeless = weighed([100.0] * 6, [100.0 + (-1) ** seed * 8 for seed in range(6)])
    assert hopeless.reason.endswith("; 24 seeds cannot settle it") and hopeless.more_blocks
    hopeless = msgspec.structs.replace(hopeless, name="cycles_per_op")
    assert sampling.weigh_whole(hopeless, [hopeless, nothing], series, CASE, ASKED)[0].reason == hopeless.reason
    found, cost = sampling.weigh_whole(primary, [primary, nothing], series, CASE, ASKED)
    assert found.verdict == word and cost is not None and cost.deferred is not None
    assert (cost.deferred.base, cost.deferred.test) == deferred


@pytest.mark.parametrize(("contends", "word"), [(False, "unknown"), (True, "regression")])
def test_vcpus_that_contend_are_judged_by_their_cycles_alone(contends: bool, word: str) -> None:
    """A task that waits executes other instructions, and work of another vCPU is not deferred."""
    series: Any = SimpleNamespace(
        bench=SimpleNamespace(workload=SimpleNamespace(contends=contends), instrument=None),
        equal=lambda *_: False, runs_of=lambda *_: {}, windows_agree=lambda *_: True,
    )  # fmt: skip
    primary, count, deferred = (
        compare_metric(msgspec.structs.replace(CYCLES, name=name), base, test, exact=True)
        for name, base, test in (
            ("cycles_per_op", [1000.0] * 6, [1200.0] * 6), ("instructions_per_op", [1000.0] * 6, [800.0] * 6),
            ("deferred_cycles", [500.0] * 6, [100.0] * 6),
        )
    )  # fmt: skip
    beside = [count] if not contends else [count, deferred]
    found, cost = sampling.weigh_fully(primary, beside, series, CASE, ASKED, ("k", "other"), alike=False)
    assert found.verdict == word and (cost is None) == contends


@pytest.mark.parametrize(("base", "test", "metric", "reason"), [
    (0, 0, None, ""),
    (2, 2, None, ""),
    (0.06, 0, None, ""),
    (0, 1, None, "leaves 0 against 1 processes behind, whose work is in no number"),
    (3, 1, None, "leaves 3 against 1 processes behind, whose work is in no number"),
    (0, 1, "cycles", ""),
])  # fmt: skip
def test_an_arm_that_leaves_more_behind_has_no_word(base: float, test: float, metric: str | None, reason: str) -> None:
    left = {"base": base, "test": test}
    series: Any = SimpleNamespace(
        runs_of=lambda arm, _: dict.fromkeys(range(1, 7), a_run(arm, metrics={"left_processes": left[arm]}))
    )
    asked: Any = SimpleNamespace(metric=metric)
    primary = compare_metric(CYCLES, [100.0] * 6, [50.0] * 6, exact=True)
    assert primary.verdict == Outcome.IMPROVEMENT
    found = sampling.weigh_left(primary, series, CASE, asked)
    assert found == primary if not reason else (found.verdict, found.reason) == (Outcome.UNKNOWN, reason)


# ---- windows


def test_windows_follow_their_scatter_and_not_their_place() -> None:
    assert sampling.windows_wanted([[100.0, 100.0, 100.0]] * 6) == 0
    assert sampling.windows_wanted([[130.0, 101.0, 100.0]] * 6) == 0, "the first one is dear in every guest"
    assert sampling.windows_wanted([[100.0 + guest] * 3 for guest in range(6)]) == 0, "a seed's own level"
    chance = random.Random(7)  # noqa: S311
    one_percent = [[(100 + guest % 7) * chance.gauss(1, 0.01) for _ in range(3)] for guest in range(400)]
    assert sampling.windows_wanted(one_percent) in (4, 5), "of 1 %, four have half a percent"
    wild = [[100.0 * (1 + (guest + place) % 2) for place in range(3)] for guest in range(6)]
    assert sampling.windows_wanted(wild) == 12, "and no more than that"
