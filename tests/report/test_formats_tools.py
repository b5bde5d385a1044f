"""Formats for tools: each is read by a consumer of its own, and what comes out is what the result says."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from junitparser import JUnitXml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from lab import report
from lab.compare.results import AbResult
from lab.core import records
from lab.core.text import visible
from lab.report import csv_rows, document, junit, openmetrics

from ..fakes.result import DISPUTED, HOSTILE, MODEL, hostile, reports, result

MARK = "ENVIRONMENTS DIFFER (qemu)"
TOOLS = ("json", "csv", "junit", "ktap", "openmetrics")


DISPUTE = "model -7.0 %, instructions +26.0 %: rests on the model"


@pytest.mark.parametrize("name", ["text", "md", "html", "json", "junit", "ktap"])
def test_cycles_and_instructions_that_disagree_are_the_reason_in_every_format(name: str, tmp_path: Path) -> None:
    text = report.render(name, reports(tmp_path, result(DISPUTED)))
    assert DISPUTE in text and "undecided: model" not in text.replace(f"undecided: {DISPUTE}", "")


@pytest.mark.parametrize("name", ["csv", "openmetrics"])
def test_instructions_are_in_every_format_by_name(name: str, tmp_path: Path) -> None:
    text = report.render(name, reports(tmp_path, result(DISPUTED)))
    assert "instructions_per_op" in text and ("1.26" in text or "1260.0" in text)


# --- json


def test_the_schema_file_is_up_to_date() -> None:
    made = records.encode(document.schema())
    assert document.schema_path().read_bytes() == made, "make it again with `make schema`"


def _schema() -> Any:
    return json.loads(document.schema_path().read_text())


@pytest.mark.parametrize("made", [result, hostile])
def test_documents_fit_the_schema(made: Any, tmp_path: Path) -> None:
    text = document.comparison(reports(tmp_path, made()))
    jsonschema.Draft202012Validator.check_schema(_schema())
    jsonschema.validate(json.loads(text), _schema())
    assert msgspec.json.decode(text, type=AbResult) == made()


@pytest.mark.parametrize(
    ("path", "value"),
    [(("verdict",), "maybe"), (("schema",), "lab.ab/2"), (("surprise",), 1), (("cases", 0, "metrics", 0, "base"), "1")],
)
def test_the_schema_refuses_what_is_no_result(path: tuple[Any, ...], value: Any, tmp_path: Path) -> None:
    changed = json.loads(document.comparison(reports(tmp_path, result())))
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, _schema())


def test_several_documents_are_one_that_says_whether_they_compare(tmp_path: Path) -> None:
    together = reports(tmp_path, result(), result(name="other", fingerprint="e" * 16), mark=MARK)
    found = json.loads(document.comparison(together))
    assert (found["schema"], found["comparable"], found["note"]) == ("lab.reports/1", False, MARK)
    for one in found["results"]:
        jsonschema.validate(one, _schema())


# --- csv


def test_csv_has_every_sample_with_its_seed(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_rows.comparison(reports(tmp_path, result())))))
    for case in result().cases:
        for metric in case.metrics:
            mine = [row for row in rows if (row["case"], row["metric"]) == (case.case, metric.name)]
            assert [row["seed"] for row in mine] == ["1", "2", "3", "4", "5", "6"]
            for arm in ("base", "test"):
                values = [None if row[arm] == "" else float(row[arm]) for row in mine]
                assert values == getattr(metric, arm)
            assert {row["case_verdict"] for row in mine} == {str(case.verdict)}
    assert {row["model"] for row in rows} == {MODEL}


def test_csv_cells_are_no_formulas(tmp_path: Path) -> None:
    rows = list(csv.reader(io.StringIO(csv_rows.comparison(reports(tmp_path, hostile())))))
    assert not [cell for row in rows for cell in row if re.match(r"[=@]|[+-][^0-9.]", cell)]


# --- junit


def test_junit_is_read_by_a_junit_parser(tmp_path: Path) -> None:
    xml = JUnitXml.fromstring(junit.comparison(reports(tmp_path, result())).encode())
    (suite,) = list(xml)
    kinds = {case.name: [type(one).__name__ for one in case.result] for case in suite}
    assert kinds == {
        "layout-4632k": ["Failure"],
        "single-2052k": [],
        "layout-512k": [],
        "burst-2m-8m": ["Skipped"],
        "layout-0k": ["Error"],
    }
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (5, 1, 1, 1)
    failure = next(case.result[0] for case in suite if case.name == "layout-4632k")
    assert "cycles_per_op" in failure.message and MODEL in failure.message and "page_faults" in failure.text


# --- ktap


def _parse_ktap(lines: list[str], depth: int = 0) -> dict[str, tuple[str, Any]]:
    """KTAP by its own rules: version, plan, numbered results, two blanks a level. Name to status and subtests."""
    mine = [(i, line[2 * depth :]) for i, line in enumerate(lines) if line.startswith("  " * depth)]
    flat = [(i, line) for i, line in mine if not line.startswith("  ")]
    assert flat[0][1] == "KTAP version 1"
    (plan,) = [line for _, line in flat if re.fullmatch(r"1\.\.\d+", line)]
    found: dict[str, tuple[str, Any]] = {}
    start = 0
    for i, line in flat[1:]:
        if line == plan or line.startswith("# "):
            continue
        match = re.fullmatch(r"(ok|not ok) (\d+) ([^#]+?)(?: # (SKIP|ERROR)(?: .*)?)?", line)
        assert match, line
        assert int(match[2]) == len(found) + 1
        inner = [one for one in lines[start:i] if one.startswith("  " * (depth + 1))]
        found[match[3]] = (match[4] or match[1], _parse_ktap(inner, depth + 1) if inner else None)
        start = i + 1
    assert plan == f"1..{len(found)}"
    return found


def test_ktap_keeps_its_rules_and_says_what_the_result_says(tmp_path: Path) -> None:
    found = _parse_ktap(junit.ktap(reports(tmp_path, result())).splitlines())
    (status, cases) = found["alloc-burst"]
    assert status == "not ok"
    assert {name: one[0] for name, one in cases.items()} == {
        "layout-4632k": "not ok",
        "single-2052k": "ok",
        "layout-512k": "ok",
        "burst-2m-8m": "SKIP",
        "layout-0k": "ERROR",
    }


def test_no_name_starts_a_directive_or_a_line_in_ktap(tmp_path: Path) -> None:
    found = _parse_ktap(junit.ktap(reports(tmp_path, hostile())).splitlines())
    assert list(found) == [visible(HOSTILE).replace("#", "\\x23")]


# --- openmetrics


def _samples(text: str) -> list[Any]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_openmetrics_is_read_by_the_parser_of_prometheus(tmp_path: Path) -> None:
    samples = _samples(openmetrics.comparison(reports(tmp_path, result())))
    ratios = {(s.labels["case"], s.labels["metric"]): s.value for s in samples if s.name == "lab_ratio"}
    for case in result().cases:
        for metric in case.metrics:
            assert ratios.get((case.case, metric.name)) == metric.ratio
    states = {
        s.labels["case"]: s.labels["lab_case_verdict"] for s in samples if s.name == "lab_case_verdict" if s.value
    }
    assert states == {case.case: str(case.verdict) for case in result().cases}


def test_openmetrics_labels_survive_hostile_words(tmp_path: Path) -> None:
    (info,) = [s for s in _samples(openmetrics.comparison(reports(tmp_path, hostile()))) if s.name == "lab_result_info"]
    assert info.labels["base"] == visible(HOSTILE)


# --- all of them


@pytest.mark.parametrize("name", TOOLS)
def test_modelled_numbers_name_their_machine(name: str, tmp_path: Path) -> None:
    text = report.render(name, reports(tmp_path, result()))
    assert "modelled" in text and "made-up-machine" in text


@pytest.mark.parametrize("name", sorted(set(report.FORMATS["comparison"]) - {"mail"}))
def test_what_does_not_compare_is_marked_in_every_format(name: str, tmp_path: Path) -> None:
    other = result(name="other", fingerprint="e" * 16)
    text = report.render(name, reports(tmp_path, result(), other, mark=MARK))
    wanted = {"bmf": "[environments differ: ", "csv": ",false,"}.get(name, MARK)
    assert wanted in text


@pytest.mark.parametrize("name", sorted(set(report.FORMATS["comparison"]) - {"mail", "json"}))
def test_no_format_passes_on_what_is_obeyed(name: str, tmp_path: Path) -> None:
    text = report.render(name, reports(tmp_path, hostile()))
    assert not set(text) & set("\x1b\x00\r\u202e\u2066\ufeff")
    assert not re.search(r"^X-Injected", text, re.MULTILINE)
