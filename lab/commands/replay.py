"""`lab replay`."""

from __future__ import annotations

from pathlib import Path

import click

from lab.commands import options
from lab.compare import exact
from lab.compare import replay as compare_replay
from lab.compare.replay import Replay
from lab.core import records
from lab.core.errors import GuestFailed, UserError
from lab.core.progress import Meter
from lab.core.text import visible
from lab.report.bundle import replay as bundle_replay

_QEMU = "qemu-system-x86_64"


@click.command()
@click.argument("what", metavar="ID|BUNDLE")
@click.option("--qemu", help=f"The QEMU to replay a bundle with ({_QEMU}).")
@click.option(
    "--guest-timeout", type=options.Duration(some=True), default=300.0, help="As long a bundle's guest may take (300s)."
)
@click.option("--trust-plugin", is_flag=True, help="Build and run a bundle's cost plugin that is not this lab's.")
@options.jobs
@options.json_output
def replay(
    what: str, qemu: str | None, guest_timeout: float, trust_plugin: bool, jobs: int | None, as_json: bool
) -> None:
    """Measure a stored result again, guest by guest, and compare every number to the last digit.

    A bundle (`lab report ID --format bundle`), as a folder or a file, is checked and then run from what is in it.
    Exits 4 if a number differs.

    \b
    Example:
      lab replay latest
      lab replay regression.tar.zst
    """
    jobs = jobs or exact.default_jobs()
    with Meter() as meter:
        if bundle_replay.is_bundle(what):
            asked = bundle_replay.Asked(
                qemu=qemu or _QEMU, jobs=jobs, guest_timeout_s=guest_timeout, trust=trust_plugin
            )
            found = bundle_replay.replay(Path(what), asked, meter)
        elif qemu or trust_plugin:
            raise UserError(
                "--qemu and --trust-plugin are for bundles", hint="a stored result is measured again as it was"
            )
        else:
            found = compare_replay.replay(what, jobs, meter)
    _show(found, as_json=as_json)
    if found.differences:
        raise GuestFailed(
            "malformed",
            f"{len(found.differences)} numbers of {found.result} came out differently",
            hint="the environment differs"
            if found.environment
            else "the same environment must give the same: please report it",
        )


def _show(found: Replay, *, as_json: bool) -> None:
    if as_json:
        click.echo(records.encode(found), nl=False)
        return
    for line in found.differences:
        click.echo(visible(line))
    click.echo(visible(f"{found.result}: {found.guests} guests run again, {len(found.differences)} numbers differ"))
    if found.environment:
        click.echo(visible(f"the environment differs in: {', '.join(found.environment)}"))
