"""Architectures: a folder each, and what is refused."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.compare.plan import MeasureOptions
from lab.core.errors import UserError
from lab.guests import exact
from lab.kernels import architecture, symbols
from lab.kernels.architecture import Architecture, MachineType
from lab.kernels.debs import DebSource
from lab.kernels.file_source import FileSource
from lab.kernels.kernel import Kernel, KernelSpec, common_machine, resolve
from lab.kernels.spec import for_architecture, parse

from ..fakes.work import quiet

ARM64 = architecture.load("arm64")


def image(guests: Architecture = ARM64) -> bytes:
    """An uncompressed kernel: a header of 64 bytes, and a banner."""
    assert guests.image is not None
    banner = b"Linux version 6.12.1-arm (me@here) (gcc) #1 SMP\0"
    return bytes(0x38) + guests.image.magic.encode() + bytes(4) + banner


@pytest.fixture
def arm64(tmp_path: Path, own_home: None) -> Kernel:
    path = tmp_path / "Image"
    path.write_bytes(image())
    return resolve(f"file:{path}").obtain(quiet())


def test_every_machine_and_image_is_of_one_architecture() -> None:
    found = [architecture.load(name) for name in architecture.names()]
    assert sorted(board for one in found for board in one.boards) == sorted(MachineType)
    assert [architecture.of_machine(board) for one in found for board in one.boards] == [
        one for one in found for _ in one.boards
    ]
    assert all(architecture.of_header(image(one)) == one for one in found if one.image)
    assert architecture.of_header(b"\x7fELF" + bytes(100)) is None
    assert all(exact.exact_machine(one.name).cmdline for one in found)


def test_an_arm64_image_is_a_kernel_of_its_board_alone(arm64: Kernel) -> None:
    assert (arm64.architecture, arm64.release) == ("arm64", "6.12.1-arm")
    assert arm64.machines() == [MachineType.VIRT] and arm64.vmlinux is None
    assert common_machine(arm64, arm64) is MachineType.VIRT
    assert arm64.image(MachineType.VIRT) == arm64.bzimage
    assert arm64.spec.architecture == "arm64"


def test_kernels_of_two_architectures_are_not_compared(arm64: Kernel) -> None:
    other = Kernel(
        key="k", release="6", commit=None, bzimage=Path("b"), vmlinux=None, symbols=None,
        spec=KernelSpec(text="deb:6.12", source=DebSource(package="p", version="1")),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"Image is of arm64, deb:6\.12 is of x86_64") as raised:
        common_machine(arm64, other)
    assert "--arch arm64,x86_64" in str(raised.value.hint)


@pytest.mark.parametrize(("text", "guests", "expected"), [
    ("deb:6.12", "arm64", "deb:6.12:arm64"),
    ("deb:trixie/6.12@thp=never", "arm64", "deb:trixie/6.12:arm64@thp=never"),
    ("v6.12", "x86_64", "v6.12"),
    ("v6.12", "arm64", "v6.12%arch=arm64"),
    ("v6.12%CONFIG_HZ_1000=y@thp=never", "arm64", "v6.12%arch=arm64%CONFIG_HZ_1000=y@thp=never"),
    ("v6.12%arch=arm64", "arm64", "v6.12%arch=arm64"),
    ("worktree@thp=never", "arm64", "worktree:.%arch=arm64@thp=never"),
])  # fmt: skip
def test_a_spec_for_an_architecture(text: str, guests: str, expected: str) -> None:
    assert for_architecture(text, guests) == expected


@pytest.mark.parametrize(("ask", "message"), [
    (lambda: architecture.load("arm46"), "no architecture called 'arm46'"),
    (lambda: for_architecture("v6.12%arch=arm64", "x86_64"), "is for arm64, and --arch asks for x86_64"),
    (lambda: parse("v6.12%arch=arm46"), "no architecture called 'arm46'"),
    (lambda: architecture.require_default("a shell", ["arm64"]), "a shell: for x86_64 guests only, not for arm64"),
])  # fmt: skip
def test_what_is_refused(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError) as raised:
        ask()
    assert message in raised.value.message and raised.value.hint


def _specs(name: str) -> list[KernelSpec]:
    return [KernelSpec(text="f", source=FileSource(path="/f", sha256="0", release="6", architecture=name))]


def test_without_a_model_instructions_decide() -> None:
    specs = _specs("arm64")
    asked = MeasureOptions(workload=("syscalls",))
    counted = asked.for_kernels(specs)
    assert (counted.model, counted.metric, counted.common(None)["machine"]) == ("count", "instructions", None)
    assert asked.for_kernels(_specs("x86_64")) is asked
    for wrong in (MeasureOptions(workload=("w",), model="full"), MeasureOptions(workload=("w",), metric="cycles")):
        with pytest.raises(UserError, match="arm64 guests have no cost model"):
            wrong.for_kernels(specs)


def test_cycles_of_arm64_are_modelled_where_they_are_asked_for() -> None:
    asked = MeasureOptions(workload=("syscalls",), model="tlb")
    found = asked.for_kernels(_specs("arm64"))
    assert (found.model, found.metric, found.machine) == ("tlb", None, ARM64.experimental)
    assert found.common(None)["machine"] == ARM64.experimental
    with pytest.raises(UserError, match="riscv64 guests have no cost model"):
        asked.for_kernels(_specs("riscv64"))
    with pytest.raises(UserError, match="no cost model"):
        asked.for_kernels([*_specs("arm64"), *_specs("x86_64")])


@pytest.mark.parametrize(("guests", "machine"), [("arm64", "zen4"), ("x86_64", "neoverse-n1")])
def test_machines_of_another_architecture_are_refused(guests: str, machine: str) -> None:
    with pytest.raises(UserError, match=f"{machine}: it is of .*, and the guests are of {guests}") as raised:
        MeasureOptions(workload=("w",), model="tlb", machine=machine).for_kernels(_specs(guests))
    assert raised.value.hint


def test_an_experimental_model_is_called_so() -> None:
    for trial in ("tlb neoverse-n1 01234567", "neoverse-n1"):
        assert architecture.experiment(trial) == f"{trial}, experimental"
    for other in ("tlb zen4 01234567", "count 01234567", "zen4", "none"):
        assert architecture.experiment(other) == other


def test_the_base_of_symbols_that_arm64_writes_at_boot() -> None:
    """The word is zero in the file, and a relocation of that word says what it becomes."""
    assert ARM64.image is not None
    start = ARM64.image.addresses[1]
    at, becomes = 0x40, start + 0x10000
    entries = [(start + 0x48, 1027, becomes + 8), (start + at, 1027, becomes)]
    packed = image().ljust(0x80, b"\0") + b"".join(struct.pack("<3Q", *entry) for entry in entries)
    assert symbols._relocated(packed, at) == becomes
    assert symbols._relocated(packed, at + 0x10) == 0
