"""From a layout to commits in a repository, and the truth about each of them.

Everything follows from the start, the layout and the seed: the same ids on every machine. Written with
`git fast-import`: no checkout, a second or two for a hundred commits on a whole kernel.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lab.core import git
from lab.core.git import Repo
from lab.kernels import default_tree

from . import kinds, layout, neutral
from .kinds import KINDS, MERGE, NEUTRAL
from .layout import Item, LayoutError, Merge
from .state import Start, State

_WHO = "Lab Test <lab@example.org>"
_APART_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The truth about one commit. Those with the same effects behave the same, but for code layout."""

    id: str
    number: int
    kind: str
    subject: str
    parents: tuple[str, ...]
    paths: tuple[str, ...]
    effects: frozenset[str]

    @property
    def builds(self) -> bool:
        return "unbuildable" not in self.effects

    @property
    def boots(self) -> bool:
        return self.builds and "unbootable" not in self.effects

    @property
    def runs(self) -> bool:
        """Whether workloads run to their end on it."""
        return self.boots and "panicking" not in self.effects

    @property
    def symbol(self) -> str | None:
        """What a neutral commit adds to System.map."""
        return neutral.symbol_of(self.number) if self.kind == NEUTRAL else None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was written: `start` is the commit below the first of `commits`, `base` where the range begins."""

    repo: Path
    branch: str
    start: str
    base: str
    commits: Sequence[Commit]

    @property
    def tip(self) -> str:
        return self.commits[-1].id

    def of_kind(self, kind: str) -> list[Commit]:
        """The commits of a kind, oldest first."""
        return [commit for commit in self.commits if commit.kind == kind]

    def only(self, kind: str) -> Commit:
        """The one commit of a kind."""
        (commit,) = self.of_kind(kind)
        return commit

    def find(self, commit: str) -> Commit:
        """The truth about a commit, by its full id."""
        return next(one for one in self.commits if one.id == commit)

    def first_parents(self) -> list[Commit]:
        """The main line, oldest first."""
        by_id = {commit.id: commit for commit in self.commits}
        line, at = [], by_id.get(self.tip)
        while at is not None:
            line.append(at)
            at = by_id.get(at.parents[0])
        return line[::-1]

    def describe(self) -> str:
        """One line a commit: number, id, what can be done with it, kind, subject."""
        return "\n".join(_line(commit, commit.id == self.base) for commit in self.commits)


def _line(commit: Commit, is_base: bool) -> str:
    ability = "runs" if commit.runs else "boots" if commit.boots else "builds" if commit.builds else "nothing"
    effects = ",".join(sorted(commit.effects)) or "-"
    note = "  <- base" if is_base else ""
    return f"{commit.number:4} {commit.id[:12]} {ability:8}{commit.kind:16}{effects:24}{commit.subject}{note}"


def write(
    text: str,
    into: Path,
    source: Repo,
    *,
    seed: int = 1,
    branch: str = "main",
    start: str | None = None,
    patches: Mapping[str, Path] | None = None,
    sources: Sequence[str] | None = None,
) -> History:
    """Write a layout as a branch of a bare repository (made if there is none) that borrows the source's objects.

    start: the commit to start from, by default the source's oldest: the default tree's is the story's base.
    Raises `LayoutError` when the layout makes no history there.
    """
    items = layout.parse(layout.named(text, seed=seed))
    first = source.commit(start or "HEAD") or _missing(start)
    if start is None:
        first = source.git("rev-list", "--max-parents=0", first).splitlines()[-1]
    planner = _Planner(
        Start(source, first), layout.picker("history", seed), patches or kinds.patches(), sources or kinds.sources()
    )
    planner.lay(items)
    if not planner.planned:
        raise LayoutError("a history needs at least one commit")
    repo = _repository(into, source)
    if repo.commit(f"refs/heads/{branch}") is not None:
        raise LayoutError(f"{into} has a branch {branch} already")
    seconds = int(source.git("log", "-1", "--format=%ct", first))
    with repo.fast_import() as stream:
        _export(stream, planner.planned, branch, first, seconds)
    ids = _ids(repo, branch, first, seconds)
    commits = [one.truth(ids) for one in planner.planned]
    return History(repo=into, branch=branch, start=first, base=ids.get(planner.base, first), commits=commits)


def _missing(start: str | None) -> str:
    raise LayoutError(f"there is no commit {start or 'HEAD'} to start from")


def _repository(into: Path, source: Repo) -> Repo:
    if into.exists():
        return Repo(git.rev_parse(into, "--absolute-git-dir"))
    repo = git.init_bare(into)
    store = source.git("rev-parse", "--path-format=absolute", "--git-path", "objects")
    (into / "objects" / "info").mkdir(exist_ok=True)
    (into / "objects" / "info" / "alternates").write_text(f"{store}\n")
    return repo


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A commit that has no id yet. Parents are numbers; 0 is the start."""

    number: int
    kind: str
    message: str
    parents: tuple[int, ...]
    files: Mapping[str, bytes]
    effects: frozenset[str]

    def truth(self, ids: Mapping[int, str]) -> Commit:
        return Commit(
            id=ids[self.number],
            number=self.number,
            kind=self.kind,
            subject=self.message.partition("\n")[0],
            parents=tuple(ids[parent] for parent in self.parents),
            paths=tuple(sorted(self.files)),
            effects=self.effects,
        )


class _Planner:
    """Walks a layout and makes up each commit's files."""

    def __init__(self, start: Start, pick: random.Random, patches: Mapping[str, Path], sources: Sequence[str]) -> None:
        self.start, self.pick, self.patches = start, pick, patches
        self.sources = list(sources)
        pick.shuffle(self.sources)
        self.planned: list[_Planned] = []
        self.base = self.head = 0
        self.state = State({}, frozenset())
        self._neutral = 0

    def lay(self, items: Iterable[Item]) -> None:
        """Commit each item on top of the head."""
        for item in items:
            if isinstance(item, Merge):
                self._merge(item)
            elif item == layout.BASE:
                self.base = self.head
            elif item == NEUTRAL:
                self._change()
            else:
                self._plant(item)

    def _merge(self, merge: Merge) -> None:
        fork, fork_head = self.state, self.head
        self.lay(merge.side)
        side, side_head = self.state, self.head
        self.state, self.head = fork, fork_head
        self.lay(merge.main)
        merged = self.state.merged(side, fork)
        files = {path: content for path, content in merged.files.items() if self.state.files.get(path) != content}
        message = f"Merge branch 'side-{side_head}' into main\n"
        self._commit(MERGE, message, files, merged.effects, parents=(self.head, side_head))

    def _change(self) -> None:
        path = self.sources[self._neutral % len(self.sources)]
        self._neutral += 1
        number = len(self.planned) + 1
        content, subject = neutral.change(number, path, self.start.content(self.state, path), self.pick)
        self._commit(NEUTRAL, f"{subject}\n\nNothing uses it: what the kernel does stays the same.\n", {path: content})

    def _plant(self, word: str) -> None:
        kind, effects = KINDS[word], self.state.effects
        if kind is None:
            raise TypeError(word)
        if kind.reverse != (kind.effect in effects) or (kind.needs and kind.needs not in effects):
            have = ", ".join(sorted(effects)) or "nothing"
            raise LayoutError(f"{word!r} cannot be commit {len(self.planned) + 1}: what was planted so far is {have}")
        patch = self.patches[kind.effect]
        message, _ = default_tree.commit_of(patch)
        if kind.reverse:
            subject = message.partition("\n")[0]
            message = f'Revert "{subject}"\n'
        files = self.start.patched(self.state, patch, reverse=kind.reverse)
        self._commit(word, message, files, effects ^ {kind.effect})

    def _commit(
        self,
        kind: str,
        message: str,
        files: Mapping[str, bytes],
        effects: frozenset[str] | None = None,
        parents: tuple[int, ...] | None = None,
    ) -> None:
        number = len(self.planned) + 1
        self.state = State({**self.state.files, **files}, self.state.effects if effects is None else effects)
        self.planned.append(
            _Planned(
                number=number,
                kind=kind,
                message=message,
                parents=parents or (self.head,),
                files=files,
                effects=self.state.effects,
            )
        )
        self.head = number


def _export(stream: IO[bytes], planned: Iterable[_Planned], branch: str, first: str, seconds: int) -> None:
    def name(number: int) -> str:
        return f":{number}" if number else first

    for one in planned:
        who = f"{_WHO} {seconds + one.number * _APART_S} +0000"
        message = one.message.encode()
        lines = [f"commit refs/heads/{branch}", f"mark :{one.number}", f"author {who}", f"committer {who}"]
        stream.write("".join(f"{line}\n" for line in lines).encode())
        stream.write(b"data %d\n%s\n" % (len(message), message))
        parent, *others = one.parents
        stream.write(f"from {name(parent)}\n".encode())
        stream.writelines(f"merge {name(other)}\n".encode() for other in others)
        for path, content in sorted(one.files.items()):
            stream.write(f"M 100644 inline {path}\n".encode())
            stream.write(b"data %d\n%s\n" % (len(content), content))
        stream.write(b"\n")


def _ids(repo: Repo, branch: str, first: str, seconds: int) -> dict[int, str]:
    """Commit ids by number, which the dates tell."""
    listing = repo.git("rev-list", "--timestamp", branch, f"^{first}").splitlines()
    found = {0: first}
    for line in listing:
        when, commit = line.split()
        found[(int(when) - seconds) // _APART_S] = commit
    return found
