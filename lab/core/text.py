"""Text for people: escaped if a terminal would obey it, and as wide as the terminal.

Workload and case names, commit subjects and kernel specs are written by others. Their control characters could move
a terminal's cursor, and bidirectional marks could show a line in another order than it is written.
"""

from __future__ import annotations

import html
import io
import math
import os
import re
import textwrap
import unicodedata
from collections.abc import Callable, Container, Sequence
from typing import Any, TypeVar

import msgspec
from rich.console import Console, RenderableType

from lab.core.records import convert

R = TypeVar("R", bound=msgspec.Struct)

_SUSPECT = re.compile(r"[^ -~]")
# Cc control, Cf format (all bidirectional marks, zero width), Cs surrogates, Co private, Cn not assigned.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

NO_PATTERN = (re.error, ValueError, OverflowError, RecursionError)
"""The errors of compiling a text that is not a regular expression, or has numbers or depths beyond all sense."""


def visible(text: str) -> str:
    """The text on one line, with each character that a terminal does not show as an escape: `\\x1b`."""
    return _SUSPECT.sub(lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


# Not allowed in XML, in any form; a symbol's name has none unless its file is damaged.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml(text: str) -> str:
    """Text as the content of an XML element."""
    return html.escape(_NOT_XML.sub("\ufffd", text), quote=False)


def visible_lines(text: str) -> str:
    """`visible` of a text of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def visible_record(record: R) -> R:
    """A record with all of its strings made visible, also inside lists, dicts and inner records; tabs as spaces."""
    return convert(_mapped(msgspec.to_builtins(record)), type(record))


def _mapped(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value.expandtabs())
    if isinstance(value, dict):
        return {visible(key): _mapped(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(item) for item in value]
    return value


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[list[str]]:
    """Pad the cells of each column to the widest one, in the columns `right` on their left side."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        [cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(cells)]
        for cells in (zip(row, widths, strict=True) for row in rows)
    ]


UNBOUND = 1000
"""The width of a pipe or a file, in which no line is broken."""


def columns(rows: Sequence[Sequence[str]], right: Container[int] = (), width: int = UNBOUND) -> list[str]:
    """Rows as lines of aligned columns, two blanks apart. Text too long for the width continues in its column."""
    cells = aligned(rows, right)
    last = sum(len(cell) + 2 for cell in cells[0][:-1]) if cells else 0
    return [wrapped("  ".join(row).rstrip(), last, width) for row in cells]


def listed(words: Sequence[str], last: str) -> str:
    """Words as a list with `and` or `or` before the last."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def from_to(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def width_of(console: Console | None = None) -> int:
    """The width of the terminal on stdout, or of another console; of a pipe or a file, what COLUMNS says."""
    console = console or Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else UNBOUND


def wrapped(line: str, indent: int, width: int) -> str:
    """A line in a width; the words that do not fit go below it, indented."""
    if len(line) <= width or width >= UNBOUND:
        return line
    return textwrap.fill(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def show(render: Callable[[int], RenderableType], console: Console) -> None:
    """Print as wide as the terminal; into a pipe or a file, without line breaks, unless COLUMNS is set."""
    width = width_of(console)
    console.print(render(width), width=width, highlight=False, soft_wrap=width >= UNBOUND)


def span(seconds: float) -> str:
    """A time span for people: `90 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 120 * 60 else f"{seconds / 3600:.1f} h"


_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds_of(text: str) -> float | None:
    """The seconds of a time span such as `90s` or `1h30m`; None for other words."""
    parts = _SPAN.findall(text)
    if not parts or "".join(count + unit for count, unit in parts) != text:
        return None
    return sum(float(count) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit] for count, unit in parts)


def duration(ns: float) -> str:
    """A short time for people, in three digits: `40 ns`, `12.3 us`, `290 ms`, `1.25 s`."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def ago(seconds: float) -> str:
    """A time span that is over, in its largest unit: `3 min ago`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def number(value: float) -> str:
    """A number in four digits, which are enough to read; the JSON has them all."""
    if not math.isfinite(value):
        return "n/a"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def plain(render: Callable[[int], RenderableType]) -> str:
    """Render without colour and without breaking lines."""
    stream = io.StringIO()
    show(render, Console(file=stream, width=UNBOUND, no_color=True))
    return stream.getvalue()
