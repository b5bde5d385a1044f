"""`lab aa`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from lab.cli import ab, options
from lab.compare import certificates, result_folders
from lab.compare.certificates import Certificate
from lab.compare.comparison import measure_aloud
from lab.compare.plan import Plan
from lab.compare.request import ComparisonRequest, plan_of
from lab.core import records
from lab.core.errors import UserError
from lab.guests.exact import find_qemu
from lab.history import remember
from lab.kernels.layout import name_of
from lab.kernels.spec import with_layout
from lab.stats import defaults
from lab.stats.verdict import percent

ROUNDS = 30
"""Enough for a standard deviation that is right within a quarter (one over the root of twice as many, twice)."""


@click.command(cls=options.MeasuringCommand)
@click.argument("spec", required=False, shell_complete=options.complete_spec)
@options.measured(max_seeds=defaults.MAX_SEEDS)
@options.live
@click.option(
    "--layout",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compare it with itself in another layout (SPEC+layout-N): an A/A of builds.",
)
@options.resume("Continue an interrupted one.")
@click.option("--list", "listing", is_flag=True, help="List the certificates there are.")
@options.json_output
def aa(
    spec: str | None,
    layout: int | None,
    resume: str | None,
    listing: bool,
    result: Path | None,
    jobs: int | None,
    budget: float | None,
    as_json: bool,
    **rest: object,
) -> int:
    """Compare a kernel with itself: how much this host scatters, and the smallest change it can tell.

    In live mode 30 rounds unless --rounds says otherwise; the certificate is kept, and quoted in later verdicts. In
    exact mode every number must be equal to the last digit; exits 4 if one is not, or if a case failed.

    With --layout the functions and data of the second kernel are elsewhere: how far builds of one kernel are apart.
    Bisections in live mode know it from there.

    \b
    Example:
      lab aa deb:6.12 -w alloc-burst:layout-4632k
      lab aa v6.12 -w alloc-burst:layout-4632k --layout 1
      lab aa --list
    """
    if listing:
        _list(as_json=as_json)
        return 0
    if (spec is None) == (resume is None):
        raise UserError("a kernel is needed, or --resume ID", hint="e.g. lab aa deb:6.12 -w alloc-burst:layout-4632k")
    test = with_layout(spec, layout) if spec and layout else spec
    # All of them are measured, decided or not, to know how much they scatter.
    if rest["mode"] == "live":
        rest["rounds"] = rest["rounds"] or ROUNDS
    else:
        rest["seeds"] = rest["seeds"] or defaults.SEEDS
    arms = {"base": spec, "test": test, "certificate": True}
    asked = msgspec.convert({**options.with_command(rest), **arms}, ComparisonRequest)
    with (
        options.work(jobs, budget) as work,
        options.result_folder(resume, result, _load_plan, lambda: plan_of(asked, work.progress)) as (folder, plan),
    ):
        finished = measure_aloud(plan, folder, work)
        remember(folder, work.progress)
    made = certificates.certify(finished)
    certificates.keep(made)
    _print(made, as_json=as_json)
    ab.require_every_case(finished)
    return 0


def _load_plan(folder: Path) -> Plan:
    plan = result_folders.load_plan(folder)
    if not plan.certificate:
        raise UserError(
            f"{result_folders.reference(folder)} is a comparison of two kernels",
            hint=f"`{result_folders.resume_command(folder)}`",
        )
    return plan


# ---- output


def _print(made: Sequence[Certificate], *, as_json: bool) -> None:
    if as_json:
        options.print_json({"schema": "lab.aa/1", "certificates": made})
        return
    for c in made:
        if c.mode == "exact" and c.layout:
            shift = percent(None if c.shift is None else math.exp(c.shift))
            click.echo(f"{c.case}: {shift} with {name_of(c.layout)}, {c.pairs} seeds: {c.verdict}")
        elif c.mode == "exact":
            click.echo(
                f"{c.case}: equal to the last digit in every metric, {c.pairs} seeds, each run twice: {c.verdict}"
            )
    if live := [certificate for certificate in made if certificate.mode != "exact"]:
        _show(live)


def _list(*, as_json: bool) -> None:
    kept = certificates.kept()
    present = certificates.setup(find_qemu().version)
    if as_json:
        rows = [{**records.plain(each), "changed": certificates.changed(each, present)} for each in kept]
        options.print_json({"schema": "lab.aa/1", "certificates": rows})
        return
    if not kept:
        click.echo("no certificates yet; e.g. lab aa deb:6.12 -w alloc-burst:layout-4632k")
        return
    _show(kept)
    for each in kept:
        if since := certificates.changed(each, present):
            click.echo(f"{each.case} ({each.mode}, {each.made}): the host has changed since: {'; '.join(since)}")


_UNBOUND = 300
_HEADINGS = (
    "case", "mode", "pairs", "50 % of changes", "90 % of changes", "boots", "iterations", "resolves", "verdict",
)  # fmt: skip


def _show(made: Sequence[Certificate]) -> None:
    table = Table(*_HEADINGS, box=None, pad_edge=False, header_style="bold")
    for c in made:
        table.add_row(
            c.case,
            " ".join(filter(None, (c.mode, c.accelerator, "duet" if c.duet else None, _build(c)))),
            f"{c.pairs}" + (f" ({c.disturbed} disturbed)" if c.disturbed else ""),
            _span(c, 25, 75),
            _span(c, 5, 95),
            _percent(c.boot_sd),
            _percent(c.iteration_sd),
            ", ".join(f"{_percent(c.resolves[n])} in {n}" for n in ("6", "15", "30") if n in c.resolves),
            str(c.verdict),
        )
    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNBOUND)
    console.print(table, highlight=False)


def _build(certificate: Certificate) -> str | None:
    """The layout of the other kernel, and how far it is."""
    if not certificate.layout or certificate.shift is None:
        return None
    return f"{name_of(certificate.layout)} {percent(math.exp(certificate.shift))}"


def _span(certificate: Certificate, low: int, high: int) -> str:
    if not certificate.quantiles:
        return ""
    ends = (100 * (certificate.quantiles[str(share)] - 1) for share in (low, high))
    return "[{:+.1f}, {:+.1f}] %".format(*ends)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
