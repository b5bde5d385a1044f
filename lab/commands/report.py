"""`lab report`."""

from __future__ import annotations

import click
from rich.console import Console

from lab import records, results, table
from lab.commands import options


@click.command()
@click.argument("result_id", metavar="[ID]", required=False)
@options.json_output
def report(result_id: str | None, as_json: bool) -> None:
    """Show a stored result again; without an ID, list all of them. `latest` is an ID too.

    \b
    Example:
      lab report latest
    """
    if result_id is None:
        _list(as_json=as_json)
        return
    result = results.load_result(results.open_folder(result_id))
    if as_json:
        click.echo(records.encode(result), nl=False)
    else:
        table.show(result, Console())


def _list(*, as_json: bool) -> None:
    found = results.finished()
    if as_json:
        rows = [
            {
                "result": r.result,
                "base": r.base.spec,
                "test": r.test.spec,
                "verdict": r.verdict,
                "started": r.started,
            }
            for r in found
        ]
        click.echo(records.encode({"schema": "lab.results/1", "results": rows}), nl=False)
        return
    for r in found:
        click.echo(f"{r.result}  {r.verdict:<11}  {r.base.spec} .. {r.test.spec}  ({r.reason})")
