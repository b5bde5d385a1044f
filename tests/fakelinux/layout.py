"""Layouts: which commits a test history consists of, as a line of words.

    neutral*20 culprit neutral*9 breaks-build neutral*2 mends-build merge(neutral*3 | neutral*4) fix

Each word is one commit (`*N`: so many) on top of the one before. `merge(SIDE | MAIN)` forks: both go on from the
same commit, then the side is merged into the main line; both may hold anything, other merges too. `base` is no
commit: it marks where the range to search begins, which is otherwise the commit that the history starts from.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .kinds import KINDS, NEUTRAL

BASE = "base"
_TOKEN = re.compile(r"\s*(?:(?P<word>[a-z][a-z-]*)(?:\*(?P<count>\d+))?|(?P<mark>[()|]))")


@dataclass(frozen=True, slots=True)
class Merge:
    """A side branch and what the main line did meanwhile."""

    side: Sequence[Item]
    main: Sequence[Item]


Item = str | Merge


class LayoutError(ValueError):
    """A layout that cannot be read, or that makes no history."""


def parse(text: str) -> list[Item]:
    """The steps that a layout's words stand for."""
    tokens = list(_tokens(text))
    items = _sequence(tokens)
    if tokens:
        raise LayoutError(f"{tokens[0]!r} without a merge( before it")
    return items


def _tokens(text: str) -> Iterator[str]:
    position, text = 0, text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise LayoutError(f"cannot read {text[position:]!r}")
        position = found.end()
        word = found["word"] or found["mark"]
        yield from [word] * int(found["count"] or 1)


def _sequence(tokens: list[str]) -> list[Item]:
    """Take tokens up to a mark that belongs to somebody else."""
    items: list[Item] = []
    while tokens and tokens[0] not in (")", "|"):
        word = tokens.pop(0)
        if word == "merge":
            items.append(_merge(tokens))
        elif word == BASE or word in KINDS:
            items.append(word)
        else:
            raise LayoutError(f"there is no kind of commit called {word!r}; there are {', '.join(KINDS)}")
    return items


def _merge(tokens: list[str]) -> Merge:
    _expect(tokens, "(")
    side = _sequence(tokens)
    _expect(tokens, "|")
    main = _sequence(tokens)
    _expect(tokens, ")")
    if not side:
        raise LayoutError("a merge needs a commit on its side")
    return Merge(side, main)


def _expect(tokens: list[str], mark: str) -> None:
    if not tokens or tokens.pop(0) != mark:
        raise LayoutError(f"a merge is written merge(SIDE | MAIN): no {mark!r}")


def picker(purpose: str, seed: int) -> random.Random:
    """Chances that depend on a purpose and a seed alone."""
    return random.Random(f"{purpose} {seed}")  # noqa: S311  (nothing here is secret)


def linear(commits: int = 64, *, seed: int = 1, culprit_at: int | None = None) -> str:
    """Neutral commits on a line, the culprit among them: the given one (from 1), or one that the seed picks."""
    if commits < 1 or not 1 <= (culprit_at or 1) <= commits:
        raise LayoutError(f"no place {culprit_at} for the culprit among {commits} commits")
    place = culprit_at or picker("linear", seed).randint(1 + commits // 8, commits - commits // 8)
    return _words(place - 1, "culprit", commits - place)


def story(neutral: int = 64, *, seed: int = 1) -> str:
    """Everything there is: culprit and fix, a smaller second change, three kinds of broken stretches, a merge.

    The neutral commits are spread over 14 places by the seed, at least two each.
    """
    places = 14
    if neutral < 2 * places:
        raise LayoutError(f"the story needs at least {2 * places} neutral commits")
    cuts = sorted(picker("story", seed).choices(range(neutral - 2 * places + 1), k=places - 1))
    shares = [2 + after - before for before, after in zip([0, *cuts], [*cuts, neutral - 2 * places], strict=True)]
    n = iter(f"{NEUTRAL}*{share}" for share in shares)
    return (
        f"slowdown base {next(n)} merge({next(n)} | {next(n)}) {next(n)}"
        f" breaks-build {next(n)} mends-build {next(n)} culprit {next(n)}"
        f" breaks-boot {next(n)} mends-boot {next(n)} speedup {next(n)}"
        f" breaks-workload {next(n)} mends-workload {next(n)} fix {next(n)} follow-up {next(n)}"
    )


def _words(*parts: int | str) -> str:
    """A layout of kinds and of numbers of neutral commits."""
    words = (f"{NEUTRAL}*{part}" if isinstance(part, int) else part for part in parts if part != 0)
    return " ".join(words)


def named(text: str, *, seed: int = 1) -> str:
    """A layout by name (`linear64`, `story`, also `linear10`, `story100`), or the text itself."""
    found = re.fullmatch(r"(linear|story)(\d*)", text)
    if found is None:
        return text
    make = linear if found[1] == "linear" else story
    return make(int(found[2] or 64), seed=seed)
