"""Nights of one plan on a tree that a test changes in between, with the fake kernels and guests of bisections."""

from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pytest

from lab.cli import main
from lab.kernels import trees
from lab.nightly import record, run
from lab.nightly.record import Event, Night

from .bisection import Guests, commit, start, write_workload
from .bisector import pretend
from .kernel import git

FIRST = date(2026, 11, 1)


@dataclass
class Nights:
    """Runs the nights of one plan, one after another. said: stderr of the last command."""

    top: Path
    plan: Path
    guests: Guests
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    today: date = FIRST
    said: str = ""
    commits: list[str] = field(default_factory=list)

    def write(self, text: str = "", branch: str = 'tree = "linux"\nbranch = "main"') -> None:
        workload = write_workload(self.plan.parent / "mine").removesuffix(":large")
        self.plan.write_text(f'schema = 1\nworkloads = ["{workload}"]\n{text}\n[[branch]]\n{branch}\n')

    def add(self, fate: float | str, *, count: int = 1, title: str = "") -> str:
        """Add commits to the branch; returns the last one."""
        for _ in range(count):
            self.commits.append(commit(self.top, title or f"change {len(self.commits)}", fate))
        return self.commits[-1]

    def run(self, status: int = 0, *more: str) -> Night:
        """Run the night of the next date."""
        self.monkeypatch.setattr(run, "today", lambda: self.today.isoformat())
        exit_status = main.run(["nightly", "run", "--plan", str(self.plan), "--json", *more])
        captured = self.capsys.readouterr()
        self.said = captured.err
        assert exit_status == status, self.said
        self.today += timedelta(days=1)
        return record.load_all("plan")[-1]

    def again(self, status: int = 0) -> Night:
        self.today -= timedelta(days=1)
        return self.run(status)

    def events(self) -> list[Event]:
        return [event for night in record.load_all("plan") for event in night.events]


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Nights:
    """A plan and its tree, in the folders of a test."""
    guests = pretend(monkeypatch, tmp_path)
    monkeypatch.delenv("LAB_DATABASE", raising=False)
    top = tmp_path / "upstream"
    made = Nights(top, tmp_path / "plan.toml", guests, monkeypatch, capsys)
    made.commits.append(start(top))
    git(top, "config", "uploadpack.allowFilter", "true")
    trees.add(f"file://{top}", "linux")
    made.write()
    return made


def story(nights: Nights) -> tuple[str, str]:
    """Ten nights: a regression on the sixth, its fix on the ninth; both commits."""
    culprit = fix = ""
    for number in range(1, 11):
        if number == 6:
            nights.add(100.0, count=2)
            culprit = nights.add(80.0, title="mm: lose a fifth")
            nights.add(80.0, count=3)
        elif number == 9:
            nights.add(80.0)
            fix = nights.add(100.0, title="mm: find it again")
        else:
            nights.add(80.0 if number in (7, 8) else 100.0, count=2)
        assert nights.run().number == number
    return culprit, fix
