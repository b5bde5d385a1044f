"""The initrd of a workload's guest, packed from a root that is made here."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from lab.core.errors import BuildFailed, UserError
from lab.guests import initrd
from lab.guests.image import Image
from lab.guests.initrd import MissingFile
from lab.kernels import architecture
from lab.workloads import selection
from lab.workloads.spec import Workload

from ..core.test_cpio import members
from ..fakes.build import own_folders
from ..fakes.guest import IMAGE, WORKLOAD, write_workload
from ..fakes.kernel_image import damaged_elf

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to make programs")

MAKEFILE = """\
$(OUT)/mine: mine.c
\t$(CC) -static -nostdlib -Wl,-e,0 -I$(LAB_INCLUDE) -o $@ $<
"""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Image, Path]:
    own_folders(monkeypatch, tmp_path)
    root = tmp_path / "image" / "root"
    for name in ("init", "usr/bin/mine", "usr/bin/tool", "bin/busybox"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"this is {name}")
        (root / name).chmod(0o755)
    return IMAGE, tmp_path / "image"


def workload(folder: Path, top: str = "", text: str = WORKLOAD) -> Workload:
    return selection.load(write_workload(folder, text.replace("[[metric]]", f"{top}\n[[metric]]", 1)))


def content(path: Path) -> dict[str, bytes]:
    return {name: data for name, mode, data in members(path.read_bytes()) if stat.S_ISREG(mode)}


def test_init_program_and_extra_files(image: tuple[Image, Path], tmp_path: Path) -> None:
    chosen = workload(tmp_path / "w", 'extra_files = ["/usr/bin/tool"]\nsetup = ["/bin/busybox", "true"]')
    assert content(initrd.pack_initrd(image, chosen)).keys() == {"init", "usr/bin/mine", "usr/bin/tool", "bin/busybox"}


def test_a_folder_and_names_with_a_star_are_all_that_is_there(image: tuple[Image, Path], tmp_path: Path) -> None:
    library = image[1] / "root" / "usr" / "lib" / "python3.11"
    (library / "json").mkdir(parents=True)
    (library / "json" / "decoder.py").write_text("pass")
    # A module that can be run, too: the guest's image need not have what would run it.
    (library / "pdb.py").write_text("#! /usr/bin/env python3")
    chosen = workload(tmp_path / "w", 'extra_files = ["/usr/lib/python3.*"]')
    packed = content(initrd.pack_initrd(image, chosen))
    assert packed.keys() == {"init", "usr/bin/mine", "usr/lib/python3.11/json/decoder.py", "usr/lib/python3.11/pdb.py"}


def test_own_files_get_into_the_guest(image: tuple[Image, Path], tmp_path: Path) -> None:
    (tmp_path / "w" / "jobs").mkdir(parents=True)
    (tmp_path / "w" / "jobs" / "a.fio").write_text("[job]")
    chosen = workload(tmp_path / "w", 'files = ["jobs/a.fio"]')
    packed = initrd.pack_initrd(image, chosen)
    assert content(packed)["workload/jobs/a.fio"] == b"[job]"
    modes = {name: mode for name, mode, _ in members(packed.read_bytes())}
    assert modes["workload/jobs/a.fio"] == stat.S_IFREG | 0o555
    assert modes["workload"] == modes["workload/jobs"] == stat.S_IFDIR | 0o755


def test_a_file_of_the_users_becomes_a_case_with_a_place_of_its_own(image: tuple[Image, Path], tmp_path: Path) -> None:
    odd = tmp_path / "My Job,\u00e9.fio"
    odd.write_text("one")
    chosen, case = workload(tmp_path / "w", 'case_files = "*.fio"').with_file(odd)
    assert (case.name, case.guest_file) == ("my-job", "/workload/user/my-job")
    one = initrd.pack_initrd(image, chosen)
    assert content(one)["workload/user/my-job"] == b"one"
    odd.write_text("two")
    two = initrd.pack_initrd(image, chosen)
    assert content(two)["workload/user/my-job"] == b"two" and content(one)["workload/user/my-job"] == b"one"
    odd.unlink()
    with pytest.raises(UserError, match="is gone"):
        initrd.pack_initrd(image, chosen)


def test_a_slice_is_packed_once_and_depends_on_its_workload_alone(image: tuple[Image, Path], tmp_path: Path) -> None:
    chosen = workload(tmp_path / "w")
    before = initrd.pack_initrd(image, chosen)
    bytes_before, time_before = before.read_bytes(), before.stat().st_mtime_ns
    # Others of the same name, with more files, and the same again.
    other = tmp_path / "other"
    other.mkdir()
    (other / "data").write_text("more")
    assert initrd.pack_initrd(image, workload(other, 'files = ["data"]')) != before
    assert initrd.pack_initrd(image, chosen) == before
    assert before.stat().st_mtime_ns == time_before
    before.unlink()
    assert initrd.pack_initrd(image, chosen).read_bytes() == bytes_before


@pytest.mark.parametrize(("top", "words"), [
    ('extra_files = ["/usr/bin/nothing"]', "workload mine needs /usr/bin/nothing, which the guest image guest"),
    ('extra_files = ["/usr/lib/ruby*"]', r"needs /usr/lib/ruby\*"),
    ('setup = ["/sbin/nothing"]', "needs /sbin/nothing"),
])  # fmt: skip
def test_what_the_image_lacks_is_refused(image: tuple[Image, Path], tmp_path: Path, top: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        initrd.pack_initrd(image, workload(tmp_path / "w", top))


def test_a_script_needs_its_interpreter(image: tuple[Image, Path], tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    script = tmp_path / "w" / "run"
    chosen = workload(tmp_path / "w", 'case_files = "*"')
    script.write_text("#!/bin/sh\n")
    packed = initrd.pack_initrd(image, chosen.with_file(script)[0])
    assert "bin/busybox" in content(packed), "it is the image's shell"
    script.write_text("#!/usr/bin/python3\n")
    with pytest.raises(UserError, match=r"needs /usr/bin/python3 \(/workload/user/run does\)"):
        initrd.pack_initrd(image, chosen.with_file(script)[0])


@needs_gcc
def test_a_folder_with_a_makefile_is_compiled_into_its_slice(image: tuple[Image, Path], tmp_path: Path) -> None:
    chosen = workload(tmp_path / "w")
    (tmp_path / "w" / "Makefile").write_text(MAKEFILE)
    (tmp_path / "w" / "mine.c").write_text("#include <lab/mark.h>\nint place;\n")
    packed = initrd.pack_initrd(image, chosen)
    program = content(packed)["usr/bin/mine"]
    assert program.startswith(b"\x7fELF"), "not the image's"
    assert initrd.pack_initrd(image, chosen) == packed
    (tmp_path / "w" / "mine.c").write_text("int place = 1;\n")
    assert initrd.pack_initrd(image, chosen) != packed


@needs_gcc
@pytest.mark.parametrize(
    ("makefile", "words"),
    [(MAKEFILE, r"does not compile: .*mine\.c:1:13: error: "), ("all:\n\ttrue\n", "its Makefile made no mine")],
)
def test_a_failed_compilation_is_named(image: tuple[Image, Path], tmp_path: Path, makefile: str, words: str) -> None:
    chosen = workload(tmp_path / "w")
    (tmp_path / "w" / "Makefile").write_text(makefile)
    (tmp_path / "w" / "mine.c").write_text("int place = ;\n")
    with pytest.raises(BuildFailed, match=words) as caught:
        initrd.pack_initrd(image, chosen)
    assert "\n" not in caught.value.message
    assert (caught.value.log is None) == (makefile != MAKEFILE)


@pytest.mark.parametrize(("machine", "guests"), [(62, "arm64"), (183, "x86_64"), (243, "arm64")])
def test_a_program_of_another_architecture_is_refused(machine: int, guests: str, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "tool").write_bytes(b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little"))
    chosen = workload(tmp_path / "w", 'files = ["tool"]')
    name = next(name for name in chosen.own_files if name.endswith("/tool"))
    with pytest.raises(UserError, match=f"/tool is a program of another architecture than {guests}") as raised:
        initrd.own_files(chosen, guests)
    assert "gcc" in str(raised.value.hint)
    own = next(name for name in architecture.names() if architecture.load(name).elf_machine == machine)
    assert initrd.own_files(chosen, own) == {name: chosen.folder / "tool"}


# ---- libraries


def gcc(*words: str | Path) -> None:
    subprocess.run(["gcc", "-nostdlib", "-x", "c", "/dev/null", "-x", "none", *words], check=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tool -> libouter.so.1 (a link) -> libinner.so in a folder of its own, and a loader behind two links."""
    root = tmp_path_factory.mktemp("root")
    lib, own, binaries = root / "usr/lib/x86_64-linux-gnu", root / "usr/lib/own", root / "usr/bin"
    for folder in (lib, own, binaries, root / "lib"):
        folder.mkdir(parents=True)
    gcc("-shared", "-o", own / "libinner.so", "-Wl,-soname,libinner.so")
    gcc("-shared", "-o", lib / "libouter.so.1.2", "-Wl,-soname,libouter.so.1", "-Wl,--no-as-needed",
        own / "libinner.so", "-Wl,-rpath,$ORIGIN/../own")  # fmt: skip
    (lib / "libouter.so.1").symlink_to("libouter.so.1.2")
    gcc("-shared", "-o", root / "lib/loader-2.so")
    (root / "lib/loader.so").symlink_to("/lib/loader-2.so")
    (root / "lib64").symlink_to("lib")
    gcc("-o", binaries / "tool", "-Wl,-e,0", "-Wl,--no-as-needed", lib / "libouter.so.1",
        "-Wl,--dynamic-linker=/lib64/loader.so", f"-Wl,-rpath-link={own}")  # fmt: skip
    (binaries / "alias").symlink_to("../bin/tool")
    (binaries / "script").write_text("#!/usr/bin/tool -x\n")
    (root / "etc").mkdir()
    (root / "etc/data").write_text("no program")
    return root


ALL = {
    "usr/bin/tool", "lib64", "lib/loader.so", "lib/loader-2.so", "usr/lib/own/libinner.so",
    "usr/lib/x86_64-linux-gnu/libouter.so.1", "usr/lib/x86_64-linux-gnu/libouter.so.1.2",
}  # fmt: skip


@needs_gcc
def test_loader_and_libraries_come_along_with_the_links_that_lead_to_them(root: Path) -> None:
    assert initrd.closure(root, {"/usr/bin/tool": None}) == ALL
    assert initrd.closure(root, {"/usr/bin/alias": None}) == {*ALL, "usr/bin/alias"}
    assert initrd.closure(root, {"/usr/bin/script": None}) == {*ALL, "usr/bin/script"}


@needs_gcc
def test_a_file_from_elsewhere_finds_its_libraries_in_the_root(root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "usr/bin/tool", tmp_path / "mine")
    found = initrd.closure(root, {"/workload/mine": tmp_path / "mine"})
    assert found == ALL - {"usr/bin/tool"}


@needs_gcc
def test_what_is_missing_is_named_with_who_needs_it(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "root"
    shutil.copytree(root, other, symlinks=True)
    (other / "usr/lib/own/libinner.so").unlink()
    with pytest.raises(MissingFile, match=r"/libouter\.so\.1\.2 needs libinner\.so"):
        initrd.closure(other, {"/usr/bin/tool": None})


def test_a_damaged_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(damaged_elf())
    with pytest.raises(UserError, match="/mine is not a readable ELF file: "):
        initrd.closure(tmp_path, {"/workload/mine": tmp_path / "mine"})
