"""The kernel spec as it is typed: taken apart and checked, with nothing looked up.

    REV[+PATCH...]   worktree:PATH[+PATCH...]   deb:VERSION-OR-PACKAGE   file:PATH
    each with  %CONFIG_FOO=y[,...]  (kconfig)  and  @key=value[,...]  (settings), in either order

Revisions contain `@{1}` and `^{/x}`, package versions `+`, paths anything. So an `@` or `%` opens a suffix
only when a word and `=` follow, and a `+` sets off a patch only when what follows is called like one, is
a file, or is the name of patches that come with the lab.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Literal, NoReturn

from lab.core.errors import UserError
from lab.core.records import Record
from lab.kernels import default_tree

Kind = Literal["rev", "worktree", "deb", "file"]
Pair = tuple[str, str]

_SUFFIX = re.compile(r"@(?=[A-Za-z_][\w./-]*=)|%(?=\w+=)")
_NEXT_SETTING = re.compile(r",(?=[A-Za-z_][\w./-]*=)")
_NEXT_SYMBOL = re.compile(r",(?=\w+=)")
_PATCH_NAMES = (".patch", ".diff", ".mbox")
_THP = ("always", "madvise", "never")
_DEFRAG = ("always", "defer", "defer+madvise", "madvise", "never")


class ParsedSpec(Record, frozen=True, kw_only=True):
    """A spec in its parts. `kconfig` names carry their CONFIG_ prefix; patches are as typed."""

    text: str
    kind: Kind
    body: str
    patches: tuple[str, ...] = ()
    kconfig: tuple[Pair, ...] = ()
    settings: tuple[Pair, ...] = ()


def parse(text: str) -> ParsedSpec:
    """Take a spec apart; `UserError` says what is malformed."""
    if any(ord(char) < 32 for char in text):
        raise UserError(f"kernel spec {text!r} contains a control character")
    rest, kconfig, settings = _split_suffixes(text)
    kind, rest = _kind(rest)
    body, patches = _split_patches(kind, rest)
    if not body:
        raise UserError(f"kernel spec {text!r} names no kernel", hint=_EXAMPLES)
    if kind in ("deb", "file"):
        for given, what in ((patches, "patches"), (kconfig, "kconfig changes")):
            if given:
                raise UserError(
                    f"{text!r}: {what} need a build, and {kind}: names a kernel that is built already",
                    hint="give a revision, or worktree:PATH",
                )
    return ParsedSpec(text=text, kind=kind, body=body, patches=patches, kconfig=kconfig, settings=settings)


_EXAMPLES = "e.g. v6.12, efa7df3e3bb5^, v6.12+fix.patch, worktree:., deb:6.12, file:PATH, v6.12@thp=never"


def _split_suffixes(text: str) -> tuple[str, tuple[Pair, ...], tuple[Pair, ...]]:
    """The spec without its suffixes, the kconfig changes, and the settings."""
    kconfig: dict[str, str] = {}
    settings: dict[str, str] = {}
    starts = [found.start() for found in _SUFFIX.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        suffix = text[start + 1 : end]
        if text[start] == "@":
            _collect(settings, (_setting(part) for part in _NEXT_SETTING.split(suffix)))
        else:
            _collect(kconfig, (_symbol(part) for part in _NEXT_SYMBOL.split(suffix)))
    return text[: starts[0]] if starts else text, tuple(kconfig.items()), tuple(settings.items())


def _collect(into: dict[str, str], pairs: Iterable[Pair]) -> None:
    for name, value in pairs:
        if into.setdefault(name, value) != value:
            raise UserError(f"{name} is given twice: {into[name]!r} and {value!r}")


def _kind(text: str) -> tuple[Kind, str]:
    for kind in ("worktree", "deb", "file"):
        if text.startswith(f"{kind}:"):
            return kind, text.removeprefix(f"{kind}:")
    return "rev", text


def _split_patches(kind: Kind, text: str) -> tuple[str, tuple[str, ...]]:
    """Cut patches off from the right, for as long as there is one."""
    patches: list[str] = []
    while not (kind in ("worktree", "file") and Path(text).expanduser().exists()):
        cut = _last_patch(text)
        if cut is None:
            break
        patches.insert(0, text[cut + 1 :])
        text = text[:cut]
    return text, tuple(patches)


def _last_patch(text: str) -> int | None:
    """Where the `+` of the last patch is. A file that exists wins, since its own path may contain a `+`."""
    places = [index for index, char in enumerate(text) if char == "+"][::-1]
    for place in places:
        if text[place + 1 :] and Path(text[place + 1 :]).expanduser().is_file():
            return place
    shipped = default_tree.names() if places else []
    return next((place for place in places if _is_patch_name(text[place + 1 :], shipped)), None)


def _is_patch_name(name: str, shipped: list[str]) -> bool:
    return name in shipped or name.endswith(_PATCH_NAMES)


def _symbol(part: str) -> Pair:
    """One kconfig change, checked."""
    name, _, value = part.partition("=")
    name = name.removeprefix("CONFIG_")
    if not re.fullmatch(r"[A-Z0-9][A-Za-z0-9_]*", name):
        raise UserError(f"{name!r} is not the name of a kconfig symbol", hint=f"did you mean {name.upper()}?")
    if not re.fullmatch(r'[ynm]|-?\d+|0[xX][0-9a-fA-F]+|"[^"\\]*"', value):
        raise UserError(
            f"CONFIG_{name}={value}: not a kconfig value",
            hint='use y, n, m, a number, or a "string" in quotes',
        )
    return f"CONFIG_{name}", value


def _setting(part: str) -> Pair:
    """One setting, checked."""
    key, _, value = part.partition("=")
    check_setting(key, value)
    return key, value


def check_setting(key: str, value: str) -> None:
    """Refuse a setting that does not exist, or a value that it cannot have."""
    check = _FIXED.get(key)
    if check is None:
        group, dot, name = key.partition(".")
        check = _OPEN.get(group + dot)
        if check is None or not name:
            _unknown_setting(key)
    check(key, value)


def _unknown_setting(key: str) -> NoReturn:
    known = [*_FIXED, *(f"{group}NAME" for group in _OPEN)]
    close = difflib.get_close_matches(key, [*known, "sysctl", "cmdline", "env"], n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UserError(f"unknown setting {key!r}", hint=f"{hint}The settings are {', '.join(known)}")


def _one_of(*choices: str) -> Check:
    def check(key: str, value: str) -> None:
        if value not in choices:
            raise UserError(f"{key}={value}: not a value of {key}", hint=f"use one of {', '.join(choices)}")

    return check


def _count(key: str, value: str) -> None:
    if not (value.isascii() and value.isdigit()):
        raise UserError(f"{key}={value}: not a value of {key}", hint="use a whole number, 0 or more")


def _sysctl(key: str, value: str) -> None:
    if not value.strip():
        raise UserError(f"{key}= has no value")
    if re.search(r"(^|[./])\.*([./]|$)", key.removeprefix("sysctl.")):
        raise UserError(f"{key!r} is not the name of a sysctl", hint="write it like sysctl.vm.swappiness=1")


def _cmdline(key: str, value: str) -> None:
    if re.search(r"[\s\"']", value):
        raise UserError(f"{key}={value!r}: one kernel parameter has no spaces or quotes", hint="give each by itself")


def _env(key: str, value: str) -> None:
    name = key.removeprefix("env.")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UserError(f"{name!r} is not the name of an environment variable", hint="e.g. env.MALLOC_ARENA_MAX=1")
    if name.startswith("LAB_"):
        raise UserError(f"{key}: names that begin with LAB_ are the lab's own")


Check = Callable[[str, str], None]
_FIXED: dict[str, Check] = {
    "thp": _one_of(*_THP),
    "thp.defrag": _one_of(*_DEFRAG),
    "hugepages": _count,
}
_OPEN: dict[str, Check] = {"sysctl.": _sysctl, "cmdline.": _cmdline, "env.": _env}
