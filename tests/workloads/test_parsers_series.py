"""Curves that a program prints beside its metrics: numbers only, or an error that names the curve."""

from __future__ import annotations

import pytest

from lab.workloads import parsers
from lab.workloads.parsers import Unreadable


def test_curves_come_from_the_line_of_the_metrics() -> None:
    lines = ['{"series":{"rss":[[9]]}}', '{"metrics":{"ops":2},"series":{"rss":[[0,0],[16,4096]],"none":[]}}', "bye"]
    assert parsers.read_series(lines) == {"rss": [[0.0, 0.0], [16.0, 4096.0]], "none": []}
    assert parsers.read_json_lines(lines).number("ops") == 2.0


@pytest.mark.parametrize("lines", [[], ["talk"], ['{"metrics":{"ops":2}}'], ['{"series":{"rss":[[1]]}}'], ["{"]])
def test_no_curves(lines: list[str]) -> None:
    assert parsers.read_series(lines) == {}


@pytest.mark.parametrize(
    "series",
    ["[[1,2]]", "3", '{"rss":{"1":2}}', '{"rss":[1,2]}', '{"rss":[[1,2],[3]]}', '{"rss":[[]]}', '{"rss":[[1,"2"]]}',
     '{"rss":[[1,true]]}', '{"rss":[[null]]}', '{"rss":[[1],2]}'],
)  # fmt: skip
def test_whatever_is_not_a_curve_is_refused(series: str) -> None:
    with pytest.raises(Unreadable, match="it printed series"):
        parsers.read_series([f'{{"metrics":{{}},"series":{series}}}'])
