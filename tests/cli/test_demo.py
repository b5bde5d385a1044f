"""Tests of `lab demo`: two packages first, the story's kernels meanwhile."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.cli import demo
from lab.core.errors import UserError
from lab.kernels.package_lists import Offer

from ..fakes.command import Lab

BUILDS = "import sys, time; print('91 of 1660, about 4 min left', file=sys.stderr, flush=True); time.sleep({s})"


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str]]:
    """The comparisons that the demo makes; the build beside them is a program that says a line and waits."""
    calls: list[Sequence[str]] = []

    def main(args: Sequence[str], **_: object) -> int:
        calls.append(args)
        return 0

    monkeypatch.setattr(demo.ab, "main", main)
    monkeypatch.setattr(demo, "resolve", lambda *_, **__: None)
    _builds(monkeypatch, 0)
    return calls


def _builds(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(demo, "_LAB", (sys.executable, "-c", BUILDS.format(s=seconds)))


def test_packages_come_first_and_then_the_story(compared: list[Sequence[str]], lab: Lab) -> None:
    said = lab("demo").err
    packages, story = compared
    assert packages[:2] == [*demo._PACKAGES]
    assert story[:2] == ["efa7df3e3bb5^", "efa7df3e3bb5"]
    assert said.index("1 of 2: deb:") < said.index("2 of 2: the kernels before and after commit efa7df3e3bb5")
    assert "Ctrl-C costs nothing" in said


def test_ctrl_c_ends_the_build_and_says_what_is_kept(
    compared: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    _builds(monkeypatch, 600)
    monkeypatch.setattr(demo.ab, "main", interrupted)
    said = lab("demo", status=130).err
    assert "stopping the build: all downloads, objects and numbers are kept" in said


def test_the_newest_two_series_are_taken_if_the_packages_are_gone(
    compared: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise UserError("there is no such version")

    versions = ["7.2.9-1~bpo13+1", "7.2.11-1~bpo13+1", "7.3.4-1~bpo13+1", "7.4.1-1~bpo13+1"]
    offers = [Offer("trixie-backports", "linux-image-cloud", version) for version in versions]
    monkeypatch.setattr(demo, "resolve", gone)
    monkeypatch.setattr(demo.debs, "available", lambda *_, **__: offers)
    lab("demo")
    assert compared[0][:2] == ["deb:trixie-backports/7.3", "deb:trixie-backports/7.4"]
    monkeypatch.setattr(demo.debs, "available", lambda *_, **__: [])
    lab("demo", status=2)
