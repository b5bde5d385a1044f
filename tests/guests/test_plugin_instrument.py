"""The cost model of a guest: the marks that open a window, and the identity of the model."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from lab.core import records
from lab.core.errors import UserError
from lab.core.paths import data_folder
from lab.guests import hardware, model_version
from lab.guests.plugin import Instrument, Model, load_instrument
from lab.kernels import architecture
from lab.kernels.architecture import Architecture

ARCHITECTURES = [architecture.load(name) for name in architecture.names()]
HEADERS = data_folder("workloads") / "include" / "lab"


@pytest.fixture
def instrument(tmp_path: Path) -> Instrument:
    return Instrument(
        library=tmp_path / "0123456789abcdef" / "libcost.so", machine=hardware.load("zen4"), model=Model.TLB
    )


def brackets(instrument: Instrument, root: bytes, tmp_path: Path, guests: Architecture) -> str:
    (tmp_path / "root.cpio").write_bytes(root)
    _, words = instrument.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl", guests)
    return re.findall(r"brackets=(\w+)", words)[0]


def number(function: str) -> int:
    """The mark of a function in mark.h."""
    (code,) = re.findall(rf"{function}\(void\)\s*{{\s*LAB_MARK\((\d+)\)", (HEADERS / "mark.h").read_text())
    return int(code)


@pytest.mark.parametrize("guests", ARCHITECTURES, ids=lambda guests: guests.name)
def test_programs_say_by_their_marks_what_is_modelled(
    guests: Architecture, instrument: Instrument, tmp_path: Path
) -> None:
    marks = {
        "lab_window_begin": "window",
        "lab_measures_boot": "boot",
        "lab_booted": "both",  # init's own, which is in every guest
    }
    for function, expected in marks.items():
        root = b"ELF" + guests.mark.numbered(number(function)) + b"more"
        assert brackets(instrument, root, tmp_path, guests) == expected, function
    assert brackets(instrument, b"ELF and no mark", tmp_path, guests) == "both"


@pytest.mark.parametrize("guests", ARCHITECTURES, ids=lambda guests: guests.name)
def test_marks_are_those_that_programs_are_compiled_with(guests: Architecture, tmp_path: Path) -> None:
    if shutil.which(guests.compiler) is None:
        pytest.skip(f"{guests.compiler} is not installed")
    source, compiled = tmp_path / "marks.c", tmp_path / "marks.o"
    source.write_text("#include <lab/mark.h>\nvoid marks(void) { LAB_MARK(1); LAB_MARK(9); }\n")
    command = [guests.compiler, "-O2", "-c", f"-I{HEADERS.parent}", source, "-o", compiled]
    subprocess.run(command, check=True)
    assert guests.mark.numbered(1) + guests.mark.numbered(9) in compiled.read_bytes()


def test_its_identity_names_model_machine_and_version(instrument: Instrument, tmp_path: Path) -> None:
    version = f"v{model_version.current()}"
    assert instrument.identity == f"tlb zen4 {instrument.machine.key[:8]} {version}"
    assert replace(instrument, model=Model.COUNT).identity == f"count {version}"
    assert replace(instrument, library=tmp_path / "other" / "libcost.so").identity == instrument.identity


def test_all_that_the_plugin_is_given_is_in_its_identity_or_a_path(instrument: Instrument, tmp_path: Path) -> None:
    (tmp_path / "root.cpio").write_bytes(b"")
    _, option = instrument.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl", architecture.load())
    library, out, model, brackets, *machine = option.split(",")
    assert (library, out) == (str(instrument.library), f"out={tmp_path}/costs.jsonl")
    assert brackets == "brackets=both"  # follows from the root, whose contents are in the fingerprint
    assert f"{model} {records.digest(machine)[:8]}" == f"model={instrument.model} {instrument.identity.split()[2]}"


def test_no_model_is_no_instrument() -> None:
    assert load_instrument("zen4", "none") is None


def test_vcpus_that_contend_are_another_model(instrument: Instrument, tmp_path: Path) -> None:
    contending = instrument.contending(50)
    assert contending.identity.startswith(instrument.identity) and contending.identity != instrument.identity
    guests = architecture.load()
    (tmp_path / "root.cpio").write_bytes(b"ELF")
    _, words = contending.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl", guests)
    assert "quantum=50" in words and "move=85000" in words and "between" not in words
    (tmp_path / "root.cpio").write_bytes(b"ELF" + guests.mark.numbered(number("lab_operation_begin")))
    _, words = contending.arguments(tmp_path / "root.cpio", tmp_path / "costs.jsonl", guests)
    assert words.endswith("between=1")
    with pytest.raises(UserError, match="counts no cycles"):
        replace(instrument, model=Model.COUNT).contending(50)
    with pytest.raises(UserError, match="nothing of several CPUs"):
        replace(instrument, machine=msgspec.structs.replace(instrument.machine, coherence=None)).contending(50)


def test_the_price_of_a_move_leaves_the_key_of_a_machine() -> None:
    machine = hardware.load("zen4")
    assert machine.coherence is not None
    assert msgspec.structs.replace(machine, coherence=None).key == machine.key
