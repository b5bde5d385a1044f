"""Guests of other architectures on this host: packages, the same bytes again, functions, and two in one table."""

import shutil

import pytest

from lab.kernels import architecture

from .conftest import Lab

pytestmark = [pytest.mark.guest, pytest.mark.network]


def of(name: str, *values: object) -> object:
    """Parameters of a test of an architecture, which is skipped without its tools."""
    own = architecture.load(name)
    is_there = all(map(shutil.which, (own.qemu, own.compiler)))
    return pytest.param(
        name, *values, marks=pytest.mark.skipif(not is_there, reason=f"needs {own.qemu} and {own.compiler}")
    )


# One that clears a page, one that forks, one that is interrupted now and then, one of pages.
CASES = "syscalls:getppid,fault-anon,fork-exec,mprotect-private-256k"


@pytest.mark.parametrize(
    ("guests", "machine", "zeroed"), [of("arm64", "virt", 4096 / 64), of("riscv64", "virt-riscv64", 0)]
)
def test_numbers_are_the_same_again_and_functions_have_names(guests: str, machine: str, zeroed: int, lab: Lab) -> None:
    arms = ("--base", f"deb:trixie/6.12:{guests}", "--test", f"deb:trixie/6.12:{guests}")
    first, again = (lab.json("ab", *arms, "-w", CASES, "--seeds", "1", *more) for more in ((), ("--no-snapshot",)))
    assert first["environment"]["machine"] == machine and first["metric"] == "instructions"
    for one, other in zip(first["cases"], again["cases"], strict=True):
        assert one["metrics"] == other["metrics"], one["case"]
        count = one["metrics"][0]
        assert count["name"] == "kernel_instructions" and count["base"] == count["test"] and count["base"][0] > 100
        measured = {metric["name"] for metric in one["metrics"] if metric["method"] != "none"}
        assert not [name for name in measured if "cycles" in name or "misses" in name]
    counted = {(case["case"], row["name"]): row["base"][0] for case in first["cases"] for row in case["metrics"]}
    assert counted["getppid", "tlb_invalidations"] == counted["getppid", "zeroed_lines"] == 0
    assert counted["mprotect-private-256k", "tlb_invalidations"] >= 1
    assert counted["fault-anon", "zeroed_lines"] == zeroed
    why = lab.json("explain", first["result"], "--case", "mprotect-private-256k")
    names = {row["name"] for row in why["rows"]}
    assert {"change_protection", "mprotect_fixup"} <= names
    bundle = lab.home / f"{guests}.tar"
    assert lab.run("report", first["result"], "--format", "bundle", "--output", str(bundle)).returncode == 0
    assert ", 0 numbers differ" in lab.run("replay", str(bundle)).stdout
    bundle.unlink()


# A Neoverse N1 has 48 pages in the first level of its TLB, 1280 in the second.
CHASE_PAGES, HOPS, OPERATIONS = 1024, 8192, 64


@pytest.mark.parametrize("guests", [of("arm64")])
def test_cycles_are_modelled_where_they_are_asked_for(guests: str, lab: Lab) -> None:
    kernel = f"deb:trixie/6.12:{guests}"
    asked = ("ab", "--base", f"{kernel}@thp=never", "--test", f"{kernel}@thp=always", "-w", "pointer-chase:chase-4m")
    asked = (*asked, "-w", "syscalls:getppid,fault-anon,fork-exec,pipe-pingpong", "--seeds", "1")
    counted = lab.json(*asked)
    first, again = (lab.json(*asked, "--model", "tlb", *more) for more in (("--no-snapshot",), ()))
    for one, other, count in zip(first["cases"], again["cases"], counted["cases"], strict=True):
        assert one["metrics"] == other["metrics"], one["case"]
        rows, counts = ({row["name"]: row for row in case["metrics"]} for case in (one, count))
        for name in ("kernel_instructions", "instructions_per_op", "tlb_invalidations", "zeroed_lines"):
            assert (rows[name]["base"], rows[name]["test"]) == (counts[name]["base"], counts[name]["test"])
    found = {(case["case"], row["name"]): row for case in first["cases"] for row in case["metrics"]}
    # Each page is walked to once, and nearly all hops leave the pages of the first level.
    walks, misses = found["chase-4m", "user_dtlb_misses"], found["chase-4m", "dtlb_l1_misses"]
    assert CHASE_PAGES <= walks["base"][0] * OPERATIONS <= 1.02 * CHASE_PAGES
    assert misses["base"][0] == pytest.approx(HOPS * (1 - 48 / CHASE_PAGES), rel=0.01)
    assert walks["test"][0] * OPERATIONS <= 8 and misses["test"][0] < 2  # two huge pages, and those of the program
    # 128 switches, and what each of the two processes has in the TLB stays there.
    assert found["pipe-pingpong", "dtlb_misses"]["base"][0] < 10
    assert found["getppid", "exceptions"]["base"][0] == 1
    assert found["fault-anon", "atomics"]["base"][0] >= 1
    assert "modelled cycles (tlb neoverse-n1" in (text := lab.run("report", first["result"]).stdout)
    assert ", experimental)" in text


@pytest.mark.parametrize("guests", [of("arm64")])
def test_both_architectures_stand_side_by_side(guests: str, lab: Lab) -> None:
    asked = ("--base", "deb:trixie/6.12", "--test", "deb:trixie/6.12@cmdline.audit=0", "-w", "syscalls:getppid")
    document = lab.json("ab", "--arch", f"x86_64,{guests}", *asked, "--seeds", "1")
    assert document["schema"] == "lab.reports/1" and "arm64, x86_64" in document["note"]
    machines = [result["environment"]["machine"] for result in document["results"]]
    assert machines == ["microvm", "virt"]
    primary = [result["cases"][0]["metrics"][0]["name"] for result in document["results"]]
    assert primary == ["kernel_instructions"] * 2
