"""`lab nightly`."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from lab.cli import options
from lab.core.errors import HostFailed
from lab.core.progress import Progress
from lab.nightly import plan as nightly_plan
from lab.nightly import status as statuses

_plan = click.option(
    "--plan",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Trees, workloads and options of a night.",
)
_NOT_MEASURED = ("not measured", "partly measured")


@click.group()
def nightly() -> None:
    """Measure trees every night, and report each regression once, with its commit."""


@nightly.command()
@_plan
@options.jobs
@options.executor
@click.option("--fail-on-regression", is_flag=True, help="Exit 1 if the night found a new regression.")
@options.json_output
def run(
    plan: Path, jobs: int | None, cluster: str | None, share: str | None, fail_on_regression: bool, as_json: bool
) -> int:
    """Do tonight's work: fetch, build, measure, judge, bisect. A second call continues where the first one stopped.

    Exits 4 if a tip could not be measured. --cluster and --share override the plan's keys of those names.

    \b
    Example:
      lab nightly run --plan nightly.toml
    """
    loaded = nightly_plan.load(plan)
    from lab.nightly import run as nightly_run  # with SQLAlchemy, which a refused plan need not wait for

    loaded = replace(loaded, cluster=cluster or loaded.cluster, share=share or loaded.share)
    with options.work(jobs) as work:
        night, worked = nightly_run.run(loaded, work)
        if not worked:
            work.progress.log(
                f"night {night.number} ({night.date}) is done; the next one begins with the next date (UTC)"
            )
    options.show(night, statuses.night_lines(night), as_json=as_json)
    if worked and night.outcome in _NOT_MEASURED:
        failed = [f"{branch.name} ({branch.why})" for branch in night.branches if branch.state in ("failed", "broken")]
        failed += [
            f"{branch.name} in {mode} mode ({why})" for branch in night.branches for mode, why in branch.missed.items()
        ]
        raise HostFailed(f"{night.outcome}: {'; '.join(failed)}", hint="run it again to repeat the failed parts")
    return 1 if fail_on_regression and night.outcome == "regression" else 0


@nightly.command()
@click.argument("name", metavar="[PLAN]", required=False)
@options.json_output
def status(name: str | None, as_json: bool) -> None:
    """Show the last night of a plan, and its open events: regressions that are not fixed yet.

    \b
    Example:
      lab nightly status mainline
    """
    current = statuses.find(name)
    options.show(current, statuses.text(current), as_json=as_json)


@nightly.command()
@click.argument("name", metavar="[PLAN]", required=False)
@click.option("--output", "-o", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder.")
@click.option("--url", metavar="URL", help="The site's address, for the links of its feed.")
@options.database
def site(name: str | None, output: Path, url: str | None, database: str | None) -> None:
    """Write a static site: trends with their steps, each night, each change with its bisection, a feed.

    \b
    Example:
      lab nightly site mainline --output /var/www/lab --url https://lab.example.org/
    """
    from lab.nightly import site as nightly_site

    with Progress() as progress:
        count = nightly_site.write(statuses.choose(name), output, url=url, database=database, progress=progress)
    click.echo(f"{count} files in {output}; begin with {output / 'index.html'}")
