"""`lab doctor`."""

from __future__ import annotations

import click

from lab import doctor as examining
from lab import records
from lab.commands import options

_MARKS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}


@click.command()
@click.option("--qemu", default="qemu-system-x86_64", show_default=True, help="The QEMU to examine.")
@options.json_output
def doctor(qemu: str, as_json: bool) -> int:
    """What this machine can do, what not, and what to do about it. Exits 4 if something is missing.

    \b
    Example:
      lab doctor
    """
    findings = examining.examine(qemu)
    if as_json:
        click.echo(records.encode({"schema": "lab.doctor/1", "findings": findings}), nl=False)
    else:
        for found in findings:
            click.echo(f"{_MARKS[found.state]}  {found.name}: {found.text}")
            if found.remedy:
                click.echo(f"         -> {found.remedy}")
    return 0 if examining.works(findings) else 4
