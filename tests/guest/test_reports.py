"""Reports of a really measured regression, read by the programs that they are made for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import CHECKOUT, NEW, OLD, Lab

pytestmark = pytest.mark.guest

SLOWER = "alternate-2048k-1400k"
CASES = f"alloc-burst:{SLOWER},layout-512k,single-2052k"
BENCHSTAT = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"
FORMATS = ("text", "md", "mail", "html", "json", "csv", "junit", "ktap", "bmf", "benchstat", "kcidb", "openmetrics")


@pytest.fixture(scope="module")
def measured(lab: Lab) -> Any:
    return lab.json("ab", "--base", OLD, "--test", NEW, "-w", CASES)


def _report(lab: Lab, document: Any, form: str) -> str:
    done = lab.run("report", document["result"], "--format", form)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_format_of_the_installed_lab_names_the_case(lab: Lab, measured: Any) -> None:
    assert [form for form in FORMATS if SLOWER not in _report(lab, measured, form)] == []


@pytest.mark.network
def test_benchstat_computes_the_same_change(lab: Lab, measured: Any, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    path = tmp_path / "report.txt"
    path.write_text(_report(lab, measured, "benchstat"))
    words = [go, "run", BENCHSTAT, "-col", "arm", "-format", "csv", str(path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    (case,) = [case for case in measured["cases"] if case["case"] == SLOWER]
    (primary,) = [metric for metric in case["metrics"] if metric["primary"]]
    table = done.stdout[done.stdout.index(primary["name"]) :].split("\n\n")[0]
    (row,) = [line.split(",") for line in table.splitlines() if SLOWER in line]
    change = float(row[5].rstrip("%")) / 100
    # benchstat takes medians, the lab means of log ratios.
    assert change == pytest.approx(primary["ratio"] - 1, abs=0.01)
    assert "p=0.0" in row[6]


def test_an_explained_case_has_its_functions_on_the_page(lab: Lab, measured: Any) -> None:
    explained = lab.json("explain", measured["result"], "--case", SLOWER)
    text = _report(lab, measured, "html")
    assert "Difference in <bdi>modelled cycles/op" in text
    assert all(row["name"] in text for row in explained["rows"][:10])


def test_the_templates_and_the_schema_are_in_the_wheel(lab: Lab) -> None:
    rooms = next(lab.python.parents[1].glob("lib/python3*/site-packages/lab/_rooms"))
    templates = [path for path in (CHECKOUT / "reports" / "templates").rglob("*") if path.is_file()]
    assert len(templates) > 5
    for path in (CHECKOUT / "reports" / "schemas" / "lab.ab-1.json", *templates):
        assert (rooms / path.relative_to(CHECKOUT)).read_bytes() == path.read_bytes()
