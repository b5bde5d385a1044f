"""Kernel images, made by hand to the boot protocol's offsets."""

import bz2
import gzip
import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.kernels import files

from ..fakes.kernel_image import CONFIG, bzimage, elf


def _by(tool: str, *options: str, content: bytes) -> bytes:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return subprocess.run([tool, *options], input=content, check=True, capture_output=True).stdout


SIZE = b"\0\1\2\3"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda content: content,
    "gzip": gzip.compress,
    "xz": lambda content: lzma.compress(content) + SIZE,
    "lzma": lambda content: lzma.compress(content, lzma.FORMAT_ALONE) + SIZE,
    "bzip2": lambda content: bz2.compress(content) + SIZE,
    "zstd": lambda content: _by("zstd", "-c", "--ultra", "-22", content=content) + SIZE,
    "lz4": lambda content: _by("lz4", "-c", "-l", content=content) + SIZE,
}


@pytest.mark.parametrize("packer", PACKERS)
def test_unpacked_whatever_the_packer_unless_it_was_cut_off(tmp_path: Path, packer: str) -> None:
    path, whole = tmp_path / "vmlinuz", bzimage(PACKERS[packer](elf()))
    path.write_bytes(whole)
    assert bytes(files.extract_vmlinux(path)) == elf()
    assert files.kconfig_of(path) == CONFIG
    found = files.inspect(path)
    assert (found.kind, found.release) == ("bzImage", "6.12.1-test")
    path.write_bytes(whole[:-9])
    with pytest.raises(UserError, match=f"{path} is cut off: it has {len(whole) - 9:,} of at least"):
        files.inspect(path)


@pytest.mark.parametrize("packer", ["gzip", "xz", "zstd", "lz4"])
def test_a_damaged_kernel_is_named(tmp_path: Path, packer: str) -> None:
    path = tmp_path / "vmlinuz"
    packed = PACKERS[packer](elf())
    path.write_bytes(bzimage(packed[:60] + bytes(len(packed) - 60)))
    with pytest.raises(UserError, match=f"{path}: the kernel inside cannot be unpacked: "):
        files.extract_vmlinux(path)


def test_vmlinux(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(elf(config=False))
    found = files.inspect(path)
    assert (found.kind, found.release, len(found.sha256)) == ("vmlinux", "6.12.1-test", 64)
    assert files.kconfig_of(path) is None
    assert files.has_pvh(path) and files.has_pvh(elf())
    assert not files.has_pvh(elf(pvh=False))
    assert not files.has_pvh(b"no kernel")


@pytest.mark.usefixtures("own_home")
def test_an_unpacked_kernel_that_is_damaged_is_unpacked_again(tmp_path: Path) -> None:
    path = tmp_path / "vmlinuz"
    path.write_bytes(bzimage(elf()))
    unpacked = files.prebuilt(path, None).vmlinux
    assert unpacked is not None and unpacked.read_bytes() == elf()
    unpacked.write_bytes(b"damaged")
    assert files.prebuilt(path, None).vmlinux == unpacked
    assert unpacked.read_bytes() == elf()


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF\x02\x01" + bytes(100), bytes(0x202) + b"HdrS"])
def test_no_kernel(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a Linux kernel"):
        files.inspect(path)
    with pytest.raises(UserError, match="not a file"):
        files.inspect(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        files.inspect(tmp_path / "nothing")


@pytest.mark.parametrize("place", ["boot/lib/modules/r", "boot/modules/r", "lib/modules/r", "boot/modules"])
def test_modules_are_found_beside(tmp_path: Path, place: str) -> None:
    (tmp_path / "boot").mkdir()
    assert files.modules_of(tmp_path / "boot" / "vmlinuz", "r") is None
    (tmp_path / place).mkdir(parents=True)
    assert files.modules_of(tmp_path / "boot" / "vmlinuz", "r") == tmp_path / place


@pytest.mark.parametrize(
    ("banner", "compiler"),
    [
        (
            "(debian-kernel@lists.debian.org) (x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0, GNU ld (GNU Binutils"
            " for Debian) 2.44) #1 SMP",
            "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0",
        ),
        ("(me@here) (Debian clang version 19.1.7 (3), LLD 19.1.7) # SMP", "Debian clang version 19.1.7 (3)"),
        ("(me@here) (gcc version 4.9.2 (Debian 4.9.2-10) ) #1 SMP", "gcc version 4.9.2 (Debian 4.9.2-10) "),
        ("(me@here) #1 SMP", None),
    ],
)
def test_the_banner_names_the_compiler(tmp_path: Path, banner: str, compiler: str | None) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(elf().replace(b"(me@here) (gcc) #1 SMP", banner.encode()))
    assert files.compiler_of(path) == compiler
    path.write_bytes(b"no kernel")
    assert files.compiler_of(path) is None


@pytest.mark.parametrize("packer", ["gzip", "xz", "bzip2", "zstd"])
def test_what_unpacks_without_end_is_refused(packer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UNPACKED_MAX", 1 << 20)
    path = tmp_path / "vmlinuz"
    path.write_bytes(bzimage(PACKERS[packer](elf() + bytes(2 << 20))))
    with pytest.raises(UserError, match="unpacks to more than 1 MiB"):
        files.extract_vmlinux(path)


# ---- names of kernel parameters in an image

NAMES = b"\0threadirqs\0nohz=\0nospectre_v2\0rcu_nocbs\0rcupdate.rcu_expedited\0rcupdate.rcu_normal\0workqueue.debug\0"


@pytest.fixture
def vmlinux(tmp_path: Path) -> Path:
    path = tmp_path / "vmlinux"
    path.write_bytes(elf() + NAMES)
    return path


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("threadirqs", True),
        ("nohz", True),
        ("spectre_v2", True),  # the end of another string: linkers merge these
        ("rcu-nocbs", True),
        ("rcupdate.rcu_expedited", True),
        ("nokaslr", True),
        ("threadirq", False),
        ("rcupdate.rcu_expeditd", False),
        ("rcupdate-rcu_normal", False),
        ("nohz.*", False),
    ],
)
def test_a_kernel_knows_the_names_in_its_image(vmlinux: Path, name: str, known: bool) -> None:
    assert files.has_parameter(vmlinux, name) is known


def test_similar_names_are_those_of_the_same_module(vmlinux: Path) -> None:
    said = files.similar_parameters(vmlinux, "rcupdate.rcu_expeditd")
    assert said is not None and said.startswith("did you mean rcupdate.rcu_expedited")
    assert files.similar_parameters(vmlinux, "threadirq") is None
    assert files.similar_parameters(vmlinux, "other.debug") is None
