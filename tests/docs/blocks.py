"""Commands and their output as the documentation shows them, and whether a real output is that.

A block is fenced as `console`: lines behind `$ ` are commands, the lines after one are what it prints on stdout.
`...` stands for anything in a line, or for any lines where it is alone. In front of a block, the comment
`<!-- not run: REASON -->` says that its commands are only parsed; in front of another kind of block,
`<!-- file: PATH -->` says which file it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"(?:^<!-- not run: (?P<why>.+?) -->\n+)?^```console\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^<!-- file: (?P<path>\S+) -->\n```\w+\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_CONDITIONS = re.compile(r"fingerprint \w+|Linux [\d.]+|QEMU [\d.]+|modelled cycles \(\w+ [\w-]+( \w+)+\)")


@dataclass(frozen=True)
class Command:
    """One command of a page, and the output that the page shows."""

    text: str
    output: str
    not_run: str | None


def commands(page: str) -> Iterator[Command]:
    for block in _FENCE.finditer(page):
        for part in re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]:
            text, _, output = re.sub(r"\\\n\s*", "", part).partition("\n")
            yield Command(text=text, output=output, not_run=block["why"])


def files(page: str) -> dict[str, str]:
    """The files that a Markdown page has its reader write, by path."""
    return {found["path"]: found["body"] for found in _FILE.finditer(page)}


def same_conditions(shown: str, real: str) -> bool | None:
    """Tell if two outputs promise the same numbers: kernel, QEMU, fingerprint and cost model; None if silent."""
    said, real_ones = ({one[0] for one in _CONDITIONS.finditer(text)} for text in (shown, real))
    return said == real_ones if said else None


def mismatch(shown: str, real: str, *, exact: bool) -> str:
    """The first line that is shown and not printed; nothing if the output is the one that is shown, spaces aside.

    Where conditions differ (`exact` is false), a number may differ by a fifth (by 3, if it is small), a word with
    digits in it, such as a version or a commit, by whatever it likes, and an interval may stand where `exact` is shown.
    """
    printed = real.rstrip().splitlines()
    # The numbers of printed lines that the lines so far can stand for. A pattern of all would take exponential time.
    ends = {0}
    for line in shown.rstrip().splitlines():
        if line.strip() == "...":
            ends = set(range(min(ends), len(printed) + 1))
            continue
        ends = {at + 1 for at in ends if at < len(printed) and _is_line(line, printed[at], exact=exact)}
        if not ends:
            return line
    return "" if len(printed) in ends else "the end of the output"


def _is_line(shown: str, real: str, *, exact: bool) -> bool:
    numbers: list[str] = []
    words = [_word(word, numbers, exact=exact) for word in shown.split()]
    found = re.fullmatch(r"\s*" + r"\s+".join(words) + r"\s*", real)
    return found is not None and all(_near(a, b) for a, b in zip(numbers, found.groups(), strict=True))


def _word(word: str, numbers: list[str], *, exact: bool) -> str:
    """The pattern of one word; `numbers` collects what its group is compared with."""
    if "..." in word:
        return ".*?".join(map(re.escape, word.split("...")))
    if word == "exact" and not exact:
        return r"(?:exact|\[[^]]*\])"
    if exact or not re.search(r"\d", word):
        return re.escape(word)
    if re.fullmatch(r"[^\w\s]*" + _NUMBER.pattern + r"[^\w\s]*", word):
        numbers.append(word)
        return r"(\S*\d\S*)"
    return r"\S*\d\S*"


def _near(shown: str, real: str) -> bool:
    a, b = (_value(text) for text in (shown, real))
    return abs(a - b) <= max(0.2 * abs(a), 3)


def _value(text: str) -> float:
    found = _NUMBER.search(text)
    assert found, text
    return float(found[0].replace(",", ""))
