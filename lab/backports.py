"""An upstream commit in a tree that has only its backport.

Stable and distribution trees say in a commit's message which upstream commit it carries, in one of three
forms. A search by the upstream id, in full or abbreviated, finds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lab.core.errors import UserError
from lab.core.git import Repo

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
