"""`lab tree`: the kernel trees that revisions are looked up in."""

from __future__ import annotations

import click
import msgspec

from lab.core import records
from lab.kernels import trees


def _say(message: str, share: float | None = None) -> None:
    """Progress as plain lines: only what has no share, since that comes once."""
    if share is None or share == 0:
        click.echo(message, err=True)


@click.group()
def tree() -> None:
    """Add and list kernel trees."""


@tree.command()
@click.argument("origin", metavar="URL-or-PATH")
@click.option("--name", help="What to call it; by default the last part of the address.")
def add(origin: str, name: str | None) -> None:
    """Clone a kernel tree, or refer to a checkout of yours (which is never written to).

    Clones fetch the history now and file contents when they are needed.

    Example: lab tree add https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git
    """
    added = trees.add(origin, name, progress=_say)
    click.echo(f"{added.name}: {added.source.describe(added.head)} ({added.source.subject(added.head)})")


@tree.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_command(as_json: bool) -> None:
    """List the trees there are.

    Example: lab tree list --json
    """
    found = trees.list_trees()
    if as_json:
        rows = [msgspec.to_builtins(record) for record in found]
        click.echo(records.encode({"schema": "lab.trees/1", "trees": rows}).decode(), nl=False)
        return
    for record in found:
        version = f" {record.version}" if record.version else ""
        click.echo(f"{record.name:<16} {record.kind:<8} {record.origin}{version}")
    if trees.DEFAULT not in {record.name for record in found}:
        click.echo(f"the {trees.DEFAULT} tree is imported when it is first needed", err=True)
