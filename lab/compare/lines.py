"""The lines that vCPUs took from each other in both arms, by what lies there and by the functions that went there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lab.compare.profiles import ArmProfile
from lab.core.records import Record
from lab.guests.plugin import Line
from lab.kernels.symbols import KERNEL_HALF, base_name

_MILLI = 1000
_PLACES = 4
_FUNCTIONS = 4

LEAST = 0.02
"""The fewest moves per operation, in either arm, of a place that is listed."""


class Moves(Record, frozen=True, kw_only=True):
    """Moves of cache lines at a place, per operation. lost: cycles until a line had arrived or a loop went on.

    held: cycles that a lock there was held.
    """

    moved: float = 0.0
    false: float = 0.0
    atomics: float = 0.0
    lost: float = 0.0
    held: float = 0.0
    readers: int = 0
    writers: int = 0


class MetLine(Record, frozen=True, kw_only=True):
    """A place at which vCPUs met, the functions that moved its lines most, and what happened in both arms."""

    place: str
    functions: list[str]
    base: Moves
    test: Moves


@dataclass(slots=True)
class _Sum:
    moves: int = 0
    false: int = 0
    atomics: int = 0
    lost: int = 0
    held: int = 0
    readers: int = 0
    writers: int = 0
    functions: Counter[str] = field(default_factory=Counter)


def met(base: ArmProfile, test: ArmProfile) -> list[MetLine]:
    """The places where lines moved, those that moved most in either arm first."""
    sums = {"base": _by_place(base), "test": _by_place(test)}
    operations = {"base": base.operations, "test": test.operations}
    found = []
    for place in sums["base"].keys() | sums["test"]:
        arms = {arm: sums[arm].get(place, _Sum()) for arm in sums}
        functions = arms["base"].functions + arms["test"].functions
        moves = {arm: _moves(one, operations[arm]) for arm, one in arms.items()}
        names = sorted(functions, key=lambda name: (-functions[name], name))[:_FUNCTIONS]
        found.append(MetLine(place=place, functions=names, base=moves["base"], test=moves["test"]))
    listed = [line for line in found if max(line.base.moved, line.test.moved) >= LEAST]
    return sorted(listed, key=lambda line: (-max(line.base.moved, line.test.moved), line.place))


def _moves(one: _Sum, operations: int) -> Moves:
    return Moves(
        moved=one.moves / operations,
        false=one.false / operations,
        atomics=one.atomics / operations,
        lost=one.lost / _MILLI / operations,
        held=one.held / _MILLI / operations,
        readers=one.readers.bit_count(),
        writers=one.writers.bit_count(),
    )


def _by_place(profile: ArmProfile) -> dict[str, _Sum]:
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for window in profile.windows:
        for line in window.lines:
            functions = Counter(dict(_functions(line, profile)))
            place = _place(line, window.cpus, profile) or f"memory of {', '.join(_most(functions))}"
            one = sums[place]
            one.moves += line.moves
            one.false += line.moves - line.essential
            one.atomics += sum(use.atomics for use in line.uses)
            one.lost += line.queued + line.waited
            one.held += line.held
            one.readers |= line.readers
            one.writers |= line.writers
            one.functions += functions
    return dict(sums)


def _most(functions: Counter[str]) -> Sequence[str]:
    return sorted(functions, key=lambda name: (-functions[name], name))[:2]


def _functions(line: Line, profile: ArmProfile) -> Iterator[tuple[str, int]]:
    moves: Counter[str] = Counter()
    for use in line.uses:
        tables = profile.kernel if use.address >= KERNEL_HALF else profile.user
        symbol = next((found for table in tables if (found := table.find(use.address))), None)
        moves[base_name(symbol.name) if symbol else f"{use.address:#x}"] += use.loads + use.stores
    return iter(moves.items())


def _place(line: Line, cpus: Sequence[int], profile: ArmProfile) -> str:
    """Name the objects in a line that its vCPUs accessed; empty for pages without a name."""
    if profile.places is None:
        return ""
    names: list[str] = []
    for offset in sorted({(use.bytes & -use.bytes).bit_length() - 1 for use in line.uses if use.bytes}):
        if line.cache and line.size:
            name = profile.places.of_object(line.cache, (line.line + offset - line.slab) % line.size)
        else:
            name = profile.places.of_address(line.address + offset, list(cpus))
        names.append(name)
    shown = list(dict.fromkeys(names))
    if shown[:1] == ["pages"]:
        return ""
    return ", ".join(_shortened(shown[:_PLACES]))


def _shortened(names: Sequence[str]) -> list[str]:
    """Members of one type, with its name once: `file.f_count, f_mode`."""
    first = names[0].partition(".")[0] + "." if names and "." in names[0] else None
    return [name.removeprefix(first) if first and at else name for at, name in enumerate(names)]
