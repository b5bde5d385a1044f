"""Package files of any distribution: name and version, and the kernel inside with its kconfig, symbols and modules.

dpkg-deb reads Debian's, libarchive all others. libarchive is asked for one format alone: it knows some by which an
archive can name files of this machine. Nothing but regular files with the names below is written.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import re
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple

from lab.core import paths
from lab.core.errors import HostFailed, UserError
from lab.core.locks import make_once
from lab.core.process import CommandFailed, find_tool, run_text
from lab.core.progress import Progress
from lab.core.records import file_digest
from lab.core.text import visible

Kind = Literal["deb", "rpm", "pacman"]

_BEGINNINGS: dict[bytes, Kind] = {
    b"!<arch>\n": "deb",
    b"\xed\xab\xee\xdb": "rpm",
    b"\x28\xb5\x2f\xfd": "pacman",
    b"\xfd7zXZ\0": "pacman",
    b"\x1f\x8b": "pacman",
}
_TAR_AT, _TAR = 257, b"ustar"

_WANTED = re.compile(
    r"(usr/)?lib/modules/[^/]+/(vmlinu[xz]|config|System\.map)|boot/(vmlinu[xz]|config|System\.map)-[^/]+|.+\.ko(\.\w+)?"
)
_KERNELS = (
    *("usr/lib/modules/*/vmlinuz", "lib/modules/*/vmlinuz", "boot/vmlinuz-*"),
    *("usr/lib/modules/*/vmlinux", "lib/modules/*/vmlinux", "boot/vmlinux-*"),
)

_MEMBERS_MAX = 200_000
_WRITTEN_MAX = 4 << 30
_READ_MAX = 32 << 30
"""The most bytes of all members, the passed-over ones included: they are unpacked, too."""

_OF_NAMES = (errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR)
"""Errors of the operating system that the names in an archive cause."""

_INFO_AMONG = 16
"""A package of pacman begins with its description; it is sought among so many members."""
_INFO_MAX = 1 << 20

_RPM_LEAD = 96
_RPM_HEADER = b"\x8e\xad\xe8\x01"
_RPM_HEADER_MAX = 64 << 20
_RPM_STRINGS = {1000: "name", 1001: "version", 1002: "release", 1022: "architecture"}
_RPM_EPOCH = 1003
_RPM_PAYLOAD_SHA256 = 5092


class Identity(NamedTuple):
    """The name of a package as its own file has it. version: with epoch and release, if it has them."""

    kind: Kind
    name: str
    version: str
    architecture: str


def kind_of(path: Path) -> Kind | None:
    """The kind of a package file by its first bytes; None for any other file. A tar counts as a package of pacman."""
    try:
        with path.open("rb") as stream:
            beginning = stream.read(_TAR_AT + len(_TAR))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    found = next((kind for magic, kind in _BEGINNINGS.items() if beginning.startswith(magic)), None)
    return found or ("pacman" if beginning[_TAR_AT:] == _TAR else None)


def identity(path: Path) -> Identity:
    match kind_of(path):
        case "deb":
            found = _of_deb(path)
        case "rpm":
            found = _of_rpm(path)
        case "pacman":
            found = _of_pacman(path)
        case None:
            raise UserError(f"{path} is not a package", hint="the lab reads .deb, .rpm, .pkg.tar.* and tars of kernels")
    return found


def _of_deb(path: Path) -> Identity:
    form = "--showformat=${Package}\\n${Version}\\n${Architecture}\\n"
    try:
        text = run_text([find_tool("dpkg-deb", package="dpkg"), "--show", form, path.resolve()])
    except CommandFailed as error:
        raise _damaged(path, error.message) from error
    name, version, architecture = text.split("\n")[:3]
    return Identity("deb", visible(name), visible(version), visible(architecture))


def _of_rpm(path: Path) -> Identity:
    tags, store, _ = _rpm_tags(path)
    try:
        strings = {name: _string(store, tags[tag]) for tag, name in _RPM_STRINGS.items()}
        epoch = struct.unpack_from(">I", store, tags[_RPM_EPOCH])[0] if _RPM_EPOCH in tags else 0
    except (ValueError, KeyError, struct.error) as error:
        raise _damaged(path, "its header cannot be read") from error
    version = f"{strings['version']}-{strings['release']}"
    return Identity("rpm", strings["name"], f"{epoch}:{version}" if epoch else version, strings["architecture"])


def _rpm_tags(path: Path) -> tuple[dict[int, int], bytes, int]:
    """The tags of the second header (rpm's format.md) with their places in its store, and the beginning of the payload.

    The first header has the signatures.
    """
    try:
        with path.open("rb") as stream:
            stream.seek(_RPM_LEAD)
            _, store = _rpm_header(stream)
            stream.seek(-len(store) % 8, 1)
            index, store = _rpm_header(stream)
            return {tag: at for tag, _, at, _ in struct.iter_unpack(">4I", index)}, store, stream.tell()
    except (OSError, ValueError, struct.error) as error:
        raise _damaged(path, "its header cannot be read") from error


def _check_payload(path: Path) -> None:
    """Compare the payload of an rpm with the digest in its header: neither cpio nor zstd there has a sum of its own."""
    tags, store, begins = _rpm_tags(path)
    if _RPM_PAYLOAD_SHA256 not in tags:  # before rpm 4.14
        return
    with path.open("rb") as stream:
        stream.seek(begins)
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if not store[tags[_RPM_PAYLOAD_SHA256] :].startswith(found.encode() + b"\0"):
        raise _damaged(path, "its payload has another digest than its header says")


def _rpm_header(stream: IO[bytes]) -> tuple[bytes, bytes]:
    """The index and the store of a header."""
    magic, _, entries, size = struct.unpack(">4s3I", stream.read(16))
    if magic != _RPM_HEADER or 16 * entries + size > _RPM_HEADER_MAX:
        raise ValueError(magic)
    index, store = stream.read(16 * entries), stream.read(size)
    if len(index) + len(store) != 16 * entries + size:
        raise ValueError(size)
    return index, store


def _string(store: bytes, at: int) -> str:
    return visible(store[at : store.index(b"\0", at)].decode(errors="replace"))


def _of_pacman(path: Path) -> Identity:
    """The description of a package of pacman. A tar without one has its file's name, and no version."""
    values: dict[str, str] = {}
    with _reading(path, "pacman") as archive:
        for member in islice(archive, _INFO_AMONG):
            if member.pathname == ".PKGINFO" and (member.size or 0) <= _INFO_MAX:
                lines = b"".join(member.get_blocks()).decode(errors="replace").splitlines()
                values = {name.strip(): visible(value.strip()) for name, _, value in (a.partition("=") for a in lines)}
                break
    name = values.get("pkgname") or path.name.partition(".tar")[0]
    return Identity("pacman", name, values.get("pkgver", ""), values.get("arch", ""))


def folder_of(sha256: str) -> Path:
    """The folder of an unpacked package, once there is one."""
    return paths.cache_dir("unpacked") / sha256[:24]


def unpacked(path: Path, sha256: str, progress: Progress) -> Path:
    """The folder with a package's kernel and modules, unpacked once.

    sha256: the package's digest. The file is not needed once it is unpacked.
    """
    folder = folder_of(sha256)
    make_once(folder, lambda partial: _unpack(path, sha256, partial, progress), progress=progress)
    return folder


def _unpack(path: Path, sha256: str, folder: Path, progress: Progress) -> None:
    kind = identity(path).kind
    if file_digest(path) != sha256:
        raise UserError(f"{path} has changed since it was named", hint="give it again, as a new comparison")
    if kind == "rpm":
        _check_payload(path)
    progress.log_once(f"unpacking {path.name}")
    with paths.writing(folder), _reading(path, kind) as archive:
        _extract(archive, path, folder)


def _extract(archive: Any, path: Path, folder: Path) -> None:
    read = written = 0
    files: dict[str, Path] = {}
    for count, member in enumerate(archive):
        read += member.size or 0
        if count == _MEMBERS_MAX or read > _READ_MAX:
            raise UserError(f"{path} holds too much: over {_MEMBERS_MAX:,} files or {_READ_MAX >> 30} GiB")
        name = _inside(member.pathname)
        if ".." in PurePosixPath(name).parts or "\0" in name:
            raise UserError(f"{path}: {visible(name)!r} would leave the package's folder", hint="nothing was kept")
        wanted = _WANTED.fullmatch(name)
        # Another name of a file that is here: its content comes with its first name in a tar, with its last in an rpm.
        linked = files.get(_inside(member.linkpath)) if member.islnk else None
        target = linked or folder / name
        if linked is None and not (wanted and member.isreg):
            continue
        if wanted:
            files[name] = folder / name
            files[name].parent.mkdir(parents=True, exist_ok=True)
            # Never through a name that is there: each file once.
            if linked:
                files[name].hardlink_to(linked)
            else:
                files[name].touch(exist_ok=False)
        if member.size:
            with target.open("wb") as stream:
                for block in member.get_blocks(1 << 20):
                    written += len(block)
                    if written > _WRITTEN_MAX:
                        size = f"{_WRITTEN_MAX >> 30} GiB"
                        raise UserError(f"{path} unpacks to more than {size}", hint="nothing was kept")
                    stream.write(block)


def _inside(name: str) -> str:
    """The name of a member, relative to the package's folder."""
    return str(name).lstrip("/").removeprefix("./")


@contextmanager
def _reading(path: Path, kind: Kind) -> Iterator[Any]:
    """The members of a package; `UserError` if it is damaged."""
    libarchive = _libarchive()
    try:
        if kind == "deb":
            with _tar_of_deb(path) as stream, libarchive.fd_reader(stream.fileno(), "tar", "none") as archive:
                yield archive
        else:
            with libarchive.file_reader(str(path), "cpio" if kind == "rpm" else "tar") as archive:
                yield archive
    except libarchive.ArchiveError as error:
        raise _damaged(path, error.msg) from error
    except OSError as error:
        if error.errno not in _OF_NAMES:
            raise
        raise _damaged(path, f"its names do not fit together: {error.strerror}") from error


@contextmanager
def _tar_of_deb(path: Path) -> Iterator[IO[bytes]]:
    argv = [find_tool("dpkg-deb", package="dpkg"), "--fsys-tarfile", str(path.resolve())]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101  (PIPE was asked for)
        try:
            yield process.stdout
            process.stdout.read()  # padding
        except BaseException:
            process.kill()
            raise
        said = process.stderr.read().decode(errors="replace")
    if process.returncode:
        raise _damaged(path, said)


def _libarchive() -> Any:
    try:
        import libarchive
    except (OSError, AttributeError, TypeError) as error:  # the library itself is not there
        raise HostFailed(
            "libarchive is not installed", hint="run `lab doctor --install`, or install the package libarchive-tools"
        ) from error
    logging.getLogger("libarchive").setLevel(logging.ERROR)
    return libarchive


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is a damaged package: {visible(reason.strip())}", hint="get it again")


def images(folder: Path) -> Iterator[Path]:
    """The kernels in the folder of an unpacked package; images for boot loaders come first."""
    for pattern in _KERNELS:
        yield from sorted(folder.glob(pattern))


def downloaded() -> Iterator[Path]:
    """The kernels of all packages that were unpacked."""
    for folder in paths.cache_dir("unpacked").glob("[!.]*"):
        yield from islice(images(folder), 1)


def kernel_in(folder: Path, path: Path) -> Path:
    """The kernel of an unpacked package; `UserError` if there is none, or more than one."""
    found = list(images(folder))
    packed = [image for image in found if image.name.startswith("vmlinuz")] or found
    different = {file_digest(image): image for image in packed}
    if len(different) > 1:
        names = ", ".join(str(image.relative_to(folder)) for image in different.values())
        raise UserError(f"{path} holds several kernels: {names}", hint="unpack it, and give one as file:PATH")
    if not found:
        raise UserError(f"{path} contains no kernel", hint=_HINTS.get(path.name.partition("-")[0], _ELSEWHERE))
    return packed[0]


_ELSEWHERE = "the kernel is in vmlinuz below boot or lib/modules of another package, such as linux-image or kernel-core"
_HINTS = {"kernel": "the kernel is in kernel-core in Fedora, in kernel-default in openSUSE"}
