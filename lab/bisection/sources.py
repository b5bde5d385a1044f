"""The sources of both ends in git: their differences, and the patches that lead from an end to a mix of both.

The ends may be in different repositories: a package's source has one of its own. Only the listing of differences needs
the objects of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from lab.bisection import declarations, hunks, renames
from lab.bisection.commit_range import Candidate, History, Kind, is_ancestor
from lab.bisection.difference_search import MOST_FILES, Mix
from lab.bisection.hunks import Difference, Hunk
from lab.core import records
from lab.core.errors import UserError
from lab.kernels import build, trees
from lab.kernels import spec as kernel_spec
from lab.kernels.build import TreeSource
from lab.kernels.kernel import KernelSpec

DIFF = (
    "-c", r"diff.default.xfuncname=!^[A-Za-z_0-9]+:" "\n" "^([A-Za-z_].*)$",
    "diff", "--unified=0", "--no-renames", "--no-ext-diff", "--no-textconv", "--histogram", "--no-color",
)  # fmt: skip
"""The options of git for hunks of which each names its function: without them git takes a label for one."""
_FUSED = "--inter-hunk-context=2"
"""Between distant releases, lines so close together are one hunk: they hardly build without each other."""
_MOST_TRACED = 40
_LARGE = 0.05
_OF_KBUILD = ("Makefile", "Kbuild", "Kconfig")


def history(old: KernelSpec, new: KernelSpec, kind: Kind) -> History:
    """Both ends of a search among files or hunks. `UserError` for ends that cannot be mixed."""
    for end in (old, new):
        if end.tree_source is None:
            raise UserError(
                f"{end.text} is a built kernel: files and hunks need a source that the lab builds",
                hint="give a revision, worktree:PATH, or a package's source as src:[SUITE/]VERSION",
            )
        if kernel_spec.layout_of(end.text):
            raise UserError(f"{end.text} has a layout of its own, which patches cannot go under", hint="leave it out")
    if (old.kconfig, old.settings) != (new.kconfig, new.settings):
        raise UserError(
            "the ends differ in kconfig or settings, not in their source alone",
            hint="give both the same; --options searches among those",
        )
    first, last = _source(old), _source(new)
    if first.tree_id == last.tree_id:
        raise UserError(f"{old.text} and {new.text} have the same source: there is nothing to split")
    ends = [Candidate(id=end.text, title=_source(end).subject, spec=end.text, parents=()) for end in (old, new)]
    return History(kind=kind, old=ends[0], candidates=[ends[1]], tree=last.tree)


def _source(spec: KernelSpec) -> TreeSource:
    source = spec.tree_source
    assert source is not None  # noqa: S101  (`history` refuses others)
    return source


@dataclass(frozen=True)
class Sources:
    """Both ends, as the plan has them."""

    old: KernelSpec
    new: KernelSpec

    def difference(self, read: Set[str]) -> Difference:
        """The hunks between both ends in the files that their builds read; in all of them if it is not known which."""
        old, new = _source(self.old), _source(self.new)
        names = self._git("diff", "--name-only", "--no-renames", "-z", old.tree_id, new.tree_id).split("\0")
        folders = {name.rpartition("/")[0] for name in read}
        chosen = [name for name in names if name and _is_read(name, read, folders)]
        made = Difference(
            old_tree=old.tree_id, new_tree=new.tree_id, hunks=self._hunks(chosen, old.tree_id),
            files=len([n for n in names if n]),
        )  # fmt: skip
        if len(made.by_path) <= MOST_FILES:
            return replace(made, one_sided=self._one_sided(made))
        newer, older = self._with_new_names(made, read)
        return replace(made, old_tree=older, hunks=self._hunks(chosen, older), names=newer) if newer else made

    def _git(self, *argv: str) -> str:
        """The output of a git command that sees the objects of both ends."""
        old, new = _source(self.old), _source(self.new)
        env = {}
        if old.tree != new.tree:
            env = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(trees.open_tree(old.tree).repo.git_dir / "objects")}
        return trees.open_tree(new.tree).repo.git(*argv, env=env)

    def _hunks(self, paths: Sequence[str], older: str) -> list[Hunk]:
        """The hunks of some files. older: the tree of the older end, which may have the newer names."""
        options = (*DIFF, _FUSED) if len(paths) > MOST_FILES else DIFF
        found: list[Hunk] = []
        for start in range(0, len(paths), 400):
            pathspecs = [f":(literal){name}" for name in paths[start : start + 400]]
            found += hunks.parse(self._git(*options, older, _source(self.new).tree_id, "--", *pathspecs) + "\n")
        return found

    def _with_new_names(self, difference: Difference, read: Set[str]) -> tuple[dict[str, str], str]:
        """The names that the newer end has for the same things, and the tree of the older end with these."""
        old, new = _source(self.old), _source(self.new)
        before, after = trees.open_tree(old.tree).repo, trees.open_tree(new.tree).repo
        differing = {path for path in difference.by_path if path.endswith(renames.SUFFIXES)}
        texts = before.files(old.tree_id, sorted(differing))
        newer = after.files(new.tree_id, sorted(read | differing))
        same = [content for path, (_, content) in newer.items() if path not in differing]
        names = renames.everywhere(
            renames.candidates(hunk for hunk in difference.hunks if hunk.path in differing),
            [*same, *(content for _, content in texts.values())],
            (content for _, content in newer.values()),
        )
        if not names:
            return {}, old.tree_id
        changed = {path: (mode, renames.renamed(content, names)) for path, (mode, content) in texts.items()}
        tree = before.tree_with(old.tree_id, {path: file for path, file in changed.items() if file != texts[path]})
        return names, tree

    def _one_sided(self, difference: Difference) -> list[str]:
        """The names on changed lines that only one end's files have."""
        old, new = (
            trees.open_tree(end.tree).repo.files(end.tree_id, list(difference.by_path))
            for end in (_source(self.old), _source(self.new))
        )
        texts = ([text.decode(errors="replace") for _, text in end.values()] for end in (old, new))
        return hunks.one_sided(difference.hunks, *texts)

    def inlined(self, difference: Difference, symbols: Sequence[Set[str]]) -> dict[str, float]:
        """The functions in the files that differ whose code is in that of the functions that changed most.

        symbols: those of both ends.
        """
        named = {name: share for name, share in difference.functions.items() if share >= _LARGE}
        found: dict[str, float] = {}
        paths = [path for path in difference.by_path if path.endswith(".c")]
        for source, known in zip((_source(self.old), _source(self.new)), symbols, strict=True):
            for _, content in trees.open_tree(source.tree).repo.files(source.tree_id, paths).values():
                text = content.decode(errors="replace")
                if any(f"{name}(" in text for name in named):
                    found |= hunks.inlined(text, named, known)
        return found

    def labels(self, difference: Difference) -> list[set[str]]:
        """The labels of each assembly source that differs, at either end."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        paths = [path for path in difference.by_path if path.endswith(".S")]
        for source in (_source(self.old), _source(self.new)):
            for path, (_, content) in trees.open_tree(source.tree).repo.files(source.tree_id, paths).items():
                found[path] |= hunks.labels(content.decode(errors="replace"))
        return list(found.values())

    def commits(self, difference: Difference, mix: Mix) -> list[str]:
        """The commits between the ends that touched the lines of some hunks, the newest first; none without history."""
        old, new = _source(self.old), _source(self.new)
        repo = trees.open_tree(new.tree).source
        if old.tree != new.tree or (old.patches or new.patches) or not is_ancestor(repo, old.commit, new.commit):
            return []
        found: dict[str, None] = {}
        for number in sorted(mix)[:_MOST_TRACED]:
            hunk = difference.hunks[number]
            span = f"{max(hunk.new_start, 1)},+{max(hunk.new_count, 1)}:{hunk.path}"
            limits = ("--", hunk.path) if hunk.whole else ()
            lines = () if hunk.whole else ("-L", span)
            text = repo.git("log", "-s", "--format=%h %s", *lines, f"{old.commit}..{new.commit}", *limits)
            found |= dict.fromkeys(text.splitlines())
        return list(found)

    def lent(self, difference: Difference, mix: Mix) -> dict[str, dict[str, str]]:
        """The declarations by name that each source and header of a mix gets from headers of the old end.

        The old lines of its hunks use them, no code of the new end does, and no header of the mix declares them.
        """
        paths = tuple(path for path in difference.by_path if path.endswith((".c", ".h")))
        before, after = _source(self.old).tree, _source(self.new).tree
        lacking, named = _lacking((before, difference.old_tree), (after, difference.new_tree), paths)
        used: defaultdict[str, set[str]] = defaultdict(set)
        brought = set[str]()
        for hunk in map(difference.hunks.__getitem__, mix):
            if hunk.path.endswith((".c", ".h")):
                used[hunk.path] |= hunk.words_of("-")
            if hunk.path.endswith(".h"):
                brought |= hunk.heads("-") | declarations.declared("\n".join(hunk.code("-")) + "\n").keys()
        known = {name: text for name, text in lacking.items() if name not in brought}
        found = {path: declarations.lent(words, known, named) for path, words in used.items()}
        return {path: own for path, own in found.items() if own}

    def without(self, difference: Difference, mix: Mix, place: Path) -> str:
        """The spec of the new end with a mix's hunks of the old one; the patch is written to a place."""
        old, new = _source(self.old), _source(self.new)
        wanted = difference.paths(mix)
        before = trees.open_tree(old.tree).repo.files(difference.old_tree, wanted)
        after = trees.open_tree(new.tree).repo.files(difference.new_tree, wanted)
        made = {}
        for path in wanted:
            choice = [(difference.hunks[number], number in mix) for number in difference.by_path[path]]
            made[path] = hunks.mixed(before.get(path), after.get(path), choice)
        lent = self.lent(difference, mix)
        for path, file in made.items():
            left = [line for n in difference.by_path[path] if n not in mix for line in difference.hunks[n].code("-")]
            includes = declarations.included(left) if path.endswith((".c", ".h")) else []
            if file is not None and (includes or path in lent):
                made[path] = file[0], declarations.with_lent(path, file[1], lent.get(path, {}), includes)
        if difference.new_tree != new.tree_id:  # the older end with the newer names, which other files of it lack
            made = {path: renames.turned_back(path, file, difference.names) for path, file in made.items()}
        repo = trees.open_tree(new.tree).repo
        tree = repo.tree_with(new.tree_id, made)
        argv = ("diff", "--binary", "--full-index", "--no-renames", "--no-ext-diff", new.tree_id, tree)
        place.parent.mkdir(parents=True, exist_ok=True)
        records.write_atomic(place, repo.git_bytes(*argv))
        kept, suffix = kernel_spec.split(self.new.text)
        return f"{kept}+{place}{suffix}"


@lru_cache(maxsize=2)
def _lacking(
    old: tuple[str, str], new: tuple[str, str], paths: tuple[str, ...]
) -> tuple[dict[str, str], frozenset[str]]:
    """The declarations of headers at one end that the other one lacks, and the names in the code of the other one.

    old, new: a tree of the lab's, and git's id.
    """

    def contents(end: tuple[str, str], names: Sequence[str]) -> Iterator[bytes]:
        return (content for _, content in trees.open_tree(end[0]).repo.files(end[1], names).values())

    headers = [path for path in paths if path.endswith(".h")]
    before, after = (declarations.declared(*map(_text, contents(end, headers))) for end in (old, new))
    named = renames.identifiers(contents(new, paths))
    return declarations.lacking(before, after, named), named


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _is_read(name: str, read: Set[str], folders: Set[str]) -> bool:
    """True for a file that a build reads: a noted file, or kbuild's in a folder of such files."""
    if not build.is_input(name):
        return False
    if not read or name in read:
        return True
    path = PurePosixPath(name)
    return path.name.startswith(_OF_KBUILD) and name.rpartition("/")[0] in folders
