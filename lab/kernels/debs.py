"""Kernels from a distributor's packages (`deb:` specs): found with apt, downloaded and unpacked, never installed.

Up to 6.18, Debian's kernel is in `linux-image-RELEASE`. From 6.19 on, that package is empty and depends on
`linux-binary-RELEASE`, which has the kernel; its kconfig is in `linux-base-RELEASE`, its modules are in
`linux-modules-RELEASE`. From 7.2 on, all of it is below `/usr/lib/modules/RELEASE` instead of `/boot`.
"""

from __future__ import annotations

import re
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
from debian.debian_support import Version

from lab.core import paths
from lab.core.errors import UserError, suggestion
from lab.core.executor import Work
from lab.core.locks import make_once
from lab.core.progress import QUIET, Progress
from lab.core.records import Record
from lab.kernels import architecture
from lab.kernels.architecture import Architecture
from lab.kernels.files import CONFIG, KernelFiles, prebuilt
from lab.kernels.package_files import images
from lab.kernels.package_lists import HOST, SUITES, Offer, PackageLists, all_suites, may_match_kernels, suites_named
from lab.kernels.spec import Package

if TYPE_CHECKING:
    from debian.deb822 import Packages

# The release of a metapackage has two numbers.
_KERNEL = re.compile(
    r"linux-(?P<kind>image|binary)-(unsigned-)?(?P<release>\d+\.\d+\.\d(?!.*-dbg$)[\w.+~-]*?)(-unsigned)?"
)
_LIST = "`lab kernel list --available` shows all, and with --refresh the new ones, too"
_BINARY = re.compile(r"linux-binary-(?:unsigned-)?(.+)")


class DebSource(Record, frozen=True, kw_only=True, tag="deb", omit_defaults=True):
    """A kernel package at one version, for guests of an architecture."""

    package: str
    version: str
    architecture: str = architecture.DEFAULT

    origin: ClassVar[str] = "packages"

    @property
    def label(self) -> str:
        """The package and version, as apt takes them."""
        return f"{self.package}={self.version}"

    def obtain(self, work: Work) -> KernelFiles:
        image = next(images(self.fetch(work.progress)))
        return prebuilt(image, symbols=next(image.parent.glob("System.map*"), None))

    @property
    def folder(self) -> Path:
        """The folder of the unpacked package, once it was downloaded."""
        return _unpacked(self.architecture) / f"{self.package}_{self.version.replace(':', '%3a')}"

    def fetch(self, progress: Progress = QUIET) -> Path:
        """The folder of the unpacked package, downloaded if it is new."""
        make_once(self.folder, lambda partial: self._download(partial, progress), progress=progress)
        return self.folder

    def _download(self, folder: Path, progress: Progress) -> None:
        progress.log_once(f"downloading {self.package} {self.version}")
        is_hosts = self.architecture == architecture.DEFAULT and self._is_in(HOST)
        lists = HOST if is_hosts else all_suites(progress, guests=self.architecture)
        hint = f"check the network; a version that no suite has any more is at {_snapshot(self.package)}"
        lists.download(self.label, folder, hint=hint)
        if not any(images(folder)):
            raise UserError(f"the package {self.package} contains no kernel", hint="name a linux-image package")
        if binary := _BINARY.fullmatch(self.package):
            for kind in ("base", "modules"):
                part = msgspec.structs.replace(self, package=f"linux-{kind}-{binary[1]}")
                # Suites keep it for fewer versions than the kernel itself.
                if part._is_in(lists):
                    lists.download(part.label, folder, hint=hint)

    def _is_in(self, lists: PackageLists) -> bool:
        return any(offer.version == self.version for offer in lists.offers([self.package]))

    def directions(self, folder: str) -> list[str]:
        """Shell commands that bring the package, and unpack it into a folder."""
        return [f"apt-get download {self.label}", f"dpkg -x {self.package}_*.deb {folder}"]

    @property
    def inside(self) -> str:
        """The pattern of the kernel's path in the package."""
        return "boot/vmlinuz-*"

    def provenance(self, folder: Path) -> Iterator[str]:
        """Describe the package; copy its kconfig into a folder."""
        image = next(images(self.fetch()))
        if config := next(image.parent.glob("config*"), None):
            shutil.copyfile(config, folder / CONFIG)
        yield f"Debian's package {self.package}, version {self.version}, not changed; the vmlinux is unpacked from"
        yield f"its vmlinuz. Binary and source: {_snapshot(self.package)}"


def _snapshot(package: str) -> str:
    return f"https://snapshot.debian.org/binary/{package}/"


def downloaded(guests: str) -> Iterator[Path]:
    """The kernels of all packages that were downloaded for guests of an architecture."""
    for folder in _unpacked(guests).iterdir():
        yield from images(folder)


def _unpacked(guests: str) -> Path:
    return paths.cache_dir("debs" if guests == architecture.DEFAULT else f"debs-{guests}")


def resolve(body: str, progress: Progress = QUIET) -> DebSource:
    """The package of `[SUITE/]WANTED[:ARCHITECTURE]`: the newest cloud kernel of a version, or a package's name.

    Without a suite, the host's own package sources come before all suites.
    """
    body, colon, guests = body.partition(":")
    flavour = architecture.load(guests if colon else architecture.DEFAULT)
    suite, slash, wanted = body.rpartition("/")
    suites = suites_named(suite) if slash else ()
    if not wanted:
        raise UserError(
            f"deb:{body} names no kernel", hint="give a version or a package, e.g. deb:trixie-backports/7.2"
        )
    for lists in _lists(flavour.name, progress, suites):
        if found := _find(lists, wanted, suites, flavour):
            return found
    raise _no_such_version(wanted, lists, suites, flavour) if wanted[0].isdigit() else _no_such_package(wanted, lists)


def _lists(guests: str, progress: Progress, suites: Sequence[str] = ()) -> Iterator[PackageLists]:
    """The lists to look into, one after the other: the host's if no suite is named, then those of all suites."""
    if guests == architecture.DEFAULT and not suites:
        yield HOST
    yield all_suites(progress, guests=guests)


def _find(lists: PackageLists, wanted: str, suites: Sequence[str], guests: Architecture) -> DebSource | None:
    found = _newest(lists, wanted, suites, guests) if wanted[0].isdigit() else _by_name(lists, wanted, suites)
    return found and msgspec.structs.replace(found, architecture=guests.name)


def _newest(lists: PackageLists, version: str, suites: Sequence[str], guests: Architecture) -> DebSource | None:
    """The newest cloud kernel of a version; a signed image before its unsigned twin."""
    found = [offer for offer in kernels(lists) if _is_cloud(offer, guests)]
    offers = [offer for offer in found if not suites or offer.suite in suites]
    exact = [offer for offer in offers if offer.version == version]
    of_version = exact or [offer for offer in offers if _is_of(version, offer)]
    signed = [offer for offer in of_version if "unsigned" not in offer.package] or of_version
    if not signed:
        return None
    newest = max(signed, key=lambda offer: (Version(offer.version), offer.package))
    return DebSource(package=newest.package, version=newest.version)


def kernels(lists: PackageLists) -> list[Offer]:
    """The packages with a kernel inside, at each version and in each suite that has them."""
    names = {name: match for name in lists.kernel_names() if (match := _KERNEL.fullmatch(name))}
    binaries = {match["release"] for match in names.values() if match["kind"] == "binary"}
    real = [name for name, match in names.items() if match["kind"] == "binary" or match["release"] not in binaries]
    return lists.offers(real)


def _is_cloud(offer: Offer, guests: Architecture) -> bool:
    match = _KERNEL.fullmatch(offer.package)
    return match is not None and match["release"].endswith(f"-{guests.flavour}")


def _is_of(wanted: str, offer: Offer) -> bool:
    """True if a kernel is one of a version: 6.12.117 is one of 6.12, and 6.12 is none of 6.1."""
    match = _KERNEL.fullmatch(offer.package)
    releases = (match["release"] if match else "", offer.version)
    return any(re.match(rf"{re.escape(wanted)}(?![0-9])", release) for release in releases)


def _by_name(lists: PackageLists, package: str, suites: Sequence[str]) -> DebSource | None:
    """The package of a name; a metapackage leads to the kernel it depends on."""
    seen: set[str] = set()
    name = package
    while name not in seen:
        seen.add(name)
        entries = lists.entries(name)
        if entries and suites:
            offered = {offer.version for offer in lists.offers([name]) if offer.suite in suites}
            entries = [entry for entry in entries if entry["Version"] in offered]
        if not entries:
            return None
        newest = max(entries, key=lambda entry: Version(entry["Version"]))
        real = next(_kernels_needed(newest), None)
        if real is None:
            return DebSource(package=name, version=newest["Version"])
        name = real
    raise UserError(f"the package {package} depends on itself")


def _kernels_needed(entry: Packages) -> Iterator[str]:
    for alternatives in entry.relations["depends"] or ():
        for package in alternatives:
            if re.match(r"linux-(image|binary)-(?!.*-dbg$)", package["name"]):
                yield package["name"]


def source_of(body: str, progress: Progress = QUIET) -> tuple[PackageLists, Offer]:
    """The newest package of the kernel's source of `[SUITE/]VERSION`, and the lists that have it."""
    suite, slash, wanted = body.rpartition("/")
    suites = suites_named(suite) if slash else ()
    match = re.match(r"\d+\.\d+", wanted)
    if match is None:
        raise UserError(f"src:{body} names no version", hint="write e.g. src:7.2 or src:trixie-backports/7.2")
    package = f"linux-source-{match[0]}"
    for lists in ([] if slash else [HOST]) + [all_suites(progress)]:
        offers = [
            offer
            for offer in lists.offers([package])
            if (not suites or offer.suite in suites) and re.match(rf"{re.escape(wanted)}(?![0-9])", offer.version)
        ]
        if offers:
            return lists, max(offers, key=lambda offer: Version(offer.version))
    there = sorted({name.removeprefix("linux-source-") for name in lists.source_names()}, key=Version)
    where = f"in {suites[0]}" if suites else "in any suite of Debian"
    raise UserError(
        f"no source package of Linux {wanted} {where}", hint=f"there is one of {', '.join(there) or 'none'}"
    )


def _no_such_version(version: str, lists: PackageLists, suites: Sequence[str], guests: Architecture) -> UserError:
    offers = [offer for offer in kernels(lists) if _is_cloud(offer, guests)]
    elsewhere = {offer.suite for offer in offers if _is_of(version, offer)}
    there = {offer.version.partition("-")[0] for offer in offers if not suites or offer.suite in suites}
    all_series = {_series(upstream) for upstream in there}
    same = [upstream for upstream in there if _series(upstream) == _series(version)]
    near = _around(version, same) if same else sorted(all_series, key=Version)
    hints = [f"it is in {', '.join(sorted(elsewhere))}"] if elsewhere else []
    hints += [f"there are kernels of {', '.join(near)}"] if near else []
    where = f"in {suites[0]}" if suites else "in any suite of Debian"
    return UserError(f"no {guests.flavour} kernel of version {version} {where}", hint="; ".join([*hints, _LIST]))


def _around(version: str, others: Sequence[str]) -> list[str]:
    """The versions next to one, three on either side."""
    ordered = sorted(others, key=Version)
    at = bisect_left([Version(other) for other in ordered], Version(version))
    return ordered[max(at - 3, 0) : at + 3]


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _no_such_package(package: str, lists: PackageLists) -> UserError:
    close = suggestion(f"deb:{package}", [f"deb:{name}" for name in lists.kernel_names()])
    if package in SUITES:
        close = f"write deb:{package}/VERSION"
    hint = close or "give a version (deb:6.12) or a linux-image package"
    return UserError(f"no package called {package} in any suite of Debian", hint=f"{hint}; {_LIST}")


def matching(pattern: str, progress: Progress = QUIET) -> list[Package]:
    """The packages of `[SUITE/]NAME-PATTERN[:ARCHITECTURE]`, the newest version of each, the oldest first.

    Without a suite they are the host's, or, if these are fewer than two, those of all suites.
    """
    named, colon, guests = pattern.partition(":")
    suite, slash, wanted = named.rpartition("/")
    suites = suites_named(suite) if slash else ()
    found: dict[str, Version] = {}
    if not may_match_kernels(wanted):
        return []
    for lists in _lists(guests or architecture.DEFAULT, progress, suites):
        if len(found) < 2:
            found = _newest_versions(lists, wanted, suites)
    names = sorted(found, key=lambda name: (found[name], name))
    return [Package(name, str(found[name]), f"deb:{suite}{slash}{name}{colon}{guests}") for name in names]


def name_in(body: str) -> str:
    """The name of the package in `[SUITE/]NAME[:ARCHITECTURE]`."""
    return body.rpartition("/")[2].partition(":")[0]


def offered(pattern: str, progress: Progress = QUIET, *, guests: str = architecture.DEFAULT) -> list[Package]:
    """The cloud kernels of `SUITE/PATTERN` at every version, the oldest first, each once.

    The pattern is of names or versions (`trixie-backports/7.*`). A signed image comes before its unsigned twin.
    """
    suite, slash, wanted = pattern.rpartition("/")
    if not slash or not wanted:
        raise UserError(f"{pattern!r} names no packages of a suite", hint="write e.g. trixie-backports/*")
    suites, flavour = suites_named(suite), architecture.load(guests)
    found: dict[str, Offer] = {}
    for offer in kernels(all_suites(progress, guests=guests)):
        is_wanted = fnmatchcase(offer.package, wanted) or fnmatchcase(offer.version, wanted)
        if is_wanted and offer.suite in suites and _is_cloud(offer, flavour):
            known = found.get(offer.version)
            if known is None or ("unsigned" in known.package and "unsigned" not in offer.package):
                found[offer.version] = offer
    suffix = "" if guests == architecture.DEFAULT else f":{guests}"
    ordered = [found[version] for version in in_order(found)]
    return [Package(one.package, one.version, f"deb:{one.suite}/{one.version}{suffix}") for one in ordered]


def labelled(label: str, guests: str = architecture.DEFAULT) -> DebSource:
    """The package of a label, for guests of an architecture."""
    package, _, version = label.partition("=")
    return DebSource(package=package, version=version, architecture=guests)


def beginnings() -> list[str]:
    """The suites, as a spec names them."""
    return [f"{suite}/" for suite in SUITES]


def refresh(progress: Progress) -> None:
    """Fetch the lists of all suites now."""
    all_suites(progress, refresh=True)


def in_order(versions: Iterable[str]) -> list[str]:
    """Versions of packages, the oldest first, as Debian compares them."""
    return sorted(versions, key=Version)


def _newest_versions(lists: PackageLists, pattern: str, suites: Sequence[str]) -> dict[str, Version]:
    newest: dict[str, Version] = {}
    for offer in lists.offers([name for name in lists.kernel_names() if fnmatchcase(name, pattern)]):
        if not suites or offer.suite in suites:
            version = Version(offer.version)
            newest[offer.package] = max(version, newest.get(offer.package, version))
    return newest


def available(
    words: Sequence[str], progress: Progress, *, refresh: bool, guests: str = architecture.DEFAULT
) -> list[Offer]:
    """The kernels in all suites whose suite, package or version contains each of some words, suite by suite.

    guests: the architecture of the kernels.
    """
    offers = kernels(all_suites(progress, guests=guests, refresh=refresh))
    chosen = {offer for offer in offers if all(any(word in part for part in offer) for word in words)}
    return sorted(chosen, key=lambda offer: (SUITES.index(offer.suite), Version(offer.version), offer.package))
