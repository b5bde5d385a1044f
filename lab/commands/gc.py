"""`lab gc`."""  # noqa: A005  (inside a package it shadows nothing)

from __future__ import annotations

import re
from typing import Any

import click

from lab import garbage
from lab.commands import options
from lab.core import records


class Size(click.ParamType[int]):
    """A size such as `500M` or `20G`."""

    name = "SIZE"
    _UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}  # noqa: RUF012

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The size in bytes."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", str(value).strip(), re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is not a size; write 500M or 20G", param, ctx)
        return int(float(found[1]) * self._UNITS[found[2].upper()])


@click.command()
@click.option(
    "--older-than", type=options.Duration(), default=30 * 86400.0, help="What was unused for this long (30d)."
)
@click.option("--size", type=Size(), help="Then more, the longest unused first, until what is left fits.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@options.json_output
def gc(older_than: float, size: int | None, dry_run: bool, as_json: bool) -> None:
    """Delete what can be made again, or nobody reads any more: kernels and the folders they are built in, guest
    images, a worker's copies, and the consoles of guests.

    Never what a report needs, what somebody works with at the moment, or, to make room, what was used within a day.
    Results stay.

    \b
    Example:
      lab gc --older-than 14d --size 20G
    """
    gone, left = garbage.collect(older_than_s=older_than, at_most=size, dry_run=dry_run)
    if as_json:
        rows = [{"path": str(item.path), "kind": item.kind, "size": item.size} for item in gone]
        document = {"schema": "lab.gc/1", "dry_run": dry_run, "removed": rows, "left": left}
        click.echo(records.encode(document), nl=False)
        return
    for item in gone:
        click.echo(f"{'would remove' if dry_run else 'removed'} {item.kind} {item.path} ({item.size >> 10} KiB)")
    freed = sum(item.size for item in gone)
    click.echo(f"{freed >> 20} MiB {'would be ' if dry_run else ''}free, {left >> 20} MiB left")
    if size is not None and left > size:
        click.echo(f"that is more than {size >> 20} MiB: the rest was used within a day, or is in use", err=True)
