"""`lab explain`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from lab.cli import options
from lab.compare import results
from lab.compare.explain import Cost, find
from lab.core import records
from lab.report import explain_text, flame_graph


@click.command()
@click.argument("result_id", metavar="ID")
@click.option("--case", metavar="NAME", help="The case to explain (default: the one that changed most).")
@click.option("--cost", type=click.Choice(["cycles", "instructions"]), default="cycles", show_default=True)
@click.option("--model", type=click.Choice(["tlb", "full"]), help="Cost model (default: as measured, else full).")
@click.option("--machine", metavar="NAME|FILE", help="What is modelled (default: as measured).")
@click.option("--all", "everything", is_flag=True, help="Also the functions that do not differ.")
@click.option("--folded", type=options.OutputFile(), help="Write folded stacks for flame graph viewers.")
@click.option("--svg", type=options.OutputFile(), help="Write a differential flame graph.")
@options.jobs
@options.json_output
def explain(
    result_id: str,
    case: str | None,
    cost: Cost,
    model: str | None,
    machine: str | None,
    everything: bool,
    folded: Path | None,
    svg: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Say why a result's arms differ, by function and by what the kernel counted.

    \b
    Example:
      lab explain latest --case layout-4632k --svg why.svg
    """
    folder = results.open_folder(result_id)
    result = results.load_result(folder)
    with options.work(jobs) as work:
        why = find(folder, result, work, case, machine=machine, model=model, cost=cost)
    if folded:
        records.write_atomic(folded, flame_graph.folded(why.explanation, cost).encode())
    if svg:
        graph = flame_graph.svg(why.explanation, cost, title=why.title, machine=why.machine)
        records.write_atomic(svg, graph.encode())
    if as_json:
        options.print_json(why.document())
    else:
        explain_text.show(why, Console(), everything=everything)
