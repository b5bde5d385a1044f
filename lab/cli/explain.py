"""`lab explain`."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from lab.cli import options
from lab.compare import chains, result_folders
from lab.compare.explain import Cost, cpu_choices, cpu_of_result, find, lint
from lab.compare.plan import MeasureOptions
from lab.core import records
from lab.core.errors import UserError
from lab.kernels.kernel import resolve
from lab.report import explain_text, function_chart
from lab.report import flame_graph as chains_as


@click.command()
@click.argument("result_id", metavar="[ID]", required=False, shell_complete=options.complete_result)
@click.option("--case", metavar="NAME", help="The case to explain (default: that of the verdict's number).")
@click.option("--cost", type=click.Choice(["cycles", "instructions"]), default="cycles", show_default=True)
@click.option("--model", type=click.Choice(["tlb", "full"]), help="Cost model (default: as measured, else full).")
@options.machine("The cost model (default: as measured).")
@click.option("--all", "everything", is_flag=True, help="Also the functions, or features, that do not differ.")
@click.option("--cpu", is_flag=True, help="The CPU that the guests see, and the kernels' choices by it.")
@options.spec("--false-sharing", "In place of ID: list the lines that vCPUs of a kernel move for nothing.")
@click.option(
    "-w",
    "--workload",
    "workloads",
    metavar="NAME@N[:CASE]",
    multiple=True,
    default=["contention@4"],
    show_default=True,
    help="With --false-sharing: the work of the kernel meanwhile.",
)
@options.spec("--base", "With --cpu, in place of ID: a kernel.")
@options.spec("--test", "With --cpu, in place of ID: another kernel.")
@click.option("--svg", type=options.OutputFile(), help="Write a chart of the functions that differ most.")
@click.option("--flame-graph", type=options.OutputFile(), help="Write a differential flame graph, as SVG.")
@click.option("--speedscope", type=options.OutputFile(), help="Write the call chains of both arms for speedscope.")
@click.option("--folded", type=options.OutputFile(), help="Write the call chains of both arms as folded stacks.")
@options.jobs
@options.json_output
def explain(
    result_id: str | None,
    case: str | None,
    cost: Cost,
    model: str | None,
    machine: str | None,
    everything: bool,
    cpu: bool,
    false_sharing: str | None,
    workloads: tuple[str, ...],
    base: str | None,
    test: str | None,
    svg: Path | None,
    flame_graph: Path | None,
    speedscope: Path | None,
    folded: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Say why a result's arms differ, by function and by the kernel's counters.

    --flame-graph, --speedscope and --folded have the calls that led to each function, from a guest of each arm that
    runs for them.

    Kernels choose instructions by the features of their CPU: --cpu lists the features that the modelled machine has and
    the guests do not, and the functions that look for them, with or without a result.

    --false-sharing looks at one kernel: lines that came from another vCPU though nothing was used that it had written,
    with the members in them, and the functions that read and wrote these.

    \b
    Examples:
      lab explain latest --case layout-4632k --svg why.svg
      lab explain latest --flame-graph flame.svg --speedscope chains.json
      lab explain latest --cpu
      lab explain --cpu --base deb:6.1 --test deb:6.12 --machine zen4
      lab explain --false-sharing deb:6.12 -w contention@4:files
    """
    if false_sharing:
        if result_id or cpu:
            raise UserError("--false-sharing looks at a kernel, and not at a result", hint="leave out the other one")
        _lint(false_sharing, workloads, jobs, as_json)
        return
    if (base or test) and (result_id or not cpu):
        raise UserError("--base and --test go with --cpu and without a result")
    if cpu:
        _show_cpu(result_id, [spec for spec in (base, test) if spec], case, machine, jobs, everything, as_json)
        return
    if result_id is None:
        raise click.UsageError("Missing argument 'ID'.")
    folder = result_folders.open_folder(result_id)
    result = result_folders.load_result(folder)
    with options.work(jobs) as work:
        why = find(folder, result, work, case, machine=machine, model=model, cost=cost)
        if flame_graph or speedscope or folded:
            found = chains.find(folder, why.case, work, machine=machine, model=model, cost=cost)
    if flame_graph:
        records.write_atomic(flame_graph, chains_as.svg(found, title=why.title).encode())
    if speedscope:
        records.write_atomic(speedscope, json.dumps(chains_as.speedscope(found, title=why.title)).encode())
    if folded:
        records.write_atomic(folded, chains_as.folded(found).encode())
    if svg:
        graph = function_chart.svg(why.explanation, cost, title=why.title, machine=why.machine)
        records.write_atomic(svg, graph.encode())
    if as_json:
        options.print_json(why.document())
    else:
        explain_text.show(why, Console(), everything=everything)


def _lint(spec: str, workloads: tuple[str, ...], jobs: int | None, as_json: bool) -> None:
    with options.work(jobs) as work:
        found = lint(spec, MeasureOptions(workload=workloads, seeds=1), work)
    if as_json:
        options.print_json({"schema": "lab.false-sharing/1", "kernel": spec, "cases": found})
    else:
        explain_text.show_false_sharing(spec, found, Console())


def _show_cpu(
    result_id: str | None,
    specs: list[str],
    case: str | None,
    machine: str | None,
    jobs: int | None,
    everything: bool,
    as_json: bool,
) -> None:
    with options.work(jobs) as work:
        if result_id:
            folder = result_folders.open_folder(result_id)
            found = cpu_of_result(folder, result_folders.load_result(folder), work, case, machine=machine)
        else:
            kernels = [resolve(spec, progress=work.progress).obtain(work) for spec in specs]
            found = cpu_choices(machine, kernels)
    if as_json:
        options.print_json(records.plain(found))
    else:
        explain_text.show_cpu(found, Console(), everything=everything)
