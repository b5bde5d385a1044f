"""The cost model of a guest: the marks that open a window, and the identity of the model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.core import records
from lab.core.paths import room
from lab.guests import hardware
from lab.guests.plugin import WINDOW_MARK, Instrument, Model, load_instrument


@pytest.fixture
def instrument(tmp_path: Path) -> Instrument:
    return Instrument(
        library=tmp_path / "0123456789abcdef" / "libcost.so", machine=hardware.load("zen4"), model=Model.TLB
    )


def brackets(instrument: Instrument, root: bytes, tmp_path: Path) -> str:
    (tmp_path / "root.cpio").write_bytes(root)
    _, words = instrument.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl")
    return re.findall(r"brackets=(\w+)", words)[0]


def test_a_program_with_a_window_of_its_own_is_modelled_inside_it_only(instrument: Instrument, tmp_path: Path) -> None:
    assert brackets(instrument, b"ELF" + WINDOW_MARK + b"more", tmp_path) == "window"
    assert brackets(instrument, b"ELF and no mark", tmp_path) == "both"


def test_a_program_that_measures_the_boot_has_it_modelled(instrument: Instrument, tmp_path: Path) -> None:
    assert brackets(instrument, mark("lab_measures_boot"), tmp_path) == "boot"
    # Init's own mark, which is in every guest, is no such program.
    assert brackets(instrument, mark("lab_booted"), tmp_path) == "both"


def test_the_mark_is_the_one_that_programs_are_compiled_with() -> None:
    assert mark("lab_window_begin") == WINDOW_MARK


def mark(function: str) -> bytes:
    """The instruction of a function in mark.h."""
    header = (room("workloads") / "include" / "lab" / "mark.h").read_text()
    bytes_of_mark = re.findall(r'\.byte ([^#]*)" #code "([^"]*)"', header)[0]
    (code,) = re.findall(rf"{function}\(void\)\s*{{\s*LAB_MARK\((\d+)\)", header)
    text = f"{bytes_of_mark[0]}{code}{bytes_of_mark[1]}"
    return bytes(int(word, 0) for word in text.replace(" ", "").split(","))


def test_its_identity_names_model_machine_and_what_compiled_it(instrument: Instrument) -> None:
    assert instrument.identity.split()[:2] == ["tlb", "zen4"]
    assert instrument.identity.endswith("01234567")


def test_all_that_the_plugin_is_given_is_in_its_identity_or_a_path(instrument: Instrument, tmp_path: Path) -> None:
    (tmp_path / "root.cpio").write_bytes(b"")
    _, option = instrument.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl")
    library, out, model, brackets, *machine = option.split(",")
    assert (library, out) == (str(instrument.library), f"out={tmp_path}/costs.jsonl")
    assert brackets == "brackets=both"  # follows from the root, whose digest is in the fingerprint
    assert f"{model} {records.digest(machine)[:8]}" == f"model={instrument.model} {instrument.identity.split()[2]}"


def test_no_model_is_no_instrument() -> None:
    assert load_instrument("zen4", "none") is None
