"""Reports of a really measured regression, by the installed lab."""

import pytest

from .conftest import CHECKOUT, NEW, OLD, Lab

pytestmark = pytest.mark.guest

SLOWER = "alternate-2048k-1400k"
CASES = f"alloc-burst:{SLOWER},layout-512k,single-2052k"
FORMATS = ("text", "md", "mail", "html", "json", "csv", "junit", "openmetrics")


def test_every_format_of_the_installed_lab_names_the_case_and_the_page_its_functions(lab: Lab) -> None:
    result = lab.ab(OLD, NEW, "-w", CASES)["result"]
    for form in FORMATS:
        done = lab.run("report", result, "--format", form)
        assert done.returncode == 0 and SLOWER in done.stdout, (form, done.stderr)
    explained = lab.json("explain", result, "--case", SLOWER)
    text = lab.run("report", result, "--format", "html").stdout
    assert "Difference in <bdi>modelled cycles/op" in text
    assert all(row["name"] in text for row in explained["rows"][:10])


def test_the_templates_and_the_schema_are_in_the_wheel(lab: Lab) -> None:
    data = next(lab.python.parents[1].glob("lib/python3*/site-packages/lab/_data"))
    templates = [path for path in (CHECKOUT / "reports" / "templates").rglob("*") if path.is_file()]
    assert len(templates) > 5
    for path in (CHECKOUT / "reports" / "schemas" / "lab.ab-1.json", *templates):
        assert (data / path.relative_to(CHECKOUT)).read_bytes() == path.read_bytes()
