"""`lab doctor`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

import click

from lab.cli import options
from lab.core.errors import HostFailed
from lab.core.process import CommandFailed, run
from lab.core.progress import Progress
from lab.core.text import plural, width_of, wrapped
from lab.guests import doctor as set_up
from lab.guests.doctor import Change, Finding, examine, live_setup
from lab.guests.exact import QEMU

_MARKS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}
_AS_ROOT = f"as root, run `{shlex.quote(sys.executable)} -m lab doctor --install`"


@click.command()
@click.option("--qemu", default=QEMU, show_default=True, help="The QEMU to examine.")
@click.option("--install", is_flag=True, help="Install the packages that the lab needs; QEMU 10 beside the host's.")
@click.option("--fix", is_flag=True, help="Set this machine up for live mode: governor, turbo, THP, KSM, swap.")
@click.option("--without-smt", is_flag=True, help="With --fix: hyper-threads off, too.")
@click.option("--restore", is_flag=True, help="Put back the settings that --fix changed.")
@click.option("--check", is_flag=True, help="With --fix or --restore: only list the changes.")
@options.json_output
def doctor(qemu: str, install: bool, fix: bool, without_smt: bool, restore: bool, check: bool, as_json: bool) -> int:
    """Check this machine for every mode, with a remedy for each missing thing. Exits 4 if something is missing.

    --install needs root or sudo. For vCPUs that contend it also unpacks QEMU 10.0 into the cache. --fix and --restore
    need root (or sudo without a password), and exit 4 if nothing could be set or a switch refused.

    \b
    Examples:
      lab doctor
      lab doctor --install
      sudo .venv/bin/lab doctor --fix --check
    """
    if fix and restore:
        raise click.UsageError("--fix and --restore contradict each other")
    if install and (fix or restore):
        raise click.UsageError("--install goes before --fix and --restore, in a command of its own")
    if check and not (fix or restore):
        raise click.UsageError("--check requires --fix or --restore")
    if without_smt and not fix:
        raise click.UsageError("--without-smt requires --fix")
    if install:
        _install(qemu)
    if not fix and not restore:
        findings = examine(qemu)
        _print(findings, None, as_json=as_json)
        return 4 if any(finding.state == "missing" for finding in findings) else 0
    changes = set_up.fix(without_smt=without_smt, check=check) if fix else set_up.restore(check=check)
    _print(live_setup(), changes, as_json=as_json)
    return 0 if set_up.succeeded(changes) or (restore and not changes) else 4


def _install(qemu: str) -> None:
    """Install the missing packages, and QEMU 10.0 if the host's own cannot end turns."""
    password = _password() if (needed := set_up.needs_packages()) else None
    with Progress() as progress:
        if needed:
            progress.log(f"installing {plural(len(set_up.host_packages()), 'package')}")
            set_up.install(password)
        set_up.add_contention(qemu, progress)


def _password() -> str | None:
    """The password for sudo; None for root, and if sudo asks for none."""
    if os.geteuid() == 0:
        return None
    if shutil.which("sudo") is None:
        raise HostFailed("packages are installed as root, and there is no sudo", hint=_AS_ROOT)
    try:
        run(["sudo", "--non-interactive", "true"])
    except CommandFailed as error:
        if not sys.stdin.isatty():
            raise HostFailed("sudo asks for a password, and there is no terminal", hint=_AS_ROOT) from error
        password = str(click.prompt("Password for sudo", hide_input=True, err=True))
        _require_accepted(password)
        return password
    return None


def _require_accepted(password: str) -> None:
    try:
        run(["sudo", "--reset-timestamp", "--stdin", "--prompt=", "true"], stdin=f"{password}\n".encode())
    except CommandFailed as error:
        raise HostFailed("sudo does not accept the password", hint="repeat it; or " + _AS_ROOT) from error


def _print(findings: Sequence[Finding], changes: Sequence[Change] | None, *, as_json: bool) -> None:
    if as_json:
        more = {} if changes is None else {"changes": changes}
        options.print_json({"schema": "lab.doctor/1", "findings": findings, **more})
        return
    for change in changes or ():
        click.echo(f"{change.outcome:7}  {change.name}: {change.text}")
    if changes is not None:
        click.echo("" if changes else "nothing to put back\n")
    width = width_of()
    for finding in findings:
        click.echo(wrapped(f"{_MARKS[finding.state]}  {finding.name}: {finding.text}", 9, width))
        if finding.remedy:
            click.echo(wrapped(f"         -> {finding.remedy}", 12, width))
