"""Whether a page says what its JSON says, for each kind of result: of made-up ones, and of really measured ones."""

from typing import Any

import msgspec

from lab.compare import matrix_results
from lab.compare.matrix_results import MatrixResult
from lab.compare.results import mean

from .opened import Opened


def require_same_comparison(opened: Opened, stored: Any) -> None:
    """Every case with means, ratio and verdict, and every pair of numbers of the first one."""
    rows = opened.page.locator("#r1-table tbody tr").all()
    for row, one in zip(rows, stored["cases"], strict=True):
        primary = _primary(one)
        assert row.get_attribute("data-case") == f"{one['workload']}:{one['case']}"
        assert row.get_attribute("data-verdict") == one["verdict"]
        shown = [cell.get_attribute("data-value") for cell in row.locator("td[data-value]").all()][:3]
        wanted = [primary["ratio"], mean(primary["base"]), mean(primary["test"])]
        assert [float(text) if text else None for text in shown] == wanted
    words = opened.page.locator("#r1-table tbody .word").all_inner_texts()
    assert words == [one["verdict"] for one in stored["cases"]]
    changed = {one["verdict"] for one in stored["cases"] if one["holm"] is not False and not one["control"]}
    word = "mixed" if {"regression", "improvement"} <= changed else stored["verdict"]
    assert opened.page.locator("p.verdict .word").inner_text() == word
    raw = opened.page.locator("#r1-case-1 details.raw tbody tr").all()
    pairs = [[cell.text_content() for cell in row.locator("td").all()] for row in raw]
    primary = _primary(stored["cases"][0])
    wanted = [[base, test] for base, test in zip(primary["base"], primary["test"], strict=True)]
    assert [[float(text) for text in row] for row in pairs] == wanted
    worse = sum(one["verdict"] == "regression" and not one["control"] for one in stored["cases"])
    reason = f"{worse} worse (to" if word == "mixed" else stored["reason"]
    assert reason in opened.page.locator("p.sentence").inner_text()


def _primary(case: Any) -> Any:
    return next(metric for metric in case["metrics"] if metric["primary"])


def require_same_bisection(opened: Opened, stored: Any) -> None:
    """Every change with its commit, author, effect and confidence, and every step of the path with its number."""
    sections = opened.page.locator("section.change").all()
    for section, change in zip(sections, stored["changes"], strict=True):
        assert section.get_attribute("data-commit") == change["commit"]
        assert float(section.get_attribute("data-confidence")) == change["confidence"]
        effect = (change["proof"] or {}).get("fresh") or change["effect"]
        assert float(section.get_attribute("data-ratio")) == effect["ratio"]
        if len(change["among"]) == 1:
            words = section.inner_text()
            assert all(change[what] in words for what in ("commit", "title", "author", "date"))
            assert change["title"] in opened.page.locator("p.sentence").inner_text()
        else:
            suspects = section.locator("table.suspects tbody th").all_inner_texts()
            assert suspects == [name[:12] for name in change["among"]]
    for i, step in enumerate(stored["path"], start=1):
        row = opened.page.locator(f'#commits tr[data-commit="{step["commit"][:12]}"]')
        values = [cell.get_attribute("data-value") for cell in row.locator("td[data-value]").all()]
        assert int(values[0]) == i
        assert (float(values[1]) if values[1] else None) == step["ratio"]
        if not step["values"]:
            assert "untestable" in row.inner_text() and step["why"] in row.inner_text()
    assert opened.texts(".mark-step small") == [str(i) for i in range(1, len(stored["path"]) + 1)]


def require_same_matrix(opened: Opened, stored: Any) -> None:
    """Every cell of heat map and table."""
    rows = opened.page.locator("#cells tbody tr").all()
    records = msgspec.convert(stored, MatrixResult).cells
    opened.unfold()
    for record, cell, row in zip(records, stored["cells"], rows, strict=True):
        state = matrix_results.state(record, stored["baseline"])
        ratio = cell["comparison"]["ratio"] if cell["comparison"] else None
        drawn = opened.page.locator(f'table.heat td[data-case="{cell["case"]}"][data-arm="{cell["arm"]}"]')
        assert drawn.get_attribute("data-state") == row.get_attribute("data-verdict") == state
        mean, change, *count, seeds = (one.get_attribute("data-value") for one in row.locator("td[data-value]").all())
        assert mean == drawn.get_attribute("data-mean") and change == drawn.get_attribute("data-ratio")
        assert (float(mean) if mean else None) == cell["mean"] and (float(change) if change else None) == ratio
        assert int(seeds or 0) == len(cell["seeds"])
        if count and cell["instructions"]:
            assert (float(count[0]) if count[0] else None) == cell["instructions"]["ratio"]
        if cell["failed"]:
            assert cell["failed"] in row.inner_text() and "failed" in drawn.inner_text()
    assert stored["summary"] in opened.page.locator("p.sentence").inner_text()
