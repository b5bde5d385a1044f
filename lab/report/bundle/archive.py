"""A bundle as one file, `.tar.zst` or `.tar`: the same folder gives the same bytes of tar.

Compression is zstd's own program: the host has it anyway (kernels are packed with it), and a library would be one
more dependency for the same bytes. Both arms' kernels are nearly the same, so a window over both halves the size.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from lab.core.errors import HostFailed, UserError
from lab.core.process import find_tool
from lab.core.text import visible
from lab.report.bundle.contents import is_inside

SUFFIXES = (".tar.zst", ".tar")
_COMPRESS = ("--quiet", "-10", "--long=27", "--single-thread", "--stdout")
# 128 MiB, the window that --long=27 makes, is also the most that zstd takes unasked.
_DECOMPRESS = ("--quiet", "--decompress", "--stdout")
#: Any real date will do; tar complains of 1970.
_DATE = 1704067200
_LARGEST = 8 << 30
_CHUNK = 1 << 20
_MEMBERS_MAX = 20_000
_HEADER_MAX = 1 << 16
"""The most bytes of a header that continues the one of a member; tarfile reads it at once."""


class _Member(tarfile.TarInfo):
    """A member with headers no larger than names need, and that has all of its bytes in the archive."""

    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        """Read the bytes after a header; tarfile calls this for each. Not every version calls `frombuf` for each."""
        if self.type == tarfile.GNUTYPE_SPARSE or (self.type not in _OF_MEMBERS and self.size > _HEADER_MAX):
            raise tarfile.ReadError("it has a header that no bundle has")
        member: Self = super()._proc_member(archive)  # type: ignore[misc]
        return member


_OF_MEMBERS = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)


def is_archive(path: Path) -> bool:
    """True if a name is that of a bundle in one file."""
    return path.name.endswith(SUFFIXES)


def pack(folder: Path, target: Path, top: str) -> None:
    """Write a folder's files into an archive, below a folder of the name given."""
    with (
        _writing(target, compressed=target.name.endswith(".zst")) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            _add(tar, path, f"{top}/{path.relative_to(folder)}")


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = path.stat().st_size
    member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    member.mtime = _DATE
    with path.open("rb") as stream:
        tar.addfile(member, stream)


@contextmanager
def _writing(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        if not compressed:
            yield file
            return
        with _zstd(_COMPRESS, stdin=subprocess.PIPE, stdout=file) as process:
            assert process.stdin is not None  # noqa: S101  (PIPE was asked for)
            yield process.stdin


def unpack(archive: Path, into: Path) -> Path:
    """Take an archive's files into a new folder; gives the bundle's folder.

    tarfile's own filter against members that lead elsewhere came with Python 3.11.4, and Debian 12 has 3.11.2. So
    nothing is extracted by tarfile: only files and folders with harmless names are accepted, and written here.
    """
    into.mkdir()
    try:
        with _reading(archive) as stream, tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as tar:
            _extract(tar, archive, into)
    except (tarfile.TarError, EOFError, ValueError, LookupError, FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{archive} is no bundle, or a damaged one: {error}", hint="get it again") from error
    inside = list(into.iterdir())
    if len(inside) != 1 or not inside[0].is_dir():
        raise UserError(f"{archive} is no bundle: it does not hold one folder")
    return inside[0]


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    # Without a buffer, zstd begins at the file's real position.
    with path.open("rb", buffering=0) as file:
        if file.read(4) != b"\x28\xb5\x2f\xfd":
            file.seek(0)
            yield file
            return
        file.seek(0)
        with _zstd(_DECOMPRESS, stdin=file, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None  # noqa: S101  (PIPE was asked for)
            yield process.stdout
            # The bytes after the end of the tar are part of the file too: damage in them must show.
            while process.stdout.read(_CHUNK):
                pass


@contextmanager
def _zstd(
    arguments: tuple[str, ...], *, stdin: IO[bytes] | int, stdout: IO[bytes] | int
) -> Iterator[subprocess.Popen[bytes]]:
    """zstd at work; it must end well, unless the code around it failed already."""
    words = [find_tool("zstd", package="zstd"), *arguments]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=errors)
        try:
            # A pipe that breaks is zstd's end, and its words say why.
            with suppress(BrokenPipeError):
                yield process
        except BaseException:
            process.kill()
            raise
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            status = process.wait()
        errors.seek(0)
        said = visible(errors.read().decode(errors="replace").strip() or f"it ended with status {status}")
    if status != 0:
        raise tarfile.ReadError(said) if stdout == subprocess.PIPE else HostFailed(f"cannot compress: {said}")


def _extract(tar: tarfile.TarFile, archive: Path, into: Path) -> None:
    total = 0
    for count, member in enumerate(tar):
        total += member.size
        if count == _MEMBERS_MAX:
            raise UserError(f"{archive} has more than {_MEMBERS_MAX} files", hint="nothing was run")
        if not is_inside(member.name):
            raise UserError(f"{archive}: {visible(member.name)!r} would leave the folder", hint="nothing was run")
        if not (member.isfile() or member.isdir()):
            raise UserError(f"{archive}: {visible(member.name)!r} is neither file nor folder", hint="nothing was run")
        if total > _LARGEST:
            raise UserError(f"{archive} unpacks to more than {_LARGEST >> 30} GiB", hint="nothing was run")
        target = into / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            target.mkdir(exist_ok=True)
        elif (content := tar.extractfile(member)) is not None:
            # Never through a name that is there: each file once.
            with target.open("xb") as stream:
                shutil.copyfileobj(content, stream, _CHUNK)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
