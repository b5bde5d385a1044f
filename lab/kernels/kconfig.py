"""Kernel configuration: fragments of requested options, and the check that kconfig kept them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.core.errors import UserError
from lab.core.paths import room

_LINE = re.compile(r"(CONFIG_\w+)=(.+)")
_UNSET = re.compile(r"# (CONFIG_\w+) is not set")


def parse(text: str) -> dict[str, str]:
    """Options of a fragment or a `.config`, name to value; an unset option has the value `n`."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        if found := _LINE.fullmatch(line.strip()) or _UNSET.fullmatch(line.strip()):
            options[found[1]] = found[2] if found.lastindex == 2 else "n"
    return options


def guest_fragments() -> tuple[Path, Path]:
    """The two fragments of every guest kernel: required, and kept-where-known."""
    folder = room("kernels") / "fragments"
    return folder / "guest.config", folder / "guest-optional.config"


def requested(extra: Iterable[tuple[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    """What a guest kernel asks for: (required, optional). The spec's own options win over the fragments'."""
    required_file, optional_file = guest_fragments()
    mine = dict(extra)
    # The spec's own come last: of two members of one choice, kconfig takes the last.
    required = {k: v for k, v in parse(required_file.read_text()).items() if k not in mine} | mine
    optional = {k: v for k, v in parse(optional_file.read_text()).items() if k not in mine}
    return required, optional


def fragment(options: Mapping[str, str]) -> str:
    """Options as a file for KCONFIG_ALLCONFIG."""
    return "".join(f"# {name} is not set\n" if value == "n" else f"{name}={value}\n" for name, value in options.items())


def dropped(wanted: Mapping[str, str], resolved: Mapping[str, str]) -> dict[str, str]:
    """Options that kconfig did not keep as asked, with what they became."""
    return {name: resolved.get(name, "n") for name, value in wanted.items() if resolved.get(name, "n") != value}


def explain_dropped(lost: Mapping[str, str], wanted: Mapping[str, str], known: Iterable[str]) -> UserError:
    """The error for options that were not kept: those that do not exist, and those whose needs are unmet.

    known: names (without CONFIG_) of all symbols in the tree's Kconfig files.
    """
    symbols = set(known)
    missing = [name for name in lost if name.removeprefix("CONFIG_") not in symbols]
    if missing:
        name = missing[0]
        close = difflib.get_close_matches(name.removeprefix("CONFIG_"), symbols, n=3)
        guess = f"did you mean {', '.join('CONFIG_' + c for c in close)}?" if close else "check its spelling"
        return UserError(f"{', '.join(missing)}: no such kconfig symbol in this tree", hint=guess)
    lines = ", ".join(f"{name}={wanted[name]} became {value}" for name, value in lost.items())
    return UserError(
        f"kconfig dropped {lines}",
        hint="what it depends on is not set, or something else selects it: add that to the spec with %CONFIG_...=y",
    )
