"""`lab report`."""

from __future__ import annotations

import click
from rich.console import Console

from lab import matrixresults, matrixtable, records, results, table
from lab.commands import options
from lab.matrixresults import MatrixResult
from lab.results import AbResult


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
    folder = results.open_folder(result_id)
    if results.kind(folder) == matrixresults.KIND:
        matrix = matrixresults.load_result(folder)
        _show_json(matrix) if as_json else matrixtable.show(matrix, Console())
        return
    result = results.load_result(folder)
    _show_json(result) if as_json else table.show(result, Console())


def _show_json(result: AbResult | MatrixResult) -> None:
    click.echo(records.encode(result), nl=False)


def _list(*, as_json: bool) -> None:
    found, matrices = results.finished(), results.all_finished(MatrixResult)
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
        of_matrices = [
            {"result": m.result, "arms": [arm.label for arm in m.arms], "summary": m.summary, "started": m.started}
            for m in matrices
        ]
        document = {"schema": "lab.results/1", "results": rows, "matrices": of_matrices}
        click.echo(records.encode(document), nl=False)
        return
    for r in found:
        click.echo(f"{r.result}  {r.verdict:<11}  {r.base.spec} .. {r.test.spec}  ({r.reason})")
    for m in matrices:
        click.echo(f"{m.result}  {'matrix':<11}  {len(m.arms)} arms  ({m.summary})")
