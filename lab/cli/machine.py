"""`lab machine`: lists, shows and compares the machines that exact mode models, and measures this host as one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import msgspec

from lab.cli import options
from lab.core import records
from lab.core.errors import UserError
from lab.core.text import columns, number
from lab.guests import calibration, hardware, native
from lab.guests.calibration import Measurement
from lab.guests.hardware import Machine

_TABLES = ("tlb", "cache", "prefetch", "overlap", "cost", "coherence", "clock")


@click.group()
def machine() -> None:
    """List, show and compare modelled machines; measure this host as one.

    Example: lab machine list
    """


@machine.command("list")
@options.json_output
def list_command(as_json: bool) -> None:
    """List the machines that come with the lab.

    Example: lab machine list
    """
    rows = [(name, hardware.load(name).description, str(hardware.path_of(name))) for name in hardware.names(None)]
    if as_json:
        listed = [{"name": name, "description": text, "path": path} for name, text, path in rows]
        options.print_in_order({"schema": "lab.machines/1", "machines": listed})
        return
    options.print_lines(columns(rows))


@machine.command("show")
@click.argument("ref", metavar="NAME|FILE", shell_complete=options.complete_machine)
@options.json_output
def show_command(ref: str, as_json: bool) -> None:
    """Show a machine: each value, and its source.

    Example: lab machine show zen4
    """
    shown = hardware.load(ref)
    if as_json:
        options.print_in_order({"schema": "lab.machine/1", **msgspec.to_builtins(shown)})
        return
    values = [(name, text, source) for name, (_, text, source) in _values(shown).items()]
    tables = [*columns(values, right=(1,)), *_mitigations(shown)]
    options.print_lines([f"{shown.name}: {shown.description}", *_host(shown), "", *tables])


@machine.command("compare")
@click.argument("one", metavar="A", shell_complete=options.complete_machine)
@click.argument("other", metavar="B", shell_complete=options.complete_machine)
@options.json_output
def compare_command(one: str, other: str, as_json: bool) -> None:
    """Compare two machines, value by value. A and B are names or files.

    Example: lab machine compare sapphire-rapids zen4
    """
    machines = [hardware.load(ref) for ref in (one, other)]
    a, b = (_values(each) for each in machines)
    rows = [(name, a.get(name), b.get(name)) for name in dict.fromkeys((*a, *b))]
    if as_json:
        values = [{"name": name, "a": x and x[0], "b": y and y[0], "ratio": _ratio(x, y)} for name, x, y in rows]
        names = [each.name for each in machines]
        options.print_in_order({"schema": "lab.machine-comparison/1", "a": names[0], "b": names[1], "values": values})
        return
    table = [("", *(each.name for each in machines), "B/A")]
    for name, x, y in rows:
        ratio = _ratio(x, y)
        table.append((name, x[1] if x else "-", y[1] if y else "-", "-" if ratio is None else f"{ratio:.2f}"))
    options.print_lines(columns(table, right=(1, 2, 3)))


@machine.command("measure")
@options.machine("The machine for values that cannot be measured (default: of the CPU's vendor).", "--like")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("measured.toml"),
    show_default=True,
    help="The machine file to write.",
)
@click.option("--cpu", type=click.IntRange(min=0), help="The CPU to measure on (default: the idlest).")
@click.option("--quick", is_flag=True, help="Fewer sizes and samples: seconds instead of half a minute.")
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@options.json_output
def measure_command(like: str | None, output: Path, cpu: int | None, quick: bool, force: bool, as_json: bool) -> None:
    """Measure this host, and write a machine file for --machine ./FILE.

    Needs a C compiler, no privileges and no performance counters. Values that could not be told apart are named,
    and are taken from another machine.

    \b
    Example:
      lab machine measure --output ./mine.toml
      lab ab --base v6.11 --test v6.12 --machine ./mine.toml
    """
    if output.exists() and not force:
        raise UserError(f"{output} exists", hint="give another --output, or --force to overwrite it")
    base = hardware.load(like or native.nearest(hardware.names()))
    click.echo(f"measuring this host, for {'some seconds' if quick else 'about half a minute'}", err=True)
    samples = native.measure(cpu=cpu, quick=quick)
    name = re.sub(r"[^a-z0-9]+", "-", output.stem.lower()).strip("-") or "measured"
    measured = calibration.fit(
        samples,
        base,
        host=native.this_host(),
        caches=native.cpuid_caches(),
        guest=native.guest_of(base.guest),
        name=name,
    )
    like_whom = f"Written by `lab machine measure`. Values that could not be measured are {base.name}'s, and say why."
    records.write_atomic(output, hardware.to_toml(measured.machine, [like_whom, *measured.notes]).encode())
    if as_json:
        document = {"path": str(output), "like": base.name, "notes": measured.notes, "machine": measured.machine}
        options.print_in_order({"schema": "lab.machine-measured/1", **document})
        return
    options.print_lines(_report(measured, output))


def _report(measured: Measurement, output: Path) -> list[str]:
    """The values beside those of the base machine, remarks on them, and the file."""
    theirs = _values(measured.base)
    rows = [("", "measured", measured.base.name, "")]
    for name, (_, text, source) in _values(measured.machine).items():
        rows.append((name, text, theirs[name][1] if name in theirs else "-", source))
    notes = [f"note: {note}" for note in measured.notes]
    return [measured.machine.description, "", *columns(rows, right=(1, 2)), "", *notes, f"written: {output}"]


def _host(shown: Machine) -> list[str]:
    """The host that a machine was measured on, and its kernel's mitigations of the CPU's flaws."""
    if shown.host is None:
        return []
    where = f"measured on: {shown.host.cpu}, Linux {shown.host.kernel}" + (", in a guest" if shown.host.guest else "")
    return [where, *(f"  {name}: {text}" for name, text in shown.host.mitigations.items())]


def _mitigations(shown: Machine) -> list[str]:
    """The text of each file of vulnerabilities under `mitigations=auto`, and its source."""
    rows = [(f"mitigations.{name}", one.says, one.source) for name, one in shown.mitigations.items()]
    return ["", *columns(rows)] if rows else []


def _values(shown: Machine) -> dict[str, tuple[float, str, str]]:
    """All values by their key: as a number to compare by, as text, and the source."""
    found: dict[str, tuple[float, str, str]] = {}
    for table in _TABLES:
        for name, value in msgspec.to_builtins(getattr(shown, table) or {}).items():
            if isinstance(value, dict):
                amount, unit = _amount(value)
                found[f"{table}.{name}"] = (amount, unit, _origin(value))
    if shown.clock:
        found["clock.ghz"] = (shown.clock.ghz, f"{shown.clock.ghz:g}", shown.clock.source)
    for name, reading in shown.measured.items():
        source = f"{reading.low:g} to {reading.high:g}"
        found[f"measured.{name}"] = (reading.value, number(reading.value), source)
    return found


def _amount(value: dict[str, Any]) -> tuple[float, str]:
    """The number of a value, and the text of all its numbers."""
    if "entries" in value:
        return value["entries"], f"{value['entries']} / {value['ways']} ways"
    if "kib" in value:
        return value["kib"], f"{value['kib']} KiB / {value['ways']} ways"
    amount = value["cycles"] if "cycles" in value else value["count"]
    return amount, f"{amount:g}"


def _origin(value: dict[str, Any]) -> str:
    """The source of a value, behind its range if it has one."""
    words = "estimate" if value.get("estimate") else ""
    if value.get("low") is not None:
        words = f"{words}, " * bool(words) + f"{value['low']:g} to {value['high']:g}"
    return f"{words}: {value['source']}" if words else str(value["source"])


def _ratio(one: tuple[float, str, str] | None, other: tuple[float, str, str] | None) -> float | None:
    if not one or not other:
        return None
    if one[0] == other[0]:
        return 1.0
    return other[0] / one[0] if one[0] else None
