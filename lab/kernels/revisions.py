"""Revisions and `worktree:` specs: look a commit up in a tree, or its backport, and apply patches.

Stable and distribution trees name in a commit's message the upstream commit that it carries, in one of three forms.
An upstream id, in full or abbreviated, thus finds the backport.

Uncommitted work is a git tree in the lab's own repository. The user's `.git` is only read: git gets the lab's
repository, which borrows the user's objects, and a copy of the user's index, so that it reads only changed files.
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.core import paths, process
from lab.core.errors import UserError, suggestion
from lab.core.git import Facts, PatchFailed, Repo
from lab.core.process import CommandFailed
from lab.core.progress import Progress
from lab.kernels import default_tree, layout, patches, trees
from lab.kernels.build import TreeSource
from lab.kernels.patches import Patch
from lab.kernels.spec import ParsedSpec
from lab.kernels.trees import SNAPSHOTS, Tree, open_local


def snapshot(tree: Tree) -> str:
    """The id of a tree of everything in a checkout that git does not ignore, committed or not."""
    top = Path(tree.origin)
    with process.scratch("lab-worktree-") as folder:
        env = {"GIT_INDEX_FILE": str(folder / "index"), "GIT_WORK_TREE": str(top)}
        if not _copy_index(tree.source, folder / "index"):
            tree.repo.git("read-tree", "--end-of-options", tree.head, env=env)
        excludes = folder / "exclude"
        excludes.write_bytes(_excludes(tree.source))
        config = ["-c", f"core.excludesFile={excludes}", "-c", f"core.fileMode={_file_mode(tree.source)}"]
        # With new stat data, git also sees changes in files that the user marked as unchanged.
        with suppress(CommandFailed):  # it fails if a file has changed
            tree.repo.git("-C", top, *config, "update-index", "-q", "--really-refresh", env=env)
        # Into a store that borrows nothing from the user's. There, git would set the time of an object that has the
        # same content instead of writing one, and so change the user's `.git`.
        env |= {"GIT_OBJECT_DIRECTORY": str(tree.repo.git_dir / SNAPSHOTS)}
        tree.repo.git("-C", top, *config, "add", "--all", "--", ".", env=env)
        return tree.repo.git("write-tree", "--missing-ok", env=env)


def _copy_index(source: Repo, to: Path) -> bool:
    """Copy the user's index with its time, by which git chooses the files to compare; False for none or a split one."""
    index = source.path_of("index")
    if not index.is_file() or any(index.parent.glob("sharedindex.*")):
        return False
    shutil.copy2(index, to)
    return True


def _excludes(source: Repo) -> bytes:
    """The ignore patterns that the user's repository and settings add to the `.gitignore` files."""
    own = source.path_of("info/exclude")
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
    """A commit that carries an upstream one. line: of its message, which names the upstream commit."""

    commit: str
    subject: str
    upstream: str
    line: str


def upstream_of(message: str) -> list[tuple[str, str]]:
    """The upstream ids that a commit message names, each with its line."""
    lines = [line.strip() for line in message.splitlines()]
    return [(match[1], line) for line in lines for form in _FORMS if (match := form.fullmatch(line))]


def find(repo: Repo, prefix: str, *, head: str) -> Backport | None:
    """The newest backport, reachable from `head`, of the upstream commit with this id or abbreviation in hexadecimal.

    Raises `UserError` when the abbreviation fits several upstream commits.
    """
    listing = repo.git(
        "log", "--topo-order", "--extended-regexp", f"--grep=commit {prefix}[0-9a-f]*( |\\)|$)",
        "-z", "--format=%H%n%s%n%B", "--end-of-options", head, "--",
    )  # fmt: skip
    backports = []
    for entry in filter(None, listing.split("\0")):  # the newest first
        commit, subject, message = entry.split("\n", 2)
        for upstream, line in upstream_of(message):
            if upstream.startswith(prefix):
                backports.append(Backport(commit=commit, subject=subject, upstream=upstream, line=line))
    subjects = {backport.upstream: backport.subject for backport in backports}
    if len(subjects) > 1:
        listing = ", ".join(f'{upstream} ("{subject}")' for upstream, subject in sorted(subjects.items()))
        raise UserError(f"{prefix} is ambiguous: backports of {listing}", hint="give more digits of the id")
    return backports[0] if backports else None


# The date of commits that the lab makes of patched trees: any that never changes.
_PATCHED_AT = 1704067200


def resolve(spec: ParsedSpec, tree: Tree | str | None, progress: Progress) -> tuple[TreeSource, str | None]:
    """The revision of a spec, with its patches; and a note when the lab chose a backport."""
    found, number = _patches(spec), _layout(spec)
    if tree is None and trees.current() == trees.DEFAULT:
        _require_of_default(spec.body)
    opened = tree if isinstance(tree, Tree) else trees.open_tree(tree, progress=progress)
    commit, note = resolve_commit(opened, spec.body)
    return _patched(opened, commit, opened.source.facts(commit), found, number), note


_OF_A_CHECKOUT = re.compile(r"(HEAD|@)(?=[\^~@]|$)")
_RELEASE = re.compile(r"v?(\d+\.\d+)(\.\d+)*(-rc\d+)?")


def _require_of_default(revision: str) -> None:
    """Refuse names that the default tree, if no tree was named, lacks or has by accident, before its import."""
    if _OF_A_CHECKOUT.match(revision):
        raise UserError(
            f"{revision} is of a checkout, and {Path.cwd()} is in none of a kernel",
            hint=f"go into one, or name it by --tree PATH; --tree {trees.DEFAULT} is the lab's own",
        )
    if release := _RELEASE.fullmatch(revision):
        raise UserError(
            f"{revision} is a release, and the tree {trees.DEFAULT!r} has none",
            hint=f"deb:{release[1]} is Debian's kernel, src:{release[1]} its source; the history takes some gigabytes: "
            f"lab tree add {trees.STABLE} --name stable, then --tree stable",
        )


def resolve_worktree(spec: ParsedSpec) -> TreeSource:
    """A checkout as it is on disk, with the patches of a spec."""
    found, number = _patches(spec), _layout(spec)
    path = paths.expanded(spec.body)
    if not path.is_dir():
        raise UserError(f"{path}: no such folder")
    tree = open_local(path)
    if not (Path(tree.origin) / ".git").exists():
        raise UserError(f"{path} is a bare repository: it has no working tree", hint="give a revision with --tree")
    tree_id = snapshot(tree)
    facts = tree.source.facts(tree.head)
    if tree_id != facts.tree_id:
        facts = Facts(tree_id, f"uncommitted work on {facts.subject}", f"{facts.describe}-dirty")
    return _patched(tree, tree.head, facts, found, number)


def resolve_source(spec: ParsedSpec, progress: Progress) -> TreeSource:
    """The source of a package, with the patches of a spec."""
    found, number = _patches(spec), _layout(spec)
    tree = trees.open_source(spec.body, progress)
    describe = f"{tree.record.package} {tree.record.version}"
    facts = Facts(tree.source.facts(tree.head).tree_id, describe, describe)
    return _patched(tree, tree.head, facts, found, number)


def _patched(tree: Tree, commit: str, facts: Facts, given: _Patches, number: int | None) -> TreeSource:
    """Apply patches, then a layout, to a tree. A tree that is not its commit's becomes a commit of its own.

    facts: those of the tree, which may be a checkout's with uncommitted work.
    """
    names = [name for name, _ in given]
    tree_id = _applied(tree, facts.tree_id, [patch for _, found in given for patch in found], facts.describe)
    if number is not None:
        tree_id = layout.laid_out(tree.repo, tree_id, number, facts.describe)
        names.append(layout.name_of(number))
    build = commit
    if tree_id != tree.source.facts(commit).tree_id:
        lines = "".join(f"Patch: {name}\n" for name in names)
        build = tree.repo.commit_tree(tree_id, [commit], f"{facts.subject}\n\n{lines}", seconds=_PATCHED_AT)
    return TreeSource(
        tree=tree.name,
        commit=commit,
        tree_id=tree_id,
        build_commit=build,
        subject=facts.subject,
        describe=facts.describe,
        patches=tuple(names),
    )


def _applied(tree: Tree, tree_id: str, found: Sequence[Patch], describe: str) -> str:
    """The id of a tree with patches in it."""
    if not found:
        return tree_id
    with process.scratch("lab-patches-") as folder:
        files = {folder / f"{number:04}.patch": patch for number, patch in enumerate(found, start=1)}
        for file, patch in files.items():
            file.write_bytes(patch.diff)
        try:
            return tree.repo.patched_tree(tree_id, list(files))
        except PatchFailed as error:
            patch = files[error.patch]
            made_for = f" (its mail says that it is for {patch.base[:12]})" if patch.base else ""
            hint = f"rebase the patch onto that revision{made_for}; the lab applies nothing that fits only roughly"
            raise UserError(
                f"{patch.name} does not apply to {describe}: {error.where}", hint=error.remedy or hint
            ) from error


def _layout(spec: ParsedSpec) -> int | None:
    """The number of the layout that a spec names, if it does."""
    numbers = [number for name in spec.patches if (number := layout.number_of(name)) is not None]
    if len(numbers) > 1:
        raise UserError(f"{spec.text!r} has {len(numbers)} layouts", hint="a kernel has one")
    return numbers[0] if numbers else None


_Patches = list[tuple[str, list[Patch]]]
"""Names of files or mails, each with its patches."""


def _patches(spec: ParsedSpec) -> _Patches:
    """The patches of a spec: files, sets that come with the lab, and series at lore."""
    found: _Patches = []
    for name in spec.patches:
        path = paths.expanded(name)
        if layout.number_of(name) is not None:
            continue
        if name.startswith(patches.LORE):
            found.append((name, patches.by_id(name)))
        elif path.is_file():
            found.append((path.name, patches.read(path)))
        elif name in default_tree.names():
            found += [(file.name, patches.read(file)) for file in default_tree.patches(name)]
        else:
            raise _unknown_patch(name)
    return found


def _unknown_patch(name: str) -> UserError:
    sets = default_tree.names()
    own = f"one of the lab's own: {', '.join(sets)}, layout-1, layout-2 ..."
    hint = suggestion(name, sets) or f"a patch is a file called *.patch, lore:MESSAGE-ID, or {own}"
    return UserError(f"no such patch: {name!r}", hint=hint)


def resolve_commit(tree: Tree, revision: str) -> tuple[str, str | None]:
    """The commit that a revision names in a tree, and a note when it is the backport of that commit."""
    if commit := tree.source.commit(revision):
        return commit, None
    hexadecimal = re.fullmatch(r"([0-9A-Fa-f]{4,40})([\^~@].*)?", revision)
    if hexadecimal is None:
        raise _unknown_revision(tree, revision)
    prefix, suffix = hexadecimal[1].lower(), hexadecimal[2] or ""
    candidates = tree.source.candidates(prefix)
    if len(candidates) > 1:
        listing = ", ".join(f'{commit[:16]} ("{tree.source.subject(commit)}")' for commit in candidates)
        raise UserError(
            f"{prefix} is ambiguous in tree {tree.name!r}: {listing}",
            hint="give more digits of the id",
        )
    if candidates or len(prefix) < 7:
        raise _unknown_revision(tree, revision)
    return _backport(tree, prefix, suffix)


def _backport(tree: Tree, prefix: str, suffix: str) -> tuple[str, str]:
    backport = find(tree.source, prefix, head=tree.head)
    if backport is None:
        raise _unknown_revision(tree, prefix + suffix)
    commit = tree.source.commit(backport.commit + suffix)
    if commit is None:
        raise UserError(
            f"{prefix}{suffix} does not exist in tree {tree.name!r}, where {prefix} is {backport.commit[:12]}",
            hint="the history of the tree may not reach back that far",
        )
    note = (
        f"{prefix[:12]} is not in tree {tree.name!r}; taking {backport.commit[:12]} "
        f'("{backport.subject}"), its backport ("{backport.line}")'
    )
    return commit, note


def _unknown_revision(tree: Tree, revision: str) -> UserError:
    base, plus, patch = revision.rpartition("+")
    if plus:
        with suppress(UserError):
            resolve_commit(tree, base)
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
