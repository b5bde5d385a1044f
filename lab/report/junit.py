"""`junit`: for CI systems. A regression is a failure, what could not be measured an error, the undecided skipped.

The rules are those of the schema for Ant's JUnit reports, which is the strictest one in use.
"""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree as Xml

from lab.compare.results import CaseResult
from lab.report import wording
from lab.report.inputs import Report, Reports
from lab.stats.verdict import Outcome


def render(reports: Reports) -> str:
    """One test suite per result, one test case per case."""
    top = Xml.Element("testsuites")
    for number, item in enumerate(reports.items):
        top.append(_suite(item, number, reports.mark))
    Xml.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(top, encoding="unicode") + "\n"


def kind(case: CaseResult) -> str:
    """What a case is to JUnit: `passed`, `failure`, `error` or `skipped`."""
    if not wording.measured(case):
        return "error"
    return {Outcome.REGRESSION: "failure", Outcome.UNKNOWN: "skipped"}.get(case.verdict, "passed")


def _suite(item: Report, number: int, mark: str) -> Xml.Element:
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


def _properties(item: Report, mark: str) -> list[tuple[str, str]]:
    result = item.result
    around = result.environment
    found = [
        ("verdict", str(result.verdict)),
        ("base", wording.arm_words(result.base)),
        ("test", wording.arm_words(result.test)),
        ("mode", result.mode),
        ("model", around.model),
        ("qemu", around.qemu),
        ("fingerprint", around.fingerprint),
        ("reproduce", result.reproduce),
    ]
    return [*found, ("environments", mark)] if mark else found


def _case(item: Report, case: CaseResult) -> Xml.Element:
    primary = case.primary
    # The cases of one boot are not timed apart; the suite has the time of all.
    element = Xml.Element("testcase", name=case.case, classname=f"lab.{case.workload}", time="0")
    words = f"{primary.name} {wording.change(primary)} {primary.interval_text}".rstrip()
    words += f", {wording.unit(primary, item.result)}"
    match kind(case):
        case "failure":
            failure = Xml.SubElement(element, "failure", message=words, type="regression")
            failure.text = "\n".join(_line(item, case))
        case "error":
            Xml.SubElement(element, "error", message=primary.reason, type="not measured")
        case "skipped":
            Xml.SubElement(element, "skipped", message=f"undecided: {wording.why(case, item.result)}")
    return element


def _line(item: Report, case: CaseResult) -> list[str]:
    """What moved, the primary metric first."""
    shown = [case.primary, *[c for c in wording.ranked(case.metrics) if c.base != c.test][:10]]
    return [
        f"{c.name}: {wording.change(c)} "
        f"({wording.shown(c.base)} -> {wording.shown(c.test)} {wording.unit(c, item.result)})"
        for c in shown
    ]
