"""`lab workload`: lists, shows and checks workloads."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from lab.cli import options
from lab.compare import check
from lab.compare.check import WorkloadCheck
from lab.core import records
from lab.core.errors import LabError
from lab.core.text import UNBOUND, columns, listed, plural, width_of, wrapped
from lab.report import templates
from lab.workloads import selection
from lab.workloads.selection import Suite
from lab.workloads.spec import Case, Metric, Workload, limits, turns_note


def render(workload: Workload, width: int = UNBOUND) -> str:
    """A workload as text for people: its guest, its metrics, its cases."""
    note = "" if workload.contends else turns_note(workload.vcpus)
    unseen = [limit for limit in limits().values() if not (workload.contends and limit.turns)]
    return templates.text(
        "workload.txt.j2",
        workload=workload,
        width=width,
        guest=_guest(workload),
        metrics=[_metric(metric) for metric in workload.metrics],
        cases=[_case(workload, case) for case in workload.cases],
        groups=[(f"  {name}", plural(len(cases), "case")) for name, cases in workload.groups.items()],
        unseen=[(f"  {limit.name}", limit.brief) for limit in unseen],
        note=note,
        columns=columns,
        wrapped=wrapped,
    ).removesuffix("\n")


def render_suite(suite: Suite) -> str:
    """A suite as text for people: its groups with their cases."""
    lines = [f"{suite.name}: {suite.description}", f"run it:     lab ab --base SPEC --test SPEC --suite {suite.name}"]
    for group, cases in suite.cases().items():
        lines += ["", f"{group}, {plural(len(cases), 'case')}:", *(f"  {name}" for name in cases)]
    return "\n".join(lines)


def _guest(workload: Workload) -> list[tuple[str, str]]:
    """The guest, and the program in it."""
    guests = "one for each case" if workload.isolate else "one for all cases"
    facts = [
        ("guest", f"{workload.memory_mb} MiB, {workload.vcpus} vCPU, {guests}"),
        ("runs", " ".join((workload.program, *workload.argv))),
        ("setup", " ".join(workload.setup)),
        ("packages", ", ".join(workload.packages)),
        ("files", ", ".join(workload.files)),
        ("settings", ", ".join(f"{name}={value}" for name, value in workload.settings.items())),
        ("cmdline", " ".join(workload.cmdline)),
        ("env", " ".join(f"{name}={value}" for name, value in workload.env.items())),
        ("kconfig", ", ".join(workload.kconfig)),
        ("cost model", workload.model),
        ("read as", workload.parse),
    ]
    return [(f"{name}:", value) for name, value in facts if value]


def _case(workload: Workload, case: Case) -> tuple[str, ...]:
    notes = [case.note]
    if options := workload.kconfig_of(case):
        notes.append(f"needs {', '.join(options)}")
    if unseen := workload.unseen_in(case):
        notes.append(f"unseen: {', '.join(unseen)}")
    if why := workload.only_exact(case):
        notes.append(f"not in live mode: {why}")
    note = "; ".join(filter(None, notes))
    return (f"  {case.name}", *([case.group] if case.group else []), "control" if case.control else "", note)


def _metric(metric: Metric) -> tuple[str, ...]:
    return (
        ("* " if metric.primary else "  ") + metric.name,
        metric.unit,
        "" if metric.better == "neither" else f"{metric.better} is better",
        metric.description + (" (may be missing)" if metric.optional else ""),
    )


@click.group()
def workload() -> None:
    """List, show, begin and check workloads.

    Example: lab workload show alloc-burst
    """


@workload.command("list")
@options.json_output
def list_command(as_json: bool) -> None:
    """List the workloads, and the suites of their cases.

    Example: lab workload list
    """
    workloads, suites = selection.list_workloads(), selection.suites().values()
    if as_json:
        document = [
            {
                "name": each.name,
                "story": each.story,
                "cases": [case.name for case in each.cases],
                "groups": {name: [case.name for case in cases] for name, cases in each.groups.items()},
                "case_files": each.case_files or None,
                "model": each.model,
                "isolate": each.isolate,
            }
            for each in workloads
        ]
        named = [{"name": each.name, "description": each.description, "groups": each.cases()} for each in suites]
        options.print_in_order({"schema": "lab.workloads/1", "workloads": document, "suites": named})
        return
    rows = [(each.name, f"{plural(len(each.cases), 'case'):>9}", each.story) for each in workloads]
    rows += [
        (each.name, f"{plural(sum(map(len, each.cases().values())), 'case'):>9}", each.description) for each in suites
    ]
    lines = columns(rows, width=width_of())
    for line in (*lines[: len(workloads)], "", "suites (--suite NAME):", *lines[len(workloads) :]):
        click.echo(line)


@workload.command("show")
@click.argument("name", shell_complete=options.complete_workload)
@options.json_output
def show_command(name: str, as_json: bool) -> None:
    """Show a workload: its guest, its metrics, its cases. NAME is a name or a folder (./mine), or that of a suite.

    Example: lab workload show alloc-burst
    """
    if (suite := selection.suites().get(name)) is not None:
        if as_json:
            options.print_in_order({"schema": "lab.suite/1", **records.plain(suite), "groups": suite.cases()})
        else:
            click.echo(render_suite(suite))
        return
    shown = selection.load(name)
    if as_json:
        limited = {"limits": records.plain(list(limits().values()))}
        options.print_in_order({"schema": "lab.workload/1", **msgspec.to_builtins(shown, enc_hook=str), **limited})
    else:
        click.echo(render(shown, width_of()))


@workload.command("init")
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
def init_command(folder: Path) -> None:
    """Write a workload to begin with: a new folder with a small C program, its Makefile and workload.toml.

    \b
    Example:
      lab workload init mine
    """
    files = selection.init(folder)
    ref = folder if folder.is_absolute() else f"./{folder}"
    click.echo(f"wrote {listed([str(file) for file in files], 'and')}")
    click.echo(f"check it:   lab workload check {ref}\nmeasure it: lab ab --base SPEC --test SPEC -w {ref}")


@workload.command("check")
@click.argument("refs", metavar="REF...", nargs=-1, required=True, shell_complete=options.complete_workload)
@options.spec("--run", "Also boot this kernel and run the smallest case, twice.")
@options.guest_timeout
@options.jobs
@options.json_output
def check_command(refs: tuple[str, ...], run: str | None, guest_timeout: float, jobs: int | None, as_json: bool) -> int:
    """Check that workloads are sound: their files, their programs in the image, their sources.

    REF is a name or a folder, with cases (./mine:large) or without. Exits 0 when all are sound.

    \b
    Example:
      lab workload check ./mine --run d4148aeab412
    """
    status, rows = 0, []
    with options.work(jobs) as work:
        for ref in refs:
            try:
                checked = check.check(ref, run=run, timeout_s=guest_timeout, work=work)
                rows.append({"ref": ref, "ok": True, **records.plain(checked)})
                line = f"{ref}: ok, {_facts(checked)}"
            except LabError as error:
                status = max(status, error.exit_status)
                rows.append({"ref": ref, "ok": False, "error": error.message, "hint": error.hint, "log": error.log})
                line = f"{ref}: {'; '.join(filter(None, (error.message, error.hint)))}"
                line += f" (log: {error.log})" if error.log else ""
            if not as_json:
                click.echo(line)
    if as_json:
        options.print_in_order({"schema": "lab.workload-check/1", "workloads": msgspec.to_builtins(rows, enc_hook=str)})
    return status


def _facts(checked: WorkloadCheck) -> str:
    facts = [plural(checked.cases, "case"), f"{checked.slice_mb} MiB in the guest"]
    if checked.case:
        metrics = ", ".join(f"{name} {value:g}" for name, value in checked.metrics.items())
        facts.append(f"{checked.case} gave {metrics}")
    if checked.clocked is not None:
        facts.append(
            "its work follows the clock, as it says" if checked.clocked else "its work does not follow the clock"
        )
    return "; ".join(filter(None, [", ".join(facts), turns_note(checked.vcpus)]))
