"""The comparison table as the kernel test robot prints it, which is what readers of the kernel's lists know.

Left the base with its relative standard deviation, in the middle the change in percent (or in points, without a
percent sign, where the metric is a percentage itself), right the test kernel. A deviation below 1 % is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lab.reporting import figures
from lab.results import AbResult, ArmResult, CaseResult, primary_of
from lab.stats.verdict import Comparison

_LEAST_DEVIATION = 0.01
_LEFT, _MIDDLE, _RIGHT = 16, 13, 22


def table(result: AbResult, cases: Sequence[CaseResult], detailed: CaseResult) -> str:
    """The primary metric of the cases, then all that moved in one of them."""
    lines = ["=" * 89, *_axes(result, cases), "commit:"]
    lines += [f"  {_short(arm)} ({_quoted(arm)})" for arm in (result.base, result.test)]
    lines += ["", *_heading(result)]
    for case in cases:
        lines.append(_row(primary_of(case), figures.case_name(case).replace(":", ".")))
    moved = [c for c in figures.ranked(detailed.metrics) if c.base != c.test]
    if moved:
        prefix = figures.case_name(detailed).replace(":", ".")
        lines += ["", f"in {prefix}:", *(_row(c, "") for c in moved)]
    return "\n".join(lines)


def _axes(result: AbResult, cases: Sequence[CaseResult]) -> Iterator[str]:
    around = result.environment
    workloads = "+".join(dict.fromkeys(case.workload for case in cases))
    guest = next((around.guests[case.workload] for case in cases if case.workload in around.guests), None)
    axes = {
        "compiler": (result.test.compiler or "unknown").split(" ")[0],
        "mode": result.mode,
        "model": around.model,
        "qemu": around.qemu.split(" ")[0],
        "machine": around.machine,
        "vcpus": str(guest.vcpus) if guest else "?",
        "memory": f"{guest.memory_mb}M" if guest else "?",
        "testcase": workloads,
    }
    yield "/".join(axes) + ":"
    yield "  " + "/".join(value.replace("/", "_") for value in axes.values())


def _heading(result: AbResult) -> Iterator[str]:
    yield f"{_id(result.base)[:_LEFT].ljust(_LEFT)} {_id(result.test)[: _LEFT + 11]}"
    yield f"{'-' * _LEFT} {'-' * (_LEFT + 11)}"
    yield f"{'%stddev':>{_LEFT}}{'%change':>{_MIDDLE}}{'%stddev':>{_RIGHT - 6}}"
    yield f"{chr(92):>{_LEFT - 3}}{'|':>{_MIDDLE}}{chr(92):>{_RIGHT - 6}}"


def _row(comparison: Comparison, prefix: str) -> str:
    name = f"{prefix}.{comparison.name}" if prefix else comparison.name
    return (
        f"{_side(comparison.base):>{_LEFT}}{_change(comparison):>{_MIDDLE}}{_side(comparison.test):>{_RIGHT}}  "
        f"{name} ({comparison.unit})"
    )


def _side(values: Iterable[float | None]) -> str:
    found = figures.numbers(list(values))
    middle = figures.mean(found)
    if middle is None:
        return "n/a"
    text = f"{middle:.2f}" if abs(middle) < 1000 else f"{middle:.0f}"
    deviation = figures.relative_deviation(found)
    return f"{text} ±{100 * deviation:3.0f}%" if deviation and deviation >= _LEAST_DEVIATION else f"{text}      "


def _change(comparison: Comparison) -> str:
    base, test = figures.mean(comparison.base), figures.mean(comparison.test)
    if base is None or test is None:
        return "n/a"
    if comparison.unit == "%":
        return f"{test - base:+.1f}"
    ratio = comparison.ratio if comparison.ratio is not None else (test / base if base else None)
    return "new" if ratio is None else f"{100 * (ratio - 1):+.1f}%"


def _id(arm: ArmResult) -> str:
    return arm.commit or arm.build or arm.spec


def _short(arm: ArmResult) -> str:
    return _id(arm)[:10]


def _quoted(arm: ArmResult) -> str:
    return f'"{arm.subject}"' if arm.subject else f"{arm.spec}, Linux {arm.release}"
