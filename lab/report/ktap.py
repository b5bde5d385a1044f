"""`ktap`: the kernel's own test format, version 1 (Documentation/dev-tools/ktap.rst)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.compare.results import CaseResult
from lab.report import junit, wording
from lab.report.inputs import Report, Reports
from lab.stats.verdict import Outcome


def render(reports: Reports) -> str:
    """One test per workload, its cases as subtests; with several results, one test per result around that."""
    lines = ["KTAP version 1"]
    if reports.mark:
        lines.append(f"# {reports.mark}")
    if reports.several:
        lines.append(f"1..{len(reports.items)}")
        for number, item in enumerate(reports.items, 1):
            name = _description(item.result.result)
            lines += _indented(["KTAP version 1", f"# Subtest: {name}", *_workloads(item)])
            lines.append(f"{_result(item.result.cases)} {number} {name}")
    else:
        lines += _workloads(reports.items[0])
    return "\n".join(lines) + "\n"


def _workloads(item: Report) -> Iterator[str]:
    names = list(dict.fromkeys(case.workload for case in item.result.cases))
    yield f"# {wording.sentence(item.result)}"
    yield f"1..{len(names)}"
    for number, name in enumerate(names, 1):
        cases = [case for case in item.result.cases if case.workload == name]
        yield from _indented(["KTAP version 1", f"# Subtest: {_description(name)}", f"1..{len(cases)}"])
        for index, case in enumerate(cases, 1):
            yield from _indented(_case(item, case, index))
        yield f"{_result(cases)} {number} {_description(name)}"


def _case(item: Report, case: CaseResult, index: int) -> list[str]:
    primary = case.primary
    words = f"{primary.name} {wording.change(primary)} {primary.interval_text}".rstrip()
    diagnosis = f"# {case.verdict}: {words}, {wording.unit(primary, item.result)}"
    line = f"{index} {_description(case.case)}"
    match junit.kind(case):
        case "failure":
            return [diagnosis, f"not ok {line}"]
        case "error":
            return [f"# {primary.reason}", f"not ok {line} # ERROR not measured"]
        case "skipped":
            return [diagnosis, f"ok {line} # SKIP undecided: {wording.why(case, item.result)}"]
    return [diagnosis, f"ok {line}"]


def _result(cases: Sequence[CaseResult]) -> str:
    bad = any(case.verdict == Outcome.REGRESSION or not wording.measured(case) for case in cases)
    return "not ok" if bad else "ok"


def _description(text: str) -> str:
    """A name in which no directive can begin."""
    return text.replace("#", "\\x23")


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
