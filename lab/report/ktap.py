"""`ktap`: the kernel's own test format, version 1 (Documentation/dev-tools/ktap.rst)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.compare.results import CaseResult
from lab.report import junit, wording
from lab.report.inputs import Comparisons, StoredComparison


def comparison(comparisons: Comparisons) -> str:
    """One test per workload, its cases as subtests; with several results, one test per result around that."""
    lines = ["KTAP version 1"]
    if comparisons.mark:
        lines.append(f"# {comparisons.mark}")
    if comparisons.several:
        lines.append(f"1..{len(comparisons.items)}")
        for number, item in enumerate(comparisons.items, 1):
            name = _description(item.result.result)
            lines += _indented(["KTAP version 1", f"# Subtest: {name}", *_workloads(item)])
            lines.append(f"{_result(item.result.cases)} {number} {name}")
    else:
        lines += _workloads(comparisons.items[0])
    return "\n".join(lines) + "\n"


def _workloads(item: StoredComparison) -> Iterator[str]:
    names = list(dict.fromkeys(case.workload for case in item.result.cases))
    yield f"# {wording.sentence(item.result)}"
    yield f"1..{len(names)}"
    for number, name in enumerate(names, 1):
        cases = [case for case in item.result.cases if case.workload == name]
        yield from _indented(["KTAP version 1", f"# Subtest: {_description(name)}", f"1..{len(cases)}"])
        for index, case in enumerate(cases, 1):
            yield from _indented(_case(item, case, index))
        yield f"{_result(cases)} {number} {_description(name)}"


def _case(item: StoredComparison, case: CaseResult, index: int) -> list[str]:
    return [*(f"# {note}" for note in case.notes), *_judged(item, case, index)]


def _judged(item: StoredComparison, case: CaseResult, index: int) -> list[str]:
    diagnosis = f"# {case.verdict}: {wording.moved(case, item.result)}"
    line = f"{index} {_description(case.case)}"
    match junit.kind(case):
        case "failure":
            return [diagnosis, f"not ok {line}"]
        case "error":
            return [f"# {item.result.why(case)}", f"not ok {line} # ERROR {junit.not_measured(case)}"]
        case "skipped":
            return [diagnosis, f"ok {line} # SKIP {junit.skipped(item.result, case)}"]
    return [diagnosis, f"ok {line}"]


def _result(cases: Sequence[CaseResult]) -> str:
    return "not ok" if any(junit.kind(case) in ("failure", "error") for case in cases) else "ok"


def _description(text: str) -> str:
    """A name in which no directive can begin."""
    return text.replace("#", "\\x23")


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
