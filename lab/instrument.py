"""The cost model as used in a comparison: which machine, how much of it, and what it says of each case."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab import machines, plugin
from lab.machines import Machine
from lab.plugin import Brackets, Model, Window

WINDOW_MARK = bytes.fromhex("0f1f800142414c")
"""The instruction that opens a window (`lab_window_begin` in workloads/include/lab/mark.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """The plugin, built, with a machine and a model."""

    library: Path
    machine: Machine
    model: Model

    @property
    def identity(self) -> str:
        """What modelled numbers depend on: part of the fingerprint, and shown with them."""
        return f"{self.model} {self.machine.name} {self.machine.key[:8]} {self.library.parent.name[:8]}"

    def arguments(self, root: Path, out: Path) -> list[str]:
        """What QEMU is given; root: the guest's archive, uncompressed.

        Where a program marks a window of its own, its preparations need not be modelled.
        """
        brackets = Brackets.WINDOW if WINDOW_MARK in root.read_bytes() else Brackets.BOTH
        return [
            "-plugin",
            plugin.argument(self.library, self.machine, model=self.model, brackets=brackets, out=out),
        ]


def load_instrument(machine: str | None, model: str) -> Instrument | None:
    """The instrument of a plan; None where nothing is modelled."""
    if model == "none":
        return None
    return Instrument(library=plugin.obtain(), machine=machines.load(machine or machines.DEFAULT), model=Model(model))


def by_case(path: Path) -> dict[int, list[Window]]:
    """A guest's windows by case number, counted from 1; a program's own windows stand for its case."""
    output = plugin.read(path)
    found: dict[int, list[Window]] = {}
    for number in {window.case for window in output.windows}:
        windows = output.of_case(number)
        found[number] = [window for window in windows if window.own] or windows
    return found
