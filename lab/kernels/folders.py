"""Series of package files in a folder: `dir:PATH/*.rpm`, in the distribution's own order of versions."""

from __future__ import annotations

import re
from pathlib import Path

from lab.core import paths
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.kernels import package_files, versions
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
        of_kernels.sort(key=lambda one: (versions.ORDERS[kind](one[0].version), one[0].name))
    return [Package(path.name, identity.version, f"file:{path.absolute()}") for identity, path in of_kernels]


def name_in(body: str) -> str:
    """The name of a package's file."""
    return Path(body).name
