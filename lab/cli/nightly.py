"""`lab nightly`."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from lab.cli import options
from lab.core.errors import HostFailed
from lab.core.progress import Progress
from lab.nightly import plan as nightly_plan
from lab.nightly import run as nightly_run
from lab.nightly import site as nightly_site
from lab.nightly import status as statuses
from lab.nightly.record import Night

_plan = click.option(
    "--plan", type=click.Path(path_type=Path), required=True, metavar="FILE", help="What to measure, and how."
)
_NOT_MEASURED = ("not measured", "partly measured")


@click.group()
def nightly() -> None:
    """Measure trees every night, find what got slower, name the commit, and be quiet otherwise."""


@nightly.command()
@_plan
@options.jobs
@options.executor()
@click.option("--fail-on-regression", is_flag=True, help="Exit 1 if the night has news of something slower.")
@options.json_output
def run(
    plan: Path, jobs: int | None, cluster: str | None, share: str | None, fail_on_regression: bool, as_json: bool
) -> int:
    """Do tonight's work: fetch, build, measure, judge, bisect. What is done already is not done again.

    Exits 4 if a tip could not be measured. --cluster and --share count before the plan's own keys of those names.

    \b
    Example:
      lab nightly run --plan nightly.toml
    """
    loaded = nightly_plan.load(plan)
    loaded = replace(loaded, cluster=cluster or loaded.cluster, share=share or loaded.share)
    with options.work(jobs) as work:
        done, worked = nightly_run.run(loaded, work)
        if not worked:
            work.progress.log(
                f"night {done.number} ({done.date}) is done; the next one begins with the next date (UTC)"
            )
    _show(done, as_json=as_json)
    if worked and done.outcome in _NOT_MEASURED:
        failed = [f"{one.name} ({one.why})" for one in done.branches if one.state in ("failed", "broken")]
        failed += [f"{one.name} in {mode} mode ({why})" for one in done.branches for mode, why in one.missed.items()]
        raise HostFailed(f"{done.outcome}: {'; '.join(failed)}", hint="run it again to try what failed once more")
    return 1 if fail_on_regression and done.outcome == "regression" else 0


def _show(done: Night, *, as_json: bool) -> None:
    if as_json:
        options.print_json(done)
        return
    for line in statuses.night_lines(done):
        click.echo(line)


@nightly.command()
@click.argument("name", metavar="[PLAN]", required=False)
@options.database
@options.json_output
def status(name: str | None, database: str | None, as_json: bool) -> None:
    """Show the last night of a plan, and what is open: slower, and not fixed yet.

    Plans of other machines that use the same database are found, too; HOST/PLAN names one of several.

    \b
    Example:
      lab nightly status mainline
    """
    with Progress() as progress:
        found = statuses.find(name, database, progress)
    if as_json:
        options.print_json(found)
        return
    for line in statuses.text(found):
        click.echo(line)


@nightly.command()
@click.argument("name", metavar="[PLAN]", required=False)
@click.option("--output", "-o", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder.")
@click.option("--url", metavar="URL", help="Where the site will be, for the links of its feed.")
@options.database
def site(name: str | None, output: Path, url: str | None, database: str | None) -> None:
    """Write a static site: trends with their steps, each night, each change with its bisection, a feed.

    \b
    Example:
      lab nightly site mainline --output /var/www/lab --url https://lab.example.org/
    """
    with Progress() as progress:
        count = nightly_site.write(statuses.choose(name), output, url=url, database=database, progress=progress)
    click.echo(f"{count} files in {output}; begin with {output / 'index.html'}")
