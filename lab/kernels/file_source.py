"""Kernels that a user has at hand or that are at an address: an image, or any distribution's package.

`file:PATH`, `file:IMAGE+MODULES`, `https://ADDRESS#sha256=HEX`, and `NAME:VERSION` for the addresses of the user's own
settings.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec

from lab.core import paths
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.progress import QUIET, Progress
from lab.core.records import Record, file_digest
from lab.core.text import visible
from lab.kernels import architecture, downloads, files, package_files
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
                path = downloads.fetch(self.address, self.sha256, progress)
            return package_files.unpacked(path, self.sha256, progress) / self.inside
        return downloads.fetch(self.address, self.sha256, progress) if self.address else path

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
    address, sha256 = downloads.asked(text)
    found = _resolve(downloads.fetch(address, sha256, progress), progress)
    return msgspec.structs.replace(found, address=address, modules=None)


def resolve_scheme(name: str, version: str, progress: Progress = QUIET) -> FileSource:
    """The kernel of a version, at the address that the user's settings have for a name."""
    path, address, _ = downloads.of_scheme(name, version, progress)
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
    if not path.is_file() or package_files.kind_of(path) is None:
        return _of_image(path)
    return _of_package(path, progress)


def _of_image(path: Path) -> FileSource:
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
