"""The site and the man pages as `make docs` left them in build/."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.browser.opened import Opened, launched

TOP = Path(__file__).resolve().parents[2]
SITE, MAN = TOP / "build" / "docs", TOP / "build" / "man"
PAGES = sorted(path.relative_to(SITE) for path in SITE.rglob("*.html"))
MAN_PAGES = sorted(MAN.glob("*.1"))

pytestmark = pytest.mark.docs


class Needs(HTMLParser):
    """What a browser fetches for a page; links that a reader may follow are none of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("search", "index", "next", "prev", "canonical"):
            return
        wanted = [given.get("src"), given.get("srcset"), given.get("href") if tag == "link" else None]
        self.urls += [url for url in wanted if url]


def test_there_is_a_page_for_every_source() -> None:
    sources = {p.relative_to(TOP / "docs").with_suffix(".html") for p in (TOP / "docs").rglob("*.md")}
    assert len(sources) > 30
    assert sources <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_asks_the_network_for_nothing(page: Path) -> None:
    needs = Needs((SITE / page).read_text()).urls
    assert needs
    for url in needs:
        assert not re.match(r"(https?:)?//", url), url


def test_nor_do_styles() -> None:
    styles = list(SITE.rglob("*.css"))
    assert styles
    for path in styles:
        outside = re.findall(r"(?:@import\s*|url\()\s*['\"]?(?:https?:)?//[^)'\"]+", path.read_text())
        assert not outside, (path.name, outside)


def test_every_command_has_a_man_page() -> None:
    assert {path.stem for path in MAN_PAGES} == {path.stem for path in (TOP / "docs" / "commands").glob("*.md")}


@pytest.mark.parametrize("page", MAN_PAGES, ids=lambda path: path.name)
def test_man_reads_a_page_without_a_warning(page: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("there is no man")
    done = subprocess.run(
        ["man", "--warnings", "--encoding=UTF-8", "--local-file", str(page)],
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "MANWIDTH": "100", "MANPAGER": "cat"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION"):
        assert re.search(rf"^{heading}$", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("name", ["lab", "lab-ab", "lab-bisect-step"])
def test_man_finds_a_page_by_its_name_beside_the_command(name: str) -> None:
    if shutil.which("man") is None:
        pytest.skip("there is no man")
    bin_ = TOP / ".venv" / "bin"
    if not (bin_.parent / "share" / "man" / "man1").is_dir():
        pytest.skip("the pages were not installed by `make man`")
    done = subprocess.run(
        ["man", "--where", name], env={"PATH": f"{bin_}:/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str(bin_.parent / "share" / "man" / "man1" / f"{name}.1")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The installed Chromium; without it, these tests are skipped."""
    with launched() as started:
        yield started


def _is_prose(page: Path) -> bool:
    """True if people wrote it: the atlas's pages have tests of their own, and those of commands are of one kind."""
    made = page.name in ("genindex.html", "search.html") or page.parts[0] in ("_static", "atlas", "commands")
    return not made or page.name == "lab-ab.html"


@pytest.mark.parametrize("page", [page for page in PAGES if _is_prose(page)], ids=str)
def test_a_page_is_whole_at_any_width_and_accessible(page: Path, browser: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    shown = browser.new_page(viewport={"width": 390, "height": 800})
    shown.goto((SITE / page).as_uri())
    for width in (390, 1024, 1280):
        shown.set_viewport_size({"width": width, "height": 800})
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(shown).response
    assert len(found["passes"]) > 10
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found["violations"]] == []
    shown.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_and_searches_it_without_a_network(scheme: str, browser: Any) -> None:
    opened = Opened(browser, SITE / "tutorial.html", color_scheme=scheme, viewport={"width": 400, "height": 800})
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.goto((SITE / "search.html").as_uri() + "?q=hugetlb")
    page.wait_for_selector("#search-results li a[href*='aio-hugetlbfs']")
    page.context.close()
    brightness = sum(map(int, re.findall(r"\d+", shade)[:3])) / (3 * 255)
    assert brightness > 0.8 if scheme == "light" else brightness < 0.2
    assert not opened.said
    assert opened.asked and all(url.startswith(("file:", "data:")) for url in opened.asked)
