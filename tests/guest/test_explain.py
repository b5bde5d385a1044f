"""`lab explain` and modelled cycles on real kernels, one of which has a cost planted in a known place."""

import difflib
import subprocess
from typing import Any

import pytest

from lab.guests import exact, hardware, plugin
from lab.kernels import alternatives

from .conftest import NEW, OLD, TEST, Lab, metrics

pytestmark = pytest.mark.guest

CASE = "alloc-burst:layout-3072k"
LOOPS = 3000


@pytest.fixture(scope="module")
def planted(story: Lab) -> str:
    """TEST with a counted loop at the start of one function of the fault path, as a spec."""
    repo = next(story.home.glob(".local/share/*/trees/default.git"))
    before = subprocess.run(
        ["git", "-c", "safe.directory=*", f"--git-dir={repo}", "show", "HEAD:mm/memory.c"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    anchor = "\t/* File mapping without ->vm_ops ? */\n"
    assert before.count(anchor) == 1
    loop = f'\t{{ unsigned long n = {LOOPS}; asm volatile("1: dec %0; jnz 1b" : "+r"(n)); }}\n'
    after = before.replace(anchor, loop + anchor)
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), "a/mm/memory.c", "b/mm/memory.c"
    )
    patch = story.home / "planted.patch"
    patch.write_text("".join(lines))
    patch.chmod(0o644)
    return f"{TEST}+{patch}"


def _explain(lab: Lab, base: str, test: str, *more: str) -> Any:
    """The explanation of one seed, which is all that it reads."""
    result = lab.ab(base, test, "-w", CASE, "--seeds", "1", "--model", "none")["result"]
    return lab.json("explain", result, *more)


@pytest.mark.build
def test_a_planted_loop_is_found_and_counted(story: Lab, planted: str) -> None:
    document = _explain(story, TEST, planted, "--cost", "instructions")
    first = document["rows"][0]
    assert first["space"] == "kernel"
    assert first["name"].startswith(("do_anonymous_page", "__handle_mm_fault", "handle_pte_fault"))
    # Every small page that is faulted in goes through the loop once: two instructions a turn.
    calls = first["test_calls"]
    added = first["test_instructions"] - first["base_instructions"]
    assert added == pytest.approx(calls * 2 * LOOPS, rel=0.01)


@pytest.mark.smoke
def test_what_the_functions_cost_adds_up_to_the_programs_share(lab: Lab) -> None:
    document = _explain(lab, OLD, NEW)
    result = document["result"]
    (run,) = lab.home.glob(f".local/share/*/results/{result}/explain/*/guests/*-test-0001/costs.jsonl")
    windows = [window for window in plugin.read(run) if window.own]
    assert windows and all(window.unprofiled == (0, 0) for window in windows)
    program = sum(sum(window.in_program.millicycles) for window in windows)
    assert sum(row["test_cycles"] for row in document["rows"]) == program
    # What interrupts the program is in the windows, and in no row.
    assert program < sum(window.millicycles for window in windows)
    assert document["machine"]


@pytest.fixture(scope="module")
def explained(lab: Lab) -> Any:
    return lab.ab(f"{NEW}@thp=never", NEW, "-w", CASE, "--seeds", "2", "--explain")


@pytest.mark.smoke
def test_a_comparison_explains_itself_from_its_own_guests(explained: Any) -> None:
    why = explained["explain"]
    assert (why["case"], why["model"], why["machine"]) == ("layout-3072k", "tlb", "sapphire-rapids")
    # Of seed 1, which is the first: what the functions cost is what the comparison was given.
    found = metrics(explained)
    cycles = found["cycles_per_op"]
    assert cycles["primary"] and "tlb sapphire-rapids" in explained["environment"]["model"]
    for arm in ("base", "test"):
        total = sum(row[f"{arm}_cycles"] for row in why["rows"])
        assert total / 1000 / why[f"{arm}_operations"] == pytest.approx(cycles[arm][0], rel=1e-12)
    moved = {one["name"]: one for one in why["mechanisms"]}
    assert moved["thp_fault_alloc"]["base"] == 0 < moved["thp_fault_alloc"]["test"]
    assert moved["pgfault"]["ratio"] < 0.5
    assert found["dtlb_misses"]["ratio"] < 0.1, "walks of the page table, of which huge pages need fewer"


@pytest.mark.smoke
def test_the_chart_and_the_call_chains_are_written(lab: Lab, explained: Any) -> None:
    svg, graph, folded = (lab.home / name for name in ("why.svg", "flame.svg", "why.folded"))
    files = ("--svg", str(svg), "--flame-graph", str(graph), "--folded", str(folded))
    text = lab.run("explain", explained["result"], *files).stdout
    assert "modelled cycles" in text
    assert "__handle_mm_fault" in svg.read_text() and "__handle_mm_fault" in graph.read_text()
    stacks = dict(line.rsplit(" ", 1) for line in folded.read_text().splitlines())
    faults = [stack for stack in stacks if stack.startswith("test;") and stack.endswith(";__handle_mm_fault_[k]")]
    assert faults and all(";asm_exc_page_fault_[k];exc_page_fault_[k];" in stack for stack in faults)
    # The chains come from guests of their own, with the same numbers.
    for arm in ("base", "test"):
        rows = explained["explain"]["rows"]
        whole = sum(int(cost) for stack, cost in stacks.items() if stack.startswith(f"{arm};"))
        assert whole == sum(row[f"{arm}_cycles"] for row in rows)


def test_the_cpu_of_the_guests_and_what_the_kernels_look_for_in_it(lab: Lab, explained: Any) -> None:
    found = lab.json("explain", explained["result"], "--cpu", "--case", "layout-3072k")
    assert found["cpu"] == explained["environment"]["cpu"] and found["case"] == CASE
    assert {"smap", "fsgsbase", "xsaveopt"} <= set(found["features"]) and not found["refused"]
    assert "fsrm" in found["lacks"] and "erms" in found["off"] and "erms" not in found["features"]
    choices = {one["feature"]: one for one in found["choices"]}
    for name, guest in (("fsrm", False), ("erms", False), ("smap", True)):
        assert choices[name]["modelled"] and choices[name]["guest"] == guest
        assert choices[name]["base"] == choices[name]["test"] > 0, "one kernel with two settings"
    # A page is cleared where a huge page is faulted in.
    clearing = [name for name in choices["erms"]["functions"] if name in choices["erms"]["ran"]]
    assert clearing and clearing[0] == choices["erms"]["functions"][0]


@pytest.mark.parametrize("machine", hardware.names())
def test_the_installed_qemu_has_all_that_a_machine_asks_for(machine: str) -> None:
    guest = hardware.load(machine).guest
    assert guest is not None
    cpu = exact.cpuid(exact.find_qemu(), guest.cpu)
    assert not alternatives.features(cpu.refused)
    features = alternatives.features(cpu.words)
    assert not features & {*guest.lacks, *guest.off}
    assert {"smap", "fsgsbase", "pku", "xsaveopt", "avx2"} <= features
