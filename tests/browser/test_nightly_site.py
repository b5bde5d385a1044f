"""The nightly site in a real browser, from disk: pages link each other, say nothing wrong, and can be read by all."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.cli import main
from lab.compare import result_folders
from lab.nightly import record
from lab.report import document, inputs

from ..fakes.nights import Nights
from .compared import require_same_bisection
from .opened import Opened, require_fit_for_all

pytestmark = pytest.mark.browser


@pytest.fixture
def site(nights: Nights, tmp_path: Path) -> Path:
    """The site of some nights with a regression that is open."""
    for fate in (100.0, 100.0, 80.0, 80.0):
        nights.add(fate)
        nights.run()
    assert main.run(["nightly", "site", "--output", str(tmp_path / "site")]) == 0
    return tmp_path / "site"


def test_from_the_index_to_the_bisection_and_back(browser: Any, site: Path) -> None:
    opened = Opened(browser, site / "index.html")
    page = opened.page
    (alarm,) = [event for one in record.load_all("plan") for event in one.events]
    assert alarm.culprit is not None
    assert "regression" in page.locator("section", has_text="Open").first.inner_text()
    rows = page.locator("table.trends tbody tr")
    assert rows.count() == 2
    page.get_by_role("link", name="mine:large").click()
    assert page.locator("figure.trend svg path.points").count() == 1
    assert page.locator("p.verdict .word").inner_text() == "worse"
    values = [cell.get_attribute("data-value") for cell in page.locator("td[data-value]").all()]
    assert len(values) == 4 and float(values[0]) < float(values[-1])
    page.get_by_role("link", name=alarm.id).click()
    assert alarm.culprit.commit in page.locator("pre").inner_text()
    page.get_by_role("link", name="The comparison").click()
    assert "Kernel comparison" in page.locator("h1").inner_text()
    page.go_back()
    page.get_by_role("link", name="The bisection, commit by commit").click()
    answer = json.loads(document.as_printed(inputs.open_bisection(result_folders.open_folder(alarm.culprit.bisection))))
    require_same_bisection(opened, answer)
    assert page.locator("#commits tr.culprit").get_attribute("data-commit") == alarm.culprit.commit[:12]
    page.go_back()
    page.get_by_role("link", name="plan", exact=True).click()
    assert page.locator("h1").inner_text() == "Nights of plan"
    assert opened.said == []
    assert all(url.startswith(("file:", "data:")) for url in opened.asked)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_is_fit_for_all(browser: Any, site: Path, scheme: str, width: int) -> None:
    rooms = ("nights/3.html", "trends/*", "changes/*", "bisections/*", "results/*")
    for path in (site / "index.html", *(path for room in rooms for path in site.glob(room))):
        require_fit_for_all(browser, path, scheme, width)
