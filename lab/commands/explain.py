"""`lab explain`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from lab import explain as explaining
from lab import explaintable, flamegraph, machines, profiles, records, results
from lab.ab import default_jobs
from lab.commands import options
from lab.mechanisms import mechanisms
from lab.progress import Meter


@click.command()
@click.argument("result_id", metavar="ID")
@click.option("--case", metavar="NAME", help="The case to explain (default: the one that changed most).")
@click.option("--cost", type=click.Choice(["cycles", "instructions"]), default="cycles", show_default=True)
@click.option("--model", type=click.Choice(["tlb", "full"]), default="full", show_default=True)
@click.option("--machine", metavar="NAME|FILE", default=machines.DEFAULT, show_default=True, help="What is modelled.")
@click.option("--all", "everything", is_flag=True, help="Also the functions that do not differ.")
@click.option("--folded", type=click.Path(path_type=Path), help="Write folded stacks for flame graph viewers.")
@click.option("--svg", type=click.Path(path_type=Path), help="Write a differential flame graph.")
@options.jobs
@options.json_output
def explain(
    result_id: str,
    case: str | None,
    cost: explaining.Cost,
    model: str,
    machine: str,
    everything: bool,
    folded: Path | None,
    svg: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Say why a result's arms differ, by function: one guest of each is run again under the cost model.

    \b
    Example:
      lab explain latest --case layout-4632k --svg why.svg
    """
    folder = results.open_folder(result_id)
    result = results.load_result(folder)
    chosen = profiles.choose(result, case)
    with Meter() as meter:
        found = profiles.collect(folder, chosen, machine=machine, model=model, jobs=jobs or default_jobs(), meter=meter)
    explanation = explaining.explain(found.base, found.test, cost=cost)
    title = f"{chosen.workload}:{chosen.case}, {result.base.spec} against {result.test.spec}"
    if folded:
        records.write_atomic(folded, flamegraph.folded(explanation, cost).encode())
    if svg:
        records.write_atomic(svg, flamegraph.svg(explanation, cost, title=title, machine=found.machine).encode())
    if as_json:
        document = {
            **records.plain(explanation),
            "schema": "lab.explain/1",
            "result": result.result,
            "workload": chosen.workload,
            "case": chosen.case,
            "machine": found.machine,
            "model": model,
        }
        click.echo(records.encode(document), nl=False)
        return
    console = Console()
    text = explaintable.render_explain(
        explanation,
        mechanisms(chosen.metrics),
        base=result.base.spec,
        test=result.test.spec,
        machine=found.machine,
        width=explaintable.console_width(console),
        cost=cost,
        everything=everything,
    )
    click.echo(f"{chosen.workload}:{chosen.case}")
    explaintable.show_explain(text, console)
