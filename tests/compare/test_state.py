"""The state guard: what it says, and what is too small to say."""

from typing import Any

import pytest

from lab.compare import state
from lab.compare.runs import Run
from lab.guests.channel import CaseOutcome, GuestReport, Hello
from lab.kernels.symbols import Label, SymbolTable


def a_run(
    arm: str = "base", vmstat: dict[str, int] | None = None, metrics: dict[str, float] | None = None,
    costs: dict[str, float] | None = None, settings: dict[str, str] | None = None, **more: Any,
) -> Run:  # fmt: skip
    usage = {"max_rss_kb": more.pop("rss_kb", 4096)}
    outcome = CaseOutcome(name="large", begin_ns=0, ended=True, usage=usage, vmstat=vmstat or {}, metrics=metrics or {})
    hello = Hello(**{"release": "6.99", "clocksource": "tsc", "mem_kb": 500_000, "cmdline": "quiet", "cpus": 1, **more})
    return Run(
        arm=arm, workload="mine", seed=1, cases=["large"], kernel=arm, fingerprint="f", wall_s=1.0, argv=[],
        report=GuestReport(hello=hello, cases=[outcome], settings=settings or {}, complete=True),
        costs={"large": costs or {}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("base", "test", "said"),
    [
        ({}, {"vmstat": {"thp_fault_alloc": 8}}, "0 against 16 MB of huge pages"),
        ({"vmstat": {"thp_fault_alloc": 100}}, {"vmstat": {"thp_fault_alloc": 104}}, None),
        ({"metrics": {"vmas": 1.0}}, {"metrics": {"vmas": 14.0}}, "1 against 14 VMAs"),
        ({"metrics": {"vmas": 1.0}}, {}, None),
        ({"vmstat": {"pswpout": 512}}, {}, "2 against 0 MB swapped out"),
        ({"vmstat": {"nr_slab_reclaimable": 1024}}, {"vmstat": {"nr_slab_reclaimable": 256}}, "4 against 1 MB more of slab"),  # noqa: E501
        ({"vmstat": {"nr_slab_reclaimable": 100}}, {"vmstat": {"nr_slab_reclaimable": 0}}, None),
        ({"rss_kb": 20480}, {"rss_kb": 36864}, "20 against 36 MB at most"),
        ({"costs": {"counted_operations": 4000.0}}, {"costs": {"counted_operations": 3990.0}}, "4,000 against 3,990 operations"),  # noqa: E501
    ],
)  # fmt: skip
def test_a_case(base: dict[str, Any], test: dict[str, Any], said: str | None) -> None:
    found = state.case_remarks("large", {1: a_run(**base)}, {1: a_run("test", **test)})
    assert found == ([f"arms differ in state: {said}"] if said else [])


def test_a_case_that_differs_in_several_ways_is_one_line_over_the_shared_seeds() -> None:
    huge = a_run("test", vmstat={"thp_fault_alloc": 8}, metrics={"vmas": 14.0})
    base = {seed: a_run(metrics={"vmas": 1.0}) for seed in (1, 2)}
    found = state.case_remarks("large", base, {2: huge, 3: a_run("test", vmstat={"thp_fault_alloc": 1000})})
    assert found == ["arms differ in state: 0 against 16 MB of huge pages, 1 against 14 VMAs"]
    assert state.case_remarks("large", base, {}) == []


@pytest.mark.parametrize(("base", "test", "said"), [
    (0, 0, []),
    (1, 1, ["leaves 1 process behind, whose work is in no number"]),
    (2, 2, ["leaves 2 processes behind, whose work is in no number"]),
    (0, 0.5, ["leaves 0 against 0.5 processes behind, whose work is in no number"]),
])  # fmt: skip
def test_processes_that_are_left_behind_are_named_once(base: float, test: float, said: list[str]) -> None:
    arms = {1: a_run(metrics={"left_processes": base})}, {1: a_run("test", metrics={"left_processes": test})}
    assert state.case_remarks("large", *arms) == said
    assert state.case_remarks("large", *arms, "".join(said)) == []


def test_guests_that_differ_before_any_case() -> None:
    base = a_run(settings={"thp": "always", "swappiness": "60", "sched.features": "GENTLE NO_NEXT WAKEUP"})
    test = a_run(
        "test",
        clocksource="jiffies", mem_kb=300_000,
        settings={"thp": "never", "swappiness": "10", "sched.features": "NEXT WAKEUP", "thp.shmem": "never"},
    )  # fmt: skip
    assert state.boot_remarks(base, test, ["thp"]) == [
        "guests differ: scheduler features GENTLE NO_NEXT only in base; NEXT only in test, swappiness 60 against 10, "
        "clocksource tsc against jiffies, 488.3 against 293 MB of memory"
    ]
    assert state.boot_remarks(base, base) == []
    features = ["thp", "swappiness", "sched_feat.GENTLE", "sched_feat.NEXT"]
    assert "scheduler" not in state.boot_remarks(base, test, features)[0]


# ---- the program's own code

STRCMP = SymbolTable([Label(0x1000, "t", "main", 256), Label(0x2000, "t", "__strcmp_sse42", 512)])


def code(instructions: int, calls: int = 100) -> state.Code:
    """100 operations, each with 300 instructions in main and some in strcmp."""
    run = a_run(costs={"counted_operations": 100.0, "user_instructions": 300.0 + instructions})
    blocks = [(0x1000, 30_000, 100), (0x2000, 100 * instructions - 500, calls), (0x2040, 500, 100)]
    return state.code_of(run, "large", blocks, [STRCMP])


def test_code_is_summed_by_function_and_operation() -> None:
    assert code(27).functions == {"main": (300.0, 1.0), "__strcmp_sse42": (27.0, 1.0)}
    run = a_run(costs={"counted_operations": 2.0, "user_instructions": 5.0})
    assert state.code_of(run, "large", [(0x9000, 10, 2)], [STRCMP]).functions == {"code without a name": (5.0, 0.0)}


def test_code_that_ran_differently_names_its_function_and_whose_doing_it_is() -> None:
    assert state.arms_remark(code(53), code(80)) == (
        "user code ran differently: +27 instructions/op, most of it in __strcmp_sse42: layout, not the kernel"
    )
    assert state.arms_remark(code(53), code(80, calls=151)) == (
        "user code ran differently: +27 instructions/op, most of it in __strcmp_sse42"
    ), "the kernel may have made the program call it more often"
    unknown = state.Code(300.0, {})
    assert state.arms_remark(unknown, unknown._replace(instructions=290.0)) == (
        "user code ran differently: -10 instructions/op, in code without a name"
    )
    assert state.seeds_remark(code(27), code(434)) == (
        "user code depends on the seed: 327 to 734 instructions/op, most of it in __strcmp_sse42"
    )


@pytest.mark.parametrize(("base", "test", "arms", "ends"), [
    ({1: 300.0, 2: 300.0}, {1: 300.0, 2: 300.0}, [], []),
    ({1: 300.0, 2: 301.0}, {1: 300.4, 2: 300.4}, [], []),
    ({1: 300.0, 2: 300.0}, {1: 300.0, 2: 327.0}, [2], []),
    ({1: 327.0, 2: 734.0, 3: 400.0}, {1: 327.0, 2: 734.0, 3: 400.0}, [], [1, 2]),
    ({1: 300.0, 2: 340.0}, {1: 340.0, 3: 1.0}, [1], [1, 2]),
    ({}, {1: 5.0}, [], []),
])  # fmt: skip
def test_seeds_that_are_told(base: dict[int, float], test: dict[int, float], arms: list[int], ends: list[int]) -> None:
    assert state.odd_code(base, test) == (arms, ends)
