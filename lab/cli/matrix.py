"""`lab matrix`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from lab.cli import options
from lab.cluster import exact_only
from lab.compare import matrix as measuring
from lab.compare import matrix_results, results
from lab.compare.matrix_results import MatrixPlan, MatrixResult, load_plan
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure
from lab.core.progress import Progress
from lab.guests import exact as guest_exact
from lab.guests import hardware
from lab.history import remember
from lab.kernels import compilers, trees
from lab.report import heatmap, matrix_text
from lab.workloads import selection


@click.command()
@click.option("--kernel", metavar="[NAME=]SPEC", multiple=True, help="A kernel; may be given several times.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE,...", multiple=True,
    help="A setting, or CONFIG_FOO, and the values it takes; with several --set, every combination.",
)  # fmt: skip
@click.option("--against", metavar="ARM", help="The arm that all others are judged against (default: the first).")
@click.option("--metric", metavar="NAME", help="The metric that the cells show (default: each workload's primary).")
@options.measured(max_seeds=12)
@options.executor()
@click.option("--resume", metavar="ID", help="Go on with a matrix that was interrupted.")
@click.option("--svg", type=options.OutputFile(), help="Also write a heat map.")
@options.json_output
def matrix(
    resume: str | None,
    result: Path | None,
    svg: Path | None,
    cluster: str | None,
    share: str | None,
    as_json: bool,
    **rest: Any,
) -> None:
    """Measure kernels x settings x cases, every combination, each judged against one of them.

    Exits 4 if a guest failed; all other cells are there nevertheless.

    \b
    Example:
      lab matrix --kernel d4148aeab412 --set thp=always,never --set thp.defrag=always,never --svg thp.svg
    """
    rest["mode"] = exact_only(cluster, rest["mode"])
    asked = msgspec.convert(rest, Asked)
    with options.work(asked.jobs, asked.budget, cluster, share) as work:
        if resume is not None:
            folder = results.open_folder(resume)
            plan = load_plan(folder)
        else:
            plan = _plan(asked, work.progress)
            folder = results.new_folder(result)
        with results.claimed(folder):
            if resume is None:
                results.store_plan(folder, plan)
            measuring.announce(plan, folder, work, budget_s=asked.budget)
            with results.kept(folder, work.progress):
                finished = measuring.measure(plan, folder, work)
            remember(folder, work.progress)
    if svg:
        records.write_atomic(svg, heatmap.svg(finished).encode())
    show(finished, as_json=as_json)
    if failed := finished.failed:
        raise GuestFailed(
            GuestFailure.NO_REPORT,
            f"{len(failed)} of {len(finished.cells)} cells failed, the first because {failed[0].failed}",
            hint=f"`lab matrix --resume {finished.result}` tries them again",
        )


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options that a plan is made of, as click gives them."""

    kernel: tuple[str, ...]
    settings: tuple[str, ...]
    workload: tuple[str, ...]
    against: str | None
    metric: str | None
    tree: str | None
    mode: str
    model: str
    machine: str
    threshold: float
    seeds: int | None
    max_seeds: int
    budget: float | None
    cc: str
    qemu: str
    guest_timeout: float
    jobs: int | None


def show(result: MatrixResult, *, as_json: bool) -> None:
    """Print a matrix."""
    if as_json:
        click.echo(records.encode(result), nl=False)
    else:
        matrix_text.show(result, Console())


def _plan(asked: Asked, progress: Progress) -> MatrixPlan:
    """Everything resolved, so that nothing asked for can turn out wrong after hours."""
    span = matrix_results.span(asked.kernel, asked.settings)
    baseline = matrix_results.choose(span.arms, asked.against)
    measuring.check_metrics(asked.workload, asked.metric, asked.model)
    guest_exact.find_qemu(asked.qemu)
    hardware.load(asked.machine)
    compilers.identify(asked.cc)
    tree = trees.open_tree(asked.tree, progress=progress) if asked.tree else None
    return MatrixPlan(
        mode=options.mode_of(asked.mode),
        axes=span.axes,
        kernels=span.kernels,
        arms=measuring.plan_arms(span, tree, progress),
        baseline=baseline.label,
        cc=asked.cc,
        metric=asked.metric,
        workloads=[selection.canonical(text) for text in asked.workload],
        files=selection.user_files(asked.workload),
        threshold=asked.threshold,
        alpha=0.01,
        seeds=asked.seeds or 6,
        max_seeds=asked.max_seeds,
        fixed_seeds=asked.seeds is not None,
        qemu=asked.qemu,
        guest_timeout_s=asked.guest_timeout,
        model=asked.model,
        machine=asked.machine if asked.model != "none" else None,
    )
