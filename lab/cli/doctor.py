"""`lab doctor`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lab.cli import options
from lab.guests import doctor as set_up
from lab.guests.doctor import Change, Finding, examine, live_setup
from lab.guests.exact import QEMU

_MARKS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}


@click.command()
@click.option("--qemu", default=QEMU, show_default=True, help="The QEMU to examine.")
@click.option("--fix", is_flag=True, help="Set this machine up for live mode: governor, turbo, THP, KSM, swap.")
@click.option("--without-smt", is_flag=True, help="With --fix: hyper-threads off, too.")
@click.option("--restore", is_flag=True, help="Put back what --fix changed.")
@click.option("--check", is_flag=True, help="With --fix or --restore: only say what would be changed.")
@options.json_output
def doctor(qemu: str, fix: bool, without_smt: bool, restore: bool, check: bool, as_json: bool) -> int:
    """Show what this machine can do, what not, and what to do about it. Exits 4 if something is missing.

    --fix and --restore need root (or sudo without a password), and exit 4 if nothing could be set or a switch
    refused.

    \b
    Example:
      lab doctor
      sudo .venv/bin/lab doctor --fix --check
    """
    if fix and restore:
        raise click.UsageError("--fix and --restore contradict each other")
    if check and not (fix or restore):
        raise click.UsageError("--check requires --fix or --restore")
    if without_smt and not fix:
        raise click.UsageError("--without-smt requires --fix")
    if not fix and not restore:
        findings = examine(qemu)
        _print(findings, None, as_json=as_json)
        return 4 if any(finding.state == "missing" for finding in findings) else 0
    changes = set_up.fix(without_smt=without_smt, check=check) if fix else set_up.restore(check=check)
    _print(live_setup(), changes, as_json=as_json)
    return 0 if set_up.succeeded(changes) or (restore and not changes) else 4


def _print(findings: Sequence[Finding], changes: Sequence[Change] | None, *, as_json: bool) -> None:
    if as_json:
        more = {} if changes is None else {"changes": changes}
        options.print_json({"schema": "lab.doctor/1", "findings": findings, **more})
        return
    for change in changes or ():
        click.echo(f"{change.outcome:7}  {change.name}: {change.text}")
    if changes is not None:
        click.echo("" if changes else "nothing to put back\n")
    for finding in findings:
        click.echo(f"{_MARKS[finding.state]}  {finding.name}: {finding.text}")
        if finding.remedy:
            click.echo(f"         -> {finding.remedy}")
