"""Recordings keep what a reader of a terminal sees."""

from __future__ import annotations

import json

from . import recording


def test_a_bar_that_is_drawn_over_is_left_out() -> None:
    bar = "\r\x1b[2Kmeasuring {} about {} s left".format
    events = [(0.0, bar(0, 9)), (0.5, bar(0, 8) + bar(1, 7)), (1.0, bar(1, 6)), (1.5, "done\r\n"), (2.0, "done\r\n")]
    assert list(recording.visible(events)) == [(0.0, bar(0, 9)), (0.5, bar(1, 7)), (1.5, "done\r\n"), (2.0, "done\r\n")]


def test_the_recording_of_the_first_page_shows_its_commands_and_a_verdict() -> None:
    header, *rows = map(json.loads, recording.FILE.read_text().splitlines())
    assert header["version"] == 2 and (header["width"], header["height"]) == (recording.COLUMNS, recording.ROWS)
    assert all(kind == "o" for _, kind, _ in rows) and [row[0] for row in rows] == sorted(row[0] for row in rows)
    text = "".join(row[2] for row in rows)
    for command in recording.COMMANDS:
        assert f"{command}\r\n" in text
    assert "verdict: " in text
