"""The nightly site: every link leads somewhere, the feed and the numbers are read by others' programs."""

import re
import shutil
from email import message_from_string
from html import unescape
from pathlib import Path

import feedparser
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from lab.compare import result_folders
from lab.nightly import record
from lab.nightly.record import BranchNight, Event

from ..fakes import nights as fakenights
from ..fakes.command import Lab
from ..fakes.nights import Nights
from ..fakes.result import HOSTILE


def test_the_site_of_ten_nights(nights: Nights, tmp_path: Path, lab: Lab) -> None:
    culprit, _ = fakenights.story(nights)
    output = tmp_path / "site"
    words = ("nightly", "site", "--url", "https://lab.example.org/nights", "--output")
    lab(*words, str(output))
    pages = {path.relative_to(output): path.read_text() for path in output.rglob("*.html")}
    for path, text in pages.items():
        for link in map(unescape, re.findall(r'\b(?:href|src)="([^"]+)"', text)):
            if not link.startswith(("#", "data:")):
                assert (output / path.parent / link.partition("#")[0]).is_file(), f"{path} links {link}"
    change = (output / "changes" / "plan.6.1.html").read_text()
    assert culprit in change and "fixed in" in change and "path taken" in change
    (page,) = output.glob("bisections/*.html")
    assert f'href="../bisections/{page.name}"' in change
    assert "Kernel bisection" in page.read_text() and f'data-commit="{culprit}"' in page.read_text()
    (trend,) = output.glob("trends/*large*.html")
    assert "plan.6.1" in trend.read_text()
    mail = message_from_string((output / "mails" / "plan.6.1.eml").read_text())
    assert mail["Subject"].startswith(f"[REGRESSION] {culprit[:10]}")
    assert "DRAFT, not sent" in mail.get_payload()
    assert [path.stem for path in output.glob("mails/*")] == ["plan.6.1"]
    _check_feed((output / "feed.xml").read_text())
    _check_metrics((output / "metrics.txt").read_text())
    # The same again gives the same, and takes only a site's folder.
    before = {path: path.read_bytes() for path in output.rglob("*.*")}
    lab(*words, str(output))
    assert {path: path.read_bytes() for path in output.rglob("*.*")} == before
    lab(*words, str(tmp_path), status=2)


def test_what_was_bisected_in_vain_or_not_to_the_end_has_its_page(nights: Nights, tmp_path: Path, lab: Lab) -> None:
    def page_of(event: Event, output: Path) -> str:
        """An event's page, where the night has it like that."""
        one = next(each for each in record.load_all("plan") if each.number == event.night)
        record.save(replace(one, branches=[replace(one.branches[0], events=[event])]))
        lab("nightly", "site", "--output", str(output))
        return (output / "changes" / f"{event.id}.html").read_text()

    nights.run()
    nights.add("build", count=2)
    nights.add(60.0)
    nights.run()
    nights.add(100.0)
    nights.run()
    (alarm, _) = nights.events()
    folder = result_folders.open_folder(alarm.culprit.bisection if alarm.culprit else "")
    vain = replace(alarm, culprit=None, text="bisected: no culprit")
    said = page_of(vain, tmp_path / "vain")
    assert f"../bisections/{folder.name}.html" in said
    (folder / "result.json").unlink()
    assert "not finished" in page_of(alarm, tmp_path / "half")
    shutil.rmtree(folder)
    said = page_of(alarm, tmp_path / "gone")
    assert "the bisection is gone" in said and "../bisections/" not in said
    assert not (tmp_path / "gone" / "bisections").exists()


def _check_feed(text: str) -> None:
    parsed = feedparser.parse(text)
    assert not parsed.bozo and parsed.version == "atom10"
    assert [entry.title for entry in parsed.entries] == [
        "fixed on linux/main, night 9",
        "regression on linux/main, night 6",
    ]
    assert parsed.entries[1].link == "https://lab.example.org/nights/changes/plan.6.1.html"
    assert len({entry.id for entry in parsed.entries}) == 2
    assert all(entry.updated_parsed for entry in parsed.entries)


def _check_metrics(text: str) -> None:
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["lab_nightly_nights"].samples[0].value == 10
    assert all(one.value == 0 for one in families["lab_nightly_open"].samples)
    assert [one.value for one in families["lab_nightly_measured"].samples] == [1]
    assert {one.labels["case"] for one in families["lab_nightly_value"].samples} == {"large", "small"}


def test_words_from_elsewhere_are_shown_and_not_obeyed(nights: Nights, tmp_path: Path, lab: Lab) -> None:
    nights.run()
    nights.add(100.0)
    nights.run()
    one = record.load_all("plan")[-1]
    event = Event(
        id="plan.2.1", kind="broken", tree=HOSTILE, branch=HOSTILE, night=2, date="2026-11-02", base="", test="",
        text=HOSTILE,
    )  # fmt: skip
    branch = BranchNight(
        tree="linux", branch="main", state="broken", subject=HOSTILE, why=HOSTILE, tip="1" * 40, events=[event]
    )
    record.save(replace(one, branches=[branch], notes=[HOSTILE]))
    output = tmp_path / "site"
    lab("nightly", "site", "--output", str(output))
    for path in output.rglob("*.html"):
        text = path.read_text()
        assert "<script>alert" not in text and "\u202e" not in text and "\x1b" not in text, path
    assert not feedparser.parse((output / "feed.xml").read_text()).bozo
    list(text_string_to_metric_families((output / "metrics.txt").read_text()))
