"""The lines that vCPUs took from each other, by the members there and by the functions that went there.

`met` has both arms; `moved_for_nothing` lists the false sharing of one kernel.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.compare.profiles import ArmProfile
from lab.core.records import Record
from lab.guests.plugin import Line, Use
from lab.kernels.symbols import base_name

_MILLI = 1000
_PLACES = 4
_FUNCTIONS = 4
_NAMELESS = 2
_MARK = re.compile(r"[.+]")

LEAST = 0.02
"""The fewest moves per operation, in either arm, of a place that is listed."""


class Moves(Record, frozen=True, kw_only=True):
    """Moves of cache lines at a place, per operation. lost: cycles until a line had arrived or a loop continued.

    held: cycles for which a lock there was held.
    """

    moved: float = 0.0
    false: float = 0.0
    atomics: float = 0.0
    lost: float = 0.0
    held: float = 0.0
    readers: int = 0
    writers: int = 0


class MetLine(Record, frozen=True, kw_only=True):
    """A place at which vCPUs met, the functions that moved its lines most, and the moves in both arms."""

    place: str
    functions: list[str]
    base: Moves
    test: Moves


class Access(Record, frozen=True, kw_only=True):
    """A member of a line, and the functions whose loads and stores of it moved the line, the most frequent first."""

    member: str
    readers: list[str]
    writers: list[str]


class FalseSharing(Record, frozen=True, kw_only=True):
    """Lines at a place that moved, per operation, and how many of the moves brought nothing that was used."""

    place: str
    moved: float
    false: float
    accesses: list[Access]


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
    loads: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    stores: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


def met(base: ArmProfile, test: ArmProfile) -> list[MetLine]:
    """The places where lines moved, the most moves in either arm first."""
    sums = {"base": _by_place(base), "test": _by_place(test)}
    operations = {"base": base.operations, "test": test.operations}
    found = []
    for place in sums["base"].keys() | sums["test"]:
        arms = {arm: sums[arm].get(place, _Sum()) for arm in sums}
        functions = arms["base"].functions + arms["test"].functions
        moves = {arm: _moves(one, operations[arm]) for arm, one in arms.items()}
        found.append(
            MetLine(place=place, functions=_most(functions, _FUNCTIONS), base=moves["base"], test=moves["test"])
        )
    listed = [line for line in found if max(line.base.moved, line.test.moved) >= LEAST]
    return sorted(listed, key=lambda line: (-max(line.base.moved, line.test.moved), line.place))


def differing(lines: Sequence[MetLine]) -> list[MetLine]:
    """The lines whose moves differ, the largest difference first."""
    found = [line for line in lines if abs(line.test.moved - line.base.moved) >= LEAST]
    return sorted(found, key=lambda line: (-abs(line.test.moved - line.base.moved), line.place))


def moved_for_nothing(profile: ArmProfile) -> list[FalseSharing]:
    """The places whose lines moved without data that their vCPUs used, the most frequent first."""
    found = [
        FalseSharing(
            place=place,
            moved=one.moves / profile.operations,
            false=one.false / profile.operations,
            accesses=[
                Access(member=name, readers=_most(one.loads[name], _PLACES), writers=_most(one.stores[name], _PLACES))
                for name in sorted(one.loads.keys() | one.stores)
            ],
        )
        for place, one in _by_place(profile).items()
    ]
    return sorted((one for one in found if one.false >= LEAST), key=lambda one: (-one.false, one.place))


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
            functions: Counter[str] = Counter()
            names = {use: _name(line, use, window.cpus, profile) for use in line.uses}
            for use in line.uses:
                functions[_function(use.address, profile)] += use.loads + use.stores
            one = sums[_place(line, names) or f"memory of {', '.join(_most(functions, _NAMELESS))}"]
            for use, name in names.items():
                for moves, by_member in ((use.loads, one.loads), (use.stores, one.stores)):
                    if moves:
                        by_member[name][_function(use.address, profile)] += moves
            one.moves += line.moves
            one.false += line.moves - line.essential
            one.atomics += sum(use.atomics for use in line.uses)
            one.lost += line.queued + line.waited
            one.held += line.held
            one.readers |= line.readers
            one.writers |= line.writers
            one.functions += functions
    return dict(sums)


def _most(functions: Counter[str], most: int) -> list[str]:
    return sorted(functions, key=lambda name: (-functions[name], name))[:most]


def _function(address: int, profile: ArmProfile) -> str:
    _, symbol = profile.symbol(address)
    return base_name(symbol.name) if symbol else f"{address:#x}"


def _name(line: Line, use: Use, cpus: Sequence[int], profile: ArmProfile) -> str:
    """Name the first object that an instruction accessed in a line; empty for pages without a name."""
    if profile.places is None:
        return ""
    offset = _offset(use)
    if line.cache and line.size:
        place = line.line + offset - line.slab
        back = next((owner.back for owner in line.owners if owner.object == place - place % line.size), None)
        return profile.places.of_object(line.cache, place % line.size, _function(back - 1, profile) if back else "")
    name = profile.places.of_address(line.address + offset, list(cpus))
    return "" if name == "pages" else name


def _offset(use: Use) -> int:
    return max((use.bytes & -use.bytes).bit_length() - 1, 0)


def _place(line: Line, names: Mapping[Use, str]) -> str:
    """Name the objects in a line that its vCPUs accessed; empty for pages without a name.

    Members of one type have its name once: `file.f_count, f_mode`, `kmalloc-192+0x40, +0x60`.
    """
    accessed = dict.fromkeys(names[use] for use in sorted(line.uses, key=_offset) if use.bytes)
    first, *others = [name for name in accessed if name][:_PLACES] or [""]
    kind = _MARK.split(first)[0]
    alike = (f"{kind}.", f"{kind}+")
    shown = (name.removeprefix(kind).lstrip(".") if name.startswith(alike) else name for name in others)
    return ", ".join([first, *shown])
