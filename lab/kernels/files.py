"""Kernel images as files: their kind, release, and the vmlinux, kconfig and names of parameters inside.

Offsets are those of the x86 boot protocol (Documentation/arch/x86/boot.rst).

The code that reads a parameter has its name there as a string, with `=` or without (`__setup()`, `early_param()`, and
`module_param()` with the module's name before a dot). The kernel takes `-` for `_`, and says nothing about a name that
it does not know if there is a dot in it (`unknown_bootoption()` in init/main.c).
"""

from __future__ import annotations

import bz2
import lzma
import mmap
import os
import re
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Literal, NamedTuple

from lab.core import paths
from lab.core.errors import HostFailed, UserError, suggestion
from lab.core.process import CommandFailed, find_tool
from lab.core.records import Record, file_digest, is_sealed, seal, write_atomic
from lab.kernels import architecture

Buffer = bytes | mmap.mmap

_XEN_ELFNOTE_PHYS32_ENTRY = 18
PT_LOAD = 1
"""Type of a segment that is loaded into memory."""
_PT_NOTE = 4

UNPACKED_MAX = 192 << 20
"""The most bytes that are unpacked: three times those of the largest distributors' kernels."""

_CHUNK = 1 << 20
"""Bytes that are unpacked at a time."""

_KCONFIG_MAX = 16 << 20
"""The most bytes of a kernel's own kconfig: a distributor's has 300 KiB."""

_RELEASE = rb"\d[\w.+~:-]*"
"""The form of a release, as `uname -r` gives it; it becomes part of paths."""

PATCH, CONFIG = "source.patch", "config"
"""Names of the files that `provenance` writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFiles:
    """The files of a kernel on this machine.

    key: hash of the kernel. commit: of a kernel from a tree. bzimage: the kernel as it is packed for a boot loader.
    vmlinux: None if it cannot be booted by PVH.
    config: its kconfig, if that is a file of its own. modules: their folder.
    """

    key: str
    release: str
    commit: str | None
    bzimage: Path | None
    vmlinux: Path | None
    symbols: Path | None
    config: Path | None = None
    modules: Path | None = None
    architecture: str = architecture.DEFAULT


def prebuilt(path: Path, symbols: Path | None) -> KernelFiles:
    """The files of a kernel that the lab did not build; its vmlinux is unpacked once."""
    image = inspect(path)
    vmlinux = None
    if image.kind != "Image":
        vmlinux = _unpacked(path, image.sha256) if image.kind == "bzImage" else bootable(path)
    return KernelFiles(
        key=image.sha256,
        release=image.release,
        commit=None,
        bzimage=None if image.kind == "vmlinux" else path,
        vmlinux=vmlinux,
        symbols=symbols,
        config=_config_of(path, image.release),
        modules=modules_of(path, image.release),
        architecture=image.architecture,
    )


def _config_of(path: Path, release: str) -> Path | None:
    """The kconfig beside a kernel image: in /boot with the release in its name, in its modules' folder without."""
    beside = path.parent / (CONFIG if path.parent.name == release else f"{CONFIG}-{release}")
    return beside if beside.is_file() else None


def _unpacked(bzimage: Path, sha256: str) -> Path | None:
    """The vmlinux inside a bzImage, unpacked once; None if it cannot be booted by PVH."""
    target = paths.cache_dir("vmlinux") / sha256[:24]
    if not is_sealed(target):
        vmlinux = extract_vmlinux(bzimage)
        write_atomic(target, vmlinux if has_pvh(vmlinux) else b"")
        seal(target)
    return target if target.stat().st_size else None


def bootable(vmlinux: Path) -> Path | None:
    """A vmlinux, if it can be booted by PVH."""
    return vmlinux if has_pvh(vmlinux) else None


Kind = Literal["bzImage", "Image", "vmlinux"]


class KernelFile(Record, frozen=True, kw_only=True):
    """A kernel image: how it is packed, its release as `uname -r` gives it, and its content's hash."""

    kind: Kind
    release: str
    sha256: str
    architecture: str


def inspect(path: Path) -> KernelFile:
    """Recognise a kernel image; `UserError` when the file is none."""
    if not path.is_file():
        raise UserError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    image = _mapped(path)
    kind, release = _recognise(image)
    if kind is None or release is None:
        raise _no_kernel(path)
    if kind == "bzImage" and len(image) < (size := _payload(image).stop):
        raise UserError(f"{path} is cut off: it has {len(image):,} of at least {size:,} bytes", hint="get it again")
    guests = architecture.of_header(image) or architecture.load()
    return KernelFile(kind=kind, release=release, sha256=file_digest(path), architecture=guests.name)


def _no_kernel(path: Path) -> UserError:
    hint = "give a bzImage (vmlinuz), an x86-64 ELF vmlinux or an Image of another architecture"
    return UserError(f"{path} is not a Linux kernel", hint=hint)


def _mapped(path: Path) -> Buffer:
    """The file's bytes, without reading a vmlinux of a gigabyte into memory; `UserError` if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return _mapped_stream(stream)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _mapped_stream(stream: IO[bytes]) -> Buffer:
    if os.fstat(stream.fileno()).st_size == 0:
        return b""
    return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _recognise(image: Buffer) -> tuple[Kind | None, str | None]:
    if _is_bzimage(image):
        return "bzImage", _bzimage_release(image)
    if architecture.of_header(image):
        return "Image", _banner_release(image)
    if image[:6] == b"\x7fELF\x02\x01":  # 64 bit, little endian
        return "vmlinux", _banner_release(image)
    return None, None


def _banner_release(image: Buffer) -> str | None:
    match = re.search(rb"Linux version (%b) \(" % _RELEASE, image)
    return match[1].decode() if match else None


def _is_bzimage(image: Buffer) -> bool:
    return image[0x202:0x206] == b"HdrS" and len(image) >= 0x250


def _bzimage_release(image: Buffer) -> str | None:
    """The first word of the version string that the setup header points at."""
    (offset,) = struct.unpack_from("<H", image, 0x20E)
    text = bytes(image[0x200 + offset : 0x200 + offset + 256]).split(b"\0", 1)[0]
    match = re.match(rb"%b(?=\s|\Z)" % _RELEASE, text)
    return match[0].decode() if offset and match else None


def _payload(bzimage: Buffer) -> range:
    """The bytes of the packed kernel in a bzImage."""
    setup_sectors = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    return range(start, start + length)


def extract_vmlinux(path: Path) -> Buffer:
    """The ELF kernel inside a bzImage (a vmlinux gives itself)."""
    image = _mapped(path)
    if image[:4] == b"\x7fELF" or architecture.of_header(image):
        return image
    if not _is_bzimage(image):
        raise _no_kernel(path)
    payload = _payload(image)
    if len(payload) > UNPACKED_MAX:
        raise _too_large()
    try:
        kernel = decompress(image[payload.start : payload.stop])
    except (*UNPACK_ERRORS, CommandFailed) as error:
        raise UserError(f"{path}: the kernel inside cannot be unpacked: {error}") from error
    if kernel[:4] != b"\x7fELF":
        raise UserError(f"{path}: it holds no ELF kernel")
    return kernel


UNPACK_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""The errors of `decompress` beside the lab's own."""


def decompress(payload: bytes) -> Buffer:
    """Unpack by magic, into a file without a name. Most packers' output is followed by four bytes of size.

    `UserError` for more than `UNPACKED_MAX` bytes, `UNPACK_ERRORS` for a damaged image.
    """
    if payload.startswith(b"\x7fELF"):
        return payload
    if payload.startswith(b"\x1f\x8b"):
        return _kept(_unpacked_chunks(_Gzip(), payload))
    if payload.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
        return _kept(_unpacked_chunks(lzma.LZMADecompressor(), payload))
    if payload.startswith(b"BZh"):
        return _kept(_unpacked_chunks(bz2.BZ2Decompressor(), payload))
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return _unpacked_by([find_tool("zstd", package="zstd"), "-dc", "--long=27"], payload[:-4])
    if payload.startswith(b"\x02\x21\x4c\x18"):
        return _unpacked_by([find_tool("lz4", package="lz4"), "-dc"], payload[:-4])
    raise HostFailed(f"unknown compression of the kernel (it begins with {payload[:6].hex(' ')})")


class _Gzip:
    """zlib's decompressor for gzip, as those of other modules are."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


_Decompressor = _Gzip | lzma.LZMADecompressor | bz2.BZ2Decompressor


def _unpacked_chunks(decompressor: _Decompressor, payload: bytes) -> Iterator[bytes]:
    """A stream's content, without anything after its end."""
    at = 0
    while not decompressor.eof:
        packed = payload[at : at + _CHUNK] if decompressor.needs_input else b""
        at += len(packed)
        content = decompressor.decompress(packed, _CHUNK)
        if not packed and not content:
            raise EOFError("it ends too early")
        yield content


def _kept(chunks: Iterator[bytes]) -> Buffer:
    """All of them, mapped: an unpacked kernel may be larger than the lab's memory."""
    with tempfile.TemporaryFile() as into:
        for chunk in chunks:
            if into.tell() + len(chunk) > UNPACKED_MAX:
                raise _too_large()
            into.write(chunk)
        into.flush()
        return _mapped_stream(into)


def _unpacked_by(argv: list[str], payload: bytes) -> Buffer:
    """The bytes that a program unpacks from its stdin."""
    with tempfile.TemporaryFile() as packed, tempfile.TemporaryFile() as said:
        packed.write(payload)
        packed.seek(0)
        with subprocess.Popen(argv, stdin=packed, stdout=subprocess.PIPE, stderr=said) as process:
            assert process.stdout is not None  # noqa: S101  (PIPE was asked for)
            try:
                content = _kept(iter(partial(process.stdout.read, _CHUNK), b""))
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            raise CommandFailed(argv, process.returncode, said.read().decode(errors="replace"))
    return content


def _too_large() -> UserError:
    return UserError(f"the kernel inside unpacks to more than {UNPACKED_MAX >> 20} MiB")


def has_pvh(vmlinux: Buffer | Path) -> bool:
    """True if an ELF kernel can be entered directly, by its PVH note (XEN_ELFNOTE_PHYS32_ENTRY)."""
    image = _mapped(vmlinux) if isinstance(vmlinux, Path) else vmlinux
    return any(name == b"Xen\0" and kind == _XEN_ELFNOTE_PHYS32_ENTRY for name, kind in _notes(image))


class Segment(NamedTuple):
    """An entry of an ELF program header. kind: its type. address: virtual. size: in the file."""

    kind: int
    offset: int
    address: int
    size: int


def segments(image: Buffer) -> Iterator[Segment]:
    """The program headers of an ELF kernel; an Image as one; none for any other file."""
    if (guests := architecture.of_header(image)) and guests.image:
        yield Segment(PT_LOAD, 0, guests.image.addresses[0], len(image))
    if image[:6] != b"\x7fELF\x02\x01" or len(image) < 64:
        return
    (table,) = struct.unpack_from("<Q", image, 32)
    entry_size, entries = struct.unpack_from("<HH", image, 54)
    for index in range(entries):
        at = table + index * entry_size
        if at + 56 > len(image):
            return
        kind, _flags, offset, address, _paddr, size = struct.unpack_from("<IIQQQQ", image, at)
        yield Segment(kind, offset, address, size)


def _notes(image: Buffer) -> Iterator[tuple[bytes, int]]:
    """Owner and type of each ELF note."""
    for segment in segments(image):
        notes = bytes(image[segment.offset : segment.offset + segment.size]) if segment.kind == _PT_NOTE else b""
        at = 0
        while at + 12 <= len(notes):
            name_size, content_size, kind = struct.unpack_from("<III", notes, at)
            yield notes[at + 12 : at + 12 + name_size], kind
            at += 12 + (name_size + 3 & ~3) + (content_size + 3 & ~3)


def kconfig_of(path: Path) -> str | None:
    """The .config that a kernel carries (CONFIG_IKCONFIG), or None."""
    vmlinux = extract_vmlinux(path)
    start = vmlinux.find(b"IKCFG_ST\x1f\x8b")
    if start < 0:
        return None
    try:
        return zlib.decompressobj(wbits=31).decompress(vmlinux[start + 8 :], _KCONFIG_MAX).decode(errors="replace")
    except zlib.error as error:
        raise UserError(f"{path}: the kconfig inside cannot be unpacked: {error}") from error


_BANNER = re.compile(rb"Linux version \d[^\n\0]{,600}")
"""A text that may be a kernel's banner (/proc/version)."""

_BANNERS_MAX = 16
"""The most banners that are looked into: an image may consist of them, and be searched for days."""

_COMPILER = re.compile(rb"^Linux version \d\S* \([^()]*\) \(([^#]+?)(?:, (?:GNU ld|LLD)[^#]*)?\) #")
_BUILT = re.compile(rb"\((\d{4}-\d\d-\d\d)\)")


def compiler_of(path: Path) -> str | None:
    """The compiler of a kernel, as its banner has it; None if it has none."""
    return _in_banner(path, _COMPILER)


def built_on(path: Path) -> str | None:
    """The date in a distributor's banner, that of the package's version; None if it has none."""
    return _in_banner(path, _BUILT)


def _in_banner(path: Path, pattern: re.Pattern[bytes]) -> str | None:
    try:
        image = extract_vmlinux(path)
    except UserError:  # the file may be gone by now
        return None
    banners = islice(_BANNER.finditer(image), _BANNERS_MAX)
    match = next(filter(None, (pattern.search(banner[0]) for banner in banners)), None)
    return match[1].decode(errors="replace") if match else None


def modules_of(path: Path, release: str) -> Path | None:
    """The modules of a kernel image: beside it, if a package has them, or installed."""
    beside = path.resolve().parent
    if beside.name == release:  # vmlinuz among its modules, as Debian has it from 7.2 on
        return beside
    folders = (
        beside / "lib" / "modules" / release,
        beside / "modules" / release,
        *(beside.parent / lib / "modules" / release for lib in ("lib", "usr/lib")),  # of boot/vmlinuz-*, next to boot
        beside / "modules",
        Path("/lib/modules") / release,
    )
    return next((folder for folder in folders if folder.is_dir()), None)


_UNPACKER = ("kaslr", "no5lvl", "nokaslr")
"""Parameters that the code before vmlinux reads, which unpacks it."""


def has_parameter(vmlinux: Path, name: str) -> bool:
    """True if something in a kernel has the name of a parameter. A string may be the end of a longer one."""
    words = map(re.escape, re.split(rb"[-_]", name.encode()))
    return name in _UNPACKER or re.search(b"[-_]".join(words) + rb"=?\0", extract_vmlinux(vmlinux)) is not None


def similar_parameters(vmlinux: Path, name: str) -> str | None:
    """A question that names parameters of the same module with close names; None if nothing comes close."""
    module, dot, _ = name.partition(".")
    if not dot:
        return None
    found = re.findall(rb"\0(" + re.escape(f"{module}.".encode()) + rb"\w+)=?\0", extract_vmlinux(vmlinux))
    return suggestion(name, sorted({one.decode() for one in found}))
