"""From what the user typed to exactly one kernel: every name looked up, every patch applied.

`resolve` does the whole of it. Its result says in full ids and hashes what will be built or booted, so two
equal results are the same kernel.

Uncommitted work, by content: a checkout as it is on disk, as a git tree in the lab's own repository.

The user's `.git` is only read. git is pointed at the lab's repository, which borrows the user's objects,
with a copy of the user's index, so that files that did not change are not read again.

An upstream commit in a tree that has only its backport.

Stable and distribution trees say in a commit's message which upstream commit it carries, in one of three
forms. A search by the upstream id, in full or abbreviated, finds it.
"""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.core.errors import UserError
from lab.core.git import PatchFailed, Repo
from lab.core.process import CommandFailed
from lab.core.progress import QUIET, Progress
from lab.core.records import Record
from lab.kernels import debs, default_tree, files, spec, trees
from lab.kernels.debs import DebSource
from lab.kernels.trees import SNAPSHOTS, Tree, open_local


def open_checkout(path: Path) -> Tree:
    """The tree that stands for a checkout; a folder without one, or a bare repository, is refused."""
    if not path.is_dir():
        raise UserError(f"{path}: no such folder")
    tree = open_local(path)
    if not (Path(tree.origin) / ".git").exists():
        raise UserError(f"{path} is a bare repository: it has no working tree", hint="give a revision with --tree")
    return tree


def snapshot(tree: Tree) -> str:
    """The id of the tree of everything in a checkout that git does not ignore, committed or not."""
    top = Path(tree.origin)
    with tempfile.TemporaryDirectory(prefix="lab-worktree-") as name:
        folder = Path(name)
        env = {"GIT_INDEX_FILE": str(folder / "index"), "GIT_WORK_TREE": str(top)}
        if not _copy_index(tree.source, folder / "index"):
            tree.repo.git("read-tree", "--end-of-options", tree.head, env=env)
        excludes = folder / "exclude"
        excludes.write_bytes(_excludes(tree.source))
        config = ["-c", f"core.excludesFile={excludes}", "-c", f"core.fileMode={_file_mode(tree.source)}"]
        # Renewing the stat data also gets at files that the user told git to take for unchanged.
        with suppress(CommandFailed):  # which says only that something did change
            tree.repo.git("-C", top, *config, "update-index", "-q", "--really-refresh", env=env)
        # Into a store that does not borrow from the user's: git would renew the time of an object there
        # instead of writing one of the same content, and the user's `.git` would not be as it was.
        env |= {"GIT_OBJECT_DIRECTORY": str(tree.repo.git_dir / SNAPSHOTS)}
        tree.repo.git("-C", top, *config, "add", "--all", "--", ".", env=env)
        return tree.repo.git("write-tree", "--missing-ok", env=env)


def _copy_index(source: Repo, to: Path) -> bool:
    """Copy the user's index; False when there is none of one piece.

    With its time: git takes an entry for racy, and compares contents, by the index file's own time.
    """
    index = Path(source.git("rev-parse", "--path-format=absolute", "--git-path", "index"))
    if not index.is_file() or any(index.parent.glob("sharedindex.*")):
        return False
    shutil.copy2(index, to)
    return True


def _excludes(source: Repo) -> bytes:
    """The ignore patterns that the user's repository and settings add to the `.gitignore` files."""
    own = Path(source.git("rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))
    try:
        general = Path(source.git("config", "--type=path", "core.excludesFile"))
    except CommandFailed:
        general = Path("~/.config/git/ignore").expanduser()
    return b"\n".join(path.read_bytes() for path in (general, own) if path.is_file())


def _file_mode(source: Repo) -> str:
    try:
        return source.git("config", "--type=bool", "core.fileMode")
    except CommandFailed:
        return "true"


_FORMS = tuple(
    re.compile(form)
    for form in (
        r"commit ([0-9a-f]{40}) upstream\.?",
        r"\[ ?[Uu]pstream commit ([0-9a-f]{40}) ?\]",
        r"\(cherry picked from commit ([0-9a-f]{40})\)",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backport:
    """A commit that carries an upstream one. `line` is where its message says so."""

    commit: str
    subject: str
    upstream: str
    line: str


def upstream_of(message: str) -> list[tuple[str, str]]:
    """The upstream ids that a commit message names, each with its line."""
    lines = [line.strip() for line in message.splitlines()]
    return [(match[1], line) for line in lines for form in _FORMS if (match := form.fullmatch(line))]


def find(repo: Repo, prefix: str, *, head: str) -> Backport | None:
    """The newest backport, reachable from `head`, of the upstream commit with this id or abbreviation.

    Raises `UserError` when the abbreviation fits several upstream commits.
    """
    if not re.fullmatch(r"[0-9a-f]{7,40}", prefix):
        raise ValueError(f"not a commit id: {prefix!r}")
    found = [one for one in _candidates(repo, prefix, head) if one.upstream.startswith(prefix)]
    meant = sorted({one.upstream for one in found})
    if len(meant) > 1:
        subjects = {one.upstream: one.subject for one in found}
        listing = ", ".join(f'{one} ("{subjects[one]}")' for one in meant)
        raise UserError(f"{prefix} is ambiguous: backports of {listing}", hint="give more digits of the id")
    return found[0] if found else None


def _candidates(repo: Repo, prefix: str, head: str) -> list[Backport]:
    """Commits whose message mentions the prefix after the word commit, newest first."""
    listing = repo.git(
        "log", "--topo-order", "--extended-regexp", f"--grep=commit {prefix}[0-9a-f]*( |\\)|$)",
        "-z", "--format=%H%n%s%n%B", "--end-of-options", head, "--",
    )  # fmt: skip
    backports = []
    for entry in filter(None, listing.split("\0")):
        commit, subject, message = entry.split("\n", 2)
        for upstream, line in upstream_of(message):
            backports.append(Backport(commit=commit, subject=subject, upstream=upstream, line=line))
    return backports


# The date of commits that the lab makes of patched trees: any, as long as it never changes.
_PATCHED_AT = 1704067200


class TreeSource(Record, frozen=True, kw_only=True, tag="tree"):
    """Source from a git tree: the base commit, and the tree id after patches or uncommitted work.

    `build_commit` has `tree_id` as its tree. It is `commit` itself where nothing was added.
    """

    tree: str
    commit: str
    tree_id: str
    build_commit: str
    subject: str
    describe: str
    patches: tuple[str, ...] = ()


class FileSource(Record, frozen=True, kw_only=True, tag="file"):
    """A kernel that is a file, with its modules' folder when one was found."""

    path: str
    sha256: str
    release: str
    modules: str | None = None


Source = TreeSource | DebSource | FileSource


class KernelSpec(Record, frozen=True, kw_only=True):
    """One kernel and what is set around it. `note` tells of a choice that the lab made for the user."""

    text: str
    source: Source
    kconfig: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    note: str | None = None


def resolve(text: str, tree: Tree | str | None = None, *, progress: Progress = QUIET) -> KernelSpec:
    """The kernel that a spec means. Without a tree, revisions are those of the default tree."""
    parsed = spec.parse(text)
    source, note = _source(parsed, tree, progress)
    return KernelSpec(
        text=text, source=source, kconfig=parsed.kconfig, settings=parsed.settings, note=note
    )  # fmt: skip


def _source(parsed: spec.ParsedSpec, tree: Tree | str | None, progress: Progress) -> tuple[Source, str | None]:
    if parsed.kind == "deb":
        return debs.resolve_deb(parsed.body), None
    if parsed.kind == "file":
        return _file_source(Path(parsed.body).expanduser()), None
    patches = [path for name in parsed.patches for path in _patch_files(name)]
    if parsed.kind == "worktree":
        return _worktree_source(Path(parsed.body).expanduser(), patches), None
    used = tree if isinstance(tree, Tree) else trees.open_tree(tree, progress=progress)
    commit, note = resolve_commit(used, parsed.body)
    subject, describe = used.source.subject(commit), used.source.describe(commit)
    return _tree_source(used, commit, used.source.tree_id(commit), patches, subject, describe), note


def _file_source(path: Path) -> FileSource:
    found = files.inspect(path)
    modules = files.modules_of(path, found.release)
    return FileSource(
        path=str(path.resolve()),
        sha256=found.sha256,
        release=found.release,
        modules=str(modules) if modules else None,
    )


def _worktree_source(path: Path, patches: list[Path]) -> TreeSource:
    tree = open_checkout(path)
    tree_id = snapshot(tree)
    clean = tree_id == tree.source.tree_id(tree.head)
    subject, describe = tree.source.subject(tree.head), tree.source.describe(tree.head)
    if not clean:
        subject, describe = f"uncommitted work on {subject}", f"{describe}-dirty"
    return _tree_source(tree, tree.head, tree_id, patches, subject, describe)


def _tree_source(tree: Tree, commit: str, tree_id: str, patches: list[Path], subject: str, describe: str) -> TreeSource:
    """Apply the patches, and see that there is a commit to build."""
    if patches:
        try:
            tree_id = tree.repo.patched_tree(tree_id, patches)
        except PatchFailed as error:
            raise UserError(
                f"{error.patch.name} does not apply to {describe}: {error.where}",
                hint="rebase the patch onto that revision; the lab applies nothing that fits only roughly",
            ) from error
    build = commit
    if tree_id != tree.source.tree_id(commit):
        names = "".join(f"Patch: {patch.name}\n" for patch in patches)
        build = tree.repo.commit_tree(tree_id, [commit], f"{subject}\n\n{names}", seconds=_PATCHED_AT)
    return TreeSource(
        tree=tree.name,
        commit=commit,
        tree_id=tree_id,
        build_commit=build,
        subject=subject,
        describe=describe,
        patches=tuple(patch.name for patch in patches),
    )


def _patch_files(name: str) -> list[Path]:
    """A file, or all patches of a set that comes with the lab."""
    path = Path(name).expanduser()
    if path.is_file():
        return [path]
    if name in default_tree.names():
        return default_tree.patches(name)
    raise _unknown_patch(name)


def _unknown_patch(name: str) -> UserError:
    close = default_tree.close_to(name)
    listed = f"a patch is a file called *.patch, or one of the lab's own: {', '.join(default_tree.names())}"
    return UserError(f"no such patch: {name!r}", hint=f"did you mean {close}?" if close else listed)


def resolve_commit(tree: Tree, revision: str) -> tuple[str, str | None]:
    """The commit that a revision names in a tree, and a note when it is a backport of what was asked for."""
    if commit := tree.source.commit(revision):
        return commit, None
    hexadecimal = re.fullmatch(r"([0-9A-Fa-f]{4,40})([\^~@].*)?", revision)
    if hexadecimal is None:
        raise _unknown_revision(tree, revision)
    prefix, suffix = hexadecimal[1].lower(), hexadecimal[2] or ""
    candidates = tree.source.candidates(prefix)
    if len(candidates) > 1:
        raise UserError(
            f"{prefix} is ambiguous in tree {tree.name!r}: {_listed(tree, candidates)}",
            hint="give more digits of the id",
        )
    if candidates or len(prefix) < 7:
        raise _unknown_revision(tree, revision)
    return _backport(tree, prefix, suffix)


def _backport(tree: Tree, prefix: str, suffix: str) -> tuple[str, str]:
    found = find(tree.source, prefix, head=tree.head)
    if found is None:
        raise _unknown_revision(tree, prefix + suffix)
    commit = tree.source.commit(found.commit + suffix)
    if commit is None:
        raise UserError(
            f"{prefix}{suffix} does not exist in tree {tree.name!r}, where {prefix} is {found.commit[:12]}",
            hint="the history of the tree may not reach back that far",
        )
    note = (
        f"{prefix[:12]} is not in tree {tree.name!r}; taking {found.commit[:12]} "
        f'("{found.subject}"), its backport ("{found.line}")'
    )
    return commit, note


def _names_commit(tree: Tree, revision: str) -> bool:
    try:
        resolve_commit(tree, revision)
    except UserError:
        return False
    return True


def _listed(tree: Tree, commits: list[str]) -> str:
    return ", ".join(f'{commit[:16]} ("{tree.source.subject(commit)}")' for commit in commits)


def _unknown_revision(tree: Tree, revision: str) -> UserError:
    base, plus, patch = revision.rpartition("+")
    if plus and _names_commit(tree, base):
        return _unknown_patch(patch)
    start = re.split(r"[\^~]|@\{", revision, maxsplit=1)[0]
    if start != revision and tree.source.commit(start):
        return UserError(
            f"{revision} does not exist in tree {tree.name!r}, though {start} does",
            hint="the history of the tree may not reach back that far",
        )
    close = difflib.get_close_matches(start, tree.source.names(), n=1)
    if close:
        hint = f"did you mean {close[0]}?"
    elif re.search(r"[@%]\w", revision):
        hint = "settings are written @key=value, kconfig changes %CONFIG_FOO=y"
    else:
        hint = "name another tree with --tree, or add one with `lab tree add URL-or-PATH`"
    return UserError(f"unknown revision {revision!r} in tree {tree.name!r} ({tree.origin})", hint=hint)
