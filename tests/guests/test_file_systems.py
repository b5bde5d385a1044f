"""What a guest needs for a file system on a RAM disk, and the commands that mount it."""

import gzip
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.guests import file_systems
from lab.guests.run import Arm
from lab.kernels import kconfig
from lab.kernels.kconfig import FILE_SYSTEMS, RAM_DISK
from lab.workloads import selection

from ..fakes.guest import kernel
from ..fakes.kernel_image import damaged_elf

WORKLOAD, _ = selection.select("fsmark")


def _module(path: Path, depends: str) -> Path:
    """A module that says which others it depends on, compiled as the kernel's build does."""
    text = f'__attribute__((section(".modinfo"), used)) static const char depends[] = "depends={depends}";'
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-c", "-x", "c", "-", "-o", path], input=text, text=True, check=True)
    return path


def _arm(folder: Path, name: str, file_system: str | None, options: str) -> Arm:
    """An arm whose kernel has its modules in usr/lib, as packages have."""
    boot = folder / "boot"
    boot.mkdir(parents=True, exist_ok=True)
    image, config = boot / "vmlinuz-6.99", boot / "config-6.99"
    image.touch()
    config.write_text(options)
    found = replace(kernel(name), bzimage=image, config=config, modules=_modules(folder))
    return Arm(name=name, kernel=found, settings={"mount.fs": file_system} if file_system else {})


def _modules(folder: Path) -> Path:
    return folder / "usr/lib/modules/6.99/kernel"


def test_modules_come_behind_those_they_depend_on(tmp_path: Path) -> None:
    there = _modules(tmp_path)
    _module(there / "brd.ko", "")
    subprocess.run(["gzip", _module(there / "fs/xfs.ko", "lib-sums,exports")], check=True)
    _module(there / "lib_sums.ko", "exports")
    _module(there / "exports.ko", "")
    _module(there / "other.ko", "")
    arm = _arm(tmp_path, "test", "xfs", f"{RAM_DISK}=m\nCONFIG_XFS_FS=m\n")
    made = file_systems.mounted(WORKLOAD, [_arm(tmp_path, "base", None, ""), arm])
    loaded = [Path(name).name for name in made.brought if name.startswith("/lib/lab/modules/6.99/xfs/")]
    assert loaded == ["00-brd.ko", "01-exports.ko", "02-lib_sums.ko", "03-xfs.ko.gz"]
    assert made.packages == (*WORKLOAD.packages, "xfsprogs")
    assert made.memory_mb > WORKLOAD.memory_mb
    assert any(word.startswith("brd.rd_size=") for word in made.cmdline)
    assert made.own_files["/lib/lab/mount-fs"].is_file()


@pytest.mark.parametrize("content", [b"no module", gzip.compress(b"ELF", mtime=0)[:9], damaged_elf()])
def test_a_damaged_module_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "brd.ko").write_bytes(content)
    with pytest.raises(UserError, match=r"the module .*brd\.ko cannot be read: "):
        list(file_systems._depends(tmp_path / "brd.ko"))


def test_one_more_kernel_brings_its_own_modules(tmp_path: Path) -> None:
    options = f"{RAM_DISK}=m\nCONFIG_XFS_FS=m\n"
    for name in ("end", "other"):
        _module(_modules(tmp_path / name) / "brd.ko", "")
        _module(_modules(tmp_path / name) / "xfs.ko", "")
    end, other = (_arm(tmp_path / name, name, "xfs", options) for name in ("end", "other"))
    made = file_systems.mounted(WORKLOAD, [end])
    assert file_systems.with_modules(made, end) is made
    assert file_systems.loads_modules(made, end) and not file_systems.loads_modules(WORKLOAD, end)
    assert not file_systems.loads_modules(made, _arm(tmp_path, "plain", None, ""))
    assert file_systems.with_modules(WORKLOAD, _arm(tmp_path, "plain", None, "")) is WORKLOAD
    theirs = tmp_path / "other"
    own = {path for path in file_systems.with_modules(made, other).own_files.values() if path.is_relative_to(theirs)}
    assert {path.name for path in own} == {"brd.ko", "xfs.ko"}
    with pytest.raises(UserError, match="has CONFIG_XFS_FS neither built in nor as a module"):
        file_systems.with_modules(made, _arm(tmp_path / "without", "without", "xfs", f"{RAM_DISK}=y\n"))


def test_what_is_built_in_is_not_brought(tmp_path: Path) -> None:
    arm = _arm(tmp_path, "base", "ext4", f"{RAM_DISK}=y\nCONFIG_EXT4_FS=y\n")
    assert list(file_systems.mounted(WORKLOAD, [arm]).brought) == ["/lib/lab/mount-fs"]


@pytest.mark.parametrize("options", [f"{RAM_DISK}=m\nCONFIG_XFS_FS=m\n", f"{RAM_DISK}=y\n# CONFIG_XFS_FS is not set\n"])
def test_a_kernel_without_the_file_system_is_refused(tmp_path: Path, options: str) -> None:
    _module(_modules(tmp_path) / "brd.ko", "")
    with pytest.raises(UserError, match=r"mount\.fs=xfs: .* has CONFIG_XFS_FS neither built in nor as a module"):
        file_systems.mounted(WORKLOAD, [_arm(tmp_path, "base", "xfs", options)])


def test_each_arm_mounts_its_own(tmp_path: Path) -> None:
    ext4, tmpfs = (file_systems.setups(WORKLOAD, {"mount.fs": kind})[0] for kind in ("ext4", "tmpfs"))
    assert ext4[3:6] == ("ext4", "384", "/sbin/mke2fs")
    assert tmpfs[3:] == ("tmpfs", "384")
    assert WORKLOAD.guest_settings({}, {"mount.fs": "ext4"}) == {}


def test_by_hand_it_is_made_by_the_same_program() -> None:
    for kind in ("ext4", "xfs", "btrfs"):
        disk, make, mount = file_systems.by_hand(kind)
        assert disk == "modprobe brd rd_nr=1 rd_size=393216"
        assert make.split() == [*file_systems.setups(WORKLOAD, {"mount.fs": kind})[0][5:], "/dev/ram0"]
        assert mount == f"mount -t {kind} /dev/ram0 /tmp"
    assert file_systems.by_hand("tmpfs") == ["mount -t tmpfs none /tmp"]


def test_a_built_kernel_has_it_built_in() -> None:
    assert kconfig.mount_needs("xfs").required == {RAM_DISK, FILE_SYSTEMS["xfs"]}
    assert kconfig.mount_needs("tmpfs") == kconfig.mount_needs(None) == kconfig.NOTHING
