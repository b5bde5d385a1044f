"""Packages of other distributions: made by their tools, damaged, and hostile."""

import re
import subprocess
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lab.core.errors import UserError
from lab.core.paths import cache_dir
from lab.kernels import archives, file_source, package_files
from lab.kernels.file_source import FileSource
from lab.kernels.kernel import resolve

from ..fakes import packages
from ..fakes.kernel_image import bzimage, elf
from ..fakes.work import quiet

pytestmark = pytest.mark.usefixtures("own_home")

RELEASE = "6.12.1-test"
KERNEL = bzimage(elf())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A kernel as distributions lay it out: with its modules, a kconfig, and a link that leads elsewhere."""
    folder = tmp_path / "files" / "lib" / "modules" / RELEASE
    (folder / "kernel").mkdir(parents=True)
    (folder / "vmlinuz").write_bytes(KERNEL)
    (folder / "config").write_text("CONFIG_TMPFS=y\n")
    (folder / "System.map").write_text("0 T _text\n")
    (folder / "kernel" / "brd.ko.xz").write_bytes(b"brd")
    (folder / "kernel" / "hidden.ko").symlink_to("/etc/passwd")
    (folder / "build").symlink_to("/usr/src")
    return tmp_path / "files"


DEB = package_files.Identity("deb", "linux-image-6.12.1", "6.12.1-1", "amd64")
PACMAN = package_files.Identity("pacman", "linux", "6.12.1.arch1-1", "x86_64")
RPM = package_files.Identity("rpm", "kernel-core", "6.12.1-200.fc41", "x86_64")
MADE: dict[str, tuple[Callable[[Path, Path], Path], package_files.Identity]] = {
    "rpm": (packages.rpm, RPM),
    "rpm.xz": (partial(packages.rpm, payload="w2.xzdio", epoch=2), RPM._replace(version=f"2:{RPM.version}")),
    "deb": (packages.deb, DEB),
    "deb.zst": (partial(packages.deb, z="zstd"), DEB),
    **{f"pacman.{z}": (partial(packages.pacman, z=z), PACMAN) for z in ("zst", "xz", "gz")},
}


@pytest.mark.parametrize("kind", MADE)
def test_the_kernel_of_a_package(files: Path, tmp_path: Path, kind: str) -> None:
    make, identity = MADE[kind]
    path = make(files, tmp_path)
    assert package_files.identity(path) == identity
    source = resolve(f"file:{path}@thp=never").source
    assert isinstance(source, FileSource) and source.package == f"{identity.name} {identity.version}"
    assert (source.release, source.inside, source.architecture) == (RELEASE, f"lib/modules/{RELEASE}/vmlinuz", "x86_64")
    assert list(archives.downloaded([])) == [package_files.folder_of(source.sha256) / source.inside]
    path.unlink()  # what is unpacked is enough
    found = source.obtain(quiet())
    assert found.bzimage is not None and found.bzimage.read_bytes() == KERNEL
    assert found.config is not None and found.config.read_text() == "CONFIG_TMPFS=y\n"
    assert found.symbols is not None and found.modules is not None
    assert [module.name for module in found.modules.rglob("*.ko*")] == ["brd.ko.xz"]
    assert source.package in " ".join(source.provenance(tmp_path))
    with pytest.raises(UserError, match="need a build"):
        resolve(f"file:{path}+fix.patch")


@pytest.mark.parametrize("kind", ["rpm", "deb", "pacman.zst"])
def test_a_kernel_with_two_names(files: Path, tmp_path: Path, kind: str) -> None:
    """An rpm has the content of a file with its last name, a tar with its first."""
    (files / "boot").mkdir()
    for name in ("vmlinuz", "config"):
        (files / "boot" / f"{name}-{RELEASE}").hardlink_to(files / "lib" / "modules" / RELEASE / name)
    found = resolve(f"file:{MADE[kind][0](files, tmp_path)}").obtain(quiet())
    assert found.bzimage is not None and found.bzimage.read_bytes() == KERNEL
    assert found.config is not None and found.config.read_text() == "CONFIG_TMPFS=y\n"


@pytest.mark.parametrize("kind", ["rpm", "deb", "pacman.zst"])
def test_a_damaged_package(files: Path, tmp_path: Path, kind: str) -> None:
    whole = MADE[kind][0](files, tmp_path).read_bytes()
    path = tmp_path / "cut"
    for size in (10, 100, 300, len(whole) // 2, len(whole) - 200):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError) as error:
            resolve(f"file:{path}")
        assert "\n" not in error.value.message and str(path) in error.value.message
    path.write_bytes(whole[:-60] + bytes(8) + whole[-52:])
    with pytest.raises(UserError, match=re.escape(f"{path} is a damaged package")):
        resolve(f"file:{path}")
    assert not list(cache_dir("unpacked").glob("[!.]*"))


BOOT = f"boot/vmlinuz-{RELEASE}"


@pytest.mark.parametrize(("members", "message"), [
    ([("README", b"")], "contains no kernel"),
    ([(BOOT, b"text")], f"{BOOT} is not a Linux kernel"),
    ([(f"boot/../../{BOOT}", KERNEL)], "would leave the package's folder"),
    ([("../x", b"")], "would leave the package's folder"),
    ([(BOOT, KERNEL), (BOOT, KERNEL)], "damaged package"),
    ([("lib/modules/r/a.ko", b""), ("lib/modules/r/a.ko/b.ko", b"")], "damaged package"),
    ([packages.link(BOOT, "/boot/vmlinuz")], "contains no kernel"),
    ([packages.link(BOOT, "/etc/passwd", tarfile.LNKTYPE)], "contains no kernel"),
    ([packages.link("boot", "/etc"), (BOOT, b"text")], "is not a Linux kernel"),
    ([(BOOT, KERNEL), ("lib/modules/r/vmlinuz", KERNEL + b"2")], "several kernels: lib/modules/r/vmlinuz, boot/"),
    ([(f"lib/modules/{'r' * 300}/vmlinuz", KERNEL)], "damaged package"),
])  # fmt: skip
def test_a_hostile_package(tmp_path: Path, members: list[tuple[str, bytes]], message: str) -> None:
    path = packages.tar(tmp_path / "kernel.tar", *members)
    with pytest.raises(UserError, match=message) as error:
        resolve(f"file:{path}")
    assert "\n" not in error.value.message


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packages.tar(tmp_path / "kernel.tar", (BOOT, KERNEL), ("other", bytes(100_000)))
    for name, value in (("_MEMBERS_MAX", 1), ("_READ_MAX", 50_000), ("_WRITTEN_MAX", 100)):
        with monkeypatch.context() as patch:
            patch.setattr(package_files, name, value)
            with pytest.raises(UserError, match=r"holds too much|unpacks to more"):
                file_source.resolve(str(path))
    assert file_source.resolve(str(path)).release == RELEASE


def test_an_archive_that_names_files_of_this_machine(tmp_path: Path) -> None:
    """libarchive reads mtree, too, in which a member's content is a file of this machine."""
    path = tmp_path / "kernel.pkg.tar.gz"
    text = f"#mtree\n./{BOOT} type=file mode=0644 contents=/etc/passwd\n"
    path.write_bytes(subprocess.run(["gzip", "-c"], input=text.encode(), check=True, capture_output=True).stdout)
    with pytest.raises(UserError, match=re.escape(str(path))):
        file_source.resolve(str(path))
