"""Histories with planted commits: a line of words becomes a branch of commits on a kernel tree.

    neutral*20 culprit neutral*9 breaks-build neutral*2 mends-build fix

Each word is one commit (`*N`: so many) on top of the one before: `neutral`, or one of `PLANTED`. All follows from
the start, the words and the seed: the same ids on every machine. Written with `git fast-import`: no checkout, a second
or two for a hundred commits on a whole kernel.
"""

import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.core import git
from lab.core.errors import UserError
from lab.core.git import Repo
from lab.core.paths import data_folder
from lab.core.process import run
from lab.kernels import default_tree

from . import neutral

NEUTRAL = "neutral"
PLANTED = {
    "culprit": ("culprit", False), "fix": ("fix", False), "follow-up": ("follow-up", False),
    "breaks-build": ("unbuildable", False), "mends-build": ("unbuildable", True),
}  # fmt: skip
"""The patch of each word, and whether it is reversed."""

_WHO = "Lab Test <lab@example.org>"
_APART_S = 3600


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit and the word that it was made of."""

    id: str
    word: str
    subject: str


@dataclass(frozen=True, slots=True)
class History:
    """What was written: `start` is the commit below the first of `commits`."""

    repo: Path
    start: str
    commits: Sequence[Commit]

    @property
    def tip(self) -> str:
        return self.commits[-1].id

    def only(self, word: str) -> Commit:
        (commit,) = (commit for commit in self.commits if commit.word == word)
        return commit


def parse(text: str) -> list[str]:
    """The words of a layout, one for each commit."""
    words = []
    for part in text.split():
        word, _, count = part.partition("*")
        if word != NEUTRAL and word not in PLANTED:
            raise UserError(f"there is no commit {word!r}; there are {', '.join([NEUTRAL, *PLANTED])}")
        words += [word] * int(count or 1)
    return words


def patches() -> dict[str, Path]:
    """The patches that are planted: those here, and those of the THP-alignment story."""
    story = sorted((data_folder("kernels") / "patches" / "thp-alignment").glob("*.patch"))
    planted = {path.stem: path for path in (Path(__file__).parent / "patches").glob("*.patch")}
    return {**planted, **dict(zip(("culprit", "fix", "follow-up"), story[1:], strict=True))}


def write(
    text: str, into: Path, source: Repo, *, seed: int = 1, branch: str = "main", start: str | None = None
) -> History:
    """Write a layout as a branch of a bare repository (made if there is none) that borrows the source's objects.

    start: the commit to start from, by default the source's oldest: the default tree's is the story's base.
    """
    first = source.git("rev-parse", "--verify", start or "HEAD")
    if start is None:
        first = source.git("rev-list", "--max-parents=0", first).splitlines()[-1]
    repo = _repository(into, source)
    planned = _Planner(source, first, seed).plan(parse(text))
    seconds = int(source.git("log", "-1", "--format=%ct", first))
    with repo.fast_import() as stream:
        for number, (_, message, files) in enumerate(planned, 1):
            who = f"{_WHO} {seconds + number * _APART_S} +0000"
            lines = [f"commit refs/heads/{branch}", f"mark :{number}", f"author {who}", f"committer {who}"]
            stream.write("".join(f"{line}\n" for line in lines).encode())
            stream.write(b"data %d\n%s\n" % (len(message.encode()), message.encode()))
            stream.write(f"from {f':{number - 1}' if number > 1 else first}\n".encode())
            for path, content in sorted(files.items()):
                stream.write(f"M 100644 inline {path}\n".encode())
                stream.write(b"data %d\n%s\n" % (len(content), content))
            stream.write(b"\n")
    ids = repo.git("rev-list", "--reverse", branch, f"^{first}").splitlines()
    commits = [
        Commit(commit, word, message.partition("\n")[0])
        for commit, (word, message, _) in zip(ids, planned, strict=True)
    ]
    return History(repo=into, start=first, commits=commits)


def _repository(into: Path, source: Repo) -> Repo:
    if into.exists():
        return Repo(git.rev_parse(into, "--absolute-git-dir"))
    repo = git.init_bare(into)
    (into / "objects" / "info").mkdir(exist_ok=True)
    (into / "objects" / "info" / "alternates").write_text(f"{source.path_of('objects')}\n")
    return repo


class _Planner:
    """Makes up each commit's message and files."""

    def __init__(self, source: Repo, start: str, seed: int) -> None:
        self.source, self.start = source, start
        self.pick = random.Random(f"history {seed}")  # noqa: S311  (nothing here is secret)
        self.patches = patches()
        # Files that the guest's kernel compiles, spread over the source, for the neutral commits.
        self.sources = (Path(__file__).parent / "sources.txt").read_text().splitlines()
        self.pick.shuffle(self.sources)
        self.files: dict[str, bytes] = {}
        self.neutral = 0

    def plan(self, words: Sequence[str]) -> list[tuple[str, str, Mapping[str, bytes]]]:
        """The word, message and changed files of each commit."""
        planned = []
        for number, word in enumerate(words, 1):
            message, files = self._change(number) if word == NEUTRAL else self._plant(*PLANTED[word])
            self.files |= files
            planned.append((word, message, files))
        return planned

    def _change(self, number: int) -> tuple[str, dict[str, bytes]]:
        path = self.sources[self.neutral % len(self.sources)]
        self.neutral += 1
        content, subject = neutral.change(number, path, self._content(path), self.pick)
        return f"{subject}\n\nNothing uses it: what the kernel does stays the same.\n", {path: content}

    def _plant(self, name: str, reverse: bool) -> tuple[str, dict[str, bytes]]:
        patch = self.patches[name]
        message, _ = default_tree.commit_of(patch)
        if reverse:
            subject = message.partition("\n")[0]
            message = f'Revert "{subject}"\n'
        return message, self._patched(patch, reverse=reverse)

    def _content(self, path: str) -> bytes:
        return self.files.get(path) or self.source.git_bytes("cat-file", "blob", f"{self.start}:{path}")

    def _patched(self, patch: Path, *, reverse: bool) -> dict[str, bytes]:
        """The files that a patch touches, as it leaves them."""
        paths = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
        with tempfile.TemporaryDirectory(prefix="lab-history-") as name:
            top = Path(name).resolve()
            for path in paths:
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_bytes(self._content(path))
            words = git.command("apply", *(["--reverse"] if reverse else []), patch.absolute())
            run(words, cwd=top, env={**git.environment(), "GIT_CEILING_DIRECTORIES": str(top.parent)})
            return {path: (top / path).read_bytes() for path in paths}
