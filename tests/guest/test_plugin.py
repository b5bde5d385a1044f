"""The cost plugin against programs whose counters can be worked out by hand (`probe.c`), in a real guest."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.guests import costs, hardware, plugin
from lab.guests.plugin import Brackets, Model, Window

from . import probe
from .conftest import Lab
from .probe import Bench

pytestmark = [pytest.mark.guest, pytest.mark.smoke]

# Pages and passes; what must miss the first level, and what both.
LOADS = {
    (1, 100): (1, 1),
    (64, 3): (64, 64),  # fits: misses once
    (96, 3): (96, 96),  # fills the first level: 6 pages a set of 6 ways
    (512, 2): (1024, 512),  # 32 pages a set of 6 ways, in turn: never found in the first level, all in the second
    (4096, 2): (8192, 8192),  # 32 pages a set of 16 ways: never found at all
}
STRINGS = [(1, 1), (777, 5), (8192, 3)]
TICKS = 2000  # passes that take 65 ms of guest time
CASES = (
    *(f"loads {pages} {passes}" for pages, passes in LOADS),
    *(f"strings {count} {times}" for count, times in STRINGS),
    *("huge 20", "remap 12", "stores 500", "strings 4096 1", "strings 4096 11", "chase 8", "chase 64", "classes 40"),
    f"loads 512 {TICKS}",
)


@pytest.fixture(scope="module")
def bench(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return probe.make(lab, tmp_path_factory.mktemp("plugin"))


def measured(bench: Bench, *cases: str, model: Model = Model.FULL) -> list[Window]:
    """The windows of cases of the probe, from the one guest that runs all of them under a model."""
    bench.measure(*CASES, model=model)
    return [bench.known[model][case] for case in cases]


def quiet(bench: Bench, case: str, model: Model = Model.FULL) -> Window:
    """The window of a case that no interrupt fell into, so that its counters are the program's alone."""
    (window,) = measured(bench, case, model=model)
    assert window.kernel["instructions"] == window.kernel["loads"] == window.kernel["stores"] == 0
    return window


@pytest.mark.parametrize("model", [Model.TLB, Model.FULL])
def test_loads_over_pages(bench: Bench, model: Model) -> None:
    for (pages, passes), (first_level, walks) in LOADS.items():
        window = quiet(bench, f"loads {pages} {passes}", model)
        assert window.user["instructions"] == passes * (2 + 4 * pages + 2)
        assert (window.user["loads"], window.user["stores"]) == (passes * pages, 0)
        assert window.user["dtlb_l1_misses"] == first_level
        assert (window.user["dtlb_walks_4k"], window.user["dtlb_walks_2m"]) == (walks, 0)
        assert window.user["itlb_l1_misses"] == window.user["itlb_walks"] == 1
        assert [operation.millicycles for operation in window.operations] == [window.millicycles]


def test_loads_over_huge_pages(bench: Bench) -> None:
    user = quiet(bench, "huge 20", Model.TLB).user
    assert user["loads"] == 20 * 512
    assert user["dtlb_l1_misses"] == user["dtlb_walks_2m"] == 20
    assert user["dtlb_walks_4k"] == 0


def test_ticks_are_told_apart_and_leave_no_trace(bench: Bench) -> None:
    (window,) = measured(bench, f"loads 512 {TICKS}")
    program, interrupts, threads = window.in_program, window.in_interrupts, window.in_threads
    assert interrupts.kernel["instructions"] > 10_000
    assert window.interruptions >= 10
    assert program.kernel["instructions"] == 0
    assert program.user == {**window.user, "instructions": TICKS * (2 + 4 * 512 + 2)}
    # As without ticks: 32 pages a set of 6 ways miss the first level in each pass, and the second in the first one.
    assert (program.user["dtlb_l1_misses"], program.user["dtlb_walks_4k"]) == (512 * TICKS, 512)
    assert sum(part.instructions for part in (program, interrupts, threads)) == window.instructions
    assert sum(sum(part.millicycles) for part in (program, interrupts, threads)) == window.millicycles
    assert sum(block.cycles for block in window.blocks) == sum(program.millicycles)
    assert window.in_softirqs is not None and window.in_idle is not None
    assert sum(window.in_softirqs.millicycles) < sum(interrupts.millicycles) / 2  # a tick of its own leaves little
    assert window.in_idle.instructions == 0  # the program never waits


def test_a_huge_page_that_is_mapped_anew_is_huge(bench: Bench) -> None:
    (window,) = measured(bench, "remap 12", model=Model.TLB)
    assert window.user["dtlb_walks_2m"] == 2 * 12
    assert window.user["dtlb_walks_4k"] <= 1  # of the program's stack


def test_a_faulting_store_is_one_instruction_and_one_store_and_the_way_in_and_out_is_counted(bench: Bench) -> None:
    pages = 500
    (window,) = measured(bench, f"stores {pages}")
    user, kernel = window.user, window.in_program.kernel
    assert (user["instructions"], user["stores"], user["loads"], user["dtlb_walks_4k"]) == (4 * pages, pages, 0, pages)
    assert window.kernel["instructions"] > pages * 100
    assert (kernel["exceptions"], kernel["syscalls"], kernel["swapgs"]) == (pages, 0, 2 * pages)
    assert kernel["atomics"] >= pages


@pytest.mark.parametrize("model", list(Model))
def test_string_instructions(bench: Bench, model: Model) -> None:
    for count, times in STRINGS:
        (window,) = measured(bench, f"strings {count} {times}", model=model)
        user = window.user
        assert window.kernel["instructions"] == 0
        assert (user["string_instructions"], user["string_bytes"]) == (times, count * times)
        assert (user["instructions"], window.steps) == (6 * times, (5 + count) * times)
        if model is not Model.COUNT:
            assert (user["loads"], user["stores"], user["dtlb_walks_4k"]) == (0, 0, 2 * -(-count // 4096))
        if model is Model.FULL:
            # The frame of a string's second page is guessed, and may be one that is in the cache.
            lines, guessed = -(-count // 64), max(count - 4096, 0) // 64
            assert 2 * (lines - guessed) <= user["l1d_misses"] <= 2 * lines


@pytest.mark.parametrize("model", [Model.TLB, Model.FULL])
def test_a_buffer_that_strings_went_through_is_in_the_cache(bench: Bench, model: Model) -> None:
    once, often = (quiet(bench, f"strings 4096 {times}", model) for times in (1, 11))
    costs = bench.machine.cost
    one = 6 * costs.instruction.cycles + costs.rep_start.cycles + 4096 * costs.rep_byte.cycles
    assert often.millicycles - once.millicycles == round(10 * one * 1000)
    lines = 2 * 64 * costs.prefetched.cycles
    assert once.millicycles >= round((one + (lines if model is Model.TLB else 0)) * 1000)


def test_the_cycles_of_a_chain_are_the_sum_by_hand(bench: Bench) -> None:
    lines = 8
    window = quiet(bench, f"chase {lines}")
    costs = bench.machine.cost
    cost = {
        name: round(getattr(costs, name).cycles * 1000) for name in ("instruction", "memory", "stlb_hit", "walk_4k")
    }
    user, instructions = window.user, 2 * lines * 3
    assert (user["instructions"], user["loads"]) == (instructions, 2 * lines)
    assert user["l1d_misses"] == user["l2_misses"] == user["llc_misses"] == user["dtlb_walks_4k"] == lines
    # One walk for the code and one for each page of data. Page tables come from memory a line of 8 entries at a time,
    # for code and data apart, and are found in L1d from then on.
    walks, tables = lines + 1, 2
    assert window.millicycles == (
        instructions * cost["instruction"]
        + lines * cost["memory"]
        + walks * (cost["stlb_hit"] + cost["walk_4k"])
        + tables * cost["memory"]
    )


CLASSES = {
    "atomics": 2, "fences": 2, "divisions": 1, "pauses": 1, "vectors": 1, "indirect_branches": 1, "returns": 2,
    "mispredictions": 3, "segments": 1, "times": 1,
}  # fmt: skip


@pytest.mark.parametrize("model", [Model.COUNT, Model.FULL])
def test_classes_of_instructions_are_counted_and_cost_what_the_machine_says(bench: Bench, model: Model) -> None:
    times = 40
    (window,) = measured(bench, f"classes {times}", model=model)
    user = window.user
    assert window.kernel["instructions"] == 0
    assert user["instructions"] == 32 * times
    assert {name: user[name] for name in CLASSES} == {name: count * times for name, count in CLASSES.items()}
    if model is Model.COUNT:
        costs = bench.machine.cost
        own = {"indirect_branches": "indirect_branch", "returns": "return_branch"}
        extra = sum(
            round(getattr(costs, own.get(name, name.removesuffix("s"))).cycles * 1000) * count
            for name, count in CLASSES.items()
        )
        assert window.millicycles == times * (32 * 300 + extra)


def test_the_same_run_gives_the_same_bytes_and_the_guest_notices_nothing(bench: Bench) -> None:
    cases = ("loads 512 2", "stores 200", "strings 8192 3")
    plain, _ = bench.boot(*cases, model=None)
    for model in Model:
        report, costs = bench.boot(*cases, model=model)
        assert report == plain
        assert bench.boot(*cases, model=model) == (report, costs)


def test_several_vcpus_are_not_disturbed_either(bench: Bench) -> None:
    cases = ("loads 512 2", "stores 200")
    plain, _ = bench.boot(*cases, model=None, vcpus=2)
    report, costs = bench.boot(*cases, model=Model.FULL, vcpus=2)
    assert report == plain
    assert [window.user["loads"] for window in plugin.parse(costs.splitlines())] == [1024, 0]


def test_a_case_is_measured_as_a_whole_unless_it_has_a_window(bench: Bench) -> None:
    (whole,), (both,) = (
        bench.output("loads 1 1", model=Model.COUNT, brackets=brackets) for brackets in (Brackets.CASE, Brackets.BOTH)
    )
    assert not whole.own
    assert both.own
    assert whole.instructions > 100 * both.instructions


@pytest.mark.parametrize("model", list(Model))
def test_the_events_are_what_the_cycles_are_the_sum_of(bench: Bench, model: Model) -> None:
    prices = costs.prices_of(bench.machine)
    for window in measured(bench, *CASES, model=model):
        for part in (window.in_program, window.in_interrupts, window.in_threads):
            assert tuple(round(costs.cycles(mode, prices) * 1000) for mode in part.events) == part.millicycles
        for operation in window.operations:
            modes = (operation.user_millicycles, operation.kernel_millicycles)
            assert tuple(round(costs.cycles(mode, prices) * 1000) for mode in window.kinds[operation.kind]) == modes


def test_the_events_at_other_costs_are_what_another_guest_counts(bench: Bench, tmp_path: Path) -> None:
    """Costs decide nothing in the model, so the sum at other costs is that of a guest that is run with them."""
    text = hardware.to_toml(bench.machine)
    changes = (("misses = { count = 2", "misses = { count = 3"), ("memory = { cycles = 395", "memory = { cycles = 444"),
               ("prefetched = { cycles = 14", "prefetched = { cycles = 23"))  # fmt: skip
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "other.toml").write_text(text)
    other = replace(bench, machine=hardware.read(tmp_path / "other.toml"), known={})
    for window, counted in zip(measured(bench, *CASES), measured(other, *CASES), strict=True):
        assert window.in_program.events == counted.in_program.events
        again = [costs.cycles(mode, costs.prices_of(other.machine)) for mode in window.in_program.events]
        assert tuple(round(cycles * 1000) for cycles in again) == counted.in_program.millicycles


def test_counters_by_model(bench: Bench) -> None:
    count, tlb, full = (measured(bench, "stores 500", model=model)[0] for model in Model)
    assert set(count.user) < set(tlb.user) < set(full.user)
    assert count.instructions == tlb.instructions == full.instructions
    assert {name: full.user[name] for name in tlb.user} == tlb.user
