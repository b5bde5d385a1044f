"""The cost plugin against programs whose counters can be worked out by hand (`probe.c`), in a real guest."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab.core import cpio
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.guests import channel, costs, exact, hardware, plugin, run
from lab.guests.hardware import Machine
from lab.guests.plugin import Brackets, Model, Output, Window
from lab.kernels.kernel import Kernel, common_machine, resolve

from .conftest import FIX, Lab

pytestmark = [pytest.mark.guest, pytest.mark.build]

TOP = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Everything that a guest is made of."""

    folder: Path
    kernel: Kernel
    plugin: Path
    machine: Machine

    def boot(
        self, *cases: str, model: Model | None, vcpus: int = 1, brackets: Brackets = Brackets.WINDOW
    ) -> tuple[bytes, bytes]:
        """Run cases of the probe; gives what guest and plugin reported."""
        out = self.folder / "cost.jsonl"
        out.unlink(missing_ok=True)
        machine = common_machine(self.kernel)
        guest = exact.ExactGuest(
            qemu=exact.find_qemu(), machine=machine, vcpus=vcpus, memory_mb=640, cmdline=exact.cmdline([])
        )
        root = self._initrd(cases)
        argv = guest.argv(kernel=self.kernel.image(machine), folder=self.folder, root=root)
        if model:
            argv += ["-plugin", plugin.argument(self.plugin, self.machine, model=model, brackets=brackets, out=out)]
        ended = run.boot(argv, folder=self.folder, timeout_s=300)
        report = run.read_report(ended)
        assert [case.status for case in report.cases] == [0] * len(cases)
        return ended.report.read_bytes(), out.read_bytes() if model else b""

    def output(self, *cases: str, model: Model = Model.FULL) -> Output:
        """Run cases of the probe under the plugin."""
        return plugin.parse(self.boot(*cases, model=model)[1].splitlines())

    def window(self, case: str, model: Model = Model.FULL) -> Window:
        """Run one case of the probe, which has one window."""
        (window,) = self.output(case, model=model).windows
        assert window.own
        assert window.complete
        return window

    def _initrd(self, cases: tuple[str, ...]) -> Path:
        path = self.folder / "initrd.cpio"
        job = channel.encode_job(
            seed=0,
            cases=[(f"probe-{number}", ["/probe", *case.split()]) for number, case in enumerate(cases)],
            settings=exact.exact_machine().settings,
        )
        with path.open("wb") as stream:
            for inode, name in enumerate(("init", "probe"), start=1):
                stream.write(cpio.entry(name, 0o100755, (self.folder / name).read_bytes(), inode=inode))
            stream.write(cpio.entry("job", 0o100444, job))
            stream.write(cpio.trailer())
            # As the lab does: the archive must not end where the firmware puts its tables.
            stream.write(bytes(-stream.tell() % MIB + MIB))
        return path


@pytest.fixture(scope="module")
def bench(story: Lab, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A guest of a built kernel, init and the probe."""
    folder = tmp_path_factory.mktemp("plugin")
    subprocess.run(["make", "-s", "-C", TOP / "images" / "guest", f"OUT={folder}"], check=True)
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-fno-pie", "-static", "-no-pie"]
    source = Path(__file__).with_name("probe.c")
    subprocess.run(["gcc", *flags, "-o", folder / "probe", source], check=True)
    (built,) = story.json("kernel", "build", FIX)["kernels"]
    kernel = resolve(f"file:{built['files']['vmlinux']}").obtain(Work(progress=Progress(quiet=True)))
    return Bench(folder=folder, kernel=kernel, plugin=plugin.obtain(), machine=hardware.load("sapphire-rapids"))


@contextmanager
def _quiet(window: Window) -> Iterator[None]:
    """No interrupt fell into the window, so its counters are the program's alone."""
    assert window.kernel["instructions"] == 0
    assert window.kernel["loads"] == window.kernel["stores"] == 0
    yield


# Pages and passes; what must miss the first level, and what both.
LOADS = {
    (1, 100): (1, 1),
    (64, 3): (64, 64),  # fits: misses once
    (512, 2): (1024, 512),  # 32 pages a set of 6 ways, in turn: never found in the first level, all in the second
    (4096, 2): (8192, 8192),  # 32 pages a set of 16 ways: never found at all
}


@pytest.mark.parametrize("model", [Model.TLB, Model.FULL])
def test_loads_over_pages(bench: Bench, model: Model) -> None:
    output = bench.output(*(f"loads {pages} {passes}" for pages, passes in LOADS), model=model)
    for window, (pages, passes), (first_level, walks) in zip(output.windows, LOADS, LOADS.values(), strict=True):
        with _quiet(window):
            assert window.user["instructions"] == passes * (2 + 4 * pages + 2)
            assert window.user["loads"] == passes * pages
            assert window.user["stores"] == 0
            assert window.user["dtlb_l1_misses"] == first_level
            assert window.user["dtlb_walks_4k"] == walks
            assert window.user["dtlb_walks_2m"] == 0
            assert window.user["itlb_l1_misses"] == window.user["itlb_walks"] == 1
            assert [operation.millicycles for operation in window.operations] == [window.millicycles]


def test_loads_over_huge_pages(bench: Bench) -> None:
    window = bench.window("huge 20", Model.TLB)
    with _quiet(window):
        assert window.user["loads"] == 20 * 512
        assert window.user["dtlb_l1_misses"] == window.user["dtlb_walks_2m"] == 20
        assert window.user["dtlb_walks_4k"] == 0


def test_ticks_are_told_apart_and_leave_no_trace(bench: Bench) -> None:
    passes = 2000  # 65 ms of guest time
    window = bench.window(f"loads 512 {passes}")
    program, interrupts, threads = window.in_program, window.in_interrupts, window.in_threads
    assert interrupts.kernel["instructions"] > 10_000
    assert window.interruptions >= 10
    assert program.kernel["instructions"] == 0
    assert program.user == {**window.user, "instructions": passes * (2 + 4 * 512 + 2)}
    # As without ticks: 32 pages a set of 6 ways miss the first level in each pass, and the second in the first one.
    assert (program.user["dtlb_l1_misses"], program.user["dtlb_walks_4k"]) == (512 * passes, 512)
    assert sum(part.instructions for part in (program, interrupts, threads)) == window.instructions
    assert sum(sum(part.millicycles) for part in (program, interrupts, threads)) == window.millicycles
    assert sum(block.cycles for block in window.blocks) == sum(program.millicycles)


def test_a_huge_page_that_is_mapped_anew_is_huge(bench: Bench) -> None:
    window = bench.window("remap 12", Model.TLB)
    assert window.user["dtlb_walks_2m"] == 2 * 12
    assert window.user["dtlb_walks_4k"] <= 1  # of the program's stack


def test_a_faulting_store_is_one_instruction_and_one_store(bench: Bench) -> None:
    window = bench.window("stores 500")
    assert window.user["instructions"] == 4 * 500
    assert window.user["stores"] == 500
    assert window.user["loads"] == 0
    assert window.user["dtlb_walks_4k"] == 500
    assert window.kernel["instructions"] > 500 * 100


STRINGS = [(1, 1), (777, 5), (8192, 3)]


@pytest.mark.parametrize("model", list(Model))
def test_string_instructions(bench: Bench, model: Model) -> None:
    output = bench.output(*(f"strings {count} {times}" for count, times in STRINGS), model=model)
    for window, (count, times) in zip(output.windows, STRINGS, strict=True):
        assert window.kernel["instructions"] == 0
        assert window.user["string_instructions"] == times
        assert window.user["string_bytes"] == count * times
        assert window.user["instructions"] == 6 * times
        if model is not Model.COUNT:
            assert window.user["loads"] == window.user["stores"] == 0
            assert window.user["dtlb_walks_4k"] == 2 * -(-count // 4096)
        if model is Model.FULL:
            # The frame of a string's second page is guessed, and may be one that is in the cache.
            lines, guessed = -(-count // 64), max(count - 4096, 0) // 64
            assert 2 * (lines - guessed) <= window.user["l1d_misses"] <= 2 * lines


@pytest.mark.parametrize("model", [Model.TLB, Model.FULL])
def test_a_buffer_that_strings_went_through_is_in_the_cache(bench: Bench, model: Model) -> None:
    once, often = (bench.window(f"strings 4096 {times}", model) for times in (1, 11))
    costs = bench.machine.cost
    one = 6 * costs.instruction.cycles + costs.rep_start.cycles + 4096 * costs.rep_byte.cycles
    with _quiet(once), _quiet(often):
        assert often.millicycles - once.millicycles == round(10 * one * 1000)
        lines = 2 * 64 * costs.prefetched.cycles
        assert once.millicycles >= round((one + (lines if model is Model.TLB else 0)) * 1000)


def test_the_cycles_of_a_chain_are_the_sum_by_hand(bench: Bench) -> None:
    lines = 8
    window = bench.window(f"chase {lines}")
    costs = bench.machine.cost
    cost = {name: round(getattr(costs, name).cycles * 1000) for name in costs.__struct_fields__}
    with _quiet(window):
        instructions = 2 * lines * 3
        assert window.user["instructions"] == instructions
        assert window.user["loads"] == 2 * lines
        assert window.user["l1d_misses"] == window.user["l2_misses"] == window.user["llc_misses"] == lines
        assert window.user["dtlb_walks_4k"] == lines
        # One walk for the code and one for each page of data. Page tables come from memory a line of 8 entries at a
        # time, for code and data apart, and are found in L1d from then on.
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
    window = bench.window(f"classes {times}", model)
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


def test_the_kernels_ways_in_and_out_are_counted(bench: Bench) -> None:
    pages = 500
    window = bench.window(f"stores {pages}", Model.TLB)
    kernel = window.in_program.kernel
    assert kernel["exceptions"] == pages
    assert kernel["syscalls"] == 0
    assert kernel["atomics"] >= pages
    assert kernel["swapgs"] == 2 * pages


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
    assert [window.user["loads"] for window in plugin.parse(costs.splitlines()).windows] == [1024, 0]


def test_a_case_is_measured_as_a_whole_unless_it_has_a_window(bench: Bench) -> None:
    whole = plugin.parse(bench.boot("loads 1 1", model=Model.COUNT, brackets=Brackets.CASE)[1].splitlines()).windows
    both = plugin.parse(bench.boot("loads 1 1", model=Model.COUNT, brackets=Brackets.BOTH)[1].splitlines()).windows
    assert [window.own for window in whole] == [False]
    assert [window.own for window in both] == [True]
    assert whole[0].instructions > 100 * both[0].instructions


@pytest.mark.parametrize("model", list(Model))
def test_the_events_are_what_the_cycles_are_the_sum_of(bench: Bench, model: Model) -> None:
    output = bench.output("loads 4096 2", "chase 64", "stores 300", "strings 8192 3", "classes 40", model=model)
    prices = costs.prices_of(bench.machine)
    for window in output.windows:
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
    other = replace(bench, machine=hardware.read(tmp_path / "other.toml"))
    cases = ("loads 4096 2", "chase 64", "stores 300", "strings 8192 3")
    for window, counted in zip(bench.output(*cases).windows, other.output(*cases).windows, strict=True):
        assert window.in_program.events == counted.in_program.events
        again = [costs.cycles(mode, costs.prices_of(other.machine)) for mode in window.in_program.events]
        assert tuple(round(cycles * 1000) for cycles in again) == counted.in_program.millicycles


def test_counters_by_model(bench: Bench) -> None:
    count, tlb, full = (bench.window("stores 100", model) for model in Model)
    assert set(count.user) < set(tlb.user) < set(full.user)
    assert count.instructions == tlb.instructions == full.instructions
    assert {name: full.user[name] for name in tlb.user} == tlb.user
