"""Suspects: the order of the hunks, and those to add or leave out if a kernel does not build. Pure.

The first suspects are the files of the functions whose cost changed. Hunks that share a name with them follow, such as
those of a header, then the files beside them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import PurePosixPath
from typing import NamedTuple

from lab.bisection.hunks import Difference, distances
from lab.compare.explain import FunctionKey

_QUOTED = re.compile(r"[\u2018'`]([^\u2018\u2019'`]+)[\u2019']")
_MISSING = re.compile(
    r"undeclared|no member named|implicit declaration|unknown type name|undefined reference|incomplete type|"
    r"storage size|not defined|No such file"
)
_TWICE = re.compile("redefinition of|multiple definition of")
_MEMBER = re.compile(r".*no member named (\S+).*")
_WORD = re.compile(r"[A-Za-z_]\w+")
_PLACE = re.compile(r"(?:^|[\s/])((?:[\w.+-]+/)*[\w.+-]+\.[chS]):(\d+)(?::\d+)?: (?:fatal )?[eE]rror:")
_UNBALANCED = re.compile(r"unterminated #|#\w+ without #if|#\w+ after #else")
_CONDITION = re.compile(r"\s*#\s*(if|el|endif)")
_NO_FILE = re.compile(r"fatal error: (\S+): No such file")
_TARGET = re.compile(r"No rule to make target '([^']+)\.o'")

_KEYWORDS = {"char", "const", "enum", "int", "long", "short", "static", "struct", "union", "unsigned", "void"}

MOST_ADDED = 24
"""More hunks than that share a name of no meaning here: such a name is not followed."""

_RARE = 12

_FIRST_FILES, _FIRST_FUNCTIONS, _FIRST_CALLED = 4, 4, 2
"""Files, functions, and functions that one end alone runs, that are tried one by one."""

_MOST_APART = 12
"""Functions of one group that are tried one by one, if the group cannot be measured."""

_LEAST = 0.005
"""The least share of the whole change that makes a function a suspect."""


def named(changes: Mapping[FunctionKey, float]) -> dict[str, float]:
    """The kernel's functions that made a change, and their part of it, the largest first."""
    own = {name: change for (space, name), change in changes.items() if space == "kernel"}
    least = _LEAST * sum(map(abs, own.values()))
    return {name: own[name] for name in sorted(own, key=lambda name: -abs(own[name])) if abs(own[name]) > least}


def netted(changes: Mapping[str, float], together: Iterable[Set[str]]) -> dict[str, float]:
    """The changes of functions without the cost that only went from one label of a source to another one.

    together: the labels of each source. A profile counts code without branches for the label at which it begins, so
    code behind a branch that is gone counts for another label.
    """
    found = dict(changes)
    for labels in together:
        own = [changes[name] for name in labels & changes.keys()]
        if any(own):
            left = abs(sum(own)) / sum(map(abs, own))
            found |= {name: changes[name] * left for name in labels & changes.keys()}
    return {name: found[name] for name in sorted(found, key=lambda name: -abs(found[name]))}


def inside(difference: Difference) -> list[list[int]]:
    """The hunks in functions whose cost changed, a group a function, the largest change first.

    Between distant releases such a group often builds, and its whole file does not. The functions that were put into
    one have its share, and so are in its group. Then come all hunks with the name of a function that one end alone
    runs: inline code of a header may call it, which no profile names.
    """
    groups: defaultdict[tuple[float, str], list[int]] = defaultdict(list)
    for path, numbers in difference.by_path.items():
        # A header declares functions: its inline code has no function of its own to be named.
        for number in likely(difference, numbers) if not path.endswith(".h") else ():
            share = max(difference.functions.get(name, 0.0) for name in difference.hunks[number].functions)
            groups[share, path].append(number)
    called = [difference.mentions.get(name, []) for name in difference.one_end]
    return [
        *(groups[key] for key in sorted(groups, key=lambda key: -key[0])[:_FIRST_FUNCTIONS]),
        *[group for group in called if group and len(group) <= MOST_ADDED][:_FIRST_CALLED],
    ]


def by_function(difference: Difference, numbers: Collection[int]) -> list[list[int]]:
    """Some hunks in functions whose cost changed, apart by the function; none if all are in the same."""
    groups: defaultdict[frozenset[str], list[int]] = defaultdict(list)
    for number in likely(difference, numbers):
        groups[frozenset(difference.hunks[number].functions & difference.functions.keys())].append(number)
    return list(groups.values())[:_MOST_APART] if len(groups) > 1 else []


def tiers(difference: Difference) -> list[list[int]]:
    """The hunks in groups of falling suspicion; each group holds whole files that no group before it has."""
    by_path, words = difference.by_path, difference.words
    named = difference.functions
    scores: defaultdict[str, float] = defaultdict(float)
    for number, hunk in enumerate(difference.hunks):
        within = 0.0 if hunk.path.endswith(".h") else sum(named.get(name, 0.0) for name in hunk.functions)
        mentioned = 0.0 if hunk.whole else sum(named[name] for name in words[number] & named.keys())
        scores[hunk.path] += 3 * within + mentioned
    # A file with many hunks hardly builds without those of other files.
    each = {path: score / len(by_path[path]) for path, score in scores.items() if score > 0}
    first = sorted(each, key=lambda path: -each[path])
    found, seen = [], set[str]()
    alone = [[path] for path in first[:_FIRST_FILES]]
    for paths in (*alone, _akin(difference, first[:_FIRST_FILES]), first[_FIRST_FILES:], _beside(difference, first)):
        fresh = [path for path in dict.fromkeys(paths) if path not in seen]
        seen.update(fresh)
        found.append([number for path in fresh for number in by_path[path]])
    found.append([number for path in by_path if path not in seen for number in by_path[path]])
    return [tier for tier in found if tier]


def _akin(difference: Difference, paths: Sequence[str]) -> list[str]:
    """The files with hunks that share a rare name of only one end with those of some files, most such names first."""
    mine = [number for path in paths for number in difference.by_path[path]]
    one_sided = _words(difference, mine, "-") ^ _words(difference, mine, "+")
    rare = {word for word in one_sided if len(difference.mentions.get(word, [])) <= _RARE}
    shared: Counter[str] = Counter()
    for number, hunk in enumerate(difference.hunks):
        if hunk.path not in paths and (common := len(difference.words[number] & rare)):
            shared[hunk.path] += common
    return [path for path, common in shared.most_common(4) if common > 1]


def _beside(difference: Difference, paths: Sequence[str]) -> list[str]:
    folders = {PurePosixPath(path).parent for path in paths}
    return [path for path in difference.by_path if PurePosixPath(path).parent in folders]


def likely(difference: Difference, numbers: Collection[int]) -> list[int]:
    """The hunks, among some, in a function whose cost changed."""
    return [number for number in numbers if difference.hunks[number].functions & difference.functions.keys()]


def by_suspicion(difference: Difference, numbers: Collection[int]) -> list[int]:
    """Some hunks: first those in functions whose cost changed, then those that mention such a function."""
    named = difference.functions

    def score(number: int) -> float:
        inside = sum(named.get(name, 0.0) for name in difference.hunks[number].functions)
        return -(3 * inside + sum(named[name] for name in difference.words[number] & named.keys()))

    return sorted(sorted(numbers), key=score)


def clusters(difference: Difference, numbers: Sequence[int]) -> list[list[int]]:
    """Hunks that share a name which only one end has, or a function whose head changed, put together.

    One hardly builds without the other. In the given order. If it is not known which names the ends have, those of the
    changed lines stand for them.
    """
    before, after = (_words(difference, numbers, side) for side in "-+")
    known = difference.one_sided
    heads = frozenset[str]().union(*(difference.hunks[number].heads() for number in numbers))
    one_sided = heads | (before ^ after if known is None else set(known))
    groups: list[tuple[list[int], set[str]]] = []
    for number in numbers:
        words = set(difference.words[number] & one_sided)
        joined = [group for group in groups if group[1] & words]
        members = [member for group in joined for member in group[0]]
        groups = [group for group in groups if group not in joined]
        groups.append(([*members, number], words.union(*(group[1] for group in joined))))
    return sorted((members for members, _ in groups), key=lambda members: numbers.index(members[0]))


def together(difference: Difference, numbers: Collection[int]) -> list[int]:
    """Some hunks, and those that hardly build without one of them."""
    groups = clusters(difference, range(len(difference.hunks)))
    return sorted(number for group in groups if not set(group).isdisjoint(numbers) for number in group)


def _words(difference: Difference, numbers: Collection[int], side: str) -> set[str]:
    """The names on the lines of one side of some hunks."""
    return {word for number in numbers for line in difference.hunks[number].code(side) for word in _WORD.findall(line)}


class Complaint(NamedTuple):
    """Places and names in the errors of a failed build. targets: files to make. includes: files that are not there.

    places: files and lines, preferably of errors that miss nothing. everywhere: those of all errors.
    names: identifiers. missing, twice: the identifiers that are not there, or there twice, and not only of another
    type. members: the missing ones that are members of a structure.
    unbalanced: the files that have an #if without its #endif, or the other way around.
    """

    places: list[tuple[str, int]]
    everywhere: list[tuple[str, int]]
    names: list[str]
    missing: list[str]
    members: list[str]
    twice: list[str]
    targets: list[str]
    includes: list[str]
    unbalanced: list[str]


def complaint(errors: Sequence[str]) -> Complaint:
    """The names in the errors of compilers, assemblers, linkers and make."""
    missing = [line for line in errors if _MISSING.search(line)]
    twice = [line for line in errors if _TWICE.search(line)]
    unbalanced = [line for line in errors if _UNBALANCED.search(line)]
    others = [line for line in errors if line not in (*missing, *twice, *unbalanced)]
    targets, includes = (pattern.findall("\n".join(errors)) for pattern in (_TARGET, _NO_FILE))
    places, everywhere = _places(others or errors), _places(errors)
    torn = list(dict.fromkeys(path for path, _ in _places(unbalanced)))
    members = _names(line for line in missing if _MEMBER.match(line))
    return Complaint(
        places, everywhere, _names(errors), _names(missing), members, _names(twice), targets, includes, torn
    )


def _places(errors: Sequence[str]) -> list[tuple[str, int]]:
    return [(match[1], int(match[2])) for match in _PLACE.finditer("\n".join(errors))]


def _names(errors: Iterable[str]) -> list[str]:
    """The identifiers in quotation marks, each once.

    The structure that lacks a member is there, and so is a compiler's guess: neither counts.
    """
    said = (_MEMBER.sub(r"\1", line.partition("; did you mean")[0]) for line in errors)
    words = (word for line in said for quoted in _QUOTED.findall(line) for word in _WORD.findall(quoted))
    return [name for name in dict.fromkeys(words) if name not in _KEYWORDS]


def additions(difference: Difference, taken: Collection[int], said: Complaint) -> list[int]:
    """More hunks to take: they bring a name that a failed build misses, or remove one that it has twice.

    If none brings it, and a taken hunk takes it away, they are the hunks that use it.
    Hunks in which it fails are among them, although they are as the new end has them: hunks that they need were taken.
    If that finds none, they are the hunks in which it fails for want of a name, or else the next ones in their files.
    A file that is not there is brought by its own hunk, or by a line of kbuild.
    A file whose conditions do not fit together gets all hunks with conditions.
    """
    found = [
        number
        for path in said.unbalanced
        for number in difference.by_path.get(_source(difference, path), [])
        if number not in taken and any(_CONDITION.match(line) for line in difference.hunks[number].code("+-"))
    ]
    if found and len(found) <= MOST_ADDED:
        return found
    visible = {_source(difference, path) for path, _ in said.everywhere}
    for names, side in ((said.missing, "-"), (said.twice, "+")):
        for name in names:
            mention = difference.mentions.get(name, [])
            others = [n for n in mention if n not in taken]
            here = {n for n in others if difference.hunks[n].path in visible}
            more = [n for n in others if name in _words(difference, [n], side)]
            more = [n for n in more if name in difference.hunks[n].heads(side)] or more
            more = [n for n in more if n in here or difference.hunks[n].path.endswith(".h")] or more
            if side == "-" and not more and any(name in _gone(difference, n) for n in mention if n in taken):
                # Elsewhere it may be a member of another structure.
                more = sorted(here) if name in said.members and here else others
            found += more if len(more) <= _RARE else []
    for target in said.targets:
        folder = PurePosixPath(target).parent
        found += [
            number
            for number, hunk in enumerate(difference.hunks)
            if number not in taken and PurePosixPath(hunk.path) in (folder / "Makefile", PurePosixPath(f"{target}.c"))
        ]
    for included in said.includes:
        found += [number for number in _bringing(difference, PurePosixPath(included).name) if number not in taken]
    found += [number for number, away in _near(difference, taken, said.places, taken_ones=False) if not away]
    if not found:
        near = list(_near(difference, taken, said.everywhere, taken_ones=False))
        found = [number for number, away in near if not away] or [number for number, _ in near]
    found = list(dict.fromkeys(found))
    return found if len(found) <= MOST_ADDED else []


def _bringing(difference: Difference, name: str) -> Iterator[int]:
    """The headers of a name that the old end alone has, and the lines by which kbuild makes one from a generic one."""
    for number, hunk in enumerate(difference.hunks):
        path = PurePosixPath(hunk.path)
        if hunk.whole:
            brings = path.name == name and not hunk.code("+")
        else:
            brings = path.name == "Kbuild" and any(name in line.split() for line in hunk.code("-"))
        if brings:
            yield number


def omissions(difference: Difference, taken: Collection[int], said: Complaint) -> list[int]:
    """The taken hunks to leave out: they take a missing name away, or have a line at which a build fails.

    If there are none, the next ones in their files, and last the hunks with a name from the complaint.
    """
    near, missing = list(_near(difference, taken, said.places, taken_ones=True)), frozenset(said.missing)
    mention = [number for number in sorted(taken) if difference.words[number] & missing]
    found = [number for number in mention if _gone(difference, number) & missing]
    found += [number for number, away in near if not away]
    found = found or [number for number, _ in near]
    if not found:
        names = set(said.names)
        found = [number for number in sorted(taken) if difference.words[number] & names]
    return list(dict.fromkeys(found))


def _gone(difference: Difference, number: int) -> set[str]:
    """The names that a hunk takes away when it is taken: those of the new end alone."""
    return _words(difference, [number], "+") - _words(difference, [number], "-")


def _near(
    difference: Difference, taken: Collection[int], places: Sequence[tuple[str, int]], *, taken_ones: bool
) -> Iterator[tuple[int, int]]:
    """For each place the nearest hunk of its file that is taken, or that is not, and its distance."""
    for path, line in places:
        numbers = difference.by_path.get(_source(difference, path), [])
        away = distances(line, [(difference.hunks[number], number in taken) for number in numbers])
        near = [each for each in zip(away, numbers, strict=True) if (each[1] in taken) == taken_ones]
        if near:
            yield min(near)[1], min(near)[0]


def _source(difference: Difference, path: str) -> str:
    """A path of a build log as the tree has it: make writes it from the build's folder, or from the root."""
    parts = path.split("/")
    suffixes = ("/".join(parts[cut:]) for cut in range(len(parts)))
    return next((suffix for suffix in suffixes if suffix in difference.by_path), path)
