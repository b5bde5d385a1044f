"""Images of one source with another layout: the linker places functions and data of the objects in another order.

Two kernels without a relevant difference can differ by some percent, because functions and data lie elsewhere:
Mytkowicz et al., Producing Wrong Data Without Doing Anything Obviously Wrong (2009), who change the order of linking.
The kernel's order of linking is also that of its initcalls, so it has to stay. The linker script alone is changed: for
each section, groups of objects, by the last character of their names, come in an order that the layout's number
determines, with gaps of up to 1,008 bytes between the groups of functions. All objects stay as they are, so a build
only links again.

The change is a patch to the source: `REV+layout-2` is a kernel with an id, a key and a provenance like any other.
"""

from __future__ import annotations

import hashlib
import re
import string

from lab.core.errors import UserError
from lab.core.git import Repo

SCRIPT = "include/asm-generic/vmlinux.lds.h"
_NAME = re.compile(r"layout-([1-9]\d{0,5})")
_STATEMENT = re.compile(r"^\s*\*\((?P<section>TEXT_MAIN|DATA_MAIN|BSS_MAIN)\b.*\\$", re.MULTILINE)
_GROUPS = string.ascii_lowercase + string.digits
_STEP = 16
_STEPS = 64


def number_of(patch: str) -> int | None:
    """The number of a layout by its name among a spec's patches; None for any other patch."""
    match = _NAME.fullmatch(patch)
    return int(match[1]) if match else None


def name_of(number: int) -> str:
    return f"layout-{number}"


def laid_out(repo: Repo, tree_id: str, number: int, describe: str) -> str:
    """The id of a tree with another layout; `UserError` if its linker script is of another form."""
    if SCRIPT not in repo.git("ls-tree", "--name-only", tree_id, "--", SCRIPT):
        raise UserError(f"{describe} cannot be laid out anew: it has no {SCRIPT}")
    script = repo.git_bytes("cat-file", "blob", f"{tree_id}:{SCRIPT}").decode()
    if "TEXT_MAIN" not in {match["section"] for match in _STATEMENT.finditer(script)}:
        raise UserError(
            f"{describe} cannot be laid out anew: {SCRIPT} does not place TEXT_MAIN",
            hint="kernels before v4.14 have another linker script",
        )
    return repo.tree_with(tree_id, {SCRIPT: ("100644", rewrite(script, number).encode())})


def rewrite(script: str, number: int) -> str:
    """The linker script with groups of objects placed first, in the order of a layout."""

    def groups(match: re.Match[str]) -> str:
        section = match["section"]
        lines = ""
        for digest, group in sorted((_digest(number, section, group), group) for group in _GROUPS):
            # A space after a group of functions moves the next group to other lines of a cache.
            gap = f" . += {_STEP * (digest[0] % _STEPS)}; " if section == "TEXT_MAIN" else " "
            lines += f"\t\t*{group}.o({section}){gap}\\\n"
        return lines + match[0]

    return _STATEMENT.sub(groups, script)


def _digest(number: int, section: str, group: str) -> bytes:
    return hashlib.sha256(f"{number} {section} {group}".encode()).digest()
