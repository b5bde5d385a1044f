"""The longest span without interrupts against brute force: each instruction's own flag, in a real guest."""

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from lab.guests import exact, plugin
from lab.guests.plugin import Model

from . import probe
from .conftest import NEW, OLD, Lab

pytestmark = [pytest.mark.guest, pytest.mark.smoke]

FAULTS = ("stores 500",)
TICKS = ("loads 512 2000", "remap 12")
TWICE = 20
"""Instructions that may count twice: what follows a device access in its block, which QEMU begins anew there."""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The other plugin."""
    if Path(exact.find_qemu().path).resolve() != Path(shutil.which("qemu-system-x86_64") or "").resolve():
        pytest.skip("another QEMU than the host's may not show its registers to plugins of version 1")
    built = tmp_path_factory.mktemp("oracle") / "oracle.so"
    source = Path(__file__).with_name("irqs_oracle.c")
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["gcc", *flags, "-o", built, source, "-ldl"], check=True)
    return built


@pytest.mark.parametrize("kernel", [OLD, NEW])
def test_the_longest_span_is_that_of_brute_force(lab: Lab, oracle: Path, tmp_path: Path, kernel: str) -> None:
    bench = probe.make(lab, tmp_path, kernel)
    cases = (*FAULTS, "loads 1 100", *TICKS)
    found = tmp_path / "spans"
    _, costs = bench.boot(*cases, model=Model.COUNT, more=["-plugin", f"{oracle},out={found}"])
    spans: dict[int, set[tuple[int, int]]] = defaultdict(set)  # by window: instructions, and the address of the last
    for line in found.read_text().splitlines():
        window, length, end = map(int, line.split())
        spans[window].add((length, end))
    for number, (case, window) in enumerate(zip(cases, plugin.parse(costs.splitlines()).windows, strict=True), 1):
        longest = window.irqs_off
        assert longest is not None
        if case in FAULTS:
            assert (longest.instructions, longest.end) in spans[number], case
            assert longest.instructions > 100
        elif case in TICKS:
            assert any(
                end == longest.end and 0 <= longest.instructions - length <= TWICE for length, end in spans[number]
            ), case
        else:
            assert not spans[number]
            assert longest == plugin.Span(0, 0, 0, 0)
        lengths = [length for length, _ in spans[number]]
        # The dearest one may have a few instructions less than the one with most.
        assert longest.instructions >= 0.8 * max(lengths, default=0)
