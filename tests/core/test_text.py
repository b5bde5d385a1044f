"""Nothing that is obeyed instead of shown may pass."""

import io
import unicodedata

import pytest
from msgspec.structs import replace
from rich.console import Console

from lab.core.text import UNBOUND, columns, span, visible, visible_record, width_of

from ..fakes.result import HOSTILE, hostile, result


@pytest.mark.parametrize(("text", "shown"), [
    ("layout-4632k", "layout-4632k"),
    ("Grüße, 日本 ± → é", "Grüße, 日本 ± → é"),
    ("a\x1b[31mb", "a\\x1b[31mb"),
    ("a\r\nb\tc", "a\\r\\nb\\tc"),
    ("a\u202eb\u2066c\u200f", "a\\u202eb\\u2066c\\u200f"),
    ("\ufeff\u200b\xad", "\\ufeff\\u200b\\xad"),
    ("\u2028\u2029\x85\x9b", "\\u2028\\u2029\\x85\\x9b"),
    ("\udc80\ue000\U000e0041", "\\udc80\\ue000\\U000e0041"),
])  # fmt: skip
def test_what_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_every_control_and_every_bidirectional_mark_is_shown() -> None:
    for number in range(0x110000):
        character = chr(number)
        obeyed = unicodedata.category(character) == "Cc" or unicodedata.bidirectional(character) in (
            "LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN",
        )  # fmt: skip
        if obeyed:
            assert character not in visible(f"a{character}b"), hex(number)


def test_all_strings_of_a_record_are_made_visible_and_nothing_else_changes() -> None:
    assert visible_record(result()) == result()
    shown = visible_record(hostile())
    assert shown.cases[0].case == visible(HOSTILE) == shown.base.subject
    assert shown.base.settings == {visible(HOSTILE): visible(HOSTILE)}
    tabbed = visible_record(replace(result(), reason="+\tif (x)\t/* y */"))
    assert tabbed.reason == "+       if (x)  /* y */", "code in a record has its columns, as in a terminal"
    assert shown.cases[0].metrics == hostile().cases[0].metrics


def test_a_pipe_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert width_of(Console(file=io.StringIO())) == UNBOUND
    monkeypatch.setenv("COLUMNS", "72")
    assert width_of(Console(file=io.StringIO())) == 72


def test_what_does_not_fit_goes_on_in_its_column() -> None:
    rows = [("one", "a short text"), ("three", "a text that is too long")]
    assert columns(rows) == ["one    a short text", "three  a text that is too long"]
    assert columns(rows, width=20) == ["one    a short text", "three  a text that\n       is too long"]
    assert columns([]) == []


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (119, "119 s"), (150, "2 min"), (7100, "118 min"), (58826, "16.3 h")]
)
def test_a_span_is_in_a_unit_that_people_read(seconds: float, shown: str) -> None:
    assert span(seconds) == shown
