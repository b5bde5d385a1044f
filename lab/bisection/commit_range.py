"""What is searched: a range of commits, or anything else that leads step by step from one kernel to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from lab.bisection.exact_search import OLD, Graph
from lab.core.errors import UserError
from lab.core.git import Repo
from lab.core.process import CommandFailed
from lab.core.progress import QUIET, Progress
from lab.core.records import Record
from lab.kernels import spec as kernel_spec
from lab.kernels import trees
from lab.kernels.build import TreeSource
from lab.kernels.kernel import KernelSpec, resolve
from lab.kernels.trees import Tree

Kind = Literal["commits", "packages", "patches", "options"]
_FIELDS = "%H%x00%P%x00%an <%ae>%x00%aI%x00%s"


class Candidate(Record, frozen=True, kw_only=True):
    """One step of the way: a commit, a package, a patch or an option.

    spec: the kernel as it is after this step, as `lab ab` takes it. parents: the steps it builds on; what is no
    candidate itself counts as the old end. merge: of branches, though perhaps only one parent is followed.
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
        """The id, short where it is a hash."""
        return self.id[:12] if len(self.id) == 40 else self.id


class History(Record, frozen=True, kw_only=True):
    """Everything between two ends, parents first; the last candidate is the new end.

    old: the old end, which is no candidate. shown: the range as the user may type it.
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
        """The new end."""
        return self.candidates[-1]

    @property
    def ends(self) -> tuple[Candidate, Candidate]:
        """The old end and the new one."""
        return self.old, self.new

    def graph(self) -> Graph:
        """The candidates as numbers, for the search."""
        number = {one.id: i for i, one in enumerate(self.candidates)}
        return Graph(tuple(_parents(one, number) for one in self.candidates))

    def __getitem__(self, number: int) -> Candidate:
        """A candidate by its number in the graph; OLD is the old end."""
        return self.old if number == OLD else self.candidates[number]

    def number(self, name: str) -> int:
        """The number of a candidate by its id; OLD for the old end."""
        if name == self.old.id:
            return OLD
        return next(i for i, one in enumerate(self.candidates) if one.id == name)

    def find(self, name: str) -> Candidate:
        """A candidate, or the old end, by its id."""
        return self[self.number(name)]

    def resolve(self, number: int, *, progress: Progress = QUIET) -> KernelSpec:
        """The kernel of a candidate."""
        return resolve(self[number].spec, self.tree, progress=progress)


def _parents(one: Candidate, number: dict[str, int]) -> tuple[int, ...]:
    """Numbers of the parents, the old end for those that are outside, or for none at all."""
    found = tuple(dict.fromkeys(number.get(parent, OLD) for parent in one.parents))
    return found or (OLD,)


def commits(old: KernelSpec, new: KernelSpec, *, first_parent: bool = False, limits: Sequence[str] = ()) -> History:
    """The commits between two revisions of one tree; `UserError` says why there are none."""
    start, end = _revision(old), _revision(new)
    if start.tree != end.tree:
        raise UserError(f"{old.text} and {new.text} are of different trees")
    tree, suffix = trees.open_tree(start.tree), _common_suffix(old, new)
    first, last = start.commit, end.commit
    _check_ends(tree, first, last)
    found = list(_listed(tree.source, first, last, suffix, first_parent=first_parent, limits=limits))
    if not found or found[-1].id != last:
        # Path limits left the newest commits out: the new end stands for all that they left out after the last.
        tips = {one.id for one in found} - {parent for one in found for parent in one.parents}
        found.append(_one(tree.source, last, suffix, tuple(sorted(tips)) or (first,)))
    return History(
        kind="commits",
        old=_one(tree.source, first, suffix, ()),
        candidates=found,
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
    """Patches, kconfig and settings of both ends: what every commit between them gets too."""
    first, last = (suffix_of(spec.text) for spec in (old, new))
    if first != last:
        raise UserError(
            f"the ends differ in more than the revision: {first or 'nothing'} against {last or 'nothing'}",
            hint="give both the same patches, kconfig and settings; --options searches among those",
        )
    return first


def suffix_of(text: str) -> str:
    """What a spec adds to its revision, in one fixed order."""
    parsed = kernel_spec.parse(text)
    kconfig = ",".join(f"{name}={value}" for name, value in sorted(parsed.kconfig))
    settings = ",".join(f"{name}={value}" for name, value in sorted(parsed.settings))
    patches = "".join(f"+{name}" for name in parsed.patches)
    return patches + (f"%{kconfig}" if kconfig else "") + (f"@{settings}" if settings else "")


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
    base = _merge_base(repo, old, new)
    if base is None:
        raise UserError(f"the ends are not related: {old[:12]} and {new[:12]} have no commit in common")
    raise UserError(
        f"the ends are on different branches: {old[:12]} is not an ancestor of {new[:12]}",
        hint=f"they part after {base[:12]} ({_quoted(repo, base)}); if that is like the older end, start there",
    )


def _quoted(repo: Repo, commit: str) -> str:
    return f'"{repo.subject(commit)}"'


def is_ancestor(repo: Repo, old: str, new: str) -> bool:
    """Whether one commit is behind another."""
    try:
        repo.git("merge-base", "--is-ancestor", old, new)
    except CommandFailed as error:
        if error.status == 1:
            return False
        raise
    return True


def _merge_base(repo: Repo, one: str, other: str) -> str | None:
    try:
        return repo.git("merge-base", one, other)
    except CommandFailed as error:
        if error.status == 1:
            return None
        raise


def _listed(
    repo: Repo, old: str, new: str, suffix: str, *, first_parent: bool, limits: Sequence[str]
) -> Iterator[Candidate]:
    # --parents: with path limits, the parents are those among the commits that are left.
    words = ["log", "-z", "--topo-order", "--reverse", "--parents", f"--format={_FIELDS}"]
    words += ["--first-parent"] if first_parent else []
    try:
        listing = repo.git(*words, f"{old}..{new}", "--", *limits)
    except CommandFailed as error:
        raise UserError(f"git cannot limit the range to {' '.join(limits)}: {error.message}") from error
    merges = set(repo.git("rev-list", "--merges", f"{old}..{new}").split())
    fields = listing.split("\0")
    for start in range(0, len(fields) - 4, 5):
        name, parents, author, date, title = fields[start : start + 5]
        kept = parents.split()[:1] if first_parent else parents.split()
        yield Candidate(
            id=name.split()[-1],
            title=title,
            spec=name.split()[-1] + suffix,
            parents=tuple(kept),
            author=author,
            date=date,
            merge=name.split()[-1] in merges,
        )


def _one(repo: Repo, commit: str, suffix: str, parents: tuple[str, ...]) -> Candidate:
    author, date, title = repo.git("log", "-1", "--no-walk", "--format=%an <%ae>%x00%aI%x00%s", commit, "--").split(
        "\0"
    )
    return Candidate(id=commit, title=title, spec=commit + suffix, parents=parents, author=author, date=date)
