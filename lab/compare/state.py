"""The state guard: how the arms differ besides the metric. A line names a difference; it never hides a verdict.

A kernel that is faster because its guest swapped less, or got its huge pages, is faster for a reason that the metric
does not show. So is a kernel whose program executed other code of its own: a comparison of strings takes more
instructions if the string lies differently, and the cause that moved the stack is not the kernel's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from lab.compare import beliefs
from lab.compare.runs import Run
from lab.core.text import number
from lab.guests.channel import CaseOutcome
from lab.kernels.symbols import SymbolTable, base_name
from lab.stats.verdict import Comparison
from lab.workloads.spec import HUGE_PAGE_MIB

_PAGE_MB = 4096 / (1 << 20)
_HUGE = ("thp_fault_alloc", "thp_collapse_alloc", "thp_file_alloc")
_SLAB = ("nr_slab_reclaimable", "nr_slab_unreclaimable")
_FEATURES = "sched.features"
_MEMORY_APART = 0.05


class _Quantity(NamedTuple):
    """A part of the state. A difference below `least`, or of a smaller share of the whole, is none."""

    text: str
    of: Callable[[CaseOutcome, Mapping[str, float]], float | None]
    least: float
    share: float


def _sum(counters: Sequence[str], unit: float) -> Callable[[CaseOutcome, Mapping[str, float]], float]:
    return lambda outcome, _: unit * sum(outcome.vmstat.get(name, 0) for name in counters)


def _metric(name: str) -> Callable[[CaseOutcome, Mapping[str, float]], float | None]:
    return lambda _, metrics: metrics.get(name)


def _operations(_: CaseOutcome, metrics: Mapping[str, float]) -> float | None:
    """The operations; None for vCPUs that contend, whose window closes when the first is done."""
    return None if "unfairness" in metrics else metrics.get("counted_operations")


_QUANTITIES = (
    _Quantity("{} MB of huge pages", _sum(_HUGE, HUGE_PAGE_MIB), 1, 0.1),
    _Quantity("{} VMAs", _metric("vmas"), 1, 0.1),
    _Quantity("{} MB at most", lambda outcome, _: outcome.usage.get("max_rss_kb", 0) / 1024, 1, 0.1),
    _Quantity("{} MB more of slab", _sum(_SLAB, _PAGE_MB), 1, 0.2),
    _Quantity("{} MB swapped out", _sum(("pswpout",), _PAGE_MB), _PAGE_MB, 0.1),
    _Quantity("{} MB swapped in", _sum(("pswpin",), _PAGE_MB), _PAGE_MB, 0.1),
    _Quantity("{} operations", _operations, 0, 0.001),
)


def case_remarks(case: str, base: Mapping[int, Run], test: Mapping[int, Run], reason: str = "") -> list[str]:
    """The differences between the arms in a case, in a line, and the processes that they leave behind.

    base, test: the runs by seed. reason: of the verdict; what it says is no remark.
    """
    seeds = sorted(base.keys() & test.keys())
    found = []
    for quantity in _QUANTITIES:
        left, right = (_mean(quantity, case, [runs[seed] for seed in seeds]) for runs in (base, test))
        if left is not None and right is not None and _is_apart(quantity, left, right):
            found.append(f"{number(left)} against {quantity.text.format(number(right))}")
    lines = [f"arms differ in state: {', '.join(found)}"] if found else []
    behind = left_behind(case, base, test)
    return [*lines, left_remark(behind)] if any(behind) and left_remark(behind) not in reason else lines


def left_behind(case: str, base: Mapping[int, Run], test: Mapping[int, Run]) -> tuple[float, float]:
    """The processes that a case leaves behind in each arm, on average over the seeds that both have."""
    seeds = base.keys() & test.keys()
    left, right = (fmean([runs[seed].left_processes(case) for seed in seeds] or [0]) for runs in (base, test))
    return left, right


def beside_left(primary: Comparison, left: tuple[float, float]) -> Comparison:
    """A comparison; `unknown` if one arm leaves more processes behind.

    left: on average in each arm. Chance may leave one in a few windows, in whole processes none.
    """
    if primary.verdict is None or round(left[0]) == round(left[1]):
        return primary
    return primary.unknown(left_remark(left))


def left_remark(left: tuple[float, float]) -> str:
    """The processes that both arms leave behind, or each of them."""
    said = " against ".join(dict.fromkeys(map(number, left)))
    return f"leaves {said} process{'es' * (said != '1')} behind, whose work is in no number"


def _mean(quantity: _Quantity, case: str, runs: Sequence[Run]) -> float | None:
    """The mean of a quantity; None if a run lacks it."""
    outcomes = [(run.report.case(case), run.metrics(case)) for run in runs]
    values = [quantity.of(outcome, metrics) for outcome, metrics in outcomes if outcome is not None]
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(values) else None


def _is_apart(quantity: _Quantity, base: float, test: float) -> bool:
    return abs(base - test) >= quantity.least and abs(base - test) > quantity.share * max(abs(base), abs(test))


def boot_remarks(base: Run, test: Run, asked: Sequence[str] = ()) -> list[str]:
    """The state of both arms' guests before any case ran. asked: the settings that an arm was given."""
    found = [*_settings(base, test, asked), *_hello(base, test)]
    return [f"guests differ: {', '.join(found)}"] if found else []


def _settings(base: Run, test: Run, asked: Sequence[str]) -> Iterator[str]:
    left, right = base.report.settings, test.report.settings
    for name in sorted((left.keys() & right.keys()) - set(asked)):
        if left[name] == right[name] or name.startswith(beliefs.PREFIX):
            continue
        if name == _FEATURES:
            yield from _features(set(left[name].split()), set(right[name].split()), asked)
        else:
            yield f"{name} {left[name]} against {right[name]}"


def _features(left: set[str], right: set[str], asked: Sequence[str]) -> Iterator[str]:
    """The scheduler's features that only one arm has; a feature that is off has `NO_` before its name."""
    own = {prefix + setting.removeprefix("sched_feat.") for setting in asked for prefix in ("", "NO_")}
    only = [
        (" ".join(sorted(names)), arm)
        for names, arm in ((left - right - own, "base"), (right - left - own, "test"))
        if names
    ]
    if only:
        yield "scheduler features " + "; ".join(f"{names} only in {arm}" for names, arm in only)


def _hello(base: Run, test: Run) -> Iterator[str]:
    left, right = base.report.hello, test.report.hello
    if left is None or right is None:
        return
    if left.clocksource != right.clocksource:
        yield f"clocksource {left.clocksource} against {right.clocksource}"
    if abs(left.mem_kb - right.mem_kb) > _MEMORY_APART * max(left.mem_kb, right.mem_kb):
        yield f"{number(left.mem_kb / 1024)} against {number(right.mem_kb / 1024)} MB of memory"


# ---- the program's own code

_CODE_APART = 0.002
"""The least share of the program's own instructions that a line between arms names."""

_SEEDS_APART = 0.01
"""The same between seeds of one arm: some are always a few instructions apart."""

_UNKNOWN = "code without a name"


class Code(NamedTuple):
    """The program's own code in one run: instructions an operation in all, and by function with its calls."""

    instructions: float
    functions: dict[str, tuple[float, float]]


def code_of(run: Run, case: str, blocks: Sequence[tuple[int, int, int]], tables: Sequence[SymbolTable]) -> Code:
    """The code of a case in a run. tables: the functions of its program."""
    metrics = run.metrics(case)
    operations = metrics["counted_operations"]
    sums: dict[str, list[float]] = {}
    for address, instructions, executions in blocks:
        name, entry = _function(address, tables)
        found = sums.setdefault(name, [0.0, 0.0])
        found[0] += instructions / operations
        found[1] += executions / operations if entry else 0
    return Code(metrics["user_instructions"], {name: (count, calls) for name, (count, calls) in sums.items()})


def _function(address: int, tables: Sequence[SymbolTable]) -> tuple[str, bool]:
    for table in tables:
        if (symbol := table.find(address)) is not None:
            return base_name(symbol.name), table.entry(address)
    return _UNKNOWN, False


def odd_code(base: Mapping[int, float], test: Mapping[int, float]) -> tuple[list[int], list[int]]:
    """The seed in which the arms' own instructions differ most, and two seeds of base that differ; empty if none do."""
    shared = sorted(base.keys() & test.keys())
    apart = max(shared, key=lambda seed: abs(test[seed] - base[seed]), default=None)
    arms = [apart] if apart is not None and _is_other(base[apart], test[apart], _CODE_APART) else []
    ends = [end(base, key=lambda seed: (base[seed], -seed)) for end in (min, max)] if base else []
    return arms, ends if ends and _is_other(base[ends[0]], base[ends[1]], _SEEDS_APART) else []


def _is_other(one: float, other: float, share: float) -> bool:
    return abs(one - other) >= 1 and abs(one - other) > share * max(one, other)


def arms_remark(base: Code, test: Code) -> str:
    """The difference of the program's own code between the arms, and whose doing it is."""
    name = _moved(base, test)
    change = test.instructions - base.instructions
    (_, before), (_, after) = (code.functions.get(name, (0.0, 0.0)) for code in (base, test))
    said = f"user code ran differently: {change:+,.4g} instructions/op"
    if name == _UNKNOWN:
        return f"{said}, in {name}"
    same = before and abs(before - after) <= _CODE_APART * max(before, after)
    return f"{said}, most of it in {name}" + (": layout, not the kernel" if same else "")


def seeds_remark(least: Code, most: Code) -> str:
    """The dependence of the program's own code on the seed."""
    span = f"{number(least.instructions)} to {number(most.instructions)} instructions/op"
    return f"user code depends on the seed: {span}, most of it in {_moved(least, most)}"


def _moved(one: Code, other: Code) -> str:
    """The function whose instructions differ most."""
    names = sorted(one.functions.keys() | other.functions.keys())

    def change(name: str) -> float:
        return abs(one.functions.get(name, (0.0, 0.0))[0] - other.functions.get(name, (0.0, 0.0))[0])

    return max(names, key=change, default=_UNKNOWN)
