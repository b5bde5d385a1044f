"""The libraries of programs, followed inside a root that is made here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.guests import initrd
from lab.guests.initrd import MissingFile

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to make programs")


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
    with pytest.raises(MissingFile, match="/usr/bin/nothing"):
        initrd.closure(other, {"/usr/bin/nothing": None})
    (tmp_path / "script").write_bytes(b"#!/usr/bin/python3\n")
    with pytest.raises(MissingFile, match="/usr/bin/python3"):
        initrd.closure(other, {"/workload/script": tmp_path / "script"})
