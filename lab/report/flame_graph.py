"""Call chains as a differential flame graph, as a document for speedscope, and as folded text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from lab import __version__
from lab.compare.chains import Chains, Stack
from lab.compare.explain import Arm, FunctionKey
from lab.core.text import xml
from lab.report.explain_text import change, short, unit_of
from lab.report.plots import document, rect, text, themes
from lab.report.wording import cut

_ARMS: tuple[Arm, ...] = ("base", "test")

WIDTH = 1200
_MARGIN, _TOP, _ROW, _FOOT = 16, 72, 18, 40
_CHARACTER = 6.7
"""Pixels of one character of 11-pixel type."""

_LEAST = 0.5
"""Pixels of the narrowest function that is drawn."""

_SHADES = (0.005, 0.05, 0.2)
"""The shares of the movement from which on a function has the next shade."""


@dataclass(slots=True)
class Node:
    """A function with the calls that led to it: modelled cycles, or instructions, per operation with its callees."""

    name: str
    space: str
    base: Fraction = Fraction()
    test: Fraction = Fraction()
    callees: dict[FunctionKey, Node] = field(default_factory=dict)

    @property
    def size(self) -> Fraction:
        """The mean of both arms, so that callees fit below their caller, and code of either arm is to be seen."""
        return (self.base + self.test) / 2

    @property
    def delta(self) -> Fraction:
        return self.test - self.base

    @property
    def depth(self) -> int:
        """The levels of callees below it."""
        return max((1 + callee.depth for callee in self.callees.values()), default=0)


def tree(chains: Chains) -> Node:
    root = Node("all", "")
    for stack in sorted(chains.base.keys() | chains.test.keys()):
        base, test = (chains.per_operation(arm, stack) for arm in _ARMS)
        node = root
        for key in (None, *stack):
            if key is not None:
                node = node.callees.setdefault(key, Node(key[1], key[0]))
            node.base += base
            node.test += test
    return root


def svg(chains: Chains, *, title: str) -> str:
    """The differential flame graph as one document that needs nothing else, light or dark as the reader has it."""
    root = tree(chains)
    unit = unit_of(chains.cost, chains.machine)
    height = _TOP + (root.depth + 1) * _ROW + _FOOT
    subtitle = f"{unit} per operation: {short(root.base)} -> {short(root.test)} ({change(root.base, root.test)})"
    foot = "callees below their callers; the width is the mean of both kernels; orange costs more in test, blue less"
    moved = sum(abs(chains.per_operation("test", one) - chains.per_operation("base", one)) for one in _all(chains))
    scale = (WIDTH - 2 * _MARGIN) / (float(root.size) or 1.0)
    parts = [
        text(_MARGIN, 28, title, "ink title"),
        text(_MARGIN, 50, subtitle),
        *_drawn(root, _MARGIN, _TOP, scale, float(moved)),
        text(_MARGIN, height - 14, foot, "soft"),
    ]
    return document(WIDTH, height, parts, title=title, description=f"{subtitle}. {foot}", style=_STYLE)


_STYLE = (
    "text{font:11px DejaVu Sans Mono,Menlo,Consolas,monospace}.title{font-weight:bold}rect{stroke-width:.5}"
    + themes(
        ".paper{fill:#fff}.ink{fill:#16191d}.soft{fill:#57606a}rect{stroke:#fff}.as{fill:#e6e9ed}"
        ".more1{fill:#fbe0d0}.more2{fill:#f7b98f}.more3{fill:#ef8a4c}"
        ".less1{fill:#d6e6f7}.less2{fill:#9fc6ee}.less3{fill:#5f9fe0}",
        ".paper{fill:#12161b}.ink{fill:#e3e8ee}.soft{fill:#a3adb8}rect{stroke:#12161b}.as{fill:#2a313a}"
        ".more1{fill:#4a3226}.more2{fill:#80492a}.more3{fill:#b35a22}"
        ".less1{fill:#24384c}.less2{fill:#2c5480}.less3{fill:#3570b3}",
    )
)


def _all(chains: Chains) -> set[Stack]:
    return {*chains.base, *chains.test}


def _drawn(node: Node, left: float, top: float, scale: float, moved: float) -> Iterator[str]:
    """A function and its callees, by name, so that two graphs have them at the same side."""
    width = float(node.size) * scale
    if width < _LEAST:
        return
    tip = f"{node.name} {node.space}\nbase {short(node.base)}, test {short(node.test)} ({change(node.base, node.test)})"
    shade = sum(abs(node.delta) >= least * moved for least in _SHADES) if moved else 0
    kind = f"{'more' if node.delta > 0 else 'less'}{shade}" if shade else "as"
    characters = int((width - 4) / _CHARACTER)
    label = text(left + 2, top + 13, cut(node.name, characters)) if characters > 2 else ""
    yield f"<g><title>{xml(tip)}</title>{rect(kind, left, top, width, _ROW)}{label}</g>"
    for callee in sorted(node.callees.values(), key=lambda one: (one.space, one.name)):
        yield from _drawn(callee, left, top + _ROW, scale, moved)
        left += float(callee.size) * scale


def speedscope(chains: Chains, *, title: str) -> dict[str, Any]:
    """A document for speedscope: a profile of each arm, per operation.

    https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources
    """
    functions = sorted({function for stack in _all(chains) for function in stack})
    numbers = {function: number for number, function in enumerate(functions)}
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": title,
        "exporter": f"kernel-ab-lab {__version__}",
        "shared": {"frames": [{"name": name, "file": space} for space, name in functions]},
        "profiles": [_profile(chains, arm, numbers) for arm in _ARMS],
    }


def _profile(chains: Chains, arm: Arm, numbers: dict[FunctionKey, int]) -> dict[str, Any]:
    own = sorted(chains.base if arm == "base" else chains.test)
    weights = [float(chains.per_operation(arm, stack)) for stack in own]
    return {
        "type": "sampled",
        "name": f"{arm}, {unit_of(chains.cost, chains.machine)} per operation",
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[numbers[function] for function in stack] for stack in own],
        "weights": weights,
    }


def folded(chains: Chains) -> str:
    """Lines `arm;function;...;function count` of both arms, for flame graph viewers.

    Counts are the profiles' own sums over all operations, in instructions or in thousandths of a cycle. A function of
    the kernel has the viewers' mark `_[k]`.
    """
    lines = [
        f"{arm};{';'.join(map(_folded_name, stack))} {stacks[stack]}\n"
        for arm, stacks in (("base", chains.base), ("test", chains.test))
        for stack in sorted(stacks)
    ]
    return "".join(lines)


def _folded_name(function: FunctionKey) -> str:
    """A name without the format's own characters: semicolons, spaces, ends of lines."""
    space, name = function
    return re.sub(r"\s+", "_", name.replace(";", ":")) + ("_[k]" if space == "kernel" else "")
