"""`junit`: test results. A regression fails, a case without a measurement is an error, an undecided one is skipped.

The rules of `junit` are those of the schema for Ant's JUnit reports, which is the strictest one in use.
"""

from __future__ import annotations

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


def _kind(case: CaseResult) -> str:
    """The state of a case in JUnit: `passed`, `failure`, `error` or `skipped`."""
    if case.word == "unsupported":
        return "skipped"
    if not case.is_measured:
        return "error"
    return {Outcome.REGRESSION: "failure", Outcome.UNKNOWN: "skipped"}.get(case.verdict, "passed")


def _suite(item: StoredComparison, number: int, mark: str) -> Xml.Element:
    result = item.result
    kinds = [_kind(case) for case in result.cases]
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
    why = item.result.why(case)
    match _kind(case):
        case "failure":
            moved = f"{wording.moved(case, item.result)} ({wording.threshold(item.result)})"
            failure = Xml.SubElement(element, "failure", message=moved, type="regression")
            failure.text = "\n".join(_movers(item.result, case))
        case "error":
            Xml.SubElement(element, "error", message=why, type="failed" if case.failed else "not measured")
        case "skipped":
            Xml.SubElement(element, "skipped", message=why if case.failed else f"undecided: {why}")
    return element


def _movers(result: AbResult, case: CaseResult) -> list[str]:
    """The metrics that moved, the primary one first."""
    return [
        f"{c.name}: {wording.change(c)} ({shown(c.base)} -> {shown(c.test)} {wording.unit(c, result)})"
        for c in [case.primary, *counters.changed(case)[:_MOST_MOVERS]]
    ]
