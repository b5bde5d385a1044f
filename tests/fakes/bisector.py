"""`lab bisect` for tests, from the command line to the answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from lab.bisection.answer import Answer
from lab.cli import main
from lab.core.executor import Work

from .bisection import Fates, Guests, line, replacements, write_workload
from .build import own_folders


@dataclass
class Bisector:
    """The command in a test's own folders."""

    tree: Path
    workload: str
    guests: Guests
    capsys: pytest.CaptureFixture[str]
    fates: dict[str, float | str] = field(default_factory=dict)
    said: str = ""
    printed: str = ""

    def run(self, *words: str) -> int:
        status = main.run(["bisect", *words])
        captured = self.capsys.readouterr()
        self.printed, self.said = captured.out, captured.err
        return status

    def search(self, old: str, new: str, *more: str, words: str = "good bad") -> Answer:
        """A whole search with --json; 0 when something is named, else 5."""
        first, second = words.split()
        paths = list(more[more.index("--") :]) if "--" in more else []
        options = [word for word in more if word not in paths]
        status = self.run(
            f"--{first}", old, f"--{second}", new, "--tree", str(self.tree), "-w", self.workload, "--json",
            *options, *paths,
        )  # fmt: skip
        assert self.printed, self.said
        answer = msgspec.json.decode(self.printed, type=Answer)
        assert status == (0 if answer.named else 5)
        return answer

    def search_line(self, fates: Fates, *more: str, words: str = "good bad") -> tuple[list[str], Answer]:
        """A whole search between the ends of a history without branches; its commits, and the answer."""
        commits = line(self.tree, fates)
        return commits, self.search(commits[0], commits[-1], *more, words=words)

    def report(self, kind: str = "text") -> str:
        """What `lab report` shows of the last search."""
        assert main.run(["report", "latest", "--format", kind]) == 0
        return self.capsys.readouterr().out

    def resumed(self) -> Answer:
        """The answer of the last search, which goes on."""
        assert self.run("resume", "--json") == 0
        return msgspec.json.decode(self.printed, type=Answer)

    @contextmanager
    def stopped_after(self, guests: int) -> Iterator[None]:
        """The budget is over after so many guests."""
        with pytest.MonkeyPatch.context() as patch:
            over = property(lambda work: work.deadline and len(self.guests.calls) >= guests)
            patch.setattr(Work, "out_of_time", over)
            yield

    def refused(self, status: int, *words: str) -> str:
        """A command line that must fail with one clear line."""
        assert self.run(*words, "--tree", str(self.tree), "-w", self.workload) == status, self.said
        complaints = [line for line in self.said.splitlines() if line.startswith("lab: ")]
        assert len(complaints) == 1 and not self.printed
        return complaints[0]


def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Guests:
    """Work in a test's own folders, with fakes where kernels, image, QEMU and guests would be."""
    own_folders(monkeypatch, tmp_path)
    guests = Guests()
    for (where, name), what in replacements(tmp_path / "fake", guests).items():
        monkeypatch.setattr(where, name, what)
    return guests


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bisector:
    """The command, with all kernels and guests being fakes."""
    guests = pretend(monkeypatch, tmp_path)
    return Bisector(tmp_path / "linux", write_workload(tmp_path / "mine"), guests, capsys)


def culprits(answer: Answer) -> list[str]:
    return [one.commit for one in answer.changes if one.is_single]
