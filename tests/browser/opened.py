"""A page in the browser, and what must hold of every page in it."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def launched() -> Iterator[Any]:
    """The installed Chromium, without a window; the test is skipped where there is none, unless one is required."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("LAB_REQUIRE_BROWSER") == "1":
            pytest.fail("chromium is not installed")
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    # Chromium's own sandbox does not work for root, nor in most containers.
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page of the browser that remembers what went wrong in it, and what it asked the network for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_context(**options).new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def unfold(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.locator(selector).all_inner_texts()
        return found


def require_fit_for_all(browser: Any, path: Path, scheme: str, width: int) -> None:
    """With everything unfolded: nothing is said, asked of the network, or wider than the screen; the paper is as the
    reader's theme has it; a verdict is seen without scrolling; axe-core finds no violation.
    """
    from axe_playwright_python.sync_playwright import Axe

    opened = Opened(browser, path, color_scheme=scheme, viewport={"width": width, "height": 800})
    for verdict in opened.page.locator("p.verdict").all()[:1]:
        box = verdict.bounding_box()
        assert box["y"] + box["height"] < 400
    opened.unfold()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, path.name
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", paper)[:3])) < 200
    assert dark == (scheme == "dark")
    found = Axe().run(opened.page).response
    assert len(found["passes"]) > 20
    bad = [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found["violations"]]
    assert bad == [], path.name
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith(("file:", "data:"))] == []
    opened.page.context.close()
