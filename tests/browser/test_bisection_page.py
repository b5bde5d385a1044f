"""A bisection's page in a real browser: it says what the JSON says, where it belongs, and can be used by everybody."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.core.text import visible
from lab.report import bisection_page, document

from ..fakes.answer import CULPRIT, bisection, name_of
from ..fakes.result import HOSTILE
from .compared import require_same_bisection
from .opened import Opened, require_fit_for_all

pytestmark = pytest.mark.browser


def _write(folder: Path, **more: Any) -> tuple[Path, Any]:
    one = bisection(folder / "b", **more)
    path = folder / "page.html"
    path.write_text(bisection_page.bisection(one))
    return path, json.loads(document.as_printed(one))


@pytest.mark.smoke
def test_values_on_the_page_are_those_of_the_json(browser: Any, tmp_path: Path) -> None:
    path, stored = _write(tmp_path)
    opened = Opened(browser, path)
    require_same_bisection(opened, stored)
    assert opened.page.locator("#commits tr.culprit").get_attribute("data-commit") == name_of(CULPRIT)[:12]


def test_steps_and_chances_stand_at_their_commits(browser: Any, tmp_path: Path) -> None:
    path, stored = _write(tmp_path)
    opened = Opened(browser, path)
    lane = opened.page.locator(".chart.path .box").bounding_box()
    count = stored["candidates"] + 1
    for mark, step in zip(opened.page.locator(".mark-step").all(), stored["path"], strict=True):
        box = mark.bounding_box()
        number = int(step["commit"][:12], 16)
        assert box["x"] + box["width"] / 2 == pytest.approx(lane["x"] + lane["width"] * (number + 0.5) / count, abs=3)
    bars = [bar.bounding_box() for bar in opened.page.locator("svg .chance").all()]
    middle = bars[0]["x"] + bars[0]["width"] / 2
    assert middle == pytest.approx(lane["x"] + lane["width"] * (CULPRIT + 0.5) / count, abs=3)
    assert bars[1]["height"] < bars[0]["height"] / 3 and bars[1]["width"] > 4 * bars[0]["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_fit_for_all(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    require_fit_for_all(browser, _write(tmp_path)[0], scheme, width)


def test_hostile_words_do_nothing(browser: Any, tmp_path: Path) -> None:
    path, _ = _write(tmp_path, title=HOSTILE)
    opened = Opened(browser, path)
    assert opened.said == []
    assert visible(HOSTILE) in opened.page.locator("p.sentence").inner_text()
    assert visible(HOSTILE) in opened.page.locator("#commits tr.culprit").inner_text()
    assert opened.page.locator("script").count() == 1
