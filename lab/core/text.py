"""Text from elsewhere, made harmless to look at: what a terminal, mail or page would obey is shown, not done.

Workload and case names, commit subjects and kernel specs are other people's words. Control characters could move
a terminal's cursor, bidirectional marks could show a line in another order than it is written.

Text for people on whatever stdout is: as wide as a terminal, never broken into a pipe or a file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from rich.console import Console, RenderableType

R = TypeVar("R", bound=msgspec.Struct)

_SUSPECT = re.compile(r"[^ -~]")
# Cc control, Cf format (all bidirectional marks, zero width), Cs surrogates, Co private, Cn not assigned.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text on one line, with every character that is obeyed and not shown written as an escape: `\\x1b`."""
    return _SUSPECT.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def visible_lines(text: str) -> str:
    """`visible` of a text of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def visible_record(record: R) -> R:
    """A record with all of its strings made visible, those of lists, dicts and inner records too."""
    return msgspec.convert(_mapped(msgspec.to_builtins(record)), type(record))


def _mapped(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return dict(_pairs(value))
    if isinstance(value, (list, tuple)):
        return [_mapped(one) for one in value]
    return value


def _pairs(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, one in value.items():
        yield visible(key), _mapped(one)


_UNBOUND = 1000


def show(render: Callable[[int], RenderableType], console: Console) -> None:
    """Print what is rendered for the console's width."""
    width = console.width if console.is_terminal else _UNBOUND
    console.print(render(width), width=width, highlight=False, soft_wrap=not console.is_terminal)
