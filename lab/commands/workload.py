"""`lab workload`: what can be measured."""

from __future__ import annotations

import click
import msgspec

from lab import workloads


@click.group()
def workload() -> None:
    """List and show what can be measured.

    Example: lab workload show alloc-burst
    """


@workload.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(as_json: bool) -> None:
    """List the workloads.

    Example: lab workload list
    """
    found = workloads.list_workloads()
    if as_json:
        document = [
            {"name": each.name, "story": each.story, "cases": [case.name for case in each.cases]} for each in found
        ]
        _print_json({"schema": "lab.workloads/1", "workloads": document})
        return
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        click.echo(f"{each.name:<{width}}  {len(each.cases):>3} cases  {each.story}")


@workload.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_command(name: str, as_json: bool) -> None:
    """Show a workload: its cases, its metrics and what they mean. NAME is a name or a folder (./mine).

    Example: lab workload show alloc-burst
    """
    shown = workloads.load(name)
    if as_json:
        document = msgspec.to_builtins(shown, enc_hook=str)
        _print_json({"schema": "lab.workload/1", **document})
        return
    click.echo(f"{shown.name}: {shown.story}")
    click.echo(f"guest: {shown.memory_mb} MiB, {shown.vcpus} vCPU")
    click.echo("\nmetrics (* is the one a verdict is about):")
    _print_rows(
        [
            (
                ("* " if metric.primary else "  ") + metric.name,
                metric.unit,
                "" if metric.better == "neither" else f"{metric.better} is better",
                metric.description,
            )
            for metric in shown.metrics
        ]
    )
    click.echo("\ncases (controls are expected not to change):")
    _print_rows([("  " + case.name, "control" if case.control else "", case.note) for case in shown.cases])
    if shown.case_pattern:
        click.echo(f"\nany other case of this form can be asked for:\n  {shown.case_pattern}")


def _print_json(document: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())


def _print_rows(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
