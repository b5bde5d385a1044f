"""Kernels from a distributor's packages (`deb:` specs): found with apt, downloaded and unpacked, never installed."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from debian.debian_support import Version

from lab.core import paths
from lab.core.errors import HostFailed, UserError
from lab.core.executor import Work
from lab.core.git import environment
from lab.core.locks import make_once
from lab.core.process import CommandFailed, find_tool, run, run_text
from lab.core.progress import QUIET, Progress
from lab.core.records import Record
from lab.kernels.files import CONFIG, KernelFiles, prebuilt

if TYPE_CHECKING:
    from debian.deb822 import Packages

_FLAVOUR = "cloud-amd64"
_IMAGE = re.compile(r"linux-image-(?P<release>\d[0-9A-Za-z.+~-]*?)-cloud-amd64(?P<unsigned>-unsigned)?")


class DebSource(Record, frozen=True, kw_only=True, tag="deb"):
    """A kernel package at one version."""

    package: str
    version: str

    is_buildable: ClassVar[bool] = False
    origin: ClassVar[str] = "packages"

    @property
    def label(self) -> str:
        """The package and version, as apt takes them."""
        return f"{self.package}={self.version}"

    def obtain(self, work: Work, **_: object) -> KernelFiles:
        """Download and unpack the package."""
        boot = self.fetch(work.progress) / "boot"
        return prebuilt(next(boot.glob("vmlinuz-*")), symbols=next(boot.glob("System.map-*"), None))

    def fetch(self, progress: Progress = QUIET) -> Path:
        """The folder of the unpacked package (`boot/vmlinuz-*`, `lib/modules`), downloaded if it is new."""
        folder = paths.cache_dir("debs") / f"{self.package}_{self.version.replace(':', '%3a')}"
        if not folder.is_dir():
            make_once(folder, lambda partial: self._download(partial, progress), progress=progress)
        return folder

    def _download(self, folder: Path, progress: Progress) -> None:
        progress.log_once(f"downloading {self.package} {self.version}")
        hint = "check the network; if the version is no longer offered, run `sudo apt-get update`"
        download(f"{self.package}={self.version}", folder, hint=hint)
        if not any((folder / "boot").glob("vmlinuz-*")):
            raise UserError(f"the package {self.package} contains no kernel", hint="name a linux-image package")

    def provenance(self, folder: Path) -> Iterator[str]:
        """Describe the package; copy its kconfig into a folder."""
        if config := next((self.fetch() / "boot").glob("config-*"), None):
            shutil.copyfile(config, folder / CONFIG)
        yield f"Debian's package {self.package}, version {self.version}, not changed; the vmlinux is what is packed in"
        yield f"its vmlinuz. Binary and source: https://snapshot.debian.org/binary/{self.package}/"


def resolve(body: str) -> DebSource:
    """The package of a kernel version (its newest cloud kernel) or of a package's name."""
    find_tool("apt-cache", package="apt")
    if re.fullmatch(r"\d+(\.\d+)*", body):
        return _newest(body)
    return _by_name(body)


def download(package: str, folder: Path, *, hint: str) -> str:
    """Unpack a package, given as `NAME` or `NAME=VERSION`, into a folder; returns its version."""
    find_tool("apt-get", package="apt")
    try:
        run(["apt-get", "download", package], cwd=folder, env=environment())
    except CommandFailed as error:
        raise HostFailed(f"cannot download {package.replace('=', ' ')}: {error.message}", hint=hint) from error
    deb = next(folder.glob("*.deb"), None)
    if deb is None:
        raise HostFailed(f"apt-get download gave no package for {package.replace('=', ' ')}")
    version = run_text(["dpkg-deb", "--field", deb, "Version"])
    run(["dpkg-deb", "-x", deb, folder])
    deb.unlink()
    return version


def _newest(version: str) -> DebSource:
    """The newest cloud kernel of a version; a signed image before its unsigned twin."""
    images = {name: match for name in all_names() if (match := _IMAGE.fullmatch(name))}
    # A release of two numbers is a metapackage's.
    real = {name: match for name, match in images.items() if re.match(r"\d+\.\d+\.\d", match["release"])}
    offers = [
        (Version(offered), name)
        for name, offered in _offered(list(real))
        if _is_of(version, real[name]["release"]) or _is_of(version, offered)
    ]
    signed = [offer for offer in offers if not real[offer[1]]["unsigned"]] or offers
    if not signed:
        versions = sorted({".".join(match["release"].split(".")[:2]) for match in images.values()})
        raise UserError(
            f"no linux-image-{version}*-{_FLAVOUR} in the configured package sources",
            hint=f"there are kernels of {', '.join(versions)}; `sudo apt-get update` renews the lists",
        )
    newest, name = max(signed)
    return DebSource(package=name, version=str(newest))


def _is_of(wanted: str, release: str) -> bool:
    """True if a release is one of a version: 6.12.117 is one of 6.12, and 6.12 is none of 6.1."""
    return re.match(rf"{re.escape(wanted)}(?![0-9])", release) is not None


def _by_name(package: str) -> DebSource:
    """The package of a name; a metapackage leads to the kernel it depends on."""
    seen: set[str] = set()
    name = package
    while name not in seen:
        seen.add(name)
        entries = _show(name)
        if not entries:
            raise _no_such_package(package)
        newest = max(entries, key=lambda entry: Version(entry["Version"]))
        real = next(_kernels_needed(newest), None)
        if real is None:
            return DebSource(package=name, version=newest["Version"])
        name = real
    raise UserError(f"the package {package} depends on itself")


def _kernels_needed(entry: Packages) -> Iterator[str]:
    for alternatives in entry.relations["depends"] or ():
        for package in alternatives:
            if re.match(r"linux-image-(?!.*-dbg$)", package["name"]):
                yield package["name"]


def _no_such_package(package: str) -> UserError:
    close = difflib.get_close_matches(package, all_names(), n=1)
    hint = f"did you mean deb:{close[0]}?" if close else "give a version (deb:6.12) or a linux-image package"
    return UserError(f"no package called {package} in the configured package sources", hint=hint)


def all_names() -> list[str]:
    """The names of all kernel packages that apt knows."""
    names = run_text(["apt-cache", "pkgnames", "linux-image-"], env=environment()).split()
    if not names:
        raise HostFailed("apt knows no kernel packages: its lists are missing", hint="run `sudo apt-get update`")
    return sorted(names)


def by_version(names: list[str]) -> dict[str, str]:
    """The packages on offer and the newest version of each, the oldest first."""
    newest: dict[str, Version] = {}
    for name, offered in _offered(names):
        version = Version(offered)
        newest[name] = max(version, newest.get(name, version))
    return {name: str(newest[name]) for name in sorted(newest, key=lambda name: (newest[name], name))}


def _offered(packages: list[str]) -> Iterator[tuple[str, str]]:
    """Each package with each of its versions, from one run of apt (which takes half a second)."""
    if packages:
        for line in run_text(["apt-cache", "madison", *packages], env=environment()).splitlines():
            name, version, _ = (part.strip() for part in line.split("|"))
            yield name, version


def _show(package: str) -> list[Packages]:
    """The entries of a package in apt's lists, one for each version."""
    from debian.deb822 import Packages  # takes a twentieth of a second

    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", package):
        return []
    try:
        text = run_text(["apt-cache", "show", package], env=environment())
    except CommandFailed:
        return []
    entries = Packages.iter_paragraphs(text, use_apt_pkg=False)
    return [entry for entry in entries if entry.get("Package") == package and "Filename" in entry]
