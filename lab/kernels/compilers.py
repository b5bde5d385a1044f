"""C compilers: their identity, which is part of a build's key, and the kernels that they are too new for."""

from __future__ import annotations

import re
import shutil

from lab.core import toml
from lab.core.errors import HostFailed, UserError
from lab.core.paths import room
from lab.core.process import find_tool, run_text
from lab.core.records import Record

DEFAULT = "gcc"


class Compiler(Record, frozen=True, kw_only=True):
    """A C compiler: the command as typed, its version as printed, and the linker beside it."""

    command: str
    family: str
    major: int
    version: str
    linker: str

    @property
    def make_command(self) -> str:
        """The value of CC for kbuild: with ccache, if it is installed. ccache never changes the result."""
        return f"ccache {self.command}" if shutil.which("ccache") else self.command


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
    """Identify a compiler; `UserError` when the one that was named is not installed, or is neither gcc nor clang."""
    if not re.fullmatch(r"[\w./+-]+", command) or command.startswith("-"):
        raise UserError(f"'{command}' is no compiler command", hint="give a program name such as gcc-11")
    if shutil.which(command) is None:
        kind = HostFailed if command == DEFAULT else UserError
        raise kind(
            f"the compiler {command} is not installed",
            hint="run `make setup`"
            if command == DEFAULT
            else f"install it (apt-get install {command}), or choose another with --cc",
        )
    version = run_text([command, "--version"]).partition("\n")[0]
    macros = run_text([command, "-dM", "-E", "-x", "c", "/dev/null"])
    # clang defines __GNUC__ too.
    major = re.search(r"^#define __clang_major__ (\d+)$", macros, re.MULTILINE)
    family = "clang" if major else "gcc"
    major = major or re.search(r"^#define __GNUC__ (\d+)$", macros, re.MULTILINE)
    if not major:
        raise UserError(f"{command} is neither gcc nor clang", hint="choose a compiler with --cc")
    linker = run_text([find_tool("ld", package="binutils"), "--version"]).splitlines()[0]
    return Compiler(command=command, family=family, major=int(major[1]), version=version, linker=linker)


def age_hint(compiler: Compiler, kernel_version: tuple[int, int]) -> str | None:
    """The reason why a compiler may be too new for a kernel, from `kernels/compilers.toml`."""
    for row in reversed(toml.load(room("kernels") / "compilers.toml", _File).compiler):
        oldest = tuple(int(part) for part in row.oldest_kernel.split("."))
        if row.family == compiler.family and compiler.major >= row.major and kernel_version < oldest:
            return (
                f"{compiler.command} ({compiler.family} {compiler.major}) is newer than "
                f"v{kernel_version[0]}.{kernel_version[1]} can be built with: {row.reason}; "
                "choose an older compiler with --cc"
            )
    return None
