"""`lab image`."""

from __future__ import annotations

import click

from lab.commands import options
from lab.core import records
from lab.core.progress import Meter
from lab.guests import image as guest_image


@click.group()
def image() -> None:
    """The guest image that both arms boot."""


@image.command()
@click.option("--refresh", is_flag=True, help="Build it anew, with the package versions offered now.")
@options.json_output
def build(refresh: bool, as_json: bool) -> None:
    """Build the guest image, if it is not there.

    \b
    Example:
      lab image build
    """
    with Meter() as meter:
        record, folder = guest_image.rebuild(meter) if refresh else guest_image.obtain(meter)
    if as_json:
        click.echo(records.encode({**records.plain(record), "folder": str(folder)}), nl=False)
    else:
        click.echo(f"{record.key[:12]}  {record.suite}  {len(record.packages)} packages  sha256 {record.sha256[:12]}")


@image.command("list")
@options.json_output
def list_(as_json: bool) -> None:
    """The images that were built.

    \b
    Example:
      lab image list
    """
    found = guest_image.built()
    if as_json:
        rows = [{**records.plain(record), "folder": str(folder)} for record, folder in found]
        click.echo(records.encode({"schema": "lab.images/1", "images": rows}), nl=False)
        return
    for record, _ in found:
        click.echo(f"{record.key[:12]}  {record.suite}  {len(record.packages)} packages  sha256 {record.sha256[:12]}")
