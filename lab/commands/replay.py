"""`lab replay`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import msgspec

from lab import ab as comparing
from lab import records, results
from lab.commands import options
from lab.errors import GuestFailed
from lab.progress import Meter
from lab.results import AbResult


@click.command()
@click.argument("result_id", metavar="ID")
@options.jobs
@options.json_output
def replay(result_id: str, jobs: int | None, as_json: bool) -> None:
    """Measure a stored result again and compare every number, to the last digit.

    Exits 4 if a number differs although the environment is the same.

    \b
    Example:
      lab replay latest
    """
    folder = results.open_folder(result_id)
    stored = results.load_result(folder)
    plan = msgspec.structs.replace(results.load_plan(folder), fixed_seeds=True, seeds=max(stored.seeds))
    with tempfile.TemporaryDirectory(prefix="lab-replay-") as scratch, Meter() as meter:
        again = comparing.measure(
            plan,
            results.new_folder(Path(scratch)),
            jobs=jobs or comparing.default_jobs(),
            deadline=None,
            meter=meter,
        )
    differing = differences(stored, again)
    around = [
        name
        for name in ("qemu", "machine", "cpu", "shift", "cmdline", "settings", "guests")
        if getattr(stored.environment, name) != getattr(again.environment, name)
    ]
    if as_json:
        document = {
            "schema": "lab.replay/1",
            "result": stored.result,
            "differences": differing,
            "environment": around,
        }
        click.echo(records.encode(document), nl=False)
    else:
        for line in differing:
            click.echo(line)
        click.echo(
            f"{stored.result}: {len(differing)} numbers differ"
            + (f"; environment differs in {', '.join(around)}" if around else "")
        )
    if differing:
        raise GuestFailed(
            "malformed",
            f"{len(differing)} numbers of {stored.result} came out differently",
            hint="the environment differs"
            if around
            else "the same environment must give the same numbers: please report this",
        )


def differences(stored: AbResult, again: AbResult) -> list[str]:
    """Every number that is not the same, one line each; seeds that only one of them has are not compared."""
    later = {(case.workload, case.case): case for case in again.cases}
    lines = []
    for case in stored.cases:
        for old, new in zip(case.metrics, later[case.workload, case.case].metrics, strict=True):
            for arm in ("base", "test"):
                before, now = getattr(old, arm), getattr(new, arm)
                lines += [
                    f"{case.case} {old.name} {arm} seed {seed}: {b} became {n}"
                    for seed, (b, n) in enumerate(zip(before, now, strict=False), start=1)
                    if b != n
                ]
    return lines
