"""The guest image: one root for both arms, as a folder and as a cpio. `initrd` packs parts of it for guests."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

import msgspec

from lab.core import ansible, cpio, locks, paths, records, toml
from lab.core.errors import BuildFailed, HostFailed
from lab.core.locks import make_once
from lab.core.paths import data_folder
from lab.core.progress import Progress
from lab.core.records import Record
from lab.kernels import architecture, compilers
from lab.kernels.compilers import Compiler
from lab.kernels.package_lists import RELEASES, source_lines
from lab.workloads.selection import list_workloads

_SPACE_NEEDED = 1 << 30
_APT = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))


class Recipe(Record, frozen=True, kw_only=True):
    """`images/<name>/image.toml`. optional: packages of a second image, which has those of the first, too."""

    schema: int
    name: str
    packages: list[str]
    optional: list[str] = msgspec.field(default_factory=list)
    trim: list[str]

    def including(self, packages: Iterable[str]) -> Recipe:
        """The recipe of the smallest image with these packages: the first, the second, or one of its own."""
        others = sorted(set(packages) - {*self.packages})
        extra = [*self.optional, *(name for name in others if name not in self.optional)] if others else []
        return msgspec.structs.replace(self, packages=[*self.packages, *extra], optional=[])


class Program(Record, frozen=True, kw_only=True):
    """A program of the lab's own that is compiled into the root."""

    source: str
    program: str
    into: str


class Image(Record, frozen=True, kw_only=True):
    """A finished image: `image.json` in its folder. `sha256` is that of the whole root as a cpio."""

    schema: int = 1
    name: str
    architecture: str = architecture.DEFAULT
    key: str
    sha256: str
    suite: str
    compiler: str
    packages: dict[str, str]
    programs: dict[str, str]


def obtain(
    progress: Progress,
    *,
    packages: Iterable[str] = (),
    compiler: Compiler | None = None,
    guests: str = architecture.DEFAULT,
) -> tuple[Image, Path]:
    """The guest image of the current sources that has these packages, and its folder; built if it is not there.

    guests: their architecture.
    """
    compiler = compiler or compilers.of_guests(guests)
    recipe, programs, suite = read_recipe().including(packages), own_programs(), suite_of(guests)
    key = _key(recipe, programs, suite, compiler, guests)
    folder = paths.cache_dir("images") / key[:24]
    if not folder.is_dir():
        paths.require_space(folder.parent, _SPACE_NEEDED, "the guest image")
        progress.log("building the guest image")
        make_once(
            folder,
            lambda partial: _build(partial, recipe, programs, suite, compiler, guests, key, progress),
            progress=progress,
        )
    if not locks.hold(folder / "image.json") and not folder.is_dir():  # `lab gc` removed it just now
        return obtain(progress, packages=recipe.packages, compiler=compiler, guests=guests)
    return records.load(folder / "image.json", Image), folder


def key_of(packages: Iterable[str] = ()) -> str:
    """The key of the guest image of the current sources that has these packages, built or not."""
    return _key(read_recipe().including(packages), own_programs(), host_suite(), compilers.identify())


def rebuild(progress: Progress) -> tuple[Image, Path]:
    """Build the image again, with the current versions of its packages."""
    folder = paths.cache_dir("images") / key_of()[:24]
    if folder.is_dir():
        condemned = folder.with_name(f".{folder.name}.old")
        folder.rename(condemned)
        shutil.rmtree(condemned)
    return obtain(progress)


def built() -> list[tuple[Image, Path]]:
    """All finished images with their folders, except images with a damaged record."""
    files = paths.entries(paths.cache_dir("images"), "[!.]*/image.json")
    return [(image, path.parent) for path, image in records.load_each(files, Image)]


def digest_of(images: Iterable[Image]) -> str:
    """The SHA-256 of an image, or of those of several."""
    found = sorted({image.sha256 for image in images})
    return found[0] if len(found) == 1 else records.digest(found)


def read_recipe() -> Recipe:
    return toml.load(data_folder("images") / "guest" / "image.toml", Recipe)


def own_programs() -> list[Program]:
    """Init, and the reproducers in C: every workload folder with a Makefile."""
    init = Program(source=str(data_folder("images") / "guest"), program="init", into="init")
    reproducers = [
        Program(source=str(workload.folder), program=workload.folder.name, into=workload.program.lstrip("/"))
        for workload in list_workloads()
        if (workload.folder / "Makefile").is_file()
    ]
    return [init, *reproducers]


def host_suite() -> str:
    """The Debian release that the guest's packages come from: the host's; the newest on a relative of Debian."""
    return _debian_release() or RELEASES[-1]


def _debian_release() -> str | None:
    """The host's release; None if it is not Debian's."""
    named = platform.freedesktop_os_release()
    if named["ID"] != "debian":
        return None
    if release := named.get("VERSION_CODENAME"):
        return release
    raise HostFailed("/etc/os-release does not name a release", hint="the guest image is made from Debian's packages")


def suite_of(guests: str) -> str:
    """The release that the packages of guests of an architecture come from: the host's, if it has the architecture."""
    own, others = host_suite(), architecture.load(guests).suites
    return own if own in others or not others else others[0]


def _key(
    recipe: Recipe,
    programs: Sequence[Program],
    suite: str,
    compiler: Compiler,
    guests: str = architecture.DEFAULT,
) -> str:
    sources = {
        f"{Path(program.source).name}/{path.relative_to(program.source)}": records.file_digest(path)
        for program in programs
        for path in sorted(Path(program.source).rglob("*"))
        if path.is_file() and path.suffix in {".c", ".h", ""}
    }
    others = [] if guests == architecture.DEFAULT else [guests]
    return records.digest([recipe, sources, shared_sources(), suite, compiler.version, *others])


def shared_sources() -> list[str]:
    """The digests of the headers that any workload's program can include."""
    return [
        records.file_digest(path)
        for path in sorted((data_folder("workloads") / "include").rglob("*"))
        if path.is_file()
    ]


def _build(
    partial: Path,
    recipe: Recipe,
    programs: Sequence[Program],
    suite: str,
    compiler: Compiler,
    guests: str,
    key: str,
    progress: Progress,
) -> None:
    root = partial / "root"
    log = paths.cache_dir("logs") / f"image-{key[:12]}.log"
    log.write_bytes(b"")
    own = architecture.load(guests)
    hosts = [str(path) for path in _APT if path.is_file()]
    variables = {
        "guest_image_suite": suite,
        "guest_image_architecture": own.debian,
        "guest_image_sources": hosts if suite == _debian_release() else source_lines([suite], own),
        "guest_image_packages": recipe.packages,
        "guest_image_trim": recipe.trim,
        "guest_image_programs": records.plain(list(programs)),
        "guest_image_compiler": compiler.command,
        "guest_image_root": str(root),
        "guest_image_log": str(log),
    }
    try:
        ansible.play("guest_image", variables, cancelled=progress.cancelled)
    except ansible.PlaybookFailed as error:
        raise _explain(error, log) from error
    versions = _versions(root / "var/cache/apt/archives")
    shutil.rmtree(root / "var/cache")
    shutil.rmtree(partial / "programs")
    with (partial / "root.cpio").open("wb") as stream:
        cpio.write(stream, root, list(cpio.everything_in(root)))
    image = Image(
        schema=1,
        name=recipe.name,
        architecture=guests,
        key=key,
        sha256=records.file_digest(partial / "root.cpio"),
        suite=suite,
        compiler=compiler.version,
        packages=versions,
        programs={program.program: records.file_digest(root / program.into) for program in programs},
    )
    records.save(partial / "image.json", image)


def _explain(error: ansible.PlaybookFailed, log: Path) -> Exception:
    lines = log.read_text(errors="replace").splitlines()
    complaints = [line for line in lines if line.startswith("E: ") or "error:" in line or "Err:" in line]
    text = complaints[0] if complaints else error.detail
    if error.task == "Unpack the packages":
        return HostFailed(
            f"cannot get the guest image's packages: {text}",
            hint="check the network and the package sources (`sudo apt-get update`)",
            log=log,
        )
    if error.task is None:
        return HostFailed(f"making the guest image was broken off: {text}", hint="do it again", log=log)
    return BuildFailed(f"the guest image failed at '{error.task}': {text}", log=log)


def _versions(archives: Path) -> dict[str, str]:
    """Packages and versions, from the names of the archives that were unpacked (`name_version_arch.deb`)."""
    names = (path.name.removesuffix(".deb").split("_") for path in sorted(archives.glob("*.deb")))
    return {name[0]: unquote(name[1]) for name in names if len(name) == 3}
