"""The whole cost of a case in every format for people, and the parts of it as metrics in those for tools."""

import html
import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from lab import report
from lab.guests import costs
from lab.report import text, wording
from lab.stats.whole import Amount, Whole

from ..fakes.result import EQUAL, SLOWER, compared, reports, result

WHOLE = Whole(
    caller=Amount(base=1000, test=1580, ratio=1.58),
    deferred=Amount(base=100, test=250, ratio=2.5),
    together=Amount(base=1000, test=1730, ratio=1.73),
    elapsed=Amount(base=2_000_000, test=2_500_000, ratio=1.25),
    waited=Amount(base=0, test=400_000, ratio=None),
)
LINE = (
    "caller +58.0 %, deferred 100 to 250 cycles (+15.0 % of the caller), together +73.0 %, "
    "elapsed 2 ms to 2.5 ms (+25.0 %), of it waited 0 ns to 400 us"
)
PARTS = [
    compared(metric, [value] * 6, [more] * 6)
    for metric, value, more in zip(
        costs.WHOLE_METRICS, (100.0, 2_000_000.0, 0.0), (250.0, 2_500_000.0, 400_000.0), strict=True
    )
]
WHOLLY = replace(SLOWER, whole=WHOLE, metrics=[*SLOWER.metrics, *PARTS])


def test_the_whole_cost_is_one_line() -> None:
    assert wording.three(WHOLE) == LINE
    assert wording.three(None) == wording.three(Whole(caller=WHOLE.caller)) == ""
    never_idle = replace(WHOLE, waited=Amount(base=0, test=0, ratio=1))
    assert wording.three(never_idle) == LINE.rpartition(", ")[0]


@pytest.mark.parametrize("kind", ["text", "md", "html"])
def test_it_has_two_columns(kind: str, tmp_path: Path) -> None:
    shown = html.unescape(report.render(kind, reports(tmp_path, result(WHOLLY, EQUAL))))
    assert re.search(r"deferred.*elapsed", shown.replace("\n", " ")) and "+15.0 %" in shown and "+25.0 %" in shown
    assert "deferred" not in report.render(kind, reports(tmp_path / "without", result(SLOWER, EQUAL)))


def test_the_page_has_the_line(tmp_path: Path) -> None:
    assert f"The whole cost of an operation: {LINE}." in report.render("html", reports(tmp_path, result(WHOLLY, EQUAL)))


def test_a_narrow_terminal_has_it_below_the_case() -> None:
    stream = io.StringIO()
    text.show(result(WHOLLY, EQUAL), Console(file=stream, width=80, force_terminal=True, no_color=True))
    lines = re.sub(r"\x1b\[\d*m", "", stream.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    heading = next(line for line in lines if line.startswith("case"))
    said = "\n".join(lines)
    assert "deferred" in heading or "deferred +15.0 %, elapsed +25.0 %" in said


@pytest.mark.parametrize("kind", ["csv", "openmetrics", "json"])
def test_tools_have_every_part(kind: str, tmp_path: Path) -> None:
    shown = report.render(kind, reports(tmp_path, result(WHOLLY, EQUAL)))
    for name in costs.WHOLE:
        assert name in shown
