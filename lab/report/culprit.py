"""The culprit of a regression report: one commit or a range, its upstream id, and the recipients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.core import process
from lab.core.errors import LabError, UserError
from lab.core.git import Repo
from lab.core.process import CommandFailed, find_tool, run
from lab.core.text import visible
from lab.kernels import revisions, trees
from lab.kernels.build import TreeSource
from lab.kernels.kernel import KernelSpec
from lab.report.inputs import StoredComparison

# regressions@ gets every report, stable@ those of stable series. In tags, stable@ is an instruction, not a person.
REGRESSIONS = "regressions@lists.linux.dev"
STABLE = "stable@vger.kernel.org"
_NOBODY = re.compile(r"^stable@")

_TAG = re.compile(
    r"^(?:Signed-off-by|Co-developed-by|Suggested-by|Reported-by|Reviewed-by|Acked-by|Tested-by|Cc):\s*(.+?)\s*(?:#.*)?$",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r'(?:"?([^<>"]*?)"?\s*<)?([A-Za-z0-9.!#$%&*+/=?^_{|}~-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)>?')
_NEEDED = ("MAINTAINERS", "scripts/get_maintainer.pl", ".get_maintainer.ignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change between the arms. `introduced`: in the syntax of regzbot.

    commit: None for a range of commits.
    author: name and address; None if the tree does not have it.
    people: addresses from the commit's tags and of its maintainers.
    notes: facts that the sender must know or complete.
    """

    introduced: str
    commit: str | None = None
    subject: str = ""
    upstream: str | None = None
    tree: str = ""
    author: str | None = None
    people: tuple[str, ...] = ()
    notes: tuple[str, ...]


def between(stored: StoredComparison, *, is_searched: bool = False) -> Change:
    """The change between a result's arms; `UserError` if both have the same source. is_searched: a bisection's."""
    plan = stored.plan
    if plan is None:
        raise UserError(f"{stored.folder} has no plan.json", hint="a mail needs the whole result folder")
    base, test = plan.base.spec, plan.test.spec
    if base.tree_source and test.tree_source:
        if base.tree_source.tree_id == test.tree_source.tree_id:
            raise UserError(
                "both arms have the same source: no commit made the difference",
                hint="a regression report is about a commit; use another format",
            )
        return _of_tree(base, test, base.tree_source, test.tree_source)
    return Change(
        introduced=f"{_version(stored.result.base.release)}..{_version(stored.result.test.release)}",
        notes=(
            *([] if is_searched else ["the arms are not two commits of one tree: bisect first"]),
            "add the maintainers of the culprit's files: scripts/get_maintainer.pl",
        ),
    )


def same_stable_series(base: str, test: str) -> bool:
    """True if both releases are of one stable series: 6.12.3 and 6.12.7."""
    series = [re.match(r"(\d+\.\d+)\.([1-9]\d*)", release) for release in (base, test)]
    return all(series) and len({match[1] for match in series if match}) == 1


def _version(release: str) -> str:
    match = re.match(r"\d+\.\d+(?:\.[1-9]\d*)?", release)
    return f"v{match[0]}" if match else visible(release)


def _of_tree(base_spec: KernelSpec, test_spec: KernelSpec, base: TreeSource, test: TreeSource) -> Change:
    try:
        repo = trees.open_tree(test.tree).source
        parents = repo.git("rev-parse", "--end-of-options", f"{test.commit}^@").split()
        message = repo.git("show", "-s", "--format=%B", "--end-of-options", test.commit, "--")
    except LabError as error:
        raise UserError(f"the tree {test.tree} of this result cannot be read: {error.message}") from error
    notes = []
    if base.patches or test.patches:
        notes.append(f"patched: {', '.join(map(visible, (*base.patches, *test.patches)))} are part of the difference")
    if (base_spec.settings, base_spec.kconfig) != (test_spec.settings, test_spec.kconfig):
        notes.append("the arms differ in settings or kconfig too")
    if base.commit not in parents or base.patches or test.patches:
        notes.append("this is a range, not a commit: bisect it, and write to the culprit's people")
        return Change(
            introduced=f"{base.commit[:12]}..{test.commit[:12]}",
            subject=visible(test.subject),
            tree=_tree_origin(test.tree),
            notes=tuple(notes),
        )
    upstream = next((commit for commit, _ in revisions.upstream_of(message)), None)
    if upstream:
        notes.append(f"measured on its backport {test.commit[:12]}; mainline itself was not measured")
    author = next(
        addresses([repo.git("show", "-s", "--format=%an <%ae>", "--end-of-options", test.commit, "--")]), None
    )
    tagged = addresses(tag[1] for line in message.splitlines() if (tag := _TAG.match(line)))
    people = [*filter(None, [author]), *tagged, *_maintainers(repo, test.commit, notes)]
    return Change(
        introduced=upstream or test.commit,
        commit=test.commit,
        subject=visible(test.subject),
        upstream=upstream,
        tree=_tree_origin(test.tree),
        author=author,
        people=_distinct(people),
        notes=tuple(notes),
    )


def _tree_origin(name: str) -> str:
    """The origin of a tree and its URL; of a checkout only the name beside it, because its path is private."""
    tree = trees.open_tree(name)
    record = tree.record
    if record.kind == "local":
        return visible(" ".join(filter(None, [record.name, _remote(tree.source)])))
    url = f"https://packages.debian.org/{record.package}" if record.package else None
    return visible(" ".join(filter(None, [record.origin, record.version, url])))


def _remote(repo: Repo) -> str:
    """The URL of a checkout's origin, without a user and a password; empty if other people can reach none."""
    try:
        url = repo.git("config", "--get", "remote.origin.url").strip()
    except LabError:
        return ""
    match = re.fullmatch(r"(https?|git|ssh)://(?:[^/@]*@)?([^/@\s][^@?#\s]*)", url)
    return f"{match[1]}://{match[2]}" if match else ""


def addresses(texts: Iterable[str]) -> Iterator[str]:
    """The well-formed addresses of people among lines of text, as `Name <address>`."""
    for text in texts:
        match = _ADDRESS.fullmatch(visible(text).strip())
        if match is None or _NOBODY.search(match[2]):
            continue
        name = (match[1] or "").strip()
        if re.search(r"[^\w\s.'-]", name):
            yield match[2]  # a name that would need quoting; the address is enough
        else:
            yield f"{name} <{match[2]}>" if name else match[2]


def _distinct(people: Iterable[str]) -> tuple[str, ...]:
    """Each address once, in its first form."""
    first: dict[str, str] = {}
    for person in people:
        first.setdefault(person.rpartition("<")[2].rstrip(">").lower(), person)
    return tuple(first.values())


def _maintainers(repo: Repo, commit: str, notes: list[str]) -> list[str]:
    """The answer of the tree's own scripts/get_maintainer.pl to the commit's diff."""
    try:
        perl = find_tool("perl", package="perl")
        with process.scratch("lab-maintainers-") as folder:
            _extract(repo, commit, folder)
            argv = ["--no-tree", "--no-git", "--no-git-fallback", "--no-rolestats", "culprit.patch"]
            output = run([perl, "scripts/get_maintainer.pl", *argv], cwd=folder, timeout_s=120)
    except (LabError, OSError) as error:
        notes.append(f"maintainers: fill in; get_maintainer.pl did not work: {visible(str(error))}")
        return []
    return list(addresses(output.decode(errors="replace").splitlines()))


def _extract(repo: Repo, commit: str, folder: Path) -> None:
    """Files that the script reads: itself, the list of maintainers, the commit's diff."""
    present = repo.git("ls-tree", "--name-only", "--end-of-options", commit, *_NEEDED).splitlines()
    (folder / "scripts").mkdir()
    for name in present:
        (folder / name).write_bytes(repo.git_bytes("cat-file", "blob", f"{commit}:{name}"))
    try:
        patch = repo.git_bytes("diff-tree", "-p", "--end-of-options", f"{commit}^", commit)
    except CommandFailed:
        patch = repo.git_bytes("diff-tree", "-p", "--root", "--end-of-options", commit)
    (folder / "culprit.patch").write_bytes(patch)
