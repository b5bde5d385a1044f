"""`SHA256SUMS`: what every file of a bundle must be. `sha256sum -c SHA256SUMS` checks the same.

It is there against damage. Who changes a file can change its sum, so a bundle is worth as much trust as its sender.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from lab.bundle.contents import OUT, is_inside
from lab.core import records
from lab.core.errors import UserError
from lab.core.text import visible

NAME = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_SHOWN = 5


def write(folder: Path) -> None:
    """List everything in a folder."""
    lines = [f"{records.file_digest(folder / name)}  {name}\n" for name in sorted(_files(folder)) if name != NAME]
    records.write_atomic(folder / NAME, "".join(lines).encode())


def check(folder: Path) -> None:
    """`UserError` naming every file that is not what it was, is gone, or came in addition."""
    listed = _read(folder)
    found = set(_files(folder)) - {NAME}
    problems = [f"{name} is missing" for name in sorted(set(listed) - found)]
    problems += [f"{name} is not in {NAME}" for name in sorted(found - set(listed))]
    problems += [f"{name} is not what it was" for name in sorted(found & set(listed)) if _differs(folder, name, listed)]
    if problems:
        more = f", and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UserError(
            f"{folder} is damaged: {visible('; '.join(problems[:_SHOWN]))}{more}",
            hint="nothing was run; get the bundle again",
        )


def _read(folder: Path) -> dict[str, str]:
    path = folder / NAME
    if not path.is_file() or path.is_symlink():
        raise UserError(f"{folder} is no bundle, or a damaged one: {NAME} is missing")
    listed = {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if not found or not is_inside(found[2]):
            raise UserError(f"{path}: line {number} is no checksum of a file in the bundle", hint="nothing was run")
        listed[found[2]] = found[1]
    return listed


def _files(folder: Path) -> Iterator[str]:
    """All that is below a folder and not itself one, but for what run.sh wrote."""
    for place, folders, files in os.walk(folder):
        if Path(place) == folder and OUT in folders:
            folders.remove(OUT)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in (*files, *links):
            yield str((Path(place) / name).relative_to(folder))


def _differs(folder: Path, name: str, listed: dict[str, str]) -> bool:
    """A link is never what it was: it would lead out of the bundle."""
    path = folder / name
    return not stat.S_ISREG(path.lstat().st_mode) or records.file_digest(path) != listed[name]
