"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from lab.errors import UserError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

json_output: Decorator = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
)
tree: Decorator = click.option(
    "--tree", metavar="NAME|PATH", help="Kernel tree for revisions: one of `lab tree list`, or a checkout."
)
jobs: Decorator = click.option(
    "--jobs", "-j", type=click.IntRange(min=1), help="Guests and compilers at a time (default: all cores)."
)


class Share(click.ParamType[float]):
    """A share such as `2%` or `0.02`."""

    name = "SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a fraction between 0 and 1, both excluded."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([0-9.]+)\s*(%?)", str(value).strip())
        try:
            number = float(found[1]) / (100 if found[2] else 1) if found else 0.0
        except ValueError:
            number = 0.0
        if not 0 < number < 1:
            self.fail(f"{value!r} is not a share; write 2% or 0.02", param, ctx)
        return number


class Duration(click.ParamType[float]):
    """A time span such as `90s`, `40m`, `2h` or `1h30m`."""

    name = "TIME"
    _UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}  # noqa: RUF012

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The span in seconds."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
        if not parts or "".join(n + u for n, u in parts) != text:
            self.fail(f"{value!r} is not a time span; write 90s, 40m, 2h or 1h30m", param, ctx)
        return sum(float(n) * self._UNITS[u] for n, u in parts)


def mode_of(asked: str) -> str:
    """The mode that is really used. Only exact mode exists so far; `auto` takes it."""
    if asked == "live":
        raise UserError("live mode is not available in this version", hint="measure with --mode exact")
    return "exact"
