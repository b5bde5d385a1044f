"""`lab report`, which shows stored results, and `lab replay`, which measures them again."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent

import click
from rich.console import Console

from lab import report as lab_report
from lab.bisection import answer, session
from lab.bisection.answer import Answer
from lab.cli import options
from lab.compare import result_folders
from lab.compare.matrix_results import MatrixResult
from lab.compare.replay import replay as replay_result
from lab.compare.results import AbResult
from lab.core import records
from lab.core.errors import GuestFailed, GuestFailure, HostFailed, UserError
from lab.core.git import short
from lab.core.text import UNBOUND, ago, columns, visible, width_of, wrapped
from lab.guests.exact import QEMU
from lab.guests.run import GUEST_TIMEOUT_S
from lab.report import bisection_text, inputs, matrix_text, text
from lab.report.bundle import write
from lab.report.bundle.replay import ReplayOptions, is_bundle
from lab.report.bundle.replay import replay as replay_bundle
from lab.report.inputs import Comparisons, StoredBisection, StoredMatrix

_BUNDLE = "bundle"


@click.command()
@click.argument("result_ids", metavar="[ID...]", nargs=-1, shell_complete=options.complete_result)
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice([*lab_report.NAMES, _BUNDLE]),
    help="How to show it (default: a table). A bundle is all that repeats it without this lab.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Write it to a file; a bundle to a new folder, or a file called *.tar.zst.",
)
@click.option("--anyway", is_flag=True, help="Show results of different environments together, marked as such.")
@click.option("--delete", is_flag=True, help="Delete these results, with all that was measured for them.")
@options.json_output
def report(
    result_ids: tuple[str, ...], form: str | None, output: Path | None, anyway: bool, delete: bool, as_json: bool
) -> None:
    """Show stored results again, in any format; without an ID, list all of them. `latest` is the newest finished one.

    Nothing is measured again. Several IDs are shown side by side, if their environments are the same.

    \b
    Example:
      lab report latest --format html --output report.html
    """
    if as_json and form not in (None, "json"):
        raise UserError(f"--json and --format {form} contradict each other", hint="give one of them")
    form = "json" if as_json else form
    if delete and (form or output or anyway):
        raise UserError("--delete shows nothing", hint="leave the other options out")
    if not result_ids:
        if form not in (None, "json") or output or anyway or delete:
            raise UserError("which result?", hint="`lab report` lists them; `latest` is the newest")
        _list(as_json=form == "json")
    elif delete:
        for folder in [result_folders.open_folder(reference) for reference in result_ids]:
            result_folders.delete(folder)
            click.echo(f"deleted {result_folders.reference(folder)}", err=True)
    elif form == _BUNDLE:
        _write_bundle(result_ids, output)
    else:
        _show(result_ids, form, output, anyway=anyway)


def _show(references: tuple[str, ...], form: str | None, output: Path | None, *, anyway: bool) -> None:
    """Show one result of any kind, or several comparisons."""
    if form == "html" and output is None and sys.stdout.isatty():
        raise UserError("a page cannot be read on a terminal", hint="write it to a file with --output")
    stored = inputs.open_stored(references, anyway=anyway)
    if form or output:
        _write(lab_report.render(form or "text", stored), output)
        return
    match stored:
        case Comparisons(items=[comparison]):
            text.show(comparison.raw, Console())
        case StoredMatrix():
            matrix_text.show(stored.raw, Console())
        case StoredBisection():
            click.echo(bisection_text.render(stored.answer, width_of()), nl=False)
        case _:
            click.echo(lab_report.render("text", stored), nl=False)


def _write_bundle(result_ids: tuple[str, ...], output: Path | None) -> None:
    if len(result_ids) > 1:
        raise UserError("a bundle contains one result", hint="give one ID")
    if output is None:
        raise UserError("a bundle requires --output", hint="name a new folder, or a file *.tar.zst")
    folder = result_folders.open_folder(result_ids[0])
    bisected = answer.load(folder) if result_folders.kind(folder) == session.KIND else None
    (stored,) = inputs.open_comparisons([bisected.proof_result()] if bisected else result_ids).items
    with options.work() as work:
        write.write(stored, output, work)
    click.echo(f"wrote {output}", err=True)


def _write(text: str, path: Path | None) -> None:
    if path is None:
        click.echo(text, nl=False)
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder", hint="name a file")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}", hint="make it, or write elsewhere")
    records.write_atomic(path, text.encode())
    click.echo(f"wrote {path}", err=True)


def _list(*, as_json: bool) -> None:
    """List all finished comparisons, matrices and bisections."""
    compared, matrices = result_folders.finished(), result_folders.all_finished(MatrixResult)
    bisected = result_folders.all_finished(Answer)
    if as_json:
        document = {
            "schema": "lab.results/1",
            "results": [{**_id(r), "base": r.base.spec, "test": r.test.spec, "verdict": r.verdict} for r in compared],
            "matrices": [{**_id(m), "arms": [arm.label for arm in m.arms], "summary": m.summary} for m in matrices],
            "bisections": [{**_id(b), "old": b.old.id, "new": b.new.id, "outcome": b.outcome} for b in bisected],
            "unfinished": [{"result": result_folders.reference(folder)} for folder in result_folders.unfinished()],
        }
        options.print_json(document)
        return
    rows = [*map(_compared, compared), *map(_measured, matrices), *map(_bisected, bisected)]
    rows += [_unfinished(folder) for folder in result_folders.unfinished()]
    for line in _lines(sorted(rows), width_of()):
        click.echo(line)


def _lines(rows: Sequence[Row], width: int) -> Iterator[str]:
    """A line for each result; on a terminal, the arms go below, indented."""
    cells = [tuple(map(visible, (name, ago(_age_s(when)), *rest))) for when, name, *rest in rows]
    if width >= UNBOUND:
        yield from columns(cells)
        return
    for heading, (*_, compared) in zip(columns([row[:-1] for row in cells]), cells, strict=True):
        yield wrapped(heading, _INDENT, width)
        yield indent(wrapped(compared, 0, width - _INDENT), " " * _INDENT)


def _age_s(started: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(started)).total_seconds()


_INDENT = 4
_MOST_NAMES = 3
Row = tuple[str, str, str, str, str]
"""A listed result's beginning, name, verdict, workload, and arms."""


def _compared(r: AbResult) -> Row:
    ran = f"--suite {r.suite}" if r.suite else _cases([(case.workload, case.case) for case in r.cases])
    return r.started, r.result, r.verdict, ran, f"{r.base.spec} .. {r.test.spec}  ({r.reason})"


def _measured(m: MatrixResult) -> Row:
    ran = _cases([(cell.workload, cell.case) for cell in m.cells])
    return m.started, m.result, "matrix", ran, f"{len(m.arms)} arms  ({m.summary})"


def _bisected(b: Answer) -> Row:
    culprits = ", ".join(short(change.commit) for change in b.changes) or b.reason
    return b.started, b.result, b.outcome, f"{b.workload}:{b.case}", f"{b.old.name} .. {b.new.name}  ({culprits})"


def _cases(pairs: Iterable[tuple[str, str]]) -> str:
    """The cases as `--workload` names them; many cases of a workload appear as a count."""
    by_workload: dict[str, list[str]] = {}
    for workload, case in dict.fromkeys(pairs):
        by_workload.setdefault(workload, []).append(case)
    return " ".join(
        f"{workload}:{','.join(cases)}" if len(cases) <= _MOST_NAMES else f"{workload} ({len(cases)} cases)"
        for workload, cases in by_workload.items()
    )


def _unfinished(folder: Path) -> Row:
    began = datetime.fromtimestamp((folder / "plan.json").stat().st_mtime, UTC).isoformat()
    try:
        then = f"to go on: {result_folders.resume_command(folder)}"
    except HostFailed as error:
        records.warn_once(error.message)
        then = "its plan cannot be read"
    return began, result_folders.reference(folder), "unfinished", "", then


def _id(result: AbResult | MatrixResult | Answer) -> dict[str, str]:
    return {"result": result.result, "started": result.started}


@click.command()
@click.argument("what", metavar="ID|BUNDLE", shell_complete=options.complete_result)
@click.option("--qemu", help=f"The QEMU to replay a bundle with ({QEMU}).")
@options.guest_timeout_of("as in the stored result; a bundle's 300s")
@click.option("--trust-plugin", is_flag=True, help="Build and run a bundle's cost plugin that is not this lab's.")
@options.jobs
@options.quiet
@options.json_output
def replay(
    what: str, qemu: str | None, guest_timeout: float | None, trust_plugin: bool, jobs: int | None, as_json: bool
) -> None:
    """Measure a stored result again, guest by guest, and compare every number to the last digit.

    A bundle (`lab report ID --format bundle`), as a folder or a file, is checked and then run from its own files.
    Exits 4 if a number differs.

    \b
    Example:
      lab replay latest
      lab replay regression.tar.zst
    """
    with options.work(jobs) as work:
        if is_bundle(what):
            how = ReplayOptions(qemu=qemu or QEMU, guest_timeout_s=guest_timeout or GUEST_TIMEOUT_S, trust=trust_plugin)
            replayed = replay_bundle(Path(what), how, work)
        elif qemu or trust_plugin:
            raise UserError(
                "--qemu and --trust-plugin require a bundle", hint="a stored result is measured again as it was"
            )
        else:
            replayed = replay_result(what, work, guest_timeout_s=guest_timeout)
    count = len(replayed.differences)
    lines = [*replayed.differences, f"{replayed.result}: {replayed.guests} guests run again, {count} numbers differ"]
    if replayed.environment:
        lines.append(f"the environment differs in: {', '.join(replayed.environment)}")
    options.show(replayed, lines, as_json=as_json)
    if replayed.differences:
        raise GuestFailed(
            GuestFailure.MALFORMED,
            f"{count} numbers of {replayed.result} came out differently",
            hint="the environment differs"
            if replayed.environment
            else "the same environment must give the same: please report it",
        )
