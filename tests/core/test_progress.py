"""Progress: on stderr, each thing once, and by make's own steps."""

import sys
import threading
from pathlib import Path

import pytest

from lab.core.progress import Progress, follow_log

LOG = """\
make: Entering directory '/x'
  SYNC    include/config/auto.conf
  CC      mm/mmap.o
  HOSTCC  scripts/x.o
  LD [M]  drivers/block/null_blk.ko
  AR      mm/built-in.a
mm/mmap.c: warning: indented
  not a step
  C
"""


def test_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.log("one")
        for text in ("two", "two", "three", "two"):
            progress.log_once(text)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "one\ntwo\nthree\n")


def test_a_quiet_one_shows_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.core.progress._PLAIN_EVERY_S", -1.0)
    with Progress(quiet=True) as progress, progress.task("work", 3) as task:
        progress.log("one")
        task.advance()
    assert capsys.readouterr() == ("", "")


def test_work_is_over_when_the_command_is() -> None:
    with Progress(quiet=True) as progress:
        assert not progress.cancelled()
    assert progress.cancelled()
    with pytest.raises(KeyboardInterrupt), Progress(quiet=True) as progress:
        raise KeyboardInterrupt
    assert progress.cancelled()


def test_plain_lines_say_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.core.progress._PLAIN_EVERY_S", -1.0)
    with Progress() as progress, progress.task("measuring", None) as task:
        task.expect(4)
        task.advance(note="x")
        task.advance(3)
        task.advance(2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("measuring: 1 of 4, about 0 s left") and lines[0].endswith("x")
    assert lines[1] == "measuring: 4 steps in 0 s" and lines[2] == "measuring: 6 steps in 0 s"


def test_the_time_left_follows_from_what_was_done_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("lab.core.progress._PLAIN_EVERY_S", -1000.0)
    monkeypatch.setattr("lab.core.progress.time.monotonic", lambda: now)
    with Progress() as progress, progress.task("measuring", None) as task:
        now = 100.0  # the kernels were built
        task.expect(12)
        task.advance(6, known=True)
        now = 110.0
        task.advance(2)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["measuring: 6 of 12", "measuring: 8 of 12, about 20 s left"]


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress() as progress:
        progress.log("[bold]not markup[/bold]")
        with progress.task("measuring", 2) as task:
            task.advance(5, "more than expected")
        assert task.count == 5
    said = capsys.readouterr()
    assert said.out == "" and "[bold]not markup[/bold]" in said.err


def test_steps_of_a_log_are_counted_as_they_come(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    with Progress(quiet=True) as progress, follow_log(log, progress, "build", None) as task:
        threading.Event().wait(0.05)
        log.write_text(LOG + "  CC      cut")
    assert task.count == 5, "the last line has not ended"
    with Progress(quiet=True) as progress, follow_log(log, progress, "build", 10) as task, log.open("a") as stream:
        stream.write(".o\n")
    assert task.count == 6
