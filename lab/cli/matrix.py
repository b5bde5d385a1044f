"""`lab matrix`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from lab.cli import options
from lab.cluster import exact_only
from lab.compare import matrix_results, result_folders
from lab.compare.matrix import announce, check_metrics, measure, plan_arms
from lab.compare.matrix_results import MatrixPlan, load_plan
from lab.compare.plan import MeasureOptions
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure
from lab.core.progress import Progress
from lab.history import remember
from lab.report import heatmap, matrix_text
from lab.report.inputs import StoredMatrix
from lab.stats import defaults


@click.command(cls=options.MeasuringCommand)
@click.option(
    "--kernel",
    metavar="[NAME=]SPEC",
    multiple=True,
    shell_complete=options.complete_spec,
    help="A kernel; may be given several times.",
)
@click.option(
    "--set", "settings", metavar="KEY=VALUE,...", multiple=True,
    help="A setting, or CONFIG_FOO, and the values it takes; with several --set, every combination.",
)  # fmt: skip
@click.option("--against", metavar="ARM", help="The arm that all others are judged against (default: the first).")
@click.option(
    "--metric",
    metavar="instructions|cycles|NAME",
    help="What decides, or the metric that the cells show (default: each workload's primary).",
)
@options.measured(max_seeds=defaults.MATRIX_MAX_SEEDS)
@options.executor()
@click.option(
    "--resume", metavar="ID", shell_complete=options.complete_result, help="Go on with a matrix that was interrupted."
)
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
    asked = msgspec.convert(options.with_command(rest), MatrixOptions)
    with (
        options.work(asked.jobs, asked.budget, cluster, share) as work,
        options.result_folder(resume, result, load_plan, lambda: _plan(asked, work.progress)) as (folder, plan),
    ):
        announce(plan, folder, work, budget_s=asked.budget)
        with result_folders.kept(folder, work.progress):
            finished = measure(plan, folder, work)
        remember(folder, work.progress)
    if svg:
        records.write_atomic(svg, heatmap.matrix(StoredMatrix(raw=finished, folder=folder)).encode())
    if as_json:
        options.print_json(finished)
    else:
        matrix_text.show(finished, Console())
    if failed := finished.failed:
        raise GuestFailed(
            GuestFailure.NO_REPORT,
            f"{len(failed)} of {len(finished.cells)} cells failed, the first because {failed[0].failed}",
            hint=f"`lab matrix --resume {finished.result}` tries them again",
        )


class MatrixOptions(MeasureOptions, frozen=True, kw_only=True):
    """The options that a plan is made of, as click gives them."""

    kernel: tuple[str, ...]
    settings: tuple[str, ...]
    against: str | None
    mode: str
    budget: float | None
    jobs: int | None


def _plan(asked: MatrixOptions, progress: Progress) -> MatrixPlan:
    """Resolve everything first, so that no option turns out wrong after hours."""
    span = matrix_results.span(asked.kernel, asked.settings)
    baseline = matrix_results.choose(span.arms, asked.against)
    check_metrics(asked.workload, asked.metric, asked.model)
    asked.require()
    options.require_exact(asked.mode)
    specs = asked.resolve(span.kernels, progress)
    return MatrixPlan.of(
        asked.for_kernels(specs),
        axes=span.axes,
        kernels=span.kernels,
        arms=plan_arms(span, specs),
        baseline=baseline.label,
        cc=asked.cc,
    )
