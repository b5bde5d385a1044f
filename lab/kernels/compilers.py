"""C compilers: their identity, which is part of a build's key, the kernels that they are too new for, own programs."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

from lab.core import paths, records, toml
from lab.core.errors import BuildFailed, HostFailed, UserError
from lab.core.locks import make_once
from lab.core.paths import data_folder
from lab.core.process import CommandFailed, find_tool, run, run_text
from lab.core.records import Record
from lab.kernels import architecture

DEFAULT = "gcc"


class Compiler(Record, frozen=True, kw_only=True):
    """A C compiler: the command as typed, its version as printed, and the linker beside it."""

    command: str
    family: str
    major: int
    version: str
    linker: str


def host_command(command: str) -> str:
    """The compiler of programs that run while a kernel is built: the host's own beside a cross compiler."""
    return DEFAULT if _cross_prefix(command) else command


def with_ccache(command: str) -> str:
    """A compiler's command for kbuild: with ccache, if it is installed. ccache never changes the result."""
    return f"ccache {command}" if shutil.which("ccache") else command


def ccache_environment() -> dict[str, str]:
    """The variables by which worktrees and build folders share objects, whatever their paths."""
    return {
        "CCACHE_DIR": str(paths.cache_dir("ccache")),
        "CCACHE_BASEDIR": str(paths.cache_dir().resolve()),
        "CCACHE_NOHASHDIR": "1",
        # Without a preprocessor run of its own for each object, a first build takes a fifth less CPU time.
        # (With CCACHE_NOCPP2, the kconfig's checks of the compiler come out differently.)
        "CCACHE_DEPEND": "1",
    }


def _cross_prefix(command: str) -> str:
    """The beginning of a cross compiler's name, which its binutils share; nothing for another compiler."""
    prefixes = (architecture.load(name).cross_prefix for name in architecture.names())
    return next((prefix for prefix in prefixes if prefix and Path(command).name.startswith(prefix)), "")


class _Age(Record, frozen=True, kw_only=True):
    """The oldest release that a compiler builds without patches."""

    family: str
    major: int
    oldest_kernel: str
    reason: str


class _File(Record, frozen=True, kw_only=True):
    """`kernels/compilers.toml`."""

    schema: int
    compiler: list[_Age]


def identify(command: str = DEFAULT) -> Compiler:
    """Identify a compiler; `UserError` if the named one is not installed, or is neither gcc nor clang."""
    if not re.fullmatch(r"[\w./+-]+", command) or command.startswith("-"):
        raise UserError(f"'{command}' is no compiler command", hint="give a program name such as gcc-11")
    program = shutil.which(command)
    if program is None:
        kind = HostFailed if command == DEFAULT else UserError
        raise kind(
            f"the compiler {command} is not installed",
            hint="run `lab doctor --install`"
            if command == DEFAULT
            else f"install it (apt-get install {command}), or choose another with --cc",
        )
    linker = find_tool(f"{_cross_prefix(command)}ld", package="binutils")
    stamps = tuple((path, Path(path).stat().st_mtime_ns) for path in (program, linker))
    return _identified(command, linker, stamps)


@functools.cache
def _identified(command: str, linker: str, _: tuple[tuple[str, int], ...]) -> Compiler:
    """Ask a compiler and its linker for their versions, and again if a file of theirs has another time."""
    version = run_text([command, "--version"]).partition("\n")[0]
    macros = run_text([command, "-dM", "-E", "-x", "c", "/dev/null"])
    # clang defines __GNUC__ too.
    major = re.search(r"^#define __clang_major__ (\d+)$", macros, re.MULTILINE)
    family = "clang" if major else "gcc"
    major = major or re.search(r"^#define __GNUC__ (\d+)$", macros, re.MULTILINE)
    if not major:
        raise UserError(f"{command} is neither gcc nor clang", hint="choose a compiler with --cc")
    linked_by = run_text([linker, "--version"]).splitlines()[0]
    return Compiler(command=command, family=family, major=int(major[1]), version=version, linker=linked_by)


def version_in(text: str) -> str | None:
    """`gcc 12.2.0` of a compiler's own words, such as `x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0`."""
    versions = re.findall(r"\d+(?:\.\d+)+", re.sub(r"\(.*?\)", "", text))
    return f"{'clang' if 'clang' in text else 'gcc'} {versions[-1]}" if versions else None


def of_guests(guests: str, command: str = DEFAULT) -> Compiler:
    """The compiler of kernels and programs for guests of an architecture: a cross compiler of the command's version."""
    found = architecture.load(guests)
    if not found.cross_prefix:
        return identify(command)
    cross = command if _cross_prefix(command) else f"{found.cross_prefix}{command}"
    if shutil.which(cross) is None:
        package = found.compiler_package.replace("gcc", command, 1)
        raise HostFailed(
            f"the compiler {cross} is not installed, which kernels and programs of {found.name} guests need",
            hint=f"install it: apt-get install {package}",
        )
    return identify(cross)


def age_hint(compiler: Compiler, kernel_version: tuple[int, int]) -> str | None:
    """The reason why a compiler may be too new for a kernel, from `kernels/compilers.toml`."""
    for row in reversed(toml.load(data_folder("kernels") / "compilers.toml", _File).compiler):
        oldest = tuple(int(part) for part in row.oldest_kernel.split("."))
        if row.family == compiler.family and compiler.major >= row.major and kernel_version < oldest:
            return (
                f"{compiler.command} ({compiler.family} {compiler.major}) is newer than "
                f"v{kernel_version[0]}.{kernel_version[1]} can be built with: {row.reason}; "
                "choose an older compiler with --cc"
            )
    return None


# --- programs of the lab's own, compiled on first use ---


class Program(Record, frozen=True, kw_only=True):
    """A program or library of the lab's: a folder with C sources and a Makefile that takes OUT and CC."""

    folder: str  # in the data folder `machines`, and in the cache
    product: str
    label: str

    @property
    def source(self) -> Path:
        return data_folder("machines") / self.folder

    def digest(self, compiler: Compiler | None = None) -> str:
        """Hash of the sources and the compiler's version."""
        return records.digest([source_digests(self.source), (compiler or identify()).version])

    def obtain(self, compiler: Compiler | None = None) -> Path:
        """The product for the sources as they are, built when it is not there."""
        compiler = compiler or identify()
        folder = paths.cache_dir(self.folder) / self.digest(compiler)[:24]
        if not (folder / self.product).exists():
            shutil.rmtree(folder, ignore_errors=True)
            make_once(folder, lambda partial: self._build(partial, compiler))
        return folder / self.product

    def _build(self, partial: Path, compiler: Compiler) -> None:
        make = find_tool("make", package="make")
        try:
            run([make, "-s", "-C", str(self.source), f"OUT={partial}", f"CC={compiler.command}"])
        except CommandFailed as error:
            log = paths.cache_dir("logs") / f"{self.folder}.log"
            log.write_text(error.stderr)
            raise BuildFailed(
                f"{self.label} cannot be compiled with {compiler.command}",
                hint="it needs the C compiler and its headers (build-essential)",
                log=log,
            ) from error


def source_digests(folder: Path) -> dict[str, str]:
    """The C sources and the Makefile in a folder, and their digests."""
    files = sorted(path for path in folder.iterdir() if path.suffix in {".c", ".h", ""})
    return {path.name: records.file_digest(path) for path in files}
