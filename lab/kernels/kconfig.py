"""Kernel configuration: fragments of requested options, and the check that kconfig keeps them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.core import paths, records
from lab.core.errors import UserError
from lab.core.paths import data_folder
from lab.core.user_files import unpacked
from lab.kernels import architecture

_LINE = re.compile(r"(CONFIG_\w+)=(.+)")
_UNSET = re.compile(r"# (CONFIG_\w+) is not set")


@dataclass(frozen=True, slots=True)
class Needs:
    """Options that workloads need built in. optional: options of single cases, left out if a tree cannot have them."""

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        return Needs(self.required | other.required, self.optional | other.optional)


NOTHING = Needs()

BOOT = (
    *("CONFIG_PRINTK", "CONFIG_TTY", "CONFIG_SERIAL_8250", "CONFIG_SERIAL_8250_CONSOLE"),
    *(
        "CONFIG_BLK_DEV_INITRD",
        "CONFIG_BINFMT_ELF",
        "CONFIG_DEVTMPFS",
        "CONFIG_PROC_FS",
        "CONFIG_SYSFS",
        "CONFIG_TMPFS",
    ),
)
"""The options without which no guest works: its console and report, its root, and the file systems of init."""

KEPT = "file="
"""The start of the label of a configuration that a user gave as a file."""

FILE_MAX = 4 << 20
"""The most bytes of a `.config`."""

RAM_DISK = "CONFIG_BLK_DEV_RAM"
FILE_SYSTEMS = {"btrfs": "CONFIG_BTRFS_FS", "ext4": "CONFIG_EXT4_FS", "xfs": "CONFIG_XFS_FS"}
"""The option of each file system that guests can have on a RAM disk."""


def parse(text: str) -> dict[str, str]:
    """Options of a fragment or a `.config`, name to value; an unset option has the value `n`."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.strip()):
            options[match[1]] = match[2]
        elif match := _UNSET.fullmatch(line.strip()):
            options[match[1]] = "n"
    return options


def guest_options(guests: str = architecture.DEFAULT) -> tuple[dict[str, str], dict[str, str]]:
    """The options of every guest kernel of an architecture: required ones, and options that older kernels may lack."""
    common, own = data_folder("kernels") / "fragments", data_folder("machines") / guests
    required, optional = (
        parse((common / name).read_text()) | parse(_text_of(own / name))
        for name in ("guest.config", "guest-optional.config")
    )
    return required, optional


def _text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def mount_needs(file_system: str | None) -> Needs:
    """The options of a kernel whose guests have a file system on a RAM disk; none if it needs no disk."""
    option = FILE_SYSTEMS.get(file_system or "")
    return Needs(frozenset({RAM_DISK, option})) if option else NOTHING


def of_package(options: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a package or a user without modules and options that differ from host to host."""
    ours = parse((data_folder("kernels") / "fragments" / "package.config").read_text())
    return {name: "n" if value == "m" else value for name, value in options.items() if name not in ours} | ours


_REPORTED = "take the reporter's .config, or a copy of /proc/config.gz"


def keep(path: Path, guests: str) -> str:
    """Keep a user's `.config`, or a copy of /proc/config.gz, among the lab's data; returns its label.

    guests: the architecture that it has to be for.
    """
    text = unpacked(path, FILE_MAX).decode(errors="replace")
    header = re.search(r"^# Linux/(\w+) ", text, re.MULTILINE)
    own = PurePosixPath(architecture.load(guests).tree).name
    if not parse(text):
        raise UserError(f"{path} has no line like CONFIG_FOO=y, so it is no .config", hint=_REPORTED)
    if header and header[1] not in (own, guests):  # `make ARCH=x86_64` writes Linux/x86_64
        raise UserError(
            f"{path} is the configuration of a kernel for {header[1]}, and the guest is {guests}",
            hint="name the architecture: %arch=NAME",
        )
    digest = records.digest(text)
    records.save(_kept_at(digest), text)
    return f"{KEPT}{digest}"


def kept(label: str) -> dict[str, str]:
    """A user's configuration, for a kernel without modules, with the options that a guest has to have built in."""
    digest = label.removeprefix(KEPT)
    text = records.find(_kept_at(digest), str)
    if text is None:
        raise UserError(f"the .config {digest[:12]} is not kept here", hint="name the file again: %config=FILE")
    return of_package(parse(text)) | parse(_text_of(data_folder("kernels") / "fragments" / "reported.config"))


def _kept_at(digest: str) -> Path:
    return paths.data_dir("configurations") / f"{digest}.json"


def requested(
    extra: Iterable[tuple[str, str]],
    wanted: Iterable[tuple[str, str]] = (),
    base: Iterable[tuple[str, str]] = (),
    *,
    guests: str = architecture.DEFAULT,
) -> tuple[dict[str, str], dict[str, str]]:
    """The options that a guest kernel requests: (required, optional). The spec's win over the fragments'.

    wanted: more optional ones. base: optional ones in place of the fragments. guests: the architecture.
    """
    own = dict(extra)
    if package := dict(base):
        return own, {name: value for name, value in (package | dict(wanted)).items() if name not in own}
    required, optional = (
        {name: value for name, value in options.items() if name not in own} for options in guest_options(guests)
    )
    optional |= wanted
    return required | own, optional  # the spec's own last: kconfig takes the last of two members of a choice


def missing(
    extra: Iterable[tuple[str, str]],
    needs: Iterable[str],
    base: Iterable[tuple[str, str]] = (),
    *,
    guests: str = architecture.DEFAULT,
) -> tuple[tuple[str, str], ...]:
    """The options, of those that a kernel needs built in, that are neither a guest kernel's nor decided by the spec."""
    own = dict(extra)
    required, optional = requested(own.items(), base=base, guests=guests)
    return tuple(
        (name, "y") for name in sorted(needs) if name not in own and {**optional, **required}.get(name, "n") == "n"
    )


def fragment(options: Mapping[str, str]) -> str:
    """Options as a file for KCONFIG_ALLCONFIG."""
    return "".join(f"# {name} is not set\n" if value == "n" else f"{name}={value}\n" for name, value in options.items())


def not_bootable(have: Mapping[str, str]) -> list[str]:
    """The options of `BOOT` that a kconfig has as modules or not at all. Unknown options are not missing."""
    states = {"n": "not set", "m": "a module"}
    return [f"{option} ({states[have[option]]})" for option in BOOT if have.get(option) in states]


def dropped(wanted: Mapping[str, str], resolved: Mapping[str, str]) -> dict[str, str]:
    """Options that kconfig did not keep as asked, with their new values."""
    return {name: resolved.get(name, "n") for name, value in wanted.items() if resolved.get(name, "n") != value}


def explain_dropped(lost: Mapping[str, str], wanted: Mapping[str, str], known: Iterable[str]) -> UserError:
    """The error for options that kconfig dropped: they do not exist, or their dependencies are not met.

    known: names (without CONFIG_) of all symbols in the tree's Kconfig files.
    """
    symbols = set(known)
    missing = [name for name in lost if name.removeprefix("CONFIG_") not in symbols]
    if missing:
        name = missing[0]
        close = difflib.get_close_matches(name.removeprefix("CONFIG_"), symbols, n=3)
        guess = f"did you mean {', '.join('CONFIG_' + c for c in close)}?" if close else "check its spelling"
        return UserError(f"{', '.join(missing)}: no such kconfig symbol in this tree", hint=guess)
    lines = ", ".join(f"{name}={wanted[name]} became {value}" for name, value in lost.items())
    return UserError(
        f"kconfig dropped {lines}",
        hint="an option that it depends on is not set, or another one selects it: add that with %CONFIG_...=y",
    )
