"""Text for people on whatever stdout is: as wide as a terminal, never broken into a pipe or a file."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, RenderableType

_UNBOUND = 1000


def show(render: Callable[[int], RenderableType], console: Console) -> None:
    """Print what is rendered for the console's width."""
    width = console.width if console.is_terminal else _UNBOUND
    console.print(render(width), width=width, highlight=False, soft_wrap=not console.is_terminal)
