"""The journal: nothing that was written is lost, nothing that was torn is believed."""

from pathlib import Path

import pytest

from lab.bisection.journal import Journal, Reading, Seeds, Undo
from lab.core.errors import HostFailed

EVENTS = [
    Reading(commit="a", values=[1.5, 2.0], at="now"),
    Seeds(seeds=[101, 102]),
    Reading(commit="b", untestable="build", why="mm/mmap.c:1: error: „no“"),
    Undo(commit="b"),
    Reading(commit="b", values=[3.0, 4.0]),
]


def written(path: Path) -> bytes:
    journal = Journal(path)
    for event in EVENTS:
        journal.append(event)
    return path.read_bytes()


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    written(tmp_path / "journal")
    again = Journal(tmp_path / "journal")
    assert again.events == EVENTS and again.seeds == [101, 102]
    assert list(again.readings) == ["a", "b"] and again.readings["b"].values == [3.0, 4.0]


def test_a_journal_torn_at_any_byte_keeps_every_whole_line_and_goes_on(tmp_path: Path) -> None:
    content = written(tmp_path / "whole")
    for cut in range(len(content) + 1):
        path = tmp_path / "torn"
        path.write_bytes(content[:cut])
        journal = Journal(path)
        assert journal.events == EVENTS[: content[:cut].count(b"\n")]
        journal.append(EVENTS[1])
        assert Journal(path).events == [*EVENTS[: content[:cut].count(b"\n")], EVENTS[1]]


def test_a_line_that_is_no_event_is_named(tmp_path: Path) -> None:
    content = written(tmp_path / "journal").splitlines(keepends=True)
    (tmp_path / "journal").write_bytes(content[0] + b'{"event":"dream"}\n' + content[1])
    with pytest.raises(HostFailed, match=r"line 2 of .*journal cannot be read"):
        Journal(tmp_path / "journal")


def test_what_was_undone_is_no_reading(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for event in EVENTS[:4]:
        journal.append(event)
    assert list(journal.readings) == ["a"]
    assert Journal(tmp_path / "missing").readings == {}
