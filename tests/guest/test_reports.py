"""Reports of a really measured regression, read by the programs that they are made for."""

from __future__ import annotations

import email
import email.policy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..browser.compared import require_same_comparison
from ..browser.opened import Opened, launched
from .conftest import BASE, CHECKOUT, TEST, Lab

pytestmark = [pytest.mark.guest, pytest.mark.build]

CASES = "alloc-burst:layout-4632k,layout-512k,single-2052k"
BENCHSTAT = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"
FORMATS = ("text", "md", "mail", "html", "json", "csv", "junit", "ktap", "bmf", "benchstat", "kcidb", "openmetrics")


@pytest.fixture(scope="module")
def measured(story: Lab) -> Any:
    return story.json("ab", "--base", BASE, "--test", TEST, "-w", CASES)


def _report(lab: Lab, document: Any, form: str) -> str:
    done = lab.run("report", document["result"], "--format", form)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_of_the_installed_lab_names_the_case(story: Lab, measured: Any, form: str) -> None:
    assert "layout-4632k" in _report(story, measured, form)


def test_the_kernels_own_parser_reads_the_ktap(story: Lab, measured: Any, tmp_path: Path) -> None:
    repo = next(story.home.glob(".local/share/*/trees/default.git"))
    for name in ("kunit_parser.py", "kunit_printer.py"):
        words = ["git", "-c", "safe.directory=*", f"--git-dir={repo}", "show", f"HEAD:tools/testing/kunit/{name}"]
        (tmp_path / name).write_bytes(subprocess.run(words, capture_output=True, check=True).stdout)
    program = (
        "import json, sys, kunit_parser\n"
        "def tree(test): return {one.name: [one.status.name, tree(one)] for one in test.subtests}\n"
        "found = kunit_parser.parse_run_tests(sys.stdin.read().splitlines(True))\n"
        "print('FOUND', json.dumps([found.counts.errors, tree(found)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        input=_report(story, measured, "ktap"),
        capture_output=True,
        text=True,
        check=True,
    )
    errors, tests = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("FOUND"))[6:])
    assert errors == 0
    status, cases = tests["alloc-burst"]
    assert status == "FAILURE"
    wanted = {"regression": "FAILURE", "unknown": "SKIPPED"}
    assert {name: one[0] for name, one in cases.items()} == {
        case["case"]: wanted.get(case["verdict"], "SUCCESS") for case in measured["cases"]
    }


@pytest.mark.network
def test_benchstat_computes_the_same_change(story: Lab, measured: Any, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    path = tmp_path / "report.txt"
    path.write_text(_report(story, measured, "benchstat"))
    words = [go, "run", BENCHSTAT, "-col", "arm", "-format", "csv", str(path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600)
    (case,) = [case for case in measured["cases"] if case["case"] == "layout-4632k"]
    (primary,) = [metric for metric in case["metrics"] if metric["primary"]]
    table = done.stdout[done.stdout.index(primary["name"]) :].split("\n\n")[0]
    (row,) = [line.split(",") for line in table.splitlines() if "layout-4632k" in line]
    change = float(row[5].rstrip("%")) / 100
    # benchstat takes medians, the lab means of log ratios.
    assert change == pytest.approx(primary["ratio"] - 1, abs=0.01)
    assert "p=0.0" in row[6]


def test_the_mail_asks_the_trees_own_script_whom_to_tell(story: Lab, measured: Any) -> None:
    if shutil.which("perl") is None:
        pytest.skip("perl is not installed")
    message = email.message_from_string(_report(story, measured, "mail"), policy=email.policy.default)
    assert "linux-mm@kvack.org" in message["Cc"] and "lab@localhost" not in message["Cc"]
    assert "#regzbot introduced: efa7df3e3bb5da8e6abbe37727417f32a37fba47\n" in message.get_content()


def test_an_explained_case_has_its_functions_on_the_page(story: Lab, measured: Any) -> None:
    explained = story.json("explain", measured["result"], "--case", "layout-4632k")
    text = _report(story, measured, "html")
    assert "Difference in <bdi>modelled cycles/op" in text
    assert all(row["name"] in text for row in explained["rows"][:10])


def test_the_page_says_in_a_browser_what_the_json_says(story: Lab, measured: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(_report(story, measured, "html"))
    with launched() as browser:
        require_same_comparison(Opened(browser, path), measured)


def test_the_templates_and_the_schema_are_in_the_wheel(story: Lab) -> None:
    rooms = next(story.python.parents[1].glob("lib/python3*/site-packages/lab/_rooms"))
    templates = [path for path in (CHECKOUT / "reports" / "templates").rglob("*") if path.is_file()]
    assert len(templates) > 5
    for path in (CHECKOUT / "reports" / "schemas" / "lab.ab-1.json", *templates):
        assert (rooms / path.relative_to(CHECKOUT)).read_bytes() == path.read_bytes()
