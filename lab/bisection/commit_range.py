"""The range of a search: commits, packages by version, patches applied one by one, or options changed one by one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from lab.bisection.exact_search import OLD, Graph
from lab.core.errors import UserError
from lab.core.git import Repo
from lab.core.process import CommandFailed
from lab.core.progress import QUIET, Progress
from lab.core.records import Record
from lab.core.text import plural
from lab.kernels import archives, trees
from lab.kernels import patches as mailed
from lab.kernels import spec as kernel_spec
from lab.kernels.build import TreeSource
from lab.kernels.kernel import KernelSpec, resolve
from lab.kernels.trees import Tree

Kind = Literal["commits", "packages", "patches", "options", "files", "hunks"]
SPLIT = ("files", "hunks")
"""The kinds of a search without history; its candidates are mixes of both ends, added as they are tried."""

_ONE = {
    "packages": "package", "patches": "patch", "options": "option", "files": "mix", "hunks": "mix",
}  # fmt: skip

_FIELDS = "%H%x00%P%x00%an <%ae>%x00%aI%x00%s"


def one_of(kind: str) -> str:
    """The word for one candidate of a range of that kind."""
    return _ONE.get(kind, "commit")


def counted(number: int, kind: str) -> str:
    """A number of candidates of a range of that kind."""
    return f"{number:,} {one_of(kind) if number == 1 else kind}"


class Candidate(Record, frozen=True, kw_only=True):
    """A step of the range: a commit, a package, a patch or an option.

    spec: the kernel after this step, as `lab ab` takes it.
    parents: the steps that it builds on; a parent outside the range counts as the old end.
    merge: True for a merge commit, even if only its first parent is followed.
    """

    id: str
    title: str
    spec: str
    parents: tuple[str, ...]
    author: str = ""
    date: str = ""
    merge: bool = False

    @property
    def name(self) -> str:
        """The id, shortened if it is a hash."""
        return self.id[:12] if len(self.id) == 40 else self.id


class History(Record, frozen=True, kw_only=True):
    """Everything between two ends, parents first.

    old: the old end, which is not a candidate; the new end is the last one.
    paths: the limits of the range, if there are any.
    """

    schema: int = 1
    kind: Kind
    old: Candidate
    candidates: list[Candidate]
    tree: str | None = None
    first_parent: bool = False
    paths: tuple[str, ...] = ()

    @property
    def new(self) -> Candidate:
        return self.candidates[-1]

    @property
    def ends(self) -> tuple[Candidate, Candidate]:
        return self.old, self.new

    def graph(self) -> Graph:
        """The candidates as numbers, for the search; OLD stands for parents outside the range, and for none."""
        number = {candidate.id: i for i, candidate in enumerate(self.candidates)}
        each = (dict.fromkeys(number.get(parent, OLD) for parent in one.parents) for one in self.candidates)
        return Graph(tuple(tuple(parents) or (OLD,) for parents in each))

    def __getitem__(self, number: int) -> Candidate:
        """A candidate by its number in the graph; OLD is the old end."""
        return self.old if number == OLD else self.candidates[number]

    def number(self, name: str) -> int:
        """The number of a candidate by its id; OLD for the old end."""
        if name == self.old.id:
            return OLD
        return next(i for i, candidate in enumerate(self.candidates) if candidate.id == name)

    def find(self, name: str) -> Candidate:
        """A candidate, or the old end, by its id."""
        return self[self.number(name)]

    def kernel(self, text: str, layout: int = 0, *, progress: Progress = QUIET) -> KernelSpec:
        """The kernel of a spec as a candidate has it, or one with another layout; `UserError` if it cannot have one."""
        return resolve(kernel_spec.with_layout(text, layout) if layout else text, self.tree, progress=progress)


def commits(old: KernelSpec, new: KernelSpec, *, first_parent: bool = False, limits: Sequence[str] = ()) -> History:
    """The commits between two revisions of one tree. `UserError` gives the reason if there are none."""
    start, end = _revision(old), _revision(new)
    if start.tree != end.tree:
        raise UserError(f"{old.text} and {new.text} are of different trees")
    tree, suffix = trees.open_tree(start.tree), _common_suffix(old, new)
    first, last = start.commit, end.commit
    _check_ends(tree, first, last)
    candidates = list(_listed(tree.source, first, last, suffix, first_parent=first_parent, limits=limits))
    if not candidates or candidates[-1].id != last:
        # Path limits left the newest commits out: the new end stands for all that they left out after the last.
        tips = {c.id for c in candidates} - {parent for c in candidates for parent in c.parents}
        candidates.append(_candidate(tree.source, last, suffix, tuple(sorted(tips)) or (first,)))
    return History(
        kind="commits",
        old=_candidate(tree.source, first, suffix, ()),
        candidates=candidates,
        tree=tree.name,
        first_parent=first_parent,
        paths=tuple(limits),
    )


def _revision(spec: KernelSpec) -> TreeSource:
    if spec.tree_source is None or spec.text.startswith("worktree:"):
        raise UserError(
            f"{spec.text} is no revision of a kernel tree, so there are no commits between the ends",
            hint="packages are searched with --series 'deb:...'",
        )
    return spec.tree_source


def _common_suffix(old: KernelSpec, new: KernelSpec) -> str:
    """The patches, kconfig and settings of both ends, which every commit between them gets too."""
    first, last = (suffix_of(spec.text) for spec in (old, new))
    if first != last:
        raise UserError(
            f"the ends differ in more than the revision: {first or 'nothing'} against {last or 'nothing'}",
            hint="give both the same patches, kconfig and settings; --options searches among those",
        )
    return first


def suffix_of(text: str) -> str:
    """The patches, kconfig and settings that a spec adds to its revision, in one fixed order."""
    parsed = kernel_spec.parse(text)
    return "".join(f"+{name}" for name in parsed.patches) + _suffix(sorted(parsed.kconfig), sorted(parsed.settings))


def _suffix(kconfig: Collection[tuple[str, str]], settings: Collection[tuple[str, str]]) -> str:
    both = (("%", kconfig), ("@", settings))
    return "".join(mark + ",".join(f"{name}={value}" for name, value in pairs) for mark, pairs in both if pairs)


def _check_ends(tree: Tree, old: str, new: str) -> None:
    repo = tree.source
    if old == new:
        raise UserError(f"the range is empty: both ends are {old[:12]} ({_quoted(repo, old)})")
    if is_ancestor(repo, old, new):
        return
    if is_ancestor(repo, new, old):
        raise UserError(
            f"the ends are swapped: {old[:12]} ({_quoted(repo, old)}) comes after {new[:12]} ({_quoted(repo, new)})",
            hint="the older end goes first; to find who fixed something give --old BROKEN --new FIXED",
        )
    base = merge_base(repo, old, new)
    if base is None:
        raise UserError(f"the ends are not related: {old[:12]} and {new[:12]} have no commit in common")
    raise UserError(
        f"the ends are on different branches: {old[:12]} is not an ancestor of {new[:12]}",
        hint=f"they part after {base[:12]} ({_quoted(repo, base)}); if that is like the older end, start there",
    )


def _quoted(repo: Repo, commit: str) -> str:
    return f'"{repo.subject(commit)}"'


def merge_base(repo: Repo, one: str, other: str) -> str | None:
    """The commit at which two commits part; None if they have none in common."""
    try:
        return repo.git("merge-base", one, other)
    except CommandFailed as error:
        if error.status == 1:
            return None
        raise


def is_ancestor(repo: Repo, old: str, new: str) -> bool:
    """True if the first commit, by its full id, is the second one or an ancestor of it."""
    return merge_base(repo, old, new) == old


def _listed(
    repo: Repo, old: str, new: str, suffix: str, *, first_parent: bool, limits: Sequence[str]
) -> Iterator[Candidate]:
    # With --parents and path limits, git gives the nearest ancestors that the limits keep.
    argv = ["log", "-z", "--topo-order", "--reverse", "--parents", f"--format={_FIELDS}"]
    argv += ["--first-parent"] if first_parent else []
    try:
        listing = repo.git(*argv, f"{old}..{new}", "--", *limits)
    except CommandFailed as error:
        raise UserError(f"git cannot limit the range to {' '.join(limits)}: {error.message}") from error
    merges = set(repo.git("rev-list", "--merges", f"{old}..{new}").split())
    fields = listing.split("\0")
    for start in range(0, len(fields) - 4, 5):
        names, parents, author, date, title = fields[start : start + 5]
        commit = names.split()[-1]
        yield Candidate(
            id=commit,
            title=title,
            spec=commit + suffix,
            parents=tuple(parents.split()[: 1 if first_parent else None]),
            author=author,
            date=date,
            merge=commit in merges,
        )


def _candidate(repo: Repo, commit: str, suffix: str, parents: tuple[str, ...]) -> Candidate:
    author, date, title = repo.git("log", "-1", "--no-walk", "--format=%an <%ae>%x00%aI%x00%s", commit, "--").split(
        "\0"
    )
    return Candidate(id=commit, title=title, spec=commit + suffix, parents=parents, author=author, date=date)


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
    revision, suffix = kernel_spec.split(base)
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
        title = f"{name}: {before.get(name, 'unset')} -> {after.get(name, 'unset')}"
        steps.append((name, title, _with_options(base, asked)))
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
    parsed = kernel_spec.parse(base)
    built = parsed.kind in ("rev", "worktree", "src")
    revision = kernel_spec.split(base)[0] if built else f"{parsed.kind}:{parsed.body}"
    kconfig = dict(parsed.kconfig) | {k: v for k, v in wanted.items() if k.startswith("CONFIG_")}
    settings = dict(parsed.settings) | {k: v for k, v in wanted.items() if not k.startswith("CONFIG_")}
    return kernel_spec.parse(revision + _suffix(kconfig.items(), settings.items())).text


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
