"""Hunks: the places in which two sources differ, and the files that have some of the hunks of one of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property

import msgspec

from lab.core.records import Record

_HEADER = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")
_FUNCTION = re.compile(r"(\w+)\s*\([^)]*\)?[^;]*$")
_SYSCALL = re.compile(r"\bSYSCALL_DEFINE\d\((\w+)")
_ASSEMBLY = re.compile(r"\bSYM_\w*START\w*\((\w+)")
_LABEL = re.compile(r"^(?:SYM_\w*(?:START|LABEL|ALIAS)\w*\()?(\w+)[:,)]", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w{2,}")
_COMMENT_LINE = re.compile(r"[-+ ]\s*(/\*|\*(\s|/|$)|//)")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_OWN = re.compile(r"(?<=#define )\w{3,}|\b[A-Za-z_]\w{2,}\b(?!\s*\()")
_DEFINED = re.compile(r"^(\w[^\n;]*\([^;{]*\))\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)

Whole = tuple[str, bytes] | None
"""A file's mode and content; None if it does not exist."""


class Hunk(Record, frozen=True, kw_only=True, dict=True):
    """One place in which a file differs: lines of the old one, from the first on, and lines of the new one.

    function: the line of source that git names as its context.
    whole: the file is new, gone, or not text, so it is taken or left as one.
    """

    path: str
    old_start: int = 0
    old_count: int = 0
    new_start: int = 0
    new_count: int = 0
    function: str = ""
    lines: list[str] = msgspec.field(default_factory=list)
    whole: bool = False

    def code(self, sides: str) -> list[str]:
        """Its lines of some sides, `-` and `+`, without comments."""
        return [line[1:] for line in self.lines if line[:1] in sides and not _COMMENT_LINE.match(line)]

    def words_of(self, sides: str) -> frozenset[str]:
        """The identifiers on its lines of some sides."""
        return frozenset(_WORD.findall("\n".join(self.code(sides))))

    @property
    def words(self) -> frozenset[str]:
        """The identifiers on its changed lines."""
        return self.words_of("+-")

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that it may belong to: git's context, and the functions that begin in it."""
        return _functions([self.function, *(line[1:] for line in self.lines if re.match(r"[ +-]\w", line))])

    def heads(self, sides: str = "+-") -> frozenset[str]:
        """The functions whose head is on its lines of some sides."""
        return _functions(line[1:] for line in self.lines if line[:1] in sides and re.match(r"\w", line[1:]))

    @property
    def turned(self) -> Hunk:
        """The same place, with the old file as the new one."""
        sides = {"-": "+", "+": "-"}
        return msgspec.structs.replace(
            self, old_start=self.new_start, old_count=self.new_count, new_start=self.old_start,
            new_count=self.old_count, lines=[sides.get(line[:1], line[:1]) + line[1:] for line in self.lines],
        )  # fmt: skip

    @property
    def diff(self) -> list[str]:
        """The lines of the hunk in a diff, without the names of its file."""
        head = f"@@ -{self.old_start},{self.old_count} +{self.new_start},{self.new_count} @@ {self.function}".rstrip()
        return [head, *self.lines]


def _functions(lines: Iterable[str]) -> frozenset[str]:
    """The functions whose heads are on some lines. That of a system call makes three, and profiles name any of them.

    One of assembly has an alias without underscores, as `memset` for `__memset`.
    """
    found = set[str]()
    for line in lines:
        if call := _SYSCALL.search(line):
            found |= {f"{kind}_sys_{call[1]}" for kind in ("__do", "__se", "__x64")}
        elif label := _ASSEMBLY.search(line):
            found |= {label[1], label[1].lstrip("_")}
        elif match := _FUNCTION.search(line):
            found.add(match[1])
    return frozenset(found)


def inlined(text: str, named: Mapping[str, float], symbols: Set[str]) -> dict[str, float]:
    """The functions of a source file whose code is in that of others, with the values of these.

    named: the others. A compiler has put a function into all of its callers if the kernel's symbols lack it.
    """
    words: dict[str, set[str]] = {}
    for head, body in _DEFINED.findall(text):
        words |= {name: set(_WORD.findall(body)) for name in _functions(head.split("\n")[:1])}
    found: dict[str, float] = {}
    callers = sorted(words.keys() & named.keys(), key=lambda name: named[name])
    while callers:
        caller = callers.pop()
        for name in (words[caller] & words.keys()) - symbols - named.keys() - found.keys():
            found[name] = named[caller] if caller in named else found[caller]
            callers.append(name)
    return found


def labels(text: str) -> set[str]:
    """The labels of an assembly source, those inside of its functions included: a profile may name any of them."""
    return set(_LABEL.findall(text))


def one_sided(hunks: Sequence[Hunk], old: Iterable[str], new: Iterable[str]) -> list[str]:
    """The identifiers in some hunks that only the old texts of their files, or only the new ones, have.

    Those of comments do not count, nor does a function that is called and not defined in a hunk: both ends may have it.
    """
    before, after = ({word for text in texts for word in _WORD.findall(_COMMENT.sub("", text))} for texts in (old, new))
    heads = frozenset[str]().union(*(hunk.heads() for hunk in hunks))
    own = {word for hunk in hunks for word in _OWN.findall("\n".join(hunk.code("+-")))}
    return sorted((before ^ after) & (heads | own))


class Difference(Record, frozen=True, kw_only=True, dict=True):
    """`difference.json`: all hunks between two ends that a build reads, and the functions whose cost changed.

    old_tree, new_tree: git's ids of both sources, the older one with the newer names.
    names: these, by the older ones; none if few files differ.
    functions: by name, the share of all that moved. Those that are inlined into one have the share of that one.
    one_end: the functions that one end alone runs, the most expensive first.
    files: the number of differing files, with the files that no build reads.
    one_sided: the names on changed lines that only one end's files have; None if too many files differ to look at.
    """

    schema: int = 1
    old_tree: str
    new_tree: str
    hunks: list[Hunk]
    functions: dict[str, float] = msgspec.field(default_factory=dict)
    one_end: list[str] = msgspec.field(default_factory=list)
    files: int = 0
    one_sided: list[str] | None = None
    names: dict[str, str] = msgspec.field(default_factory=dict)

    @cached_property
    def by_path(self) -> dict[str, list[int]]:
        """The numbers of the hunks of each file, in order."""
        found: dict[str, list[int]] = {}
        for number, hunk in enumerate(self.hunks):
            found.setdefault(hunk.path, []).append(number)
        return found

    @cached_property
    def words(self) -> list[frozenset[str]]:
        """The identifiers on the changed lines of each hunk."""
        return [hunk.words for hunk in self.hunks]

    @cached_property
    def mentions(self) -> dict[str, list[int]]:
        """The numbers of the hunks that have an identifier on their changed lines, in order."""
        found: dict[str, list[int]] = {}
        for number, words in enumerate(self.words):
            for word in words:
                found.setdefault(word, []).append(number)
        return found

    @property
    def turned(self) -> Difference:
        """The same hunks with the same numbers, with the old end as the new one."""
        hunks = [hunk.turned for hunk in self.hunks]
        return msgspec.structs.replace(self, old_tree=self.new_tree, new_tree=self.old_tree, hunks=hunks)

    def paths(self, numbers: Collection[int]) -> list[str]:
        """The files of some hunks, in order."""
        return list(dict.fromkeys(self.hunks[number].path for number in sorted(numbers)))

    def describe(self, numbers: Collection[int], most: int = 3) -> str:
        """Some hunks in a few words: their files, and how many of the hunks of each."""
        names = []
        for path in self.paths(numbers):
            all_, mine = self.by_path[path], [number for number in self.by_path[path] if number in numbers]
            names.append(path if len(mine) == len(all_) else f"{path} ({len(mine)} of {len(all_)} hunks)")
        more = f" and {len(names) - most} more" if len(names) > most else ""
        return ", ".join(names[:most]) + more

    def diff(self, numbers: Collection[int]) -> list[str]:
        """Some hunks as the lines of a diff from the old end to the new one."""
        lines = []
        for path in self.paths(numbers):
            lines += [f"--- a/{path}", f"+++ b/{path}"]
            lines += [line for n in self.by_path[path] if n in numbers for line in self.hunks[n].diff]
        return lines


def parse(diff: str) -> Iterator[Hunk]:
    """The hunks of a diff of git's without context, one for each place."""
    for section in re.split(r"^diff --git .*\n", diff, flags=re.MULTILINE)[1:]:
        head, mark, body = section.partition("\n@@ ")
        names = dict(re.findall(r"^(---|\+\+\+) (?:[ab]/)?(.*)$", head, re.MULTILINE))
        path = next((name for name in (names.get("+++"), names.get("---")) if name and name != "/dev/null"), "")
        alone = re.search(r"^(new file|deleted file|old) mode|^GIT binary|^Binary files", head, re.MULTILINE)
        if alone or not mark:
            path = path or _named(head)
            lines = [line for line in body.splitlines() if line[:1] in "+-"]
            yield Hunk(path=path, whole=True, lines=lines, new_count=len(lines))
            continue
        yield from _hunks(path, f"@@ {body}")


def _named(head: str) -> str:
    match = re.search(r"^Binary files (?:a/(.*?)|/dev/null) and (?:b/(.*?)|/dev/null) differ$", head, re.MULTILINE)
    return (match[2] or match[1] or "") if match else ""


def _hunks(path: str, body: str) -> Iterator[Hunk]:
    for part in re.split(r"^(?=@@ )", body, flags=re.MULTILINE):
        lines = part.rstrip("\n").split("\n")
        if match := _HEADER.match(lines[0]):
            counts = [int(number) if number is not None else 1 for number in match.groups()[:4]]
            yield Hunk(
                path=path, old_start=counts[0], old_count=counts[1], new_start=counts[2], new_count=counts[3],
                function=match[5], lines=lines[1:],
            )  # fmt: skip


Choice = Sequence[tuple[Hunk, bool]]
"""The hunks of one file, in order, each with True if it is to be as the old file has it."""


def mixed(old: Whole, new: Whole, choice: Choice) -> Whole:
    """The new file with some of its hunks as the old one has them."""
    if any(hunk.whole for hunk, _ in choice) or old is None or new is None:
        return old if all(taken for _, taken in choice) else new
    before, after = old[1].splitlines(keepends=True), new[1].splitlines(keepends=True)
    content: list[bytes] = []
    at = 0
    for hunk, taken in choice:
        begin = _index(hunk.new_start, hunk.new_count)
        content += after[at:begin]
        at = begin + hunk.new_count
        first = _index(hunk.old_start, hunk.old_count)
        content += before[first : first + hunk.old_count] if taken else after[begin:at]
    return new[0], b"".join([*content, *after[at:]])


def _index(start: int, count: int) -> int:
    """The first line of a range, from 0 on. git counts from 1, and an empty range begins after its line."""
    return start - 1 if count else start


def distances(line: int, choice: Choice) -> list[int]:
    """The distance of each hunk of a choice from a line of the mixed file, counted from 1; 0 if it has the line."""
    found, moved = [], 0
    for hunk, taken in choice:
        count = hunk.old_count if taken else hunk.new_count
        first = _index(hunk.new_start, hunk.new_count) + 1 + moved
        found.append(0 if hunk.whole else max(first - line, line - first - max(count, 1) + 1, 0))
        moved += count - hunk.new_count
    return found
