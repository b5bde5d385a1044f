"""What a guest delivered of each case: all that its workload declares, or an error that says what is missing.

A number that never arrived is an error. It is never taken for a zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.channel import CaseOutcome, GuestReport
from lab.errors import GuestFailed
from lab.parsers import fio, jsonlines, regex, stress_ng
from lab.parsers.document import Document, Unreadable
from lab.workload import Case, Metric, Parse, Workload

_READERS: dict[Parse, Callable[[Sequence[str]], Document]] = {
    "json": jsonlines.read,
    "fio": fio.read,
    "stress-ng": stress_ng.read,
}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def collect(report: GuestReport, workload: Workload, cases: Sequence[Case], guest: Path) -> None:
    """Fill in every case's metrics from what it printed; `GuestFailed` when one did not deliver.

    guest: the folder with the guest's console.log and report.jsonl, for the error to name.
    """
    for case in cases:
        outcome = report.case(case.name)
        outcome = _ended_well(outcome, case, workload, guest)
        try:
            outcome.metrics = _metrics(outcome, workload)
        except Unreadable as error:
            raise GuestFailed(
                "malformed", f"{workload.name}:{case.name}: {error}", log=guest / "report.jsonl"
            ) from error
        _require_metrics(outcome, case, workload, guest)


def _ended_well(outcome: CaseOutcome | None, case: Case, workload: Workload, guest: Path) -> CaseOutcome:
    log = guest / "report.jsonl"
    name = f"{workload.name}:{case.name}"
    if outcome is None or not outcome.ended:
        raise GuestFailed("no-report", f"{name} never ended", log=log)
    last = _last_words(outcome)
    if outcome.oom_kills:
        raise GuestFailed(
            "oom",
            f"{name} was killed because the guest ran out of memory ({workload.memory_mb} MiB)",
            hint="choose a smaller case, or raise memory_mb in its workload.toml",
            log=guest / "console.log",
        )
    if outcome.error:
        raise GuestFailed("workload", f"{name} could not be started: {outcome.error}", log=log)
    if outcome.signal:
        raise GuestFailed("workload", f"{name} was killed by signal {outcome.signal}: {last}", log=log)
    if outcome.status:
        raise GuestFailed("workload", f"{name} exited with status {outcome.status}: {last}", log=log)
    return outcome


def _last_words(outcome: CaseOutcome) -> str:
    """What a program said last: of its errors, else of its output; some complain there."""
    for lines in (outcome.stderr, outcome.stdout):
        for line in reversed(lines):
            if line.strip():
                return line.strip()
    return "it printed no error"


def _metrics(outcome: CaseOutcome, workload: Workload) -> dict[str, float]:
    documents: dict[Parse, Document] = {}
    found = {}
    for metric in workload.metrics:
        value = _number(metric, metric.parse or workload.parse, outcome, documents)
        if value is not None:
            found[metric.name] = value
    if workload.open_metrics:
        found = {**_printed(outcome), **found}
    return found


def _number(metric: Metric, parse: Parse, outcome: CaseOutcome, documents: dict[Parse, Document]) -> float | None:
    """One metric; each format is read once, and only if something is to be read from it."""
    if parse == "regex":
        return regex.number(outcome.stdout, metric.pattern)
    if parse not in documents:
        documents[parse] = (
            Document(values=outcome.usage, program="the guest") if parse == "guest" else _READERS[parse](outcome.stdout)
        )
    return documents[parse].number(metric.field or metric.name)


def _printed(outcome: CaseOutcome) -> dict[str, float]:
    """All that a program printed as JSON metrics, declared or not."""
    document = jsonlines.read(outcome.stdout)
    found = {}
    for name in document.values:
        if not _NAME.fullmatch(name):
            raise Unreadable(f"it printed a metric called {name!r}; names are of a-z, 0-9, '.', '_' and '-'")
        value = document.number(name)
        if value is not None:
            found[name] = value
    return found


def _require_metrics(outcome: CaseOutcome, case: Case, workload: Workload, guest: Path) -> None:
    for metric in workload.metrics:
        if metric.name not in outcome.metrics and not metric.optional:
            raise GuestFailed(
                "workload",
                f"{workload.name}:{case.name} never reported its metric {metric.name}",
                hint="its output is in the log; a metric that may be missing is declared with optional = true",
                log=guest / "report.jsonl",
            )
    if workload.operations and not outcome.metrics.get(workload.operations):
        raise GuestFailed(
            "workload",
            f"{workload.name}:{case.name} counted no operations ({workload.operations})",
            log=guest / "report.jsonl",
        )
