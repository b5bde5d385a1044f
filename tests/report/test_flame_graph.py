"""Folded text and the differential flame graph."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from lab.compare.explain import Explanation, FunctionRow, Space
from lab.report import flame_graph

SVG = "{http://www.w3.org/2000/svg}"


def row(name: str, base: int, test: int, *, space: Space = "kernel") -> FunctionRow:
    return FunctionRow(
        name=name, space=space, base_cycles=base, test_cycles=test, base_instructions=base, test_instructions=test
    )


def explanation(*rows: FunctionRow) -> Explanation:
    return Explanation(base_operations=1, test_operations=1, cycle_units=1, rows=list(rows))


MIXED = explanation(
    row("more", 100, 400),
    row("less", 300, 100),
    row("same", 250, 250),
    row("gone", 100, 0),
    row('operator<(a; b) & "c"\x01', 0, 50, space="user"),
)


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314


def boxes(text: str) -> dict[str, tuple[float, float, str, str]]:
    """Left, width, colour and tooltip of each box, by the first line of its tooltip."""
    found = {}
    for group in parsed(text).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text
        name = title.text.split("\n")[0]
        found[name] = (float(rect.attrib["x"]), float(rect.attrib["width"]), rect.attrib["fill"], title.text)
    return found


def test_folded() -> None:
    lines = flame_graph.folded(MIXED).splitlines()
    assert "base;kernel;more 100" in lines
    assert "test;kernel;more 400" in lines
    assert 'test;user;operator<(a:_b)_&_"c"\x01 50' in lines
    assert not any(line.startswith("test;kernel;gone") for line in lines)
    for arm, whole in (("base", 750), ("test", 800)):
        assert sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(arm)) == whole
    assert all(line.count(";") == 2 and line.count(" ") == 1 for line in lines)


def test_svg_shows_every_function_of_either_arm() -> None:
    found = boxes(flame_graph.svg(MIXED, title="<base> & test", machine="zen4"))
    scale = (flame_graph.WIDTH - 24) / (400 + 300 + 250 + 100 + 50)
    assert found["more (kernel)"][1] == pytest.approx(400 * scale, abs=0.02)
    assert found["gone (kernel)"][1] == pytest.approx(100 * scale, abs=0.02)
    assert found["kernel"][1] == pytest.approx(1050 * scale, abs=0.02)
    assert found["all"][1] == pytest.approx(1100 * scale, abs=0.02)
    assert "base 100, test 400 modelled cycles (zen4) per operation\n+300 (+300.0 %)" in found["more (kernel)"][3]
    assert "(-100.0 %)" in found["gone (kernel)"][3]
    assert found['operator<(a; b) & "c"\ufffd (user)'][3].count("only in test") == 1


def test_colours() -> None:
    found = boxes(flame_graph.svg(MIXED, title="t", machine="zen4"))

    def channels(name: str) -> tuple[int, int, int]:
        colour = found[name][2]
        return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)

    red, green, blue = channels("more (kernel)")
    assert red > blue + 100 and red > green + 100
    red, green, blue = channels("less (kernel)")
    assert blue > red + 50
    assert channels("same (kernel)") == (255, 255, 255)
    weak, strong = channels("gone (kernel)"), channels("less (kernel)")
    assert weak[0] > strong[0]


def test_boxes_lie_side_by_side() -> None:
    many = explanation(*(row(f"f{i}", 1 + i % 7, 1 + i * i % 11) for i in range(2000)), row("big", 5000, 5500))
    found = boxes(flame_graph.svg(many, title="t", machine="zen4"))
    functions = sorted(box[:2] for name, box in found.items() if name.endswith("(kernel)"))
    for (left, width), (following, _) in pairwise(functions):
        assert left + width == pytest.approx(following, abs=0.02)
    left, width = functions[-1]
    assert left + width == pytest.approx(flame_graph.WIDTH - 12, abs=0.02)
    assert any("smaller functions]" in name for name in found)
    assert len(found) < 1300


def test_instructions_need_no_machine() -> None:
    text = flame_graph.svg(MIXED, "instructions", title="t")
    assert "modelled" not in text
    with pytest.raises(ValueError, match="machine"):
        flame_graph.svg(MIXED, title="t")


def test_nothing_to_show_is_still_a_picture() -> None:
    for rows in ((), (row("idle", 0, 0),)):
        assert boxes(flame_graph.svg(explanation(*rows), title="t", machine="zen4")) == {}


def test_it_needs_nothing_else() -> None:
    root = parsed(flame_graph.svg(MIXED, title="t" * 500, machine="zen4"))
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in {"svg", "g", "rect", "text", "title"}
        assert not any(name.endswith("href") or name.startswith("on") for name in element.attrib)
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert max(map(len, texts)) < 160
    assert texts[0].endswith("…")
