"""arm64 guests on this host: packages, the same bytes again, functions, and both architectures in one table."""

from __future__ import annotations

import shutil

import pytest

from .conftest import Lab

TOOLS = ("qemu-system-aarch64", "aarch64-linux-gnu-gcc")
pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {' and '.join(TOOLS)}"),
]

KERNEL = "deb:trixie/6.12:arm64"
# One that clears a page, one that forks, one that is interrupted now and then, one of pages.
CASES = "syscalls:getppid,fault-anon,fork-exec,mprotect-private-256k"


def test_numbers_are_the_same_again_and_functions_have_names(story: Lab) -> None:
    first, again = (story.json("ab", "--base", KERNEL, "--test", KERNEL, "-w", CASES, "--seeds", "1") for _ in range(2))
    assert first["environment"]["machine"] == "virt" and first["metric"] == "instructions"
    for one, other in zip(first["cases"], again["cases"], strict=True):
        assert one["metrics"] == other["metrics"], one["case"]
        count = one["metrics"][0]
        assert count["name"] == "kernel_instructions" and count["base"] == count["test"] and count["base"][0] > 100
        measured = {metric["name"] for metric in one["metrics"] if metric["method"] != "none"}
        assert not [name for name in measured if "cycles" in name or "misses" in name]
    counted = {(case["case"], row["name"]): row["base"][0] for case in first["cases"] for row in case["metrics"]}
    assert counted["getppid", "tlb_invalidations"] == counted["getppid", "zeroed_lines"] == 0
    assert counted["mprotect-private-256k", "tlb_invalidations"] >= 1
    assert counted["fault-anon", "zeroed_lines"] == 4096 / 64
    why = story.json("explain", first["result"], "--case", "mprotect-private-256k")
    names = {row["name"] for row in why["rows"]}
    assert {"change_protection", "tlb_flush"} <= names
    bundle = story.home / "arm64.tar"
    assert story.run("report", first["result"], "--format", "bundle", "--output", str(bundle)).returncode == 0
    assert ", 0 numbers differ" in story.run("replay", str(bundle)).stdout
    bundle.unlink()


def test_both_architectures_stand_side_by_side(story: Lab) -> None:
    asked = ("--base", "deb:trixie/6.12", "--test", "deb:trixie/6.12@cmdline.audit=0", "-w", "syscalls:getppid")
    document = story.json("ab", "--arch", "x86_64,arm64", *asked, "--seeds", "1")
    assert document["schema"] == "lab.reports/1" and "arm64, x86_64" in document["note"]
    machines = [result["environment"]["machine"] for result in document["results"]]
    assert machines == ["microvm", "virt"]
    primary = [result["cases"][0]["metrics"][0]["name"] for result in document["results"]]
    assert primary == ["kernel_instructions"] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--base", KERNEL, "--test", "deb:trixie/6.12"), "of different architectures"),
        (("--base", KERNEL, "--test", KERNEL, "--model", "tlb"), "no cost model"),
        (("--base", KERNEL, "--test", KERNEL, "--mode", "live"), "for x86_64 guests only"),
        (("--base", "deb:6.12:mips", "--test", KERNEL), "no architecture called 'mips'"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(words: tuple[str, ...], said: str, story: Lab) -> None:
    done = story.run("ab", *words, "-w", "syscalls:getppid")
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
