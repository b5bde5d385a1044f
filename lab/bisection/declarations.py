"""Declarations: the functions, macros and types of headers, lent to a file that is compiled without them. Pure.

A hunk often uses a function that only the headers of its own end have. The hunk of the header would take away other
functions, and everything would be compiled anew. A source gets such declarations itself, after its #include lines.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

_COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)")
_INCLUDE = re.compile(r"\s*#\s*include\s*(<[^>]+>|\"[^\"]+\")")
_FOR_C = re.compile(r"!defined\(__ASSEMBL(Y|ER)__\)")
_CALLED = re.compile(r"(\w+)\s*\(")
_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_KEYWORDS = {"bool", "char", "int", "long", "short", "sizeof", "struct", "unsigned", "void"}

PLACE = "lent.h"
"""The file that a compiler names for errors in lent declarations."""


class Declaration(NamedTuple):
    """A function, macro or type that a header declares if all conditions hold.

    names: all that it declares: the constants of an enumeration, too.
    """

    conditions: tuple[str, ...]
    text: str
    names: tuple[str, ...]


def declared(*texts: str) -> dict[str, list[Declaration]]:
    """The functions, macros and types that headers declare, by name.

    Variables and the guard against a second #include are left out.
    """
    found: defaultdict[str, list[Declaration]] = defaultdict(list)
    for one in chain.from_iterable(map(_parts, texts)):
        for name in one.names:
            found[name].append(one)
    return found


def lacking(
    before: Mapping[str, Sequence[Declaration]], after: Mapping[str, Sequence[Declaration]], named: Set[str]
) -> dict[str, str]:
    """The text of all declarations of a name that another end lacks, or may lack under its own conditions.

    after, named: the declarations and names in the code of that end. It has a name without a declaration from a macro.
    A declaration for want of another one does not count as conditional.
    """
    found: defaultdict[str, str] = defaultdict(str)
    for name, parts in before.items():
        others = after.get(name, [])
        theirs = {one.conditions for one in others}
        mine = [one for one in parts if one.conditions not in theirs and named.isdisjoint({*one.names} - {name})]
        needed = [[each for each in conditions if name not in _WORD.findall(each)] for conditions in theirs]
        if not mine or (not others and name in named) or not all(needed):
            continue
        unless = [f"!({' && '.join(f'({each})' for each in conditions)})" for conditions in sorted(needed)]
        for one in mine:
            conditions = [*unless, *one.conditions]
            opened = "".join(f"#if {each}\n" for each in conditions)
            found[name] += f"{opened}{one.text}" + "#endif\n" * len(conditions)
    return found


def _parts(text: str) -> Iterator[Declaration]:
    """The declarations of a header, in order."""
    lines: Iterator[str] = iter(_COMMENT_OR_STRING.sub(_without_comment, text).splitlines(keepends=True))
    branches: list[list[str]] = []  # of each #if around: the conditions of its branches so far
    while line := next(lines, ""):
        part = line
        if directive := _DIRECTIVE.match(line):
            while line.endswith("\\\n") and (line := next(lines, "")):
                part += line
            word, rest = directive[1], part.partition(directive[1])[2].strip()
            if word != "define":
                _follow(branches, word, rest)
            elif branches == [[f"!defined({rest})"]]:
                branches[0] = ["1"]  # the guard against a second #include
            elif name := _WORD.match(rest):
                yield Declaration(_conditions(branches), part, (name[0],))
        elif line[:1].isalpha() or line[:1] == "_":
            depth = _depth(line)
            while not (line.startswith("}") or (not depth and line.rstrip().endswith((";", "}")))):
                line = next(lines, "")
                if not line or (not depth and (not line.strip() or _DIRECTIVE.match(line))):
                    # It was the use of a macro, or the file is no C.
                    lines, part = chain([line], lines), ""
                    break
                part += line
                depth += _depth(line)
            if names := _names(part):
                yield Declaration(_conditions(branches), part, names)


def _without_comment(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == '"' else "\n" * match[0].count("\n") or " "


def _follow(branches: list[list[str]], word: str, rest: str) -> None:
    """Enter, change or leave a branch."""
    if word in ("if", "ifdef", "ifndef"):
        branches.append([{"ifdef": f"defined({rest})", "ifndef": f"!defined({rest})"}.get(word, f"({rest})")])
    elif word in ("elif", "else") and branches:
        branches[-1].append(f"({rest})" if word == "elif" else "1")
    elif word == "endif" and branches:
        branches.pop()


def _conditions(branches: Iterable[list[str]]) -> tuple[str, ...]:
    """The condition of each branch that is entered."""
    all_ = [" && ".join([*(f"!({one})" for one in before), last]) for *before, last in branches]
    return tuple(one for one in all_ if one != "1" and not _FOR_C.fullmatch(one))


def _depth(line: str) -> int:
    """The brackets that a line leaves open."""
    return sum((one in "({") - (one in ")}") for one in line)


def _names(declaration: str) -> tuple[str, ...]:
    """The type, or the function, that a declaration declares, or defines for each source by itself; none of others."""
    head, body, members = declaration.partition("{")
    if kind := re.match(r"(?:struct|union|enum)\s*(\w*)\s*\{", declaration):
        constants = re.findall(r"(?:^|,)\s*([A-Za-z_]\w*)", members) if head.startswith("enum") else []
        return tuple(filter(None, (kind[1], *constants)))
    if head.startswith("typedef"):
        return tuple(re.findall(r"(?:\(\*\s*)?(\w+)(?:\)\s*\(.*\))?(?:\[.*\])?;\s*$", declaration, re.DOTALL)[:1])
    if head.startswith("static_assert") or (body and not re.match(r"static\b", head)):
        return ()
    names = [name for name in _CALLED.findall(head) if name not in _KEYWORDS]
    return tuple([*(name for name in names if not name.startswith("__")), *names][:1])


def lent(used: Iterable[str], known: Mapping[str, str], named: Set[str] = frozenset()) -> dict[str, str]:
    """The known declarations that some words name, and those that these need, each after those that it needs.

    named: the names in the code of the other end, whose own declarations a needed one is to have.
    """
    found: dict[str, str] = {}

    def add(word: str, inside: Collection[str]) -> None:
        if word in known and word not in found and word not in inside:
            for other in sorted(set(_WORD.findall(known[word])) - named):
                add(other, {*inside, word})
            found[word] = known[word]

    for word in sorted(used):
        add(word, ())
    return found


def included(lines: Iterable[str]) -> list[str]:
    """The headers that some lines include, in their brackets or quotation marks."""
    return [match[1] for line in lines if (match := _INCLUDE.match(line))]


def with_lent(path: str, source: bytes, declarations: Mapping[str, str], includes: Collection[str] = ()) -> bytes:
    """A source or header with declarations after its first #include lines. The lines behind them keep their numbers.

    A source may include a header that was lent the same. includes: headers that it includes before, if they are there.
    """
    lines = source.splitlines(keepends=True)
    body = next((number for number, line in enumerate(lines) if line.startswith(b"{")), len(lines))
    places: list[tuple[int, int]] = []  # of an #include, or an #endif: how deep it is, and the line behind it
    depth, least = 0, 0
    for number, line in enumerate(lines[:body], 1):
        if directive := _DIRECTIVE.match(line.decode(errors="replace")):
            depth += {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}.get(directive[1], 0)
            if directive[1] in ("include", "endif"):
                least = depth if directive[1] == "include" and not places else min(depth, least)
                places.append((depth, number))
    at = max((number for depth, number in places if depth == least), default=0)
    brought = [f"#if __has_include({name})\n#include {name}\n#endif\n" for name in includes]
    guards = {f"lent_{zlib.crc32(text.encode()):08x}": text for text in declarations.values()}  # a type has many names
    guarded = [f"#ifndef {guard}\n#define {guard}\n{text}#endif\n" for guard, text in guards.items()]
    text = "".join([f'#line 1 "{PLACE}"\n', *brought, *guarded, f'#line {at + 1} "{path}"\n'])
    return b"".join([*lines[:at], text.encode(), *lines[at:]])
