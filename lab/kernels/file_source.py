"""Kernels that a user has at hand or that are at an address: an image, or any distribution's package.

`file:PATH`, `file:IMAGE+MODULES`, `https://ADDRESS#sha256=HEX`, and `NAME:VERSION` for the addresses of the user's own
settings: `lab.toml` names those of other distributions' archives, and the lab knows none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shlex
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from lab.core import paths, process, records, settings
from lab.core.errors import HostFailed, UserError
from lab.core.executor import Work
from lab.core.locks import make_once
from lab.core.progress import QUIET, Progress
from lab.core.records import Record, file_digest
from lab.core.text import visible
from lab.kernels import architecture, files, package_files
from lab.kernels.files import CONFIG, KernelFiles, prebuilt


class FileSource(Record, frozen=True, kw_only=True, tag="file", omit_defaults=True):
    """A kernel that the lab did not build: an image, or a package.

    path: of the file; of a download, in the cache. sha256: of the file. modules: the folder of its modules, or the
    file that they are packed in, which modules_sha256 is of.
    inside: the path of the kernel in a package, and package: that one's name and version; empty for an image.
    address: of a download; empty for a file.
    """

    path: str
    sha256: str
    release: str
    modules: str | None = None
    architecture: str = architecture.DEFAULT
    inside: str = ""
    package: str = ""
    address: str = ""
    modules_sha256: str = ""

    origin: ClassVar[str] = "files"
    label: ClassVar[None] = None

    def obtain(self, work: Work) -> KernelFiles:
        """The file itself, or the kernel in the package, and the vmlinux inside."""
        image = self._image(work.progress)
        symbols = next(image.parent.glob("System.map*"), None) if self.inside else None
        found = prebuilt(image, symbols=symbols)
        if self.modules is None:
            return found
        root = Path(self.modules)
        if self.modules_sha256:
            root = package_files.unpacked(root, self.modules_sha256, work.progress)
        own = _modules_in(root, self.release) or root
        configs = (own / CONFIG, root / "boot" / f"{CONFIG}-{self.release}")
        config = found.config or next((path for path in configs if path.is_file()), None)
        return dataclasses.replace(found, modules=own, config=config)

    def _image(self, progress: Progress) -> Path:
        path = Path(self.path)
        if self.inside:
            folder = package_files.folder_of(self.sha256)
            if not folder.is_dir() and self.address:
                path = fetch(self.address, self.sha256, progress)
            return package_files.unpacked(path, self.sha256, progress) / self.inside
        return fetch(self.address, self.sha256, progress) if self.address else path

    def directions(self, folder: str) -> list[str]:
        """Shell commands that bring the file, by its name and digest unless it has an address, and unpack it there."""
        name = Path(self.path).name
        get = f"curl -LO {shlex.quote(self.address)}" if self.address else f"# get {self.package or name}:"
        unpack = f"cp {{}} {folder}/" if not self.inside else f"bsdtar -xf {{}} -C {folder}"
        if name.endswith(".deb"):
            unpack = f"dpkg -x {{}} {folder}"
        check = f"echo '{self.sha256}  {name}' | sha256sum -c" if name.isascii() and name.isprintable() else "#"
        return [get, check, f"mkdir -p {folder} && {unpack.format(shlex.quote(name))}"]

    def provenance(self, folder: Path) -> Iterator[str]:
        """Name its package, if it is known."""
        if self.package:
            yield f"The kernel of the package {self.package}, not changed ({Path(self.path).name}, SHA-256"
            yield f"{self.sha256}). Its distribution has the source; anyone who passes this bundle on must, too."
        else:
            yield "A file that was given to the lab, which does not know its source. Anyone who passes this bundle on"
            yield "must."
        if self.address:
            yield f"Downloaded from {self.address}"


def resolve(body: str, progress: Progress = QUIET) -> FileSource:
    """The kernel in a file, with the modules behind its `+`; `UserError` if there is none."""
    path, modules = _split_modules(body)
    source = _resolve(path, progress)
    if modules is None:
        return source
    sha256 = file_digest(modules) if modules.is_file() else ""
    root = package_files.unpacked(modules, sha256, progress) if sha256 else modules
    if _modules_in(root, source.release) is None:
        there = ", ".join(sorted(visible(path.name) for path in root.glob("**/lib/modules/*"))[:3])
        raise UserError(
            f"{modules} holds no modules of {source.release}" + (f", but of {there}" if there else ""),
            hint="give those of the same kernel",
        )
    return msgspec.structs.replace(source, modules=str(modules.resolve()), modules_sha256=sha256)


def resolve_address(text: str, progress: Progress = QUIET) -> FileSource:
    """The kernel behind `https://ADDRESS#sha256=HEX`."""
    address, sha256 = _split_digest(text)
    if sha256 is None:
        raise UserError(
            f"{visible(text)}: a download needs its digest",
            hint=f"write {visible(address)}#sha256=HEX, with the digest that its publisher names or `sha256sum` prints",
        )
    found = _resolve(fetch(address, sha256, progress), progress)
    return msgspec.structs.replace(found, address=address, modules=None)


def resolve_scheme(name: str, version: str, progress: Progress = QUIET) -> FileSource:
    """The kernel of a version, at the address that the user's settings have for a name."""
    path, address = _fetch_version(name, version, progress)
    return msgspec.structs.replace(_resolve(path, progress), address=address, modules=None)


def _split_modules(body: str) -> tuple[Path, Path | None]:
    """A path, and that of the modules; the whole is one path if there is such a file."""
    path = paths.expanded(body)
    if path.exists():
        return path, None
    for at in (match.start() for match in re.finditer(r"\+", body)):
        image, modules = paths.expanded(body[:at]), paths.expanded(body[at + 1 :])
        if image.is_file() and body[at + 1 :]:
            if not modules.exists():
                raise UserError(f"{modules}: no such folder or file of modules", hint="write file:IMAGE+MODULES")
            return image, modules
    return path, None


def _modules_in(root: Path, release: str) -> Path | None:
    """The modules of a release in a folder: below its lib/modules, if it has one, else all in it."""
    places = [place for place in (root / "lib" / "modules", root / "usr" / "lib" / "modules") if place.is_dir()]
    if own := next((place / release for place in (*places, root) if (place / release).is_dir()), None):
        return own
    return root if not places and next(root.rglob("*.ko*"), None) else None


def _resolve(path: Path, progress: Progress) -> FileSource:
    if path.is_file() and package_files.kind_of(path) is not None:
        return _of_package(path, progress)
    image = files.inspect(path)
    modules = files.modules_of(path, image.release)
    return FileSource(
        path=str(path.resolve()),
        sha256=image.sha256,
        release=image.release,
        modules=str(modules) if modules else None,
        architecture=image.architecture,
    )


def _of_package(path: Path, progress: Progress) -> FileSource:
    identity = package_files.identity(path)
    sha256 = file_digest(path)
    folder = package_files.unpacked(path, sha256, progress)
    kernel = package_files.kernel_in(folder, path)
    inside = str(kernel.relative_to(folder))
    try:
        image = files.inspect(kernel)
    except UserError as error:
        raise UserError(f"{path}: {error.message.replace(str(kernel), inside)}", hint=error.hint) from error
    return FileSource(
        path=str(path.resolve()),
        sha256=sha256,
        release=image.release,
        architecture=image.architecture,
        inside=inside,
        package=" ".join(filter(None, identity[1:3])),
    )


# ---- files from the network: downloaded once, checked by their digest, and kept in the cache by it

_LARGEST = 4 << 30
_PAGE_MAX = 8 << 20
_CHUNK = 1 << 20
_TIMEOUT_S = 60.0
_MARK = "#sha256="

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~:^-]*")
_LINK = re.compile(rb"""href=["']?([^"'?#<> ]+)""", re.IGNORECASE)


def _split_digest(text: str) -> tuple[str, str | None]:
    """An address, and the digest behind its `#sha256=`, if it has one."""
    address, mark, digest = text.partition(_MARK)
    if mark and not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise UserError(f"{text}: a SHA-256 has 64 hexadecimal digits", hint="`sha256sum FILE` prints it")
    return address, digest.lower() if mark else None


def _fetch_version(name: str, version: str, progress: Progress) -> tuple[Path, str]:
    """The package of a version, by the address that the user's settings have for a name: file and address.

    `{upstream}` and `{release}` are the version's parts before and behind its first hyphen. A `*` in the last part of
    the address is looked up in the page of its folder.
    """
    body, digest = _split_digest(version)
    if not _VERSION.fullmatch(body) or ".." in body:
        raise UserError(f"{name}:{visible(body)}: not a version", hint=f"write e.g. {name}:6.12.4")
    upstream, _, release = body.partition("-")
    address = settings.load().kernels[name]
    for word, value in (("version", body), ("upstream", upstream), ("release", release)):
        address = address.replace(f"{{{word}}}", value)
    if not re.match(r"https?://", address) or re.search(r"[{}]", address):
        raise UserError(
            f"{settings.file()}: kernels.{name} is not the address of a package",
            hint='write e.g. "https://HOST/linux-{version}-x86_64.pkg.tar.zst"; {upstream} and {release} are its parts',
        )
    known = paths.cache_dir("downloads", "addresses") / f"{records.digest(address)[:24]}.json"
    if (kept := records.find(known, _Known)) and (digest or kept.sha256) == kept.sha256:
        return fetch(kept.address, kept.sha256, progress), kept.address
    found = _found(address) if "*" in address else address
    path, sha256 = (fetch(found, digest, progress), digest) if digest else _first(found, progress)
    records.save(known, _Known(address=found, sha256=sha256))
    return path, found


class _Known(records.Record, frozen=True, kw_only=True):
    """The file behind an address without a digest, as first downloaded."""

    address: str
    sha256: str


def _found(pattern: str) -> str:
    """The one address that is like a pattern, by the links of its folder's page."""
    folder, _, wanted = pattern.rpartition("/")
    with _opened(f"{folder}/") as stream:
        page = stream.read(_PAGE_MAX)
    links = {unquote(match[1].decode(errors="replace")) for match in _LINK.finditer(page)}
    names = sorted({link.rpartition("/")[2] for link in links if fnmatchcase(link.rpartition("/")[2], wanted)})
    if len(names) != 1:
        some = f"{len(names)} files are like {wanted}" + (f": {', '.join(map(visible, names[:4]))}" if names else "")
        raise UserError(f"{folder}/: {some}", hint="the address in lab.toml must mean one")
    return urljoin(f"{folder}/", names[0])


def fetch(address: str, sha256: str, progress: Progress) -> Path:
    """The file with a digest, from the cache, or else from its address."""
    folder = _download_folder(sha256)
    make_once(folder, lambda partial: _download(address, partial, sha256, progress), progress=progress)
    return next(folder.iterdir())


def _first(address: str, progress: Progress) -> tuple[Path, str]:
    """The file of an address without a given digest, and its digest."""
    with process.scratch(".new-", paths.cache_dir("downloads")) as new:
        _download(address, new, None, progress)
        (file,) = new.iterdir()
        sha256 = records.file_digest(file)
        make_once(_download_folder(sha256), lambda partial: shutil.move(file, partial), progress=progress)
    return next(_download_folder(sha256).iterdir()), sha256


def _download_folder(sha256: str) -> Path:
    return paths.cache_dir("downloads") / sha256[:24]


def _download(address: str, folder: Path, sha256: str | None, progress: Progress) -> None:
    """Download a file into a folder, and check its digest, if it is known."""
    progress.log_once(f"downloading {visible(address)}")
    name = re.sub(r"[^A-Za-z0-9._+~-]", "_", unquote(urlsplit(address).path).rpartition("/")[2]).lstrip(".") or "file"
    digest, size = hashlib.sha256(), 0
    target = folder / name[-200:]
    with paths.writing(target), _opened(address) as stream, target.open("wb") as into:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > _LARGEST:
                raise UserError(f"{address} is larger than {_LARGEST >> 30} GiB", hint="no kernel's package is")
            digest.update(chunk)
            into.write(chunk)
        if (promised := stream.headers.get("Content-Length")) and promised != str(size):
            raise HostFailed(f"{address} ended after {size} of {promised} bytes", hint="check the network; then repeat")
    found = digest.hexdigest()
    if sha256 not in (None, found):
        raise UserError(
            f"{address} has another SHA-256 than was asked for: {found}",
            hint="the file was replaced or damaged; compare the digest with that of its publisher",
        )


@contextmanager
def _opened(address: str) -> Iterator[HTTPResponse]:
    try:
        request = urllib.request.Request(address, headers={"User-Agent": "kernel-ab-lab"})  # noqa: S310  (http or https)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as stream:  # noqa: S310
            yield stream
    except urllib.error.HTTPError as error:
        raise UserError(f"{address}: {error.code} {error.reason}", hint="check the address") from error
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error
        raise HostFailed(f"cannot download {address}: {visible(str(reason))}", hint="check the network") from error
    except ValueError as error:
        raise UserError(f"{visible(address)}: not an address: {error}") from error
