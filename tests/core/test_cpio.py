"""cpio archives: what the kernel unpacks, with bytes that depend on nothing but the contents."""

import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.core import cpio


def pack(root: Path, names: list[str]) -> bytes:
    stream = io.BytesIO()
    cpio.write(stream, root, names)
    return stream.getvalue()


def members(archive: bytes) -> list[tuple[str, int, bytes]]:
    """Name, mode and content of each member, read by the format's own rules."""
    found, at = [], 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701", at
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        _, mode, uid, gid, _, mtime, size, *_, length, _ = fields
        assert (uid, gid, mtime) == (0, 0, 0)
        name = archive[at + 110 : at + 110 + length - 1].decode()
        start = at + (110 + length + 3 & ~3)
        found.append((name, mode, archive[start : start + size]))
        at = start + (size + 3 & ~3)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "init").write_bytes(b"#!init")
    (root / "init").chmod(0o755)
    (root / "usr" / "bin" / "tool").write_bytes(b"12345")
    (root / "usr" / "bin" / "link").symlink_to("tool")
    os.mkfifo(root / "usr" / "pipe")
    return root


def test_members_are_sorted_and_their_folders_come_first(root: Path) -> None:
    found = members(pack(root, ["usr/bin/tool", "init", "usr/bin/link"]))
    assert [(name, oct(mode)) for name, mode, _ in found] == [
        ("init", "0o100755"), ("usr", "0o40755"), ("usr/bin", "0o40755"), ("usr/bin/link", "0o120777"),
        ("usr/bin/tool", "0o100644"), ("TRAILER!!!", "0o0"),
    ]  # fmt: skip
    assert [content for _, _, content in found] == [b"#!init", b"", b"", b"tool", b"12345", b""]


def test_who_packed_where_and_when_leaves_no_trace(root: Path, tmp_path: Path) -> None:
    names = sorted(cpio.everything_in(root))
    assert names == ["init", "usr", "usr/bin", "usr/bin/link", "usr/bin/tool", "usr/pipe"]
    other = tmp_path / "elsewhere"
    shutil.copytree(root, other, symlinks=True, ignore=shutil.ignore_patterns("pipe"))
    os.utime(other / "init", (1, 1))
    names.remove("usr/pipe")
    assert pack(root, names) == pack(other, names[::-1])


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio, the program, is not installed")
def test_the_program_cpio_reads_it(root: Path) -> None:
    done = subprocess.run(["cpio", "-t", "--quiet"], input=pack(root, ["init"]), capture_output=True, check=True)
    assert done.stdout == b"init\n"
