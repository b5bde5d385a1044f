"""`lab aa`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from lab.cli import ab, options
from lab.compare import certificates, results
from lab.compare.certificates import Certificate
from lab.compare.plan import Plan
from lab.core import records
from lab.core.errors import UserError
from lab.guests import exact as guest_exact
from lab.history import remember
from lab.stats import defaults

ROUNDS = 30
"""Enough for a standard deviation that is right within a quarter (one over the root of twice as many, twice)."""

_UNBOUND = 300


@click.command()
@click.argument("spec", required=False)
@options.measured(max_seeds=defaults.MAX_SEEDS)
@options.live()
@click.option("--resume", metavar="ID", help="Go on with one that was interrupted.")
@click.option("--list", "listing", is_flag=True, help="List the certificates there are.")
@options.json_output
def aa(spec: str | None, resume: str | None, listing: bool, result: Path | None, as_json: bool, **rest: object) -> int:
    """Compare a kernel with itself: how much this host scatters, and the smallest change it can tell.

    In live mode 30 rounds unless --rounds says otherwise; the certificate is kept, and quoted in later verdicts. In
    exact mode every number must be equal to the last digit; exits 4 if one is not.

    \b
    Example:
      lab aa deb:6.12 -w alloc-burst:layout-4632k
      lab aa --list
    """
    if listing:
        _list(as_json=as_json)
        return 0
    if (spec is None) == (resume is None):
        raise UserError("a kernel is needed, or --resume ID", hint="e.g. lab aa deb:6.12 -w alloc-burst:layout-4632k")
    nothing = {"base_cc": None, "test_cc": None, "fail_on": None, "require_verdict": False, "explain": False}
    asked = msgspec.convert({**rest, **nothing, "base": spec, "test": spec}, ab.AbOptions)
    with options.work(asked.jobs, asked.budget) as work:
        if resume is not None:
            folder = results.open_folder(resume)
            plan = _resumed(folder)
        else:
            plan = _to_the_end(ab.plan_of(asked, work.progress), asked)
            folder = results.new_folder(result)
        with results.claimed(folder):
            if resume is None:
                results.store_plan(folder, plan)
            finished = ab.measure(plan, folder, work)
            remember(folder, work.progress)
    made = certificates.certify(finished)
    certificates.keep(made)
    _print(made, as_json=as_json)
    return 0


def _to_the_end(plan: Plan, asked: ab.AbOptions) -> Plan:
    """All rounds or seeds, decided or not: what is asked is how much they scatter."""
    live = plan.live
    if live is not None:
        live = msgspec.structs.replace(live, max_rounds=asked.rounds or ROUNDS, fixed_rounds=True)
    return msgspec.structs.replace(
        plan, seeds=asked.seeds or defaults.SEEDS, fixed_seeds=True, certificate=True, live=live
    )  # fmt: skip


def _resumed(folder: Path) -> Plan:
    plan = results.load_plan(folder)
    if not plan.certificate:
        raise UserError(
            f"{results.reference(folder)} is a comparison of two kernels", hint=f"`{results.resume_command(folder)}`"
        )
    return plan


# ---- what is printed


def _print(made: Sequence[Certificate], *, as_json: bool) -> None:
    if as_json:
        click.echo(records.encode({"schema": "lab.aa/1", "certificates": made}), nl=False)
        return
    exactly = [one for one in made if one.mode == "exact"]
    for one in exactly:
        click.echo(
            f"{one.case}: equal to the last digit in every metric, {one.pairs} seeds, each run twice: {one.verdict}"
        )
    if len(exactly) < len(made):
        _show([one for one in made if one.mode != "exact"])


def _list(*, as_json: bool) -> None:
    found = certificates.kept()
    present = certificates.setup(guest_exact.find_qemu().version)
    if as_json:
        told = [{**records.plain(one), "changed": certificates.changed(one, present)} for one in found]
        click.echo(records.encode({"schema": "lab.aa/1", "certificates": told}), nl=False)
        return
    if not found:
        click.echo("no certificates yet; e.g. lab aa deb:6.12 -w alloc-burst:layout-4632k")
        return
    _show(found)
    for one in found:
        if since := certificates.changed(one, present):
            click.echo(f"{one.case} ({one.mode}, {one.made}): the host has changed since: {'; '.join(since)}")


def _show(made: Sequence[Certificate]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("case", "mode", "pairs", "50 % of changes", "90 % of changes", "boots", "iterations", "resolves"):
        table.add_column(heading)
    table.add_column("verdict")
    for one in made:
        table.add_row(
            one.case,
            " ".join(filter(None, (one.mode, one.accelerator, "duet" if one.duet else None))),
            f"{one.pairs}" + (f" ({one.disturbed} disturbed)" if one.disturbed else ""),
            _span(one, 25, 75),
            _span(one, 5, 95),
            _percent(one.boot_sd),
            _percent(one.iteration_sd),
            ", ".join(f"{_percent(one.resolves[n])} in {n}" for n in ("6", "15", "30") if n in one.resolves),
            str(one.verdict),
        )
    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNBOUND)
    console.print(table, highlight=False)


def _span(one: Certificate, low: int, high: int) -> str:
    if not one.quantiles:
        return ""
    ends = (100 * (one.quantiles[str(share)] - 1) for share in (low, high))
    return "[{:+.1f}, {:+.1f}] %".format(*ends)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
