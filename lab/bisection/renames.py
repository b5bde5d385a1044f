"""Renames: identifiers that the newer end has under another name everywhere. Pure.

Between distant releases few hunks build without the others if they call things by names that the other end lacks. The
older end with the newer names is the same kernel in other words, so a name counts only if it is another one throughout.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from lab.bisection.hunks import Hunk, Whole

_TOKEN = re.compile(r"\w+|[^\w\s]")
_NAME = re.compile(r"(?!CONFIG_)[A-Za-z_]\w{3,}")  # kconfig has its options without the prefix
_PART = re.compile(rb"""/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w{3,}""", re.DOTALL)
"""A comment, a string or a name."""

SUFFIXES = (".c", ".h", ".S")
"""Of the files whose names are looked at."""

_LEAST = 2
"""The hunks that make a pair of names a rename."""

_CLEAR = 0.8
"""The part of the hunks with either name in which it stands for the other."""


def candidates(hunks: Iterable[Hunk]) -> dict[str, str]:
    """New names by the old ones, by hunks whose lines differ in names alone.

    A hunk counts only if all names in which it differs are such pairs: with another argument beside it, the new name of
    a function is that of another function.
    """
    all_pairs = [set(_exchanged(hunk)) for hunk in hunks]
    while True:
        found = _clear(all_pairs)
        counting = [pairs for pairs in all_pairs if all(found.get(before) == after for before, after in pairs)]
        if len(counting) == len(all_pairs):
            return found
        all_pairs = counting


def _clear(all_pairs: Iterable[set[tuple[str, str]]]) -> dict[str, str]:
    """The pairs of names of enough hunks, of whose names neither has another partner in many."""
    pairs = Counter(pair for each in all_pairs for pair in each)
    old, new = Counter[str](), Counter[str]()
    for (before, after), count in pairs.items():
        old[before] += count
        new[after] += count
    return {
        before: after
        for (before, after), count in pairs.items()
        if count >= _LEAST and count >= _CLEAR * max(old[before], new[after])
    }


def _exchanged(hunk: Hunk) -> Iterator[tuple[str, str]]:
    """The names that differ, old and new; none if anything else does."""
    sides: defaultdict[str, list[list[str]]] = defaultdict(list)
    for line in hunk.lines:
        sides[line[:1]].append(_TOKEN.findall(line[1:]))
    before, after = sides["-"], sides["+"]
    if hunk.whole or [len(line) for line in before] != [len(line) for line in after]:
        return
    pairs = [pair for lines in zip(before, after, strict=True) for pair in zip(*lines, strict=True)]
    apart = [pair for pair in pairs if pair[0] != pair[1]]
    if all(_NAME.fullmatch(name) for pair in apart for name in pair):
        yield from apart


def everywhere(found: Mapping[str, str], old: Iterable[bytes], new: Iterable[bytes]) -> dict[str, str]:
    """The renames of which the old name is in no code of the newer end, and the new one in none of the older end."""
    before, after = identifiers(old), identifiers(new)
    return {name: now for name, now in found.items() if name not in after and now not in before}


def identifiers(texts: Iterable[bytes]) -> frozenset[str]:
    """The names of four letters and more in the code of some texts."""
    parts = (part for text in texts for part in set(_PART.findall(text)))
    return frozenset(part.decode() for part in parts if part[:1] not in (b"/", b'"'))


def renamed(text: bytes, names: Mapping[str, str]) -> bytes:
    """A text of the older end with the newer names in its code."""
    table = {name.encode(): now.encode() for name, now in names.items()}
    return _PART.sub(lambda match: table.get(match[0], match[0]), text)


def turned_back(path: str, file: Whole, names: Mapping[str, str]) -> Whole:
    """A file that is the older end's but for some hunks, with the older names."""
    if file is None or not path.endswith(SUFFIXES):
        return file
    return file[0], renamed(file[1], {now: name for name, now in names.items()})
