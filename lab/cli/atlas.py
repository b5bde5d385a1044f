"""`lab atlas`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from lab.atlas import assembly, columns, commits, site, takeover, text
from lab.atlas import check as atlas_check
from lab.atlas import data as atlas_data
from lab.atlas import plan as atlas_plan
from lab.atlas.columns import Place
from lab.atlas.data import Bisected
from lab.atlas.judgement import Judgement
from lab.cli import options
from lab.core import records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.text import listed, plural, show, visible
from lab.guests import model_version
from lab.kernels import architecture

_plan = click.option(
    "--plan",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The plan (default: the lab's own).",
)
_table = click.option(
    "--table", metavar="NAME", default="", help="A further table that comes with the lab, such as contention."
)
_source = options.together(
    click.option(
        "--data", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
        help="An atlas (default: the lab's own).",
    ),
    _table,
    click.option(
        "--arch", default=architecture.DEFAULT, show_default=True, metavar="NAME",
        help="The architecture of the kernels.",
    ),
)  # fmt: skip


@click.group()
def atlas() -> None:
    """Look up the cost of an operation in every kernel, and when it changed; measure it; make a site of it."""


def _load_plan(path: Path | None, table: str) -> atlas_plan.AtlasPlan:
    _require(table)
    return atlas_plan.load(path or atlas_data.folder() / f"{table or atlas_data.PLAN}.toml")


def _require(table: str) -> None:
    """Refuse a table that does not come with the lab."""
    if table and table not in (known := atlas_data.tables()):
        raise UserError(f"no table is called {table!r}", hint=f"there is {listed(known, 'and')}" if known else "")


@atlas.command()
@_plan
@_table
@click.option("--arch", multiple=True, metavar="NAME", help="Only this architecture of the plan; several times.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Only kernels of such a version or series: '6.12.*'.")
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="The folder of the data (.)."
)
@click.option(
    "--anew", is_flag=True, help="Measure also columns that are another machine's in OUTPUT/ARCHITECTURE.json."
)
@options.means
def run(
    plan: Path | None, table: str, arch: tuple[str, ...], only: tuple[str, ...], output: Path, anew: bool, **means: Any
) -> None:
    """Measure the cells that a plan's kernels lack, and write the atlas of each architecture: OUTPUT/ARCHITECTURE.json.

    The stalest columns come first, and nothing is measured twice: a second call continues where the first one stopped,
    and a new package costs one column. Columns from another machine are taken over if guests have the same fingerprint
    here. A new model version grows in OUTPUT/ARCHITECTURE.next.json, until it has every column.

    \b
    Example:
      lab atlas run --plan atlas.toml --budget 2h
    """
    loaded = _load_plan(plan, table)
    if missing := set(arch) - set(loaded.architectures):
        raise UserError(f"the plan has no {missing.pop()}", hint=f"it has {', '.join(loaded.architectures)}")
    output.mkdir(parents=True, exist_ok=True)
    with options.work(**means) as work:
        for guests in arch or loaded.architectures:
            _grow(loaded, guests, only, output / f"{guests}.json", work, anew=anew)


def _grow(
    plan: atlas_plan.AtlasPlan, guests: str, only: tuple[str, ...], file: Path, work: Work, *, anew: bool
) -> None:
    """Measure the cells that the columns of an architecture lack, and write its atlas."""
    place = Place(plan=plan, guests=guests, version=model_version.current(plan.selections(guests)))
    found = atlas_plan.columns(plan, guests, work.progress)
    wanted = atlas_plan.by_interest(atlas_plan.chosen(found, only))
    if not wanted:
        raise UserError(f"no kernel of the plan is like {' or '.join(only)}")
    on_file = takeover.read(file, place)
    here = takeover.fingerprints(place, found, work)
    taken = takeover.take_over(on_file.atlases, place, found, here)
    options.print_lines([*on_file.unfit, *(f"{file}: {line}" for line in taken.left)])
    there = frozenset[tuple[str, str]]() if anew else taken.sure
    queue = takeover.Queue(place=place, wanted=wanted, there=there, on_file=on_file, here=here)
    begun = columns.measure(place, queue.columns, work, there)
    made = assembly.assemble(place, found, taken)
    if made is None:
        click.echo(f"{file}: {queue.summary(begun)}; nothing to write yet")
        return
    written, lines = takeover.store(on_file, made, found)
    own = {column.id for column in taken.columns for text in place.selections if place.sheet(column, text).is_file()}
    others = len(taken.columns) - len(own)
    click.echo(
        f"{written}: {queue.summary(begun)}; {plural(len(made.cases), 'case')}, "
        f"{plural(sum(1 for _ in made.holes), 'hole')}; {plural(others, 'column')} taken over"
    )
    options.print_lines(lines)


@atlas.command("show")
@click.argument("case")
@_source
@options.json_output
def show_(case: str, data: Path | None, table: str, arch: str, as_json: bool) -> None:
    """Show the cost of a case in every kernel, and its steps with the functions that make them.

    \b
    Example:
      lab atlas show fork-exit
    """
    judged = _judged(data, arch, table)
    info = judged.atlas.case(case)
    if as_json:
        options.print_json(text.case_document(judged, info))
    else:
        show(lambda width: text.case(judged, info, width), Console())


@atlas.command()
@click.argument("base")
@click.argument("test")
@_source
@options.json_output
def diff(base: str, test: str, data: Path | None, table: str, arch: str, as_json: bool) -> None:
    """Show the changes from one kernel to another: `6.12` is its newest package, `6.12.95` that one.

    \b
    Example:
      lab atlas diff 6.1 6.12
    """
    judged = _judged(data, arch, table)
    first, last = judged.atlas.pair(base, test)
    if as_json:
        options.print_json(text.pair_document(judged, first, last))
    else:
        show(lambda width: text.pair(judged, first, last, width), Console())


@atlas.command()
@_source
def causes(data: Path | None, table: str, arch: str) -> None:
    """Show how many steps have a cause that `lab atlas bisect` found, and how many of these are proved both ways.

    \b
    Example:
      lab atlas causes
    """
    judged = _judged(data, arch, table)
    show(lambda width: text.causes(judged, width), Console())


def _judged(path: Path | None, guests: str, table: str) -> Judgement:
    _require(table)
    return Judgement(atlas_data.load(path, guests, table))


@atlas.command()
@click.argument("case")
@click.argument("base")
@click.argument("test")
@_source
@click.option("--resume", metavar="RESULT", help="Go on with this search; take its answer if it has ended.")
@options.means
@options.json_output
def bisect(
    case: str,
    base: str,
    test: str,
    data: Path | None,
    table: str,
    arch: str,
    resume: str | None,
    as_json: bool,
    **means: Any,
) -> None:
    """Find the commit of a case's step between two kernels, if a tree of `lab tree list` has both releases.

    Between two sources of packages (src:), which have no history, it finds the hunks, and the other steps that these
    carry. With --data, the causes are written into that atlas. Exits 5 when there is no culprit.

    \b
    Example:
      lab atlas bisect mprotect-private-4k 6.16.12 6.17.8 --budget 2h
    """
    judged = _judged(data, arch, table)
    known = judged.atlas
    first, last = known.pair(base, test)
    info = known.case(case)
    again = ["lab", "atlas", "bisect", case, base, test]
    other_arch = None if arch == architecture.DEFAULT else arch
    for option, value in (("--data", data), ("--table", table), ("--arch", other_arch)):
        again += [option, str(value)] if value else []
    causes: list[Bisected] = []
    with options.work(**means) as work:
        found = commits.bisect(known, info, first, last, again, work, resume)
        for cause in chain([found], commits.carried(judged, found, work)):
            causes.append(cause)
            known = commits.added(known, cause)
            if data:
                records.write_atomic(data, records.sealed(atlas_data.encode(known)))
            if not as_json:
                click.echo(visible(f"{cause.case}, {first.version} to {last.version}: {cause.text}"))
    if as_json:
        options.print_json({**records.plain(found), "carried": [records.plain(one) for one in causes[1:]]})


@atlas.command("site")
@click.option(
    "--data",
    "files",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    metavar="FILE",
    help="An atlas; several times for several architectures (default: all that come with the lab).",
)
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder of the site."
)
def site_(files: tuple[Path, ...], output: Path) -> None:
    """Write an atlas as a static site, which needs no server.

    A newer one that grows beside the file, FILE.next.json for FILE.json, has its own pages, in the folder `next`.

    \b
    Example:
      lab atlas site --output public
    """
    paths = files or atlas_data.shipped()
    if not paths:
        raise UserError(
            "no atlas comes with this version", hint="measure one with `lab atlas run`, and give it as --data"
        )
    count = site.write_files(paths, output)
    click.echo(f"{output / 'index.html'}: {plural(count, 'file')}")


@atlas.command()
@click.argument("cells", metavar="CASE@KERNEL...", nargs=-1)
@click.option("--random", "number", type=click.IntRange(min=1), help="Draw so many cells instead.")
@click.option("--draw", type=int, default=1, show_default=True, help="The seed of the draw.")
@_plan
@_source
@options.jobs
@options.quiet
@options.json_output
def check(
    cells: tuple[str, ...],
    number: int | None,
    draw: int,
    plan: Path | None,
    data: Path | None,
    table: str,
    arch: str,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Measure cells of an atlas again, and compare every number. Exits 1 if one differs.

    \b
    Examples:
      lab atlas check fork-exit@6.12.117-1
      lab atlas check --random 10
    """
    known = _judged(data, arch, table).atlas
    if bool(cells) == (number is not None):
        raise UserError("name cells, or draw some with --random", hint="e.g. lab atlas check fork-exit@6.12.117-1")
    with options.work(jobs) as work:
        wanted = atlas_check.draw(known, number, draw) if number else [atlas_check.named(known, cell) for cell in cells]
        found = atlas_check.check(known, _load_plan(plan, table), wanted, work)
    document = {"schema": "lab.atlas.check/1", "cells": records.plain(found)}
    options.show(document, atlas_check.lines(found), as_json=as_json)
    return 0 if all(one.is_equal for one in found) else 1
