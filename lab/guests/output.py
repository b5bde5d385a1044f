"""What a guest delivered of each case: all that its workload declares, or an error that says what is missing.

A number that never arrived is an error. It is never taken for a zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.core.errors import GuestFailed, GuestFailure
from lab.guests.channel import CaseOutcome, GuestReport
from lab.workloads import parsers
from lab.workloads.parsers import Document, Unreadable
from lab.workloads.spec import Case, Parse, Workload

_READERS: dict[Parse, Callable[[Sequence[str]], Document]] = {
    "json": parsers.read_json_lines,
    "fio": parsers.read_fio,
    "stress-ng": parsers.read_stress_ng,
}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class _Absent(Exception):
    """A metric that must be there and is not; where says in which output."""

    def __init__(self, metric: str, where: str) -> None:
        super().__init__(metric)
        self.metric = metric
        self.where = where


def collect(report: GuestReport, workload: Workload, cases: Sequence[Case], guest: Path) -> None:
    """Fill in every case's metrics from what it printed; `GuestFailed` when one did not deliver.

    guest: the folder with the guest's console.log and report.jsonl, for the error to name.
    """
    for case in cases:
        outcome = _ended_well(report.case(case.name), case, workload, guest)
        name, log = f"{workload.name}:{case.name}", guest / "report.jsonl"
        try:
            outcome.metrics = _metrics(outcome, workload)
            outcome.series = parsers.read_series(outcome.stdout) if workload.parse == "json" else {}
        except Unreadable as error:
            raise GuestFailed(GuestFailure.MALFORMED, f"{name}: {error}", log=log) from error
        except _Absent as error:
            raise GuestFailed(
                GuestFailure.WORKLOAD,
                f"{name} never reported its metric {error.metric}: {error.where}",
                hint="a metric that may be missing is declared with optional = true",
                log=log,
            ) from error
        if workload.operations and not outcome.metrics.get(workload.operations):
            raise GuestFailed(GuestFailure.WORKLOAD, f"{name} counted no operations ({workload.operations})", log=log)


def _ended_well(outcome: CaseOutcome | None, case: Case, workload: Workload, guest: Path) -> CaseOutcome:
    log = guest / "report.jsonl"
    name = f"{workload.name}:{case.name}"
    if outcome is None or not outcome.ended:
        raise GuestFailed(GuestFailure.NO_REPORT, f"{name} never ended", log=log)
    last = _last_words(outcome)
    if outcome.oom_kills:
        raise GuestFailed(
            GuestFailure.OOM,
            f"{name} was killed because the guest ran out of memory ({workload.memory_mb} MiB)",
            hint="choose a smaller case, or raise memory_mb in its workload.toml",
            log=guest / "console.log",
        )
    if outcome.error:
        raise GuestFailed(GuestFailure.WORKLOAD, f"{name} could not be started: {outcome.error}", log=log)
    if outcome.signal:
        raise GuestFailed(GuestFailure.WORKLOAD, f"{name} was killed by signal {outcome.signal}: {last}", log=log)
    if outcome.status:
        raise GuestFailed(GuestFailure.WORKLOAD, f"{name} exited with status {outcome.status}: {last}", log=log)
    return outcome


def _last_words(outcome: CaseOutcome) -> str:
    """What a program said last: of its errors, else of its output; some complain there."""
    for lines in (outcome.stderr, outcome.stdout):
        for line in reversed(lines):
            if line.strip():
                return line.strip()
    return "it printed no error"


def _metrics(outcome: CaseOutcome, workload: Workload) -> dict[str, float]:
    """The numbers that are there; `_Absent` for one that is not and must be."""
    documents: dict[Parse, Document] = {}
    found = _printed(outcome) if workload.open_metrics else {}
    for metric in workload.metrics:
        parse = metric.parse or workload.parse
        if parse == "regex":
            value, where = parsers.number(outcome.stdout, metric.pattern), f"nothing matches {metric.pattern!r}"
        else:
            if parse not in documents:
                documents[parse] = _document(parse, outcome)
            place = metric.field or metric.name
            value, where = documents[parse].number(place), f"{documents[parse].program} printed no {place}"
        if value is not None:
            found[metric.name] = value
        elif not metric.optional:
            raise _Absent(metric.name, where)
    return found


def _document(parse: Parse, outcome: CaseOutcome) -> Document:
    """What one format finds in a case's output. What the guest itself counted is a document, too."""
    return Document(values=outcome.usage, program="the guest") if parse == "guest" else _READERS[parse](outcome.stdout)


def _printed(outcome: CaseOutcome) -> dict[str, float]:
    """All that a program printed as JSON metrics, declared or not."""
    document = parsers.read_json_lines(outcome.stdout)
    found = {}
    for name in document.values:
        if not _NAME.fullmatch(name):
            raise Unreadable(f"it printed a metric called {name!r}; names are of a-z, 0-9, '.', '_' and '-'")
        value = document.number(name)
        if value is not None:
            found[name] = value
    return found
