"""`lab workload`: what can be measured."""

from __future__ import annotations

import click
import msgspec

from lab import workloadtext
from lab.commands import options
from lab.compare import check
from lab.compare.check import Checked
from lab.compare.exact import default_jobs
from lab.core import records
from lab.core.errors import LabError
from lab.core.progress import Meter
from lab.workloads import selection


@click.group()
def workload() -> None:
    """List, show and check what can be measured.

    Example: lab workload show alloc-burst
    """


@workload.command("list")
@options.json_output
def list_command(as_json: bool) -> None:
    """List the workloads.

    Example: lab workload list
    """
    found = selection.list_workloads()
    if as_json:
        document = [
            {
                "name": each.name,
                "story": each.story,
                "cases": [case.name for case in each.cases],
                "case_files": each.case_files or None,
                "model": each.model,
                "isolate": each.isolate,
            }
            for each in found
        ]
        _print_json({"schema": "lab.workloads/1", "workloads": document})
        return
    for line in workloadtext.rows((each.name, f"{len(each.cases):>3} cases", each.story) for each in found):
        click.echo(line)


@workload.command("show")
@click.argument("name")
@options.json_output
def show_command(name: str, as_json: bool) -> None:
    """Show a workload: what it needs, its metrics, its cases. NAME is a name or a folder (./mine).

    Example: lab workload show alloc-burst
    """
    shown = selection.load(name)
    if as_json:
        _print_json({"schema": "lab.workload/1", **selection.described(shown)})
    else:
        click.echo(workloadtext.render(shown))


@workload.command("check")
@click.argument("refs", metavar="REF...", nargs=-1, required=True)
@click.option("--run", metavar="SPEC", help="Also boot this kernel and run the smallest case once.")
@options.guest_timeout
@options.jobs
@options.json_output
def check_command(refs: tuple[str, ...], run: str | None, guest_timeout: float, jobs: int | None, as_json: bool) -> int:
    """See whether workloads are sound: their files, what they need of the image, what they compile.

    REF is a name or a folder, with cases (./mine:large) or without. Exits 0 when all are sound.

    \b
    Example:
      lab workload check ./mine --run d4148aeab412
    """
    status, rows = 0, []
    with Meter() as meter:
        for ref in refs:
            try:
                found = check.check(ref, run=run, timeout_s=guest_timeout, jobs=jobs or default_jobs(), meter=meter)
                rows.append({"ref": ref, "ok": True, **records.plain(found)})
                line = f"{ref}: ok, {_facts(found)}"
            except LabError as error:
                status = max(status, error.exit_status)
                rows.append({"ref": ref, "ok": False, "error": error.message, "hint": error.hint, "log": error.log})
                line = f"{ref}: {'; '.join(filter(None, (error.message, error.hint)))}"
                line += f" (log: {error.log})" if error.log else ""
            if not as_json:
                click.echo(line)
    if as_json:
        _print_json({"schema": "lab.workloads.spec-check/1", "workloads": msgspec.to_builtins(rows, enc_hook=str)})
    return status


def _facts(found: Checked) -> str:
    facts = [f"{found.cases} cases", f"{found.slice_mb} MiB in the guest"]
    if found.case:
        facts.append(f"{found.case} gave " + ", ".join(f"{name} {value:g}" for name, value in found.metrics.items()))
    return ", ".join(facts)


def _print_json(document: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())
