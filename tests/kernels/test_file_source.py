"""Kernels in files, with modules of their own, in a folder's order, and at addresses."""

import functools
import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.bisection import commit_range
from lab.core import settings
from lab.core.errors import HostFailed, LabError, UserError
from lab.core.git import short
from lab.core.progress import QUIET
from lab.core.records import file_digest
from lab.kernels import kconfig, spec
from lab.kernels.file_source import FileSource
from lab.kernels.kernel import resolve

from ..fakes import packages
from ..fakes.kernel_image import bzimage, elf
from ..fakes.work import quiet

pytestmark = pytest.mark.usefixtures("own_home")

RELEASE = "6.12.1-test"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files of a package: a kernel alone."""
    folder = tmp_path / "files" / "usr" / "lib" / "modules" / RELEASE
    folder.mkdir(parents=True)
    (folder / "vmlinuz").write_bytes(bzimage(elf()))
    return tmp_path / "files"


@pytest.mark.parametrize("kind", ["deb", "pacman", "rpm"])
def test_a_folder_is_a_series_in_the_order_of_its_versions(tmp_path: Path, files: Path, kind: str) -> None:
    place = tmp_path / "packages"
    place.mkdir()
    versions = {
        "deb": ["6.12.9-1", "6.12.10~rc1-1", "6.12.10-1"],
        "pacman": ["6.12rc1-1", "6.12-1", "6.12.1.arch1-1"],
        "rpm": ["6.12.9", "6.12.10~rc1", "6.12.10"],
    }[kind]
    names = [getattr(packages, kind)(files, place, version=version).name for version in versions[::-1]][::-1]
    if kind == "deb":
        packages.deb(files, place, name="linux-headers-6.12.1", version="6.12.1-1")
    (place / "notes.txt").write_text("no package")
    found = commit_range.packages(f"dir:{place}/*@thp=never", None, None, QUIET)
    assert [found.old.id, *(one.id for one in found.candidates)] == names
    assert found.candidates[0].spec == f"file:{place / names[1]}@thp=never"
    name = "kernel-core-6.12.117-200.fc41.x86_64.rpm"
    assert short(name) == name, "40 letters, and no commit"
    narrower = commit_range.packages(f"dir:{place}/*", f"file:{place / names[1]}", None)
    assert (narrower.old.id, [one.id for one in narrower.candidates]) == (names[1], names[2:])


def test_a_folder_that_is_no_series(tmp_path: Path, files: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        commit_range.packages(f"dir:{tmp_path}/none/*.rpm", None, None)
    with pytest.raises(UserError, match="matches 0 packages"):
        commit_range.packages(f"dir:{tmp_path}/*.rpm", None, None)
    packages.deb(files, tmp_path)
    packages.pacman(files, tmp_path)
    with pytest.raises(UserError, match="deb and pacman, whose versions have no common order"):
        commit_range.packages(f"dir:{tmp_path}/*", None, None)


@pytest.mark.parametrize("kind", ["folder", "top", "tar", "deb"])
def test_an_image_with_modules(tmp_path: Path, kind: str) -> None:
    image, root = tmp_path / "bzImage", tmp_path / "root"
    image.write_bytes(bzimage(elf(config=False)))
    folder = root / "lib" / "modules" / RELEASE
    folder.mkdir(parents=True)
    (folder / "brd.ko").write_bytes(b"brd")
    (folder / "config").write_text("CONFIG_BRD=m\n")
    place = {"folder": lambda: folder, "top": lambda: root, "deb": lambda: packages.deb(root, tmp_path)}.get(kind)
    if place is None:
        subprocess.run(["tar", "-czf", tmp_path / "modules.tar.gz", "-C", root, "lib"], check=True)
    modules = place() if place else tmp_path / "modules.tar.gz"
    source = resolve(f"file:{image}+{modules}").source
    if modules.is_file():
        modules.unlink()
    found = source.obtain(quiet())
    assert found.modules is not None and (found.modules / "brd.ko").read_bytes() == b"brd"
    assert found.config is not None and found.config.read_text() == "CONFIG_BRD=m\n"


def test_modules_of_another_kernel(tmp_path: Path) -> None:
    image = tmp_path / "bzImage"
    image.write_bytes(bzimage(elf()))
    (tmp_path / "lib" / "modules" / "6.9.9").mkdir(parents=True)
    with pytest.raises(UserError, match=r"holds no modules of 6\.12\.1-test, but of 6\.9\.9"):
        resolve(f"file:{image}+{tmp_path}")
    with pytest.raises(UserError, match="no such folder or file of modules"):
        resolve(f"file:{image}+{tmp_path}/none")


def test_a_kernel_without_what_every_guest_needs(tmp_path: Path, files: Path) -> None:
    """The lab's own kernels have it all; an option that a kernel does not know is not missed."""
    assert set(kconfig.BOOT) <= kconfig.guest_options()[0].keys()
    config = next(files.rglob("vmlinuz")).with_name("config")
    config.write_text("# CONFIG_SERIAL_8250_CONSOLE is not set\nCONFIG_TMPFS=y\nCONFIG_BINFMT_ELF=m\n")
    named = resolve(f"file:{packages.pacman(files, tmp_path)}")
    needed = r"guest needs: CONFIG_SERIAL_8250_CONSOLE \(not set\), CONFIG_BINFMT_ELF \(a module\)"
    with pytest.raises(UserError, match=needed):
        named.obtain(quiet())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """A folder that is served, its address, and what was asked for."""
    folder = tmp_path / "served"
    folder.mkdir()
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, form: str, *words: object) -> None:
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_download_is_made_once_and_checked(files: Path, served: tuple[Path, str, list[str]]) -> None:
    folder, host, asked = served
    path = packages.pacman(files, folder)
    text = f"{host}/{path.name}#sha256={file_digest(path)}"
    source = resolve(f"{text}@thp=never").source
    assert source == resolve(text).source and asked == [f"/{path.name}"]
    assert isinstance(source, FileSource) and source.address == f"{host}/{path.name}" and source.release == RELEASE
    other = f"{host}/{path.name}#sha256={'0' * 64}"
    for wrong, message in (
        (f"{host}/{path.name}", "a download needs its digest"),
        (f"{host}/{path.name}#sha256=12", "64 hexadecimal digits"),
        (other, "has another SHA-256"),
        (f"{host}/none.rpm#sha256={'1' * 64}", "404"),
        (f"https://localhost:1/a.rpm#sha256={'1' * 64}", "cannot download"),
        (f"{text}+fix.patch", "64 hexadecimal digits|need a build"),
    ):
        with pytest.raises((UserError, HostFailed), match=message) as error:
            resolve(wrong)
        assert "\n" not in error.value.message
    # The cache is enough, and without it the address.
    path_in_cache = Path(source.path).parent
    shutil.rmtree(path_in_cache)
    assert source.obtain(quiet()).release == RELEASE
    shutil.rmtree(path_in_cache.parents[1] / "unpacked")
    assert source.obtain(quiet()).release == RELEASE


SCHEMES = """\
[kernels]
arch = "HOST/linux-{version}-x86_64.pkg.tar.zst"
parts = "HOST/linux-{upstream}-{release}-x86_64.pkg.tar.zst"
ubuntu = "HOST/v{version}/linux-image-*.deb"
both = "HOST/v{version}/linux-*.deb"
nothing = "HOST/v{series}/x.deb"
local = "file:///etc/{version}"
"""


def test_a_scheme_of_the_users_own(files: Path, served: tuple[Path, str, list[str]]) -> None:
    folder, host, asked = served
    packages.pacman(files, folder, version="6.12.1-1")
    (folder / "v6.12").mkdir()
    ubuntu = packages.deb(files, folder / "v6.12", name="linux-image-unsigned-generic")
    packages.deb(files, folder / "v6.12", name="linux-modules-generic")
    settings.file().parent.mkdir(parents=True)
    settings.file().write_text(SCHEMES.replace("HOST", host))
    source = resolve("arch:6.12.1-1@thp=never").source
    assert source == resolve("arch:6.12.1-1").source and len(asked) == 1
    assert source == resolve(f"arch:6.12.1-1#sha256={getattr(source, 'sha256', '')}").source and len(asked) == 1
    assert getattr(resolve("ubuntu:6.12").source, "address", None) == f"{host}/v6.12/{ubuntu.name}"
    assert resolve("parts:6.12.1-1").source == source
    for text, message in (
        ("arch:6.13-1", "404"),
        ("arch:../x", "not a version"),
        ("both:6.12", "2 files are like"),
        ("nothing:6.12", "is not the address of a package"),
        ("local:passwd", "is not the address of a package"),
        ("arch:6.12.1-1+fix.patch", "need a build"),
    ):
        with pytest.raises(LabError, match=message):
            resolve(text)
    assert spec.for_architecture("arch:6.12.1-1", "arm64") == "arch:6.12.1-1"


@pytest.mark.parametrize(("word", "hint"), [
    ("rpm:kernel-6.12", r"file:PATH\.rpm .* or https://ADDRESS#sha256=HEX"),
    ("ubuntu:6.12", r"for ubuntu:VERSION, name its address: \[kernels\] ubuntu = "),
    ("dir:packages/*.rpm", "is a series"),
    ("fiel:bzImage", "did you mean file:"),
])  # fmt: skip
def test_words_that_people_expect(word: str, hint: str) -> None:
    with pytest.raises(UserError, match="no kind of kernel is called") as error:
        spec.parse(word)
    assert re.search(hint, error.value.hint or "")
