"""The metrics of each case, from the output of its program.

A metric that is declared and missing is an error, never a zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.core.errors import GuestFailed, GuestFailure
from lab.guests.channel import CaseFailure, CaseOutcome, GuestReport
from lab.guests.run import CONSOLE, REPORT
from lab.workloads import parsers
from lab.workloads.parsers import Document, Unparsable
from lab.workloads.spec import Case, Parse, Workload

_READERS: dict[Parse, Callable[[Sequence[str]], Document]] = {
    "json": parsers.read_json_lines,
    "fio": parsers.read_fio,
    "stress-ng": parsers.read_stress_ng,
}
UNSUPPORTED_STATUS = 4
"""The status of a program whose kernel lacks something that it needs, as kselftest's; it also names that."""
_UNSUPPORTED = re.compile(r"\bnot supported on this kernel: (.+)")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def collect(report: GuestReport, workload: Workload, cases: Sequence[Case], guest: Path) -> None:
    """Fill in every case's metrics from its output. `GuestFailed` when a case failed or a metric is missing.

    guest: the guest's folder, whose files the error names.
    """
    for case in cases:
        _collect_case(report.case(case.name), workload, case, guest)


def collect_some(report: GuestReport, workload: Workload, cases: Sequence[Case], guest: Path) -> None:
    """Fill in the metrics of every case that gave them, and the failure of every other one.

    A case that ran several times failed if it did once.
    """
    for case in cases:
        outcomes = report.outcomes(case.name)
        if not outcomes:
            _collect_case(None, workload, case, guest)
        try:
            for outcome in outcomes:
                _collect_case(outcome, workload, case, guest)
        except GuestFailed as error:
            log = error.log.name if error.log else None
            for outcome in outcomes:
                outcome.failure = CaseFailure(kind=error.kind, message=error.message, hint=error.hint, log=log)
                outcome.metrics, outcome.series = {}, {}


def _collect_case(found: CaseOutcome | None, workload: Workload, case: Case, guest: Path) -> None:
    outcome = _successful(found, case, workload, guest)
    name, log = f"{workload.name}:{case.name}", guest / REPORT
    try:
        outcome.metrics = _metrics(outcome, workload, log)
        outcome.series = parsers.read_series(outcome.stdout) if workload.parse == "json" else {}
    except Unparsable as error:
        raise GuestFailed(GuestFailure.MALFORMED, f"{name}: {error}", log=log) from error
    if workload.operations and not outcome.metrics.get(workload.operations):
        raise GuestFailed(GuestFailure.WORKLOAD, f"{name} counted no operations ({workload.operations})", log=log)


def _successful(outcome: CaseOutcome | None, case: Case, workload: Workload, guest: Path) -> CaseOutcome:
    log = guest / REPORT
    name = f"{workload.name}:{case.name}"
    if outcome is None or not outcome.ended:
        raise GuestFailed(GuestFailure.NO_REPORT, f"{name} never ended", log=log)
    last = _last_line(outcome)
    if outcome.oom_kills:
        who, limit = f"the guest ran out of memory ({workload.memory_mb} MiB)", "memory_mb in its workload.toml"
        console = guest / CONSOLE
        if console.is_file() and "Memory cgroup out of memory" in console.read_text(errors="replace"):
            who, limit = "its cgroup ran out of memory", "cgroup.memory.max"
        raise GuestFailed(
            GuestFailure.OOM,
            f"{name} was killed because {who}",
            hint=f"choose a smaller case, or raise {limit}",
            log=console,
        )
    if outcome.error:
        raise GuestFailed(GuestFailure.WORKLOAD, f"{name} could not be started: {outcome.error}", log=log)
    if outcome.signal:
        raise GuestFailed(GuestFailure.WORKLOAD, f"{name} was killed by signal {outcome.signal}: {last}", log=log)
    if message := unsupported(outcome, workload):
        raise GuestFailed(GuestFailure.UNSUPPORTED, message, hint="leave it out, or take another kernel", log=log)
    if outcome.status:
        raise GuestFailed(GuestFailure.WORKLOAD, f"{name} exited with status {outcome.status}: {last}", log=log)
    return outcome


def unsupported(outcome: CaseOutcome, workload: Workload) -> str | None:
    """The error of a case that the kernel lacks, as its program said; None for any other."""
    why = _UNSUPPORTED.search(_last_line(outcome)) if outcome.status == UNSUPPORTED_STATUS else None
    return f"{workload.name}:{outcome.name} is not supported on this kernel: {why[1]}" if why else None


def _last_line(outcome: CaseOutcome) -> str:
    """The last line of a program's errors, else of its output, in which some programs complain."""
    for lines in (outcome.stderr, outcome.stdout):
        for line in reversed(lines):
            if line.strip():
                return line.strip()
    return "it printed no error"


def _metrics(outcome: CaseOutcome, workload: Workload, log: Path) -> dict[str, float]:
    """The declared metrics, and the others if the workload is open to them."""
    # By format. The guest's init counted the usage.
    documents: dict[Parse, Document] = {"guest": Document(values=outcome.usage, program="the guest")}
    values = _printed(outcome) if workload.open_metrics else {}
    for metric in workload.metrics:
        parse = metric.parse or workload.parse
        if parse == "regex":
            value, where = parsers.number(outcome.stdout, metric.pattern), f"nothing matches {metric.pattern!r}"
        else:
            if parse not in documents:
                documents[parse] = _READERS[parse](outcome.stdout)
            field = metric.field or metric.name
            value, where = documents[parse].number(field), f"{documents[parse].program} printed no {field}"
        if value is not None:
            values[metric.name] = value
        elif not metric.optional:
            raise GuestFailed(
                GuestFailure.WORKLOAD,
                f"{workload.name}:{outcome.name} never reported its metric {metric.name}: {where}",
                hint="a metric that may be missing is declared with optional = true",
                log=log,
            )
    return values


def _printed(outcome: CaseOutcome) -> dict[str, float]:
    """All JSON metrics that a program printed, declared or not."""
    document = parsers.read_json_lines(outcome.stdout)
    values = {}
    for name in document.values:
        if not _NAME.fullmatch(name):
            raise Unparsable(f"it printed a metric called {name!r}; names are of a-z, 0-9, '.', '_' and '-'")
        value = document.number(name)
        if value is not None:
            values[name] = value
    return values
