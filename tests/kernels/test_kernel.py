"""Kernels at hand: on which machines they boot, and what is unpacked of a file."""

import dataclasses
import gzip
from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.kernels.architecture import MachineType
from lab.kernels.kernel import Kernel, common_machine, resolve

from ..fakes.guest import kernel
from ..fakes.kernel_image import bzimage, elf
from ..fakes.work import quiet

pytestmark = pytest.mark.usefixtures("own_home")


def _obtain(path: Path) -> Kernel:
    return resolve(f"file:{path}").obtain(quiet())


def _bzimage(path: Path, vmlinux: bytes) -> Path:
    path.write_bytes(bzimage(gzip.compress(vmlinux)))
    return path


def test_a_bzimage_boots_fast_when_what_is_inside_has_a_pvh_note(tmp_path: Path) -> None:
    found = _obtain(_bzimage(tmp_path / "vmlinuz", elf()))
    assert found.bzimage == tmp_path / "vmlinuz" and found.release == "6.12.1-test"
    assert found.vmlinux is not None and found.vmlinux.read_bytes() == elf()
    assert found.machines() == [MachineType.MICROVM, MachineType.Q35_PVH, MachineType.Q35]
    assert found.image(MachineType.MICROVM) == found.vmlinux and found.image(MachineType.Q35) == found.bzimage
    assert (found.commit, found.symbols, found.config) == (None, None, None)


def test_one_without_the_note_goes_through_its_own_decompressor(tmp_path: Path) -> None:
    path = _bzimage(tmp_path / "vmlinuz", elf(pvh=False))
    for _ in range(2):  # what was found is remembered
        found = _obtain(path)
        assert found.vmlinux is None and found.machines() == [MachineType.Q35]
    with pytest.raises(ValueError, match="does not boot on microvm"):
        found.image(MachineType.MICROVM)


def test_a_vmlinux_boots_by_its_note_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(elf())
    (tmp_path / "bad").write_bytes(elf(pvh=False))
    assert _obtain(tmp_path / "good").machines() == [MachineType.MICROVM, MachineType.Q35_PVH]
    assert _obtain(tmp_path / "bad").machines() == []


def test_the_configuration_is_beside_the_image_or_in_it(tmp_path: Path) -> None:
    path = _bzimage(tmp_path / "vmlinuz", elf())
    assert _obtain(path).configuration() == {"CONFIG_FOO": "y"}
    (tmp_path / "config-6.12.1-other").write_text("CONFIG_AIO=n\n")
    assert _obtain(path).configuration() == {"CONFIG_FOO": "y"}
    (tmp_path / "config-6.12.1-test").write_text("CONFIG_AIO=y\n")
    assert _obtain(path).configuration() == {"CONFIG_AIO": "y"}


def test_both_arms_get_the_fastest_machine_that_both_boot_on(tmp_path: Path) -> None:
    fast = _obtain(_bzimage(tmp_path / "vmlinuz", elf()))
    slow = kernel("other")
    assert common_machine(fast, fast) is MachineType.MICROVM
    assert common_machine(fast, slow) is common_machine(slow, fast) is MachineType.Q35
    only_fast = dataclasses.replace(fast, bzimage=None)
    with pytest.raises(UserError, match=r"no machine type boots all of .*other \(q35\)"):
        common_machine(only_fast, slow)
