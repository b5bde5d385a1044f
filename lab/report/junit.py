"""`junit` and `ktap`: test results. A regression fails, what could not be measured is an error, the undecided skipped.

The rules of `junit` are those of the schema for Ant's JUnit reports, which is the strictest one in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as Xml

from lab.compare import counters
from lab.compare.results import AbResult, CaseResult
from lab.report import wording
from lab.report.inputs import Comparisons, StoredComparison
from lab.report.wording import shown
from lab.stats.verdict import Outcome

_MOST_MOVERS = 10


def comparison(comparisons: Comparisons) -> str:
    """One test suite per result, one test case per case."""
    top = Xml.Element("testsuites")
    for number, item in enumerate(comparisons.items):
        top.append(_suite(item, number, comparisons.mark))
    Xml.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(top, encoding="unicode") + "\n"


def kind(case: CaseResult) -> str:
    """The state of a case in JUnit: `passed`, `failure`, `error` or `skipped`."""
    if case.word == "unsupported":
        return "skipped"
    if not case.is_measured:
        return "error"
    return {Outcome.REGRESSION: "failure", Outcome.UNKNOWN: "skipped"}.get(case.verdict, "passed")


def not_measured(case: CaseResult) -> str:
    """The reason for missing numbers in two words."""
    return "failed" if case.failed else "not measured"


def skipped(result: AbResult, case: CaseResult) -> str:
    """The reason why a case has no verdict."""
    return result.why(case) if case.failed else f"undecided: {result.why(case)}"


def _suite(item: StoredComparison, number: int, mark: str) -> Xml.Element:
    result = item.result
    kinds = [kind(case) for case in result.cases]
    suite = Xml.Element(
        "testsuite",
        name=f"lab {result.result}",
        package="lab",
        id=str(number),
        timestamp=datetime.fromisoformat(result.started).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        hostname="localhost",
        tests=str(len(kinds)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{result.seconds:.3f}",
    )
    properties = Xml.SubElement(suite, "properties")
    for name, value in _properties(item, mark):
        Xml.SubElement(properties, "property", name=name, value=value)
    for case in result.cases:
        suite.append(_case(item, case))
    Xml.SubElement(suite, "system-out").text = wording.sentence(result)
    Xml.SubElement(suite, "system-err").text = mark
    return suite


def _properties(item: StoredComparison, mark: str) -> list[tuple[str, str]]:
    result = item.result
    around = result.environment
    properties = [
        ("verdict", str(result.verdict)),
        ("threshold", f"{result.threshold:g}"),
        ("base", str(result.base)),
        ("test", str(result.test)),
        ("mode", result.mode),
        ("model", around.model),
        ("qemu", around.qemu),
        ("fingerprint", around.fingerprint),
        ("reproduce", result.repeat),
    ]
    return [*properties, ("environments", mark)] if mark else properties


def _case(item: StoredComparison, case: CaseResult) -> Xml.Element:
    # The cases of one boot are not timed apart; the suite has the time of all.
    element = Xml.Element("testcase", name=case.case, classname=f"lab.{case.workload}", time="0")
    match kind(case):
        case "failure":
            moved = f"{wording.moved(case, item.result)} ({wording.threshold(item.result)})"
            failure = Xml.SubElement(element, "failure", message=moved, type="regression")
            failure.text = "\n".join(_movers(item.result, case))
        case "error":
            Xml.SubElement(element, "error", message=item.result.why(case), type=not_measured(case))
        case "skipped":
            Xml.SubElement(element, "skipped", message=skipped(item.result, case))
    return element


def _movers(result: AbResult, case: CaseResult) -> list[str]:
    """The metrics that moved, the primary one first."""
    return [
        f"{c.name}: {wording.change(c)} ({shown(c.base)} -> {shown(c.test)} {wording.unit(c, result)})"
        for c in [case.primary, *counters.changed(case)[:_MOST_MOVERS]]
    ]


# ---- ktap: the kernel's own test format, version 1 (Documentation/dev-tools/ktap.rst)


def ktap(comparisons: Comparisons) -> str:
    """One test per workload, its cases as subtests; with several results, one test per result around that."""
    lines = ["KTAP version 1"]
    if comparisons.mark:
        lines.append(f"# {comparisons.mark}")
    if comparisons.several:
        lines.append(f"1..{len(comparisons.items)}")
        for number, item in enumerate(comparisons.items, 1):
            name = _ktap_description(item.result.result)
            lines += _ktap_indented(["KTAP version 1", f"# Subtest: {name}", *_ktap_workloads(item)])
            lines.append(f"{_ktap_result(item.result.cases)} {number} {name}")
    else:
        lines += _ktap_workloads(comparisons.items[0])
    return "\n".join(lines) + "\n"


def _ktap_workloads(item: StoredComparison) -> Iterator[str]:
    names = list(dict.fromkeys(case.workload for case in item.result.cases))
    yield f"# {wording.sentence(item.result)}"
    yield f"1..{len(names)}"
    for number, name in enumerate(names, 1):
        cases = [case for case in item.result.cases if case.workload == name]
        yield from _ktap_indented(["KTAP version 1", f"# Subtest: {_ktap_description(name)}", f"1..{len(cases)}"])
        for index, case in enumerate(cases, 1):
            yield from _ktap_indented(_ktap_case(item, case, index))
        yield f"{_ktap_result(cases)} {number} {_ktap_description(name)}"


def _ktap_case(item: StoredComparison, case: CaseResult, index: int) -> list[str]:
    return [*(f"# {note}" for note in case.notes), *_ktap_judged(item, case, index)]


def _ktap_judged(item: StoredComparison, case: CaseResult, index: int) -> list[str]:
    diagnosis = f"# {case.verdict}: {wording.moved(case, item.result)}"
    line = f"{index} {_ktap_description(case.case)}"
    match kind(case):
        case "failure":
            return [diagnosis, f"not ok {line}"]
        case "error":
            return [f"# {item.result.why(case)}", f"not ok {line} # ERROR {not_measured(case)}"]
        case "skipped":
            return [diagnosis, f"ok {line} # SKIP {skipped(item.result, case)}"]
    return [diagnosis, f"ok {line}"]


def _ktap_result(cases: Sequence[CaseResult]) -> str:
    return "not ok" if any(kind(case) in ("failure", "error") for case in cases) else "ok"


def _ktap_description(text: str) -> str:
    """A name in which no directive can begin."""
    return text.replace("#", "\\x23")


def _ktap_indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
