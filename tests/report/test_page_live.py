"""Live mode on the page: the host's facts, every round with its reasons, and each case's noise."""

from __future__ import annotations

import re
from pathlib import Path

from lab.report import page
from lab.report.page import live_values

from ..fakes.result import live, reports, result


def test_the_sentence_counts_rounds_and_names_what_adds_noise() -> None:
    words = live_values(live())["sentence"]
    assert words.startswith("3 rounds count, of 5 that were tried, 1 disturbed, 1 repeated, 1 died")
    assert words.endswith("the host adds noise: governor")


def test_what_adds_noise_comes_first() -> None:
    assert [fact.name for fact in live_values(live())["host"]] == ["governor", "SMT"]


def test_the_page_has_every_round_with_its_reasons(tmp_path: Path) -> None:
    document = result(mode="live", live=live(), seeds=[1, 2, 3, 4, 5, 6])
    text = page.comparison(reports(tmp_path, document))
    rows = re.findall(r'<tr data-case="[^"]*" data-verdict="(\w+)">\n<th scope="row" data-value="(\d+)">', text)
    assert rows == [("kept", "1"), ("repeated", "2"), ("disturbed", "2"), ("died", "3"), ("kept", "3")]
    assert "others kept 1.8 CPUs busy" in text and "measure on bare metal" in text
    assert "--qemu /usr/bin/qemu" in text
    assert "lab ab --base" not in text, "exact mode's command would measure something else"


def test_exact_mode_has_no_such_section(tmp_path: Path) -> None:
    assert "Host gate" not in page.comparison(reports(tmp_path, result()))
