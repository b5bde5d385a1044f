"""The longest spans without interrupts and without preemption against brute force: each instruction's own flag."""

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from lab.guests import exact, plugin
from lab.guests.plugin import Model, Span
from lab.kernels import files, symbols

from . import probe
from .conftest import NEW, OLD, Lab

pytestmark = pytest.mark.guest

WIDE = "deb:trixie-backports/linux-image-cloud-amd64"
"""A kernel whose preempt_count has eight bytes, as 7.3 has."""

FAULTS = ("stores 500",)
TICKS = ("loads 512 2000", "remap 12")
TWICE = 20
"""Instructions that may count twice: what follows a device access in its block, which QEMU begins anew there."""


def build(to: Path) -> Path:
    """The other plugin. QEMU loads a file once, so that two kinds of spans need two of it."""
    if Path(exact.find_qemu().path).resolve() != Path(shutil.which("qemu-system-x86_64") or "").resolve():
        pytest.skip("another QEMU than the host's may not show its registers to plugins of version 1")
    source = Path(__file__).with_name("spans_oracle.c")
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["gcc", *flags, "-o", to, source, "-ldl"], check=True)
    return to


def preempt_count(image: Path) -> str:
    """The other plugin's arguments that find preempt_count; for a while it was in `pcpu_hot`, behind a pointer."""
    at = {one.name: one.address for one in symbols.read_kallsyms(files.extract_vmlinux(image)) or []}
    count = at["__preempt_count"] if "__preempt_count" in at else at["pcpu_hot"] + 8
    return f"count={count:x},offset={at['__per_cpu_offset']:x}"


@pytest.mark.parametrize("kernel", [*(pytest.param(one, marks=pytest.mark.smoke) for one in (OLD, NEW)), WIDE])
def test_the_longest_span_is_that_of_brute_force(lab: Lab, tmp_path: Path, kernel: str) -> None:
    bench = probe.make(lab, tmp_path, kernel)
    cases = (*FAULTS, "loads 1 100", *TICKS)
    image = bench.kernel.vmlinux
    assert image is not None
    more = []
    for kind, where in (("irqs_off", ""), ("preempt_off", f",{preempt_count(image)}")):
        built = build(tmp_path / f"{kind}.so")
        more += ["-plugin", f"{built},out={tmp_path / kind}{where}"]
    _, costs = bench.boot(*cases, model=Model.COUNT, more=more)
    windows = plugin.parse(costs.splitlines())
    check(tmp_path / "irqs_off", dict(zip(cases, [window.irqs_off for window in windows], strict=True)), equal=FAULTS)
    check(tmp_path / "preempt_off", dict(zip(cases, [window.preempt_off for window in windows], strict=True)))


def check(path: Path, longest: dict[str, Span | None], equal: tuple[str, ...] = ()) -> None:
    """Compare the longest span of each case with all spans that the other plugin saw.

    equal: the cases whose longest span has no device access in it.
    """
    spans: dict[int, set[tuple[int, int]]] = defaultdict(set)  # by window: instructions, and the address of the last
    for line in path.read_text().splitlines():
        window, length, end = map(int, line.split())
        spans[window].add((length, end))
    for number, (case, found) in enumerate(longest.items(), 1):
        assert found is not None
        if case not in (*FAULTS, *TICKS):
            assert not spans[number]
            assert found == Span(0, 0, 0, 0)
            continue
        apart = {found.instructions - length for length, end in spans[number] if end == found.end}
        assert apart & set(range(1 if case in equal else TWICE + 1)), case
        assert found.instructions > 100
        # The dearest one may have a few instructions less than the one with most.
        assert found.instructions >= 0.8 * max(length for length, _ in spans[number])
