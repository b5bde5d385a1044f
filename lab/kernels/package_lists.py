"""Lists of packages, as apt keeps them: the host's, and the lab's own of all suites of Debian.

The lab's own are below its cache. apt fetches them under a configuration of the lab's, which gives it other folders and
sources. So it needs no root, leaves the host's lists alone, and checks signatures as it does for the host.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lab.core import paths
from lab.core.errors import HostFailed, UserError, suggestion
from lab.core.git import environment
from lab.core.locks import file_lock
from lab.core.process import CommandFailed, find_tool, run, run_text
from lab.core.progress import QUIET, Progress
from lab.core.records import write_atomic
from lab.kernels import architecture
from lab.kernels.architecture import Architecture

if TYPE_CHECKING:
    from debian.deb822 import Packages

_POCKETS = ("", "-updates", "-security", "-backports")
RELEASES = ("bookworm", "trixie")
SUITES = (*(f"{release}{pocket}" for release in RELEASES for pocket in _POCKETS), "sid")
"""The suites whose lists the lab keeps."""

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_KERNELS = ("linux-image-", "linux-binary-")
"""The beginnings of the names of kernels' packages."""

_DEFAULT_MIRROR = "http://deb.debian.org"
_LISTS_NEED, _PACKAGE_NEEDS = 64 << 20, 256 << 20
"""Bytes. apt says of a full disk that it cannot read its lists."""

_MAX_AGE_S = 86400.0

# The host's hooks for updates are for its own lists; its pins and architecture would hide packages.
_CONFIGURATION = """\
#clear APT::Update;
#clear APT::Architectures;
APT::Architecture "{architecture}";
APT::Architectures "{architecture}";
APT::Update::Error-Mode "any";
Acquire::GzipIndexes "true";
Acquire::Languages "none";
Dir::State "{folder}";
Dir::State::Lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
"""


class Offer(NamedTuple):
    """A package at a version, in a suite."""

    suite: str
    package: str
    version: str


@dataclass(frozen=True, slots=True)
class PackageLists:
    """Package lists that apt reads. options: the options that lead apt to them; without any it reads the host's own."""

    options: tuple[str, ...] = ()

    def _ask(self, *words: str) -> str:
        return _answer(find_tool("apt-cache", package="apt"), self.options or _own_index(), words)

    def kernel_names(self) -> list[str]:
        """The names of all packages of kernels."""
        names = self._ask("pkgnames", "linux-").split()
        return sorted(name for name in names if name.startswith(_KERNELS))

    def source_names(self) -> list[str]:
        """The names of all packages of the kernel's source, one for each series."""
        return [name for name in self._ask("pkgnames", "linux-source-").split() if name[len("linux-source-")].isdigit()]

    def offers(self, packages: Sequence[str]) -> list[Offer]:
        """Each package with each of its versions, from one run of apt."""
        if not packages:
            return []
        rows = (line.split("|") for line in self._ask("madison", *packages).splitlines())
        return [Offer(_suite_in(row[2]), row[0].strip(), row[1].strip()) for row in rows]

    def entries(self, package: str) -> list[Packages]:
        """The entries of a package, one for each version; none for a name that no package can have."""
        from debian.deb822 import Packages  # takes a twentieth of a second

        if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", package):
            return []
        try:
            text = self._ask("show", package)
        except CommandFailed:
            return []
        entries = Packages.iter_paragraphs(text, use_apt_pkg=False)
        return [entry for entry in entries if entry.get("Package") == package and "Filename" in entry]

    def download(self, package: str, folder: Path, *, hint: str) -> str:
        """Unpack a package, given as `NAME` or `NAME=VERSION`, into a folder; returns its version."""
        find_tool("apt-get", package="apt")
        paths.require_space(folder, _PACKAGE_NEEDS, f"the package {package.partition('=')[0]}")
        try:
            run(["apt-get", *self.options, "download", package], cwd=folder, env=environment())
        except CommandFailed as error:
            raise HostFailed(f"cannot download {package.replace('=', ' ')}: {error.message}", hint=hint) from error
        deb = next(folder.glob("*.deb"))
        version = run_text(["dpkg-deb", "--field", deb, "Version"])
        run(["dpkg-deb", "-x", deb, folder])
        deb.unlink()
        return version


def _own_index() -> tuple[str, ...]:
    """Options that have apt keep an index of the host's lists in the lab's cache.

    apt makes it again when the lists change. Without an index an answer takes half a second, and containers keep none.
    """
    index = paths.cache_dir("packages") / "host.bin"
    return ("-o", f"Dir::Cache::pkgcache={index}", "-o", "Dir::Cache::srcpkgcache=")


@cache
def _answer(program: str, options: tuple[str, ...], words: tuple[str, ...]) -> str:
    """apt's answer. Both arms ask the same."""
    return run_text([program, *options, *words], env=environment())


def may_match_kernels(pattern: str) -> bool:
    """True for a pattern that some name of a kernel's package could match; no list is asked."""
    literal = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return any(name.startswith(literal) or literal.startswith(name) for name in _KERNELS)


def _suite_in(source: str) -> str:
    """The suite in a line of madison: `http://deb.debian.org/debian trixie/main amd64 Packages`."""
    words = source.split()
    return words[1].partition("/")[0] if len(words) > 1 else ""


HOST = PackageLists()
"""The lists of the host's own package sources."""


def all_suites(
    progress: Progress = QUIET, *, guests: str = architecture.DEFAULT, refresh: bool = False
) -> PackageLists:
    """The lab's own lists of all suites for guests of an architecture, renewed when they are older than a day.

    refresh: renew them now.
    """
    # apt's configuration has whole paths, which hold while the folder does, whatever leads to it.
    folder = paths.cache_dir("packages" if guests == architecture.DEFAULT else f"packages-{guests}").resolve()
    lists = PackageLists(("-c", str(folder / "apt.conf")))
    fetched = folder / "fetched"
    with file_lock(folder / ".lock", "another lab is fetching the package lists: waiting for it", progress):
        # Lists of the future are those of a clock that was wrong.
        is_fresh = fetched.is_file() and abs(time.time() - fetched.stat().st_mtime) < _MAX_AGE_S
        if refresh or not is_fresh:
            paths.require_space(folder, _LISTS_NEED, "fetching the package lists")
            progress.log_once("fetching the package lists of Debian's suites")
            _write_configuration(folder, architecture.load(guests))
            _update(lists, progress)
            fetched.touch()
    return lists


def _write_configuration(folder: Path, guests: Architecture) -> None:
    if not _KEYRING.exists():
        raise HostFailed(
            f"there is no {_KEYRING}, so Debian's package lists cannot be checked",
            hint="install the package debian-archive-keyring",
        )
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    suites = [suite for suite in SUITES if not guests.suites or suite.partition("-")[0] in guests.suites]
    write_atomic(folder / "sources.list", "".join(f"{line}\n" for line in source_lines(suites, guests)).encode())
    write_atomic(folder / "apt.conf", _CONFIGURATION.format(folder=folder, architecture=guests.debian).encode())


def source_lines(suites: Sequence[str], guests: Architecture) -> list[str]:
    """Lines of a sources.list for suites of Debian, for guests of an architecture, from the host's mirror."""
    mirrors = _mirrors()
    options = f"[arch={guests.debian} signed-by={_KEYRING} target=Packages]"
    return [f"deb {options} {mirrors[_archive_of(suite)]} {suite} main" for suite in suites]


def _archive_of(suite: str) -> str:
    return "debian-security" if suite.endswith("-security") else "debian"


def _mirrors() -> dict[str, str]:
    """The address of each archive: that of the host's own sources, if these have one, else Debian's."""
    mirrors = {archive: f"{_DEFAULT_MIRROR}/{archive}" for archive in ("debian", "debian-security")}
    form = ["--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    for line in run_text(["apt-get", "indextargets", *form], env=environment()).splitlines():
        uri, _, suite = line.strip().partition(" ")
        archive = _archive_of(suite)
        # A snapshot of the archive, a disc or another distribution does not have the other suites.
        if suite in SUITES and re.fullmatch(rf"https?://\S+/{archive}/?", uri):
            mirrors[archive] = uri.rstrip("/")
    return mirrors


def _update(lists: PackageLists, progress: Progress) -> None:
    """Let apt fetch new lists. If it does not get some, the others are usable: a mirror need not have all suites.

    Lists that expired, on a mirror that nobody brings up to date, are as well signed as new ones.
    """
    _answer.cache_clear()
    update = ["apt-get", *lists.options, "update"]
    try:
        try:
            run(update, env=environment())
        except CommandFailed as error:
            if " is expired " not in error.stderr:
                raise
            progress.log(f"the mirror has old package lists, which are taken as they are: {error.message}")
            run([*update, "-o", "Acquire::Check-Valid-Until=false"], env=environment())
    except CommandFailed as error:
        if not lists.kernel_names():
            raise HostFailed(
                f"cannot fetch the package lists of Debian's suites: {error.message}", hint="check the network"
            ) from error
        progress.log(f"some package lists are missing or old: {error.message}")


def suites_named(name: str) -> tuple[str, ...]:
    """The suites that a name stands for: a release's has its updates and security fixes, too."""
    if name not in SUITES:
        hint = suggestion(name, SUITES)
        raise UserError(f"no suite called {name}", hint=f"{f'{hint} ' if hint else ''}There are {', '.join(SUITES)}")
    return tuple(suite for suite in SUITES if suite in {name, f"{name}-updates", f"{name}-security"})
