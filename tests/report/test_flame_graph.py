"""The differential flame graph, speedscope's document, and folded text."""

import xml.etree.ElementTree as ElementTree

import pytest

from lab.compare.chains import Chains, Stack
from lab.report import flame_graph

SVG = "{http://www.w3.org/2000/svg}"


def stack(*names: str) -> Stack:
    return tuple(("user" if name == "main" else "kernel", name) for name in names)


CHAINS = Chains(
    base={stack("main"): 2_000, stack("main", "entry", "old; one"): 6_000, stack("main", "entry", "both"): 4_000},
    test={stack("main"): 1_000, stack("main", "entry", "<new>"): 8_000, stack("main", "entry", "both"): 2_000},
    operations={"base": 2, "test": 1},
    cost="cycles",
    machine="zen4",
)


def boxes(text: str) -> dict[str, tuple[float, float, float, str, str]]:
    """Left, top, width, class and tooltip of each box, by its function."""
    found = {}
    for group in ElementTree.fromstring(text).iter(f"{SVG}g"):  # noqa: S314
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text
        place = (float(rect.attrib[name]) for name in ("x", "y", "width"))
        found[title.text.split("\n")[0]] = (*place, rect.attrib["class"], title.text.split("\n")[1])
    return found


def test_callees_lie_below_their_caller_and_colours_tell_the_arms_apart() -> None:
    text = flame_graph.svg(CHAINS, title="<a> against b")
    found = boxes(text)
    whole, entry = found["all "], found["entry kernel"]
    assert whole[4] == "base 6, test 11 (+83.3 %)" and "modelled cycles (zen4) per operation" in text
    callees = [found[f"{name} kernel"] for name in ("<new>", "both", "old; one")]
    assert [kind for *_, kind, _ in callees] == ["more3", "as", "less3"]
    assert entry[2] == pytest.approx(sum(width for _, _, width, *_ in callees), abs=0.05)
    assert {top for _, top, *_ in callees} == {entry[1] + 18}
    assert callees[0][0] == pytest.approx(entry[0], abs=0.01)


def test_speedscope_has_both_arms_with_frames_that_they_share() -> None:
    document = flame_graph.speedscope(CHAINS, title="t")
    names = [frame["name"] for frame in document["shared"]["frames"]]
    base, test = document["profiles"]
    assert (base["endValue"], test["endValue"]) == (6, 11)
    assert sum(test["weights"]) == 11 and len(test["samples"]) == len(test["weights"])
    assert ["main", "entry", "<new>"] in [[names[number] for number in sample] for sample in test["samples"]]


def test_folded() -> None:
    lines = flame_graph.folded(CHAINS).splitlines()
    assert "base;main;entry_[k];old:_one_[k] 6000" in lines and "test;main;entry_[k];<new>_[k] 8000" in lines
    assert all(line.count(" ") == 1 for line in lines)
