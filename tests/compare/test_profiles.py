"""The profiles that a guest left: every window of its case, with the names of the right half of memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.compare import profiles
from lab.compare.runs import Run
from lab.core import records
from lab.core.errors import GuestFailed, HostFailed
from lab.guests import initrd
from lab.guests.channel import CaseOutcome, GuestReport
from lab.guests.plugin import COSTS
from lab.kernels import symbols
from lab.kernels.symbols import KERNEL_HALF, Label, SymbolTable
from lab.workloads import selection

from ..fakes.guest import kernel, write_workload
from ..guests import test_plugin as output


def costs(*numbers: int) -> str:
    """The plugin's output with a window of each of these cases."""
    parts = [
        part.replace('sequence":0', f'sequence":{at}').replace('case":1', f'case":{number}')
        for at, number in enumerate(numbers)
        for part in (output.WINDOW, output.PROFILE)
    ]
    return "\n".join([output.HEADER, *parts, output.END, ""])


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A guest that ran `large` twice, and `small` in between."""
    outcomes = [CaseOutcome(name=name, begin_ns=0, ended=True, status=0) for name in ("large", "small", "large")]
    run = Run(
        arm="base", workload="mine", seed=1, cases=["small", "large"], kernel="k", fingerprint="f", wall_s=1.0,
        argv=[], report=GuestReport(cases=outcomes, complete=True),
    )  # fmt: skip
    records.save(tmp_path / "run.json", run)
    for name in ("kernel_symbols", "from_elf"):
        monkeypatch.setattr(symbols, name, lambda *_: SymbolTable([]))
    monkeypatch.setattr(initrd, "own_files", lambda *_: {})
    workload = selection.load(write_workload(tmp_path / "mine"))
    return SimpleNamespace(
        bench=SimpleNamespace(workload=workload), arm=SimpleNamespace(kernel=kernel("base")), cases=workload.cases,
        record_path=tmp_path / "run.json", folder=tmp_path,
    )  # fmt: skip


def test_a_profile_has_the_blocks_and_operations_of_all_windows_of_its_case(guest: Any, tmp_path: Path) -> None:
    (tmp_path / COSTS).write_text(costs(1, 1, 2, 3))
    found = profiles.of_guest(guest, tmp_path)
    assert {name: (len([*one.blocks]), one.operations) for name, one in found.items()} == {
        "large": (6, 3), "small": (2, 1),
    }  # fmt: skip
    assert sum(block.cycles for block in found["large"].blocks) == 3 * 600


def test_a_case_without_a_window_is_named(guest: Any, tmp_path: Path) -> None:
    (tmp_path / COSTS).write_text(costs(1, 3))
    with pytest.raises(GuestFailed, match="the cost model saw nothing of case small"):
        profiles.of_guest(guest, tmp_path)


def test_costs_that_changed_are_not_explained(guest: Any, tmp_path: Path) -> None:
    (tmp_path / COSTS).write_text(costs(1, 2))
    records.seal(tmp_path / COSTS)
    (tmp_path / COSTS).write_text(costs(1, 1, 2))
    with pytest.raises(HostFailed, match="changed since it was written"):
        profiles.of_guest(guest, tmp_path)


def test_an_address_in_the_kernels_half_is_none_of_the_programs() -> None:
    low, high = (SymbolTable([label]) for label in (Label(0x400000, "T", "low"), Label(KERNEL_HALF, "T", "high")))
    profile = profiles.ArmProfile(blocks=[], operations=1, kernel=[low], user=[high])
    assert profile.symbol(0x400000) == profile.symbol(KERNEL_HALF) == (None, None)
