"""`lab matrix`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from lab.cli import options
from lab.cluster import exact_only
from lab.compare import result_folders
from lab.compare.matrix import MatrixRequest, announce, measure
from lab.compare.matrix_results import load_plan
from lab.compare.request import plan_of
from lab.core.errors import GuestFailed, GuestFailure
from lab.history import remember
from lab.report import matrix_text
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
@options.any_metric("The metric that decides, or that the cells show (default: each workload's primary).")
@options.measured(max_seeds=defaults.MATRIX_MAX_SEEDS)
@options.executor
@options.resume("Go on with a matrix that was interrupted.")
@options.json_output
def matrix(
    resume: str | None,
    result: Path | None,
    jobs: int | None,
    budget: float | None,
    cluster: str | None,
    share: str | None,
    as_json: bool,
    **rest: Any,
) -> None:
    """Measure kernels x settings x cases, every combination, each judged against one of them.

    Exits 4 if a guest failed; all other cells are there nevertheless.

    \b
    Example:
      lab matrix --kernel d4148aeab412 --set thp=always,never --set thp.defrag=always,never
    """
    options.require_exact(exact_only(cluster, rest["mode"]))
    asked = msgspec.convert(options.with_command(rest), MatrixRequest)
    with (
        options.work(jobs, budget, cluster, share) as work,
        options.result_folder(resume, result, load_plan, lambda: plan_of(asked, work.progress)) as (folder, plan),
    ):
        announce(plan, folder, work, budget_s=budget)
        with result_folders.kept(folder, work.progress):
            finished = measure(plan, folder, work)
        remember(folder, work.progress)
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
