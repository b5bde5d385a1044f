"""Ranges that are not commits: packages by version, patches applied one by one, options changed one by one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from lab.bisection.commit_range import Candidate, History, Kind
from lab.core.errors import UserError
from lab.core.progress import QUIET, Progress
from lab.core.text import plural
from lab.kernels import archives, spec
from lab.kernels import patches as mailed

_PATCHES = ("*.patch", "*.diff", "*.eml")
_UNSET = re.compile(r"# (CONFIG_\w+) is not set")


def packages(pattern: str, old: str | None, new: str | None, progress: Progress = QUIET) -> History:
    """The packages of a name pattern (`deb:linux-image-6.12.*-cloud-amd64`) by version, all or between two of them.

    Settings behind the pattern (`@mount.fs=ext4`) are those of each.
    """
    named, mark, settings = pattern.partition("@")
    asked = archives.series(named)
    if asked is None:
        kinds = ", ".join(f"{word}:" for word in (*archives.ARCHIVES, "dir"))
        raise UserError(f"{named} names no package", hint=f"a series has those of {kinds}")
    found = asked[0].matching(asked[1], progress)
    names = [package.name for package in found]
    if len(names) < 2:
        raise UserError(
            f"{pattern} matches {plural(len(names), 'package')}, and a series needs two",
            hint="put quotes around the pattern; `lab kernel list --available` shows the names",
        )
    first, last = (_index(names, end, default) for end, default in ((old, 0), (new, len(names) - 1)))
    if first >= last:
        raise UserError(f"{names[last]} does not come after {names[first]}, so there are no packages between them")
    return _line(
        "packages",
        [(one.name, one.version, f"{one.text}{mark}{settings}") for one in found[first : last + 1]],
    )


def _index(names: Sequence[str], end: str | None, default: int) -> int:
    if end is None:
        return default
    asked = archives.series(end)
    name = asked[0].name_in(asked[1]) if asked else end
    if name not in names:
        raise UserError(f"{end} is not in the series", hint=f"it has {', '.join(names)}")
    return names.index(name)


def patches(series: Path, base: str, into: Path, tree: str | None) -> History:
    """The patches of a folder (by name) or of a mailbox (as `+FILE` takes it), each on top of the ones before it.

    into: the folder for the patches of a mailbox, which must last as long as the bisection.
    """
    files = _of_folder(series) if series.is_dir() else _of_mailbox(series, into)
    if not files:
        raise UserError(f"{series} has no patches in it", hint=f"a folder of {', '.join(_PATCHES)}, or a mailbox")
    revision, suffix = spec.split(base)
    steps = [(base, base, base)]
    applied = revision
    for file, title in files:
        applied += f"+{file}"
        steps.append((file.name, title, applied + suffix))
    return _line("patches", steps, tree)


def _of_folder(series: Path) -> list[tuple[Path, str]]:
    files = sorted(path.resolve() for kind in _PATCHES for path in series.glob(kind))
    return [(file, mailed.read(file)[0].title) for file in files]


def _of_mailbox(series: Path, into: Path) -> list[tuple[Path, str]]:
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    found = {into / f"{number:04}.patch": patch for number, patch in enumerate(mailed.read(series), start=1)}
    for file, patch in found.items():
        file.write_bytes(patch.diff)
    return [(file, patch.title) for file, patch in found.items()]


def options(first: Path, last: Path, base: str, tree: str | None) -> History:
    """The options in which two lists differ, changed one after the other on a kernel.

    A list has kconfig lines and settings (`thp=never`). An option that only one list has is unset in the other: a
    symbol is n there, a setting has the guest's own value.
    """
    before, after = _options(first), _options(last)
    differing = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not differing:
        raise UserError(f"{first} and {last} ask for the same options, so there is nothing to search")
    asked = dict(before)
    steps = [(first.name, f"as {first.name} has it", _with_options(base, asked))]
    for name in differing:
        value = after.get(name, "n" if name.startswith("CONFIG_") else None)
        asked.pop(name, None)
        if value is not None:
            asked[name] = value
        steps.append((name, f"{name}: {before.get(name, 'unset')} -> {after.get(name, 'unset')}", ""))
        steps[-1] = (*steps[-1][:2], _with_options(base, asked))
    return _line("options", steps, tree)


def _options(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if unset := _UNSET.fullmatch(line.strip()):
            values[unset[1]] = "n"
        elif line.strip() and not line.startswith("#"):
            name, sign, value = line.strip().partition("=")
            if not sign:
                raise UserError(f"{path}:{number}: {line.strip()!r} is no option", hint="write NAME=VALUE")
            values[name] = value
    return values


def _with_options(base: str, wanted: dict[str, str]) -> str:
    """A spec with more kconfig and settings; `UserError` if no spec may have them."""
    parsed = spec.parse(base)
    revision = spec.split(base)[0] if parsed.kind in ("rev", "worktree", "src") else f"{parsed.kind}:{parsed.body}"
    kconfig = dict(parsed.kconfig) | {k: v for k, v in wanted.items() if k.startswith("CONFIG_")}
    settings = dict(parsed.settings) | {k: v for k, v in wanted.items() if not k.startswith("CONFIG_")}
    text = revision
    for mark, pairs in (("%", kconfig), ("@", settings)):
        text += mark + ",".join(f"{name}={value}" for name, value in pairs.items()) if pairs else ""
    spec.parse(text)
    return text


def _line(kind: Kind, steps: Sequence[tuple[str, str, str]], tree: str | None = None) -> History:
    """A history without branches of (id, title, spec), the old end first."""
    name, title, spec = steps[0]
    old = Candidate(id=name, title=title, spec=spec, parents=())
    candidates = [
        Candidate(id=name, title=title, spec=spec, parents=(before[0],))
        for before, (name, title, spec) in pairwise(steps)
    ]
    names = [candidate.id for candidate in (old, *candidates)]
    if len(set(names)) != len(names):
        raise UserError(f"two steps of the series are called {max(names, key=names.count)}")
    return History(kind=kind, old=old, candidates=candidates, tree=tree)
