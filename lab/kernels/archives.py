"""Archives of kernel packages, by the word that begins their specs.

Another distribution's archive is a module like `debs`, with its line in ARCHIVES, its word in `spec.PACKAGED` and its
record in `PackageRecord`. Series, nights and the atlas take the packages of any archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from lab.core.progress import Progress
from lab.kernels import debs, folders, package_files
from lab.kernels.debs import DebSource
from lab.kernels.spec import Package

PackageRecord = DebSource
"""The stored records of packages. `|` adds those of another distribution."""


class Series(Protocol):
    """Kernel packages with an order. A request is the part of a text behind the word."""

    def matching(self, pattern: str, progress: Progress) -> Sequence[Package]:
        """The packages whose names are like a pattern, at the newest version of each, the oldest first."""

    def name_in(self, body: str) -> str:
        """The name of the package in a spec that names one."""


class PackageSource(Series, Protocol):
    """An archive of kernel packages."""

    def resolve(self, body: str, progress: Progress) -> PackageRecord:
        """The package that a spec means; `UserError` if there is none."""

    def offered(self, pattern: str, progress: Progress, *, guests: str) -> Sequence[Package]:
        """The kernels for guests of an architecture at every version that is like a pattern, the oldest first."""

    def in_order(self, versions: Iterable[str]) -> list[str]:
        """Versions, the oldest first, as the distribution compares them."""

    def labelled(self, label: str, guests: str) -> PackageRecord:
        """The package of a label, for guests of an architecture."""

    def beginnings(self) -> Sequence[str]:
        """The strings that may follow the word in a spec, for completion."""

    def refresh(self, progress: Progress) -> None:
        """Fetch the lists of packages now."""

    def downloaded(self, guests: str) -> Iterator[Path]:
        """The kernels of all packages that were downloaded for guests of an architecture."""


ARCHIVES: dict[str, PackageSource] = {"deb": debs}

_FOLDERS: dict[str, Series] = {"dir": folders, "file": folders}


class Asked(NamedTuple):
    """A spec or a pattern of packages in its parts."""

    word: str
    archive: PackageSource
    body: str


def asked(text: str) -> Asked | None:
    """The archive that a text is about; None for a text about something else."""
    word, colon, body = text.partition(":")
    return Asked(word, ARCHIVES[word], body) if colon and word in ARCHIVES else None


def series(text: str) -> tuple[Series, str] | None:
    """The series that a text is about, an archive's or a folder's, and the request there; None for other texts."""
    word, colon, body = text.partition(":")
    found: Series | None = ARCHIVES.get(word) or _FOLDERS.get(word)
    return (found, body) if colon and found else None


def downloaded(guests: Iterable[str]) -> Iterator[Path]:
    """The kernels of all packages that were downloaded for guests of some architectures, or unpacked from files."""
    for archive in ARCHIVES.values():
        for name in guests:
            yield from archive.downloaded(name)
    yield from package_files.downloaded()
