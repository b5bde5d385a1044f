"""Series of package files in a folder: `dir:PATH/*.rpm`, in the distribution's own order of versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from debian.debian_support import Version

from lab.core import paths
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.kernels import package_files
from lab.kernels.spec import Package

_OTHERS = re.compile(r"(^|-)(buildinfo|dbg|debug(info)?|devel|docs?|headers|libc|libs?|modules|perf|source|tools)(-|$)")
"""Packages of a kernel that have no kernel in them, by a word of their names."""


def matching(pattern: str, progress: Progress) -> list[Package]:
    """The packages of kernels that a pattern names, the oldest first. They are called as their files are."""
    folder, _, wanted = pattern.rpartition("/")
    place = paths.expanded(folder or ("/" if pattern.startswith("/") else "."))
    if not place.is_dir():
        raise UserError(f"dir:{pattern}: there is no folder {place}", hint="write dir:PATH/*.rpm")
    files = sorted(path for path in place.glob(wanted or "*") if path.is_file())
    found = [(package_files.identity(path), path) for path in files if package_files.kind_of(path)]
    of_kernels = [(identity, path) for identity, path in found if not _OTHERS.search(identity.name)]
    kinds = sorted({identity.kind for identity, _ in of_kernels})
    if len(kinds) > 1:
        raise UserError(
            f"dir:{pattern} names packages of {' and '.join(kinds)}, whose versions have no common order",
            hint="name those of one kind, e.g. dir:PATH/*.rpm",
        )
    for kind in kinds:
        of_kernels.sort(key=lambda one: (ORDERS[kind](one[0].version), one[0].name))
    return [Package(path.name, identity.version, f"file:{path.absolute()}") for identity, path in of_kernels]


def name_in(body: str) -> str:
    """The name of a package's file."""
    return Path(body).name


# ---- orders of versions: a version as a key to sort by, as each distribution compares it

Key = Callable[[str], Any]

_NUMBER_MAX = 20
"""The most digits of an epoch."""


def _with_epoch(key: Key, text: str) -> tuple[int, Any, Any]:
    """The order of `[EPOCH:]VERSION[-RELEASE]`."""
    epoch, colon, rest = text.partition(":")
    number = int(epoch) if colon and epoch.isdecimal() and len(epoch) <= _NUMBER_MAX else 0
    version, _, release = (rest if colon else text).partition("-")
    return number, key(version), key(release)


def _number(digits: str) -> tuple[int, str]:
    """Digits as a number of any length."""
    digits = digits.lstrip("0")
    return len(digits), digits


def _rpm(text: str) -> list[tuple[int, Any]]:
    """Segments (rpmvercmp), each with its rank: a tilde, the end, a caret, letters, a number; no other characters."""
    ranks: list[tuple[int, Any]] = []
    for part in re.findall(r"~|\^|[0-9]+|[a-zA-Z]+", text):
        if part in "~^":
            ranks.append((0 if part == "~" else 2, ""))
        else:
            ranks.append((4, _number(part)) if part[0].isdigit() else (3, part))
    return [*ranks, (1, "")]


def _pacman(text: str) -> list[tuple[int, ...] | tuple[Any, ...]]:
    """Segments (vercmp), each with its rank: letters at once, the end, then by how many characters are before it."""
    ranks: list[Any] = []
    for between, digits, letters in re.findall(r"([^a-zA-Z0-9]*)(?:([0-9]+)|([a-zA-Z]+))", text):
        if letters and not between:
            ranks.append((0, letters))
        else:
            ranks.append((2, len(between), *((1, _number(digits)) if digits else (0, letters))))
    return [*ranks, (1,)]


ORDERS: dict[str, Key] = {"deb": Version, "rpm": partial(_with_epoch, _rpm), "pacman": partial(_with_epoch, _pacman)}
"""The order of each kind of package."""
