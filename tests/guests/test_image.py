"""The guest image, built by the real Ansible role from packages of a fake mmdebstrap."""

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.core import ansible, records
from lab.core.errors import BuildFailed, HostFailed
from lab.guests import image as guest_image
from lab.guests.image import Image, Recipe
from lab.kernels.compilers import Compiler

from ..core.test_cpio import members
from ..fakes.build import compiler, own_folders, quiet
from ..fakes.processes import program

MMDEBSTRAP = """\
echo "mmdebstrap $*"
if [ -e "$FAKE_FAIL" ]; then echo "E: Unable to fetch some archives" >&2; exit 100; fi
for word; do case "$word" in /*) root=$word; break ;; esac; done
mkdir -p $root/usr/bin $root/usr/share/doc/x $root/var/cache/apt/archives $root/var/log
echo tool > $root/usr/bin/fio
ln -s fio $root/usr/bin/link
for name in fio_3.33-3_amd64 zlib1g_1%3a1.2.13_amd64; do echo > $root/var/cache/apt/archives/$name.deb; done
"""

needs_static = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to compile the guest's init")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    program(home / "bin" / "mmdebstrap", MMDEBSTRAP)
    with pytest.MonkeyPatch.context() as patch:
        own_folders(patch, home)
        patch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
        patch.setenv("FAKE_FAIL", str(home / "fail"))
        yield home


@pytest.fixture(scope="module")
def image(home: Path) -> tuple[Image, Path]:
    return guest_image.obtain(quiet())


@needs_static
def test_an_image_is_whole(image: tuple[Image, Path]) -> None:
    record, folder = image
    assert record.packages == {"fio": "3.33-3", "zlib1g": "1:1.2.13"}
    assert record.sha256 == records.file_digest(folder / "root.cpio")
    root = folder / "root"
    assert os.access(root / "init", os.X_OK) and os.access(root / "usr/bin/alloc-burst", os.X_OK)
    assert record.programs["init"] == records.file_digest(root / "init")
    assert not (root / "usr/share/doc").exists() and not (root / "var/cache").exists(), "never read in a guest"
    names = {name for name, _, _ in members((folder / "root.cpio").read_bytes())}
    assert {"init", "usr/bin/fio", "usr/bin/link", "usr/bin/alloc-burst"} <= names
    assert not [path for path in folder.parent.iterdir() if path.name.endswith(".partial")]
    assert guest_image.built() == [image]


@needs_static
def test_a_hit_runs_nothing(image: tuple[Image, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ansible, "play")
    assert guest_image.obtain(quiet()) == image


@needs_static
def test_packages_that_cannot_be_had_are_the_hosts_failure(
    home: Path, image: tuple[Image, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Recipe(schema=1, name="guest", packages=["more"], trim=[])
    monkeypatch.setattr(guest_image, "read_recipe", lambda: other)
    (home / "fail").touch()
    try:
        with pytest.raises(HostFailed, match="packages: E: Unable to fetch some archives") as caught:
            guest_image.obtain(quiet())
    finally:
        (home / "fail").unlink()
    assert not isinstance(caught.value, BuildFailed) and caught.value.log is not None
    assert guest_image.built() == [image], "nothing that looks finished"


def test_the_key_depends_on_recipe_sources_suite_and_compiler(tmp_path: Path) -> None:
    source = tmp_path / "program"
    source.mkdir()
    (source / "main.c").write_text("int main(void) { return 0; }\n")
    init = guest_image.Program(source=str(source), program="program", into="init")

    def key(*packages: str, suite: str = "bookworm", cc: Compiler | None = None) -> str:
        recipe = Recipe(schema=1, name="guest", packages=["fio", *packages], trim=[])
        return guest_image._key(recipe, [init], suite, cc or compiler())

    first = key()
    assert key() == first
    other = Compiler(command="gcc", family="gcc", major=99, version="99", linker="ld")
    keys = {first, key("more"), key(suite="trixie"), key(cc=other)}
    (source / "main.c").write_text("int main(void) { return 1; }\n")
    keys.add(key())
    assert len(keys) == 5


def test_optional_packages_make_a_second_image() -> None:
    recipe = Recipe(schema=1, name="guest", packages=["fio"], optional=["iperf3", "fsmark"], trim=[])
    first = recipe.including(())
    assert (first.packages, first.optional) == (["fio"], [])
    assert recipe.including(["fio"]) == first, "what the image has anyway"
    second = recipe.including(["fsmark"])
    assert second.packages == ["fio", "iperf3", "fsmark"] and recipe.including(["iperf3"]) == second
    assert recipe.including(["redis-server"]).packages == [*second.packages, "redis-server"]
    assert recipe.including(second.packages) == second


def test_the_hosts_release(monkeypatch: pytest.MonkeyPatch) -> None:
    release = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    assert guest_image.host_suite() == guest_image.suite_of("x86_64") == "bookworm"
    release |= {"ID": "ubuntu", "VERSION_CODENAME": "noble"}
    assert guest_image.host_suite() == guest_image.suite_of("riscv64") == "trixie"
    release |= {"ID": "debian", "VERSION_CODENAME": ""}
    with pytest.raises(HostFailed, match="does not name a release"):
        guest_image.host_suite()
