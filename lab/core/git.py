"""Typed git commands that ignore the user's configuration.

Revisions follow `--end-of-options`, so a revision that looks like an option just does not exist.
"""

from __future__ import annotations

import functools
import io
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from lab.core import process
from lab.core.errors import HostFailed
from lab.core.process import CommandFailed

# User settings that could change an answer or an object id. Proxies, credentials and safe.directory stay theirs.
_OVERRIDES = {
    "apply.ignoreWhitespace": "no",
    "apply.whitespace": "nowarn",
    "color.ui": "false",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "core.splitIndex": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "log.showSignature": "false",
    "maintenance.auto": "false",
}
_IDENTITY = ("kernel-ab-lab", "lab@localhost")


class Signature(NamedTuple):
    """An author or a committer, with git's raw date: seconds and time zone."""

    name: str
    email: str
    date: str


def short(commit: str) -> str:
    """A commit's id as people write it; any other name unchanged."""
    return commit[:12] if re.fullmatch("[0-9a-f]{40}", commit) else commit


def environment() -> dict[str, str]:
    """The process environment without the variables by which a git hook or a shell redirects git."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "LC_ALL": "C",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }


def command(*args: str | Path) -> list[str | Path]:
    """The argument list of a git command, with the lab's overrides."""
    overrides = [arg for name, value in _OVERRIDES.items() for arg in ("-c", f"{name}={value}")]
    return ["git", *overrides, *args]


def bisects(checkout: Path) -> bool:
    """True if `git bisect` is under way in a checkout."""
    try:
        return Repo(rev_parse(checkout, "--absolute-git-dir")).path_of("BISECT_LOG").exists()
    except CommandFailed:
        return False


def run(*args: str | Path, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> bytes:
    """Run one git command and return its output; `CommandFailed` when it fails."""
    return process.run(command(*args), env=environment() | dict(env or {}), stdin=stdin)


def rev_parse(path: Path, option: str) -> Path:
    """A path that `git rev-parse` gives for a checkout or a bare repository; `CommandFailed` when it has none."""
    return Path(run("-C", path, "rev-parse", option).decode().rstrip("\n"))


def init_bare(path: Path) -> Repo:
    run("init", "--quiet", "--bare", "--template=", "--initial-branch=main", path)
    return Repo(path)


def clone_blobless(url: str, path: Path) -> Repo:
    """Clone a repository without file contents, which git then fetches as they are needed."""
    run("clone", "--quiet", "--bare", "--template=", "--filter=blob:none", "--", url, path)
    return Repo(path)


@dataclass(frozen=True, slots=True)
class Repo:
    """One repository, given by its git directory. No method reads or writes a working tree."""

    git_dir: Path

    def git_bytes(self, *args: str | Path, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> bytes:
        """Run one git command in this repository."""
        return run("-C", self.git_dir, f"--git-dir={self.git_dir}", *args, env=env, stdin=stdin)

    def git(self, *args: str | Path, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> str:
        """`git_bytes` as text without its last newline."""
        return self.git_bytes(*args, env=env, stdin=stdin).decode(errors="replace").rstrip("\n")

    @functools.cache  # noqa: B019 - a repository is a path
    def path_of(self, name: str) -> Path:
        """The path of one of git's own files, such as `info/exclude`, which a linked checkout has elsewhere."""
        return Path(self.git("rev-parse", "--path-format=absolute", "--git-path", name))

    def commit(self, revision: str) -> str | None:
        """The full id of the commit that a revision names, or None."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except CommandFailed:
            return None

    def has(self, object_id: str) -> bool:
        """True if the repository has the object of a full id."""
        try:
            self.git("cat-file", "-e", object_id)
        except CommandFailed:
            return False
        return True

    def tree_id(self, commit: str) -> str:
        return self.git("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")

    def subject(self, commit: str) -> str:
        return self.git("log", "-1", "--no-walk", "--format=%s", "--end-of-options", commit, "--")

    def describe(self, commit: str) -> str:
        """The commit by the nearest tag before it, or by its short id."""
        return self.git("describe", "--tags", "--always", "--abbrev=12", "--end-of-options", commit)

    @functools.cache  # noqa: B019 - a repository is a path
    def facts(self, commit: str) -> Facts:
        """The facts of a commit, by its full id. A process asks git for them once."""
        log = self.git("log", "-1", "--no-walk", "--format=%T %s", "--end-of-options", commit, "--")
        tree_id, _, subject = log.partition(" ")
        return Facts(tree_id, subject, self.describe(commit))

    def candidates(self, prefix: str) -> list[str]:
        """The full ids of all commits that begin with an abbreviated id, of four digits or more."""
        ids = self.git("rev-parse", f"--disambiguate={prefix}")
        listing = self.git("cat-file", "--batch-check", stdin=f"{ids}\n".encode() if ids else b"")
        return [line.split()[0] for line in listing.splitlines() if line.split()[1] == "commit"]

    def names(self) -> list[str]:
        """The short names of all branches and tags."""
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags").splitlines()

    def top_level(self, commit: str) -> set[str]:
        """The names at the top of a commit's tree."""
        return set(self.git("ls-tree", "--name-only", "-z", "--end-of-options", commit).split("\0"))

    def patched_tree(self, base: str, patches: Sequence[Path]) -> str:
        """The id of a commit's or tree's tree after patches, applied in turn. Offsets are allowed, fuzz is not.

        Raises `PatchFailed` for the first patch that does not apply.
        """
        with process.scratch("lab-index-") as folder:
            env = {"GIT_INDEX_FILE": str(folder / "index")}
            self.git("read-tree", "--end-of-options", base, env=env)
            try:
                # All at once: each `git apply` reads and writes the whole index, and a kernel's has 80,000 files.
                self._apply(patches, env)
            except CommandFailed:
                # Nothing was applied. git does not say which file failed.
                for patch in patches:
                    try:
                        self._apply([patch], env)
                    except CommandFailed as error:
                        raise PatchFailed(patch, error.stderr, self._remedy(patch, env)) from error
            return self.git("write-tree", env=env)

    def _apply(self, patches: Sequence[Path], env: Mapping[str, str], *options: str) -> None:
        """Apply patches to an index, in turn: all of them or none."""
        argv = ("apply", "--cached", "--whitespace=nowarn", *options, "--")
        if patches:
            self.git(*argv, *(path.absolute() for path in patches), env=env)

    def _remedy(self, patch: Path, env: Mapping[str, str]) -> str:
        """The remedy for a patch that does not apply, if it would in another way."""
        for options, remedy in _NEARLY.items():
            with suppress(CommandFailed):
                self._apply([patch], env, "--check", *options)
                return remedy
        return ""

    def tree_with(self, base: str, files: Mapping[str, tuple[str, bytes] | None]) -> str:
        """The id of a commit's or tree's tree with other files in it: mode and content by path, None for no file."""
        with process.scratch("lab-index-") as folder:
            contents: list[Path] = []
            for file in filter(None, files.values()):
                contents.append(folder / f"{len(contents)}")
                contents[-1].write_bytes(file[1])
            names = "".join(f"{place}\n" for place in contents).encode()
            blobs = iter(self.git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names).split())
            listing = "".join(
                f"{file[0]} {next(blobs)}\t{path}\0" if file else f"0 {'0' * 40}\t{path}\0"
                for path, file in files.items()
            ).encode(errors="surrogateescape")
            env = {"GIT_INDEX_FILE": str(folder / "index")}
            self.git("read-tree", "--end-of-options", base, env=env)
            self.git("update-index", "-z", "--index-info", env=env, stdin=listing)
            return self.git("write-tree", env=env)

    def files(self, tree: str, paths: Sequence[str]) -> dict[str, tuple[str, bytes]]:
        """The mode and content of those of some files that a tree has."""
        listing = self.git_bytes("ls-tree", "-r", "-z", "--end-of-options", tree, "--", *paths)
        blobs, modes = [], {}
        for entry in filter(None, listing.decode(errors="surrogateescape").split("\0")):
            facts, path = entry.split("\t", 1)
            mode, kind, blob = facts.split()
            if kind == "blob":  # a submodule is none
                modes[path] = mode
                blobs.append(f"{blob}\n")
        contents = io.BytesIO(self.git_bytes("cat-file", "--batch", stdin="".join(blobs).encode()))
        found = {}
        for path, mode in modes.items():
            size = int(contents.readline().split()[2])
            found[path] = mode, contents.read(size)
            contents.read(1)  # the newline behind a content
        return found

    def pack(self, tree: str, folder: Path, *, without: str | None) -> Path:
        """Pack all objects of a tree, except those of another tree, into a file in a folder."""
        revisions = f"{tree}\n" if without is None else f"{tree}\n^{without}\n"
        name = self.git("pack-objects", "--quiet", "--revs", folder / "pack", stdin=revisions.encode())
        return folder / f"pack-{name}.pack"

    def add_pack(self, pack: Path) -> None:
        """Add the objects of a pack. git checks that the pack is whole."""
        with pack.open("rb") as stream:
            self.git("index-pack", "--stdin", stdin=stream.read())

    def commit_tree(
        self, tree: str, parents: Sequence[str], message: str, *, seconds: int, author: Signature | None = None
    ) -> str:
        """Make a commit of the lab's, on no branch, whose id depends on the arguments alone."""
        committer = Signature(*_IDENTITY, f"@{seconds} +0000")
        env = {
            f"GIT_{who}_{field.upper()}": value
            for who, signature in (("AUTHOR", author or committer), ("COMMITTER", committer))
            for field, value in signature._asdict().items()
        }
        lineage = [arg for parent in parents for arg in ("-p", parent)]
        return self.git("commit-tree", tree, *lineage, "-F", "-", env=env, stdin=message.encode())

    @contextmanager
    def fast_import(self) -> Iterator[IO[bytes]]:
        """A stream into `git fast-import`, which drops everything when an exception passes."""
        # No deltas and light compression: a user waits for the import, and disk is cheap.
        argv = command(
            "-c", "core.compression=1", "-c", "pack.compression=1", f"--git-dir={self.git_dir}",
            "fast-import", "--quiet", "--done", "--depth=0",
        )  # fmt: skip
        with tempfile.TemporaryFile() as errors:
            importer = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment(),
            )
            assert importer.stdin is not None  # noqa: S101  (stdin is a pipe)
            try:
                yield importer.stdin
                importer.stdin.write(b"done\n")
                importer.stdin.close()
                status = importer.wait()
            except BrokenPipeError:
                with suppress(OSError):
                    importer.stdin.close()
                status = importer.wait()
            except BaseException:
                importer.kill()
                with suppress(OSError):  # the buffer has no reader any more
                    importer.stdin.close()
                importer.wait()
                raise
            if status != 0:
                errors.seek(0)
                raise CommandFailed(["git fast-import"], status, errors.read().decode(errors="replace"))


class Facts(NamedTuple):
    """A commit's tree, its subject, and its name by the nearest tag before it."""

    tree_id: str
    subject: str
    describe: str


_NEARLY = {
    ("--reverse",): "the tree has this change already; leave the patch out",
    ("--ignore-whitespace",): "only white space differs, as mail programs and editors change it; save the mail itself",
    ("--recount",): "the line numbers of its hunks are wrong, as after editing by hand; make the patch anew with git",
    ("-p0",): "its paths lack the a/ and b/ that git writes; make it with `git diff`",
}
"""Options with which `git apply` takes patches that it refuses otherwise, and the remedies."""


class PatchFailed(HostFailed):
    """A patch does not apply. `where` names the file and hunk when git did; `remedy` is empty if none is known."""

    def __init__(self, patch: Path, stderr: str, remedy: str = "") -> None:
        lines = [line.removeprefix("error: ") for line in stderr.splitlines() if line.startswith("error: ")]
        hunk = re.search(r"^error: patch failed: (.*):(\d+)$", stderr, re.MULTILINE)
        if hunk:
            self.where = f"{hunk[1]}, the hunk at line {hunk[2]}"
        elif damaged := re.search(r"^error: corrupt patch at (?:.*:|line )(\d+)$", stderr, re.MULTILINE):
            text = patch.read_text(errors="replace").splitlines()[int(damaged[1]) - 1 : int(damaged[1])]
            self.where = f"line {damaged[1]} of the diff does not continue its hunk: {''.join(text)!r}"
            remedy = remedy or (
                "mail programs wrap lines and drop spaces; save the mail itself with its headers, unchanged (by them, "
                "git undoes format=flowed); if it was sent like that, ask for the patch as an attachment"
            )
        else:
            self.where = lines[0] if lines else "git gave no reason"
        super().__init__(f"{patch} does not apply: {self.where}")
        self.patch = patch
        self.remedy = remedy
