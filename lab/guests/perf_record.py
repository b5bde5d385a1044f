"""`perf record` of each arm, once, in boots of their own: where the time goes by symbol, and what differs.

Sampling disturbs what it samples, so these boots are in no verdict. `perf record -e cycles` falls back to `cpu-clock`
by itself where there is no PMU; the report names the event that it was. perf reports in the guest, where the symbols
of its kernel are; what comes out are a few lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lab.core.records import Record
from lab.guests.perf_stat import PERF, SHELL, TELLS

PROGRAMS = (PERF, SHELL)
FREQUENCY_HZ = 999
"""Not a round number: in step with a timer of the kernel, every sample would fall on it."""

_BEGIN, _END = "lab-perf-report", "lab-perf-report-end"
_DATA = "/perf.data"
_SCRIPT = (
    f"{PERF} record -q -N -F {FREQUENCY_HZ} -e cycles -o {_DATA} -- {SHELL} sh -c '{TELLS}' sh \"$@\"; status=$?; "
    f"echo {_BEGIN} >&2; "
    f"{PERF} report --stdio --no-children -g none -F period,sample,dso,sym -t '|' -i {_DATA} >&2; "
    f"echo {_END} >&2; exit $status"
)
_EVENT = re.compile(r"# Samples: \S+ +of event '([^']+)'")
_ROW = re.compile(r" *(\d+) *\| *(\d+) *\|([^|]*)\|\[(.)\] (.*)")
_KEPT, _SHOWN = 20, 5
#: In standard errors: among the hundreds of functions of a profile, three of them are reached by chance in some.
_BEYOND_CHANCE = 4.0


class Symbol(Record, frozen=True, kw_only=True):
    """A function: where it is, and what of the event's count fell into it."""

    name: str
    place: str
    period: int
    samples: int


class Profile(Record, frozen=True, kw_only=True):
    """What one guest's samples of a case say. event: what was sampled, `cycles` or `cpu-clock` (nanoseconds)."""

    event: str
    symbols: list[Symbol]


class Moved(Record, frozen=True, kw_only=True):
    """A function in both arms: its period there, its share of each one's samples, and by how many standard errors of
    sampling the shares differ."""

    name: str
    place: str
    base: int
    test: int
    base_share: float
    test_share: float
    errors: float


class Difference(Record, frozen=True, kw_only=True):
    """Two arms' profiles of a case, what moved most first. samples: of each arm, all of them."""

    event: str
    samples: tuple[int, int]
    symbols: list[Moved]

    def __str__(self) -> str:
        """For people, in one line."""
        if not all(self.samples):
            return "perf took no samples: the case is too short for it"
        if not self.symbols:
            return "the arms were sampled by different events, which do not compare"
        moved = [one for one in self.symbols if abs(one.errors) >= _BEYOND_CHANCE]
        told = "; ".join(
            f"{one.name} {100 * one.base_share:.1f} % -> {100 * one.test_share:.1f} %" for one in moved[:_SHOWN]
        )
        what = "cpu-clock, there being no PMU" if self.event == "cpu-clock" else self.event
        of = f"share of {what}, {self.samples[0]} and {self.samples[1]} samples of one boot each"
        return f"{of}: {told or 'no function moved beyond the noise of sampling'}"


def wrapped(command: Sequence[str]) -> list[str]:
    """A case's command, sampled, then reported on; its own status and output stay what they are."""
    return [SHELL, "sh", "-c", _SCRIPT, "sh", *command]


@dataclass(frozen=True, slots=True)
class Read:
    """A profile, if perf took samples; and what else was printed."""

    profile: Profile | None
    rest: tuple[str, ...]


def read(lines: Sequence[str]) -> Read:
    """perf's report among a program's own lines of stderr."""
    if _BEGIN not in lines:
        return Read(None, tuple(lines))
    begin = lines.index(_BEGIN)
    end = lines.index(_END, begin) if _END in lines[begin:] else len(lines)
    told = lines[begin + 1 : end]
    event = next((found[1] for line in told if (found := _EVENT.match(line))), None)
    symbols = [_symbol(found) for line in told if (found := _ROW.fullmatch(line.rstrip()))]
    rest = (*lines[:begin], *lines[end + 1 :])
    return Read(Profile(event=event, symbols=symbols) if event and symbols else None, rest)


def _symbol(found: re.Match[str]) -> Symbol:
    place = "kernel" if found[4] in "kg" else found[3].strip()
    return Symbol(name=found[5].strip(), place=place, period=int(found[1]), samples=int(found[2]))


def difference(base: Profile | None, test: Profile | None) -> Difference:
    """Every function by how much its share moved; those that have no name are one for each file."""
    event = next((one.event for one in (base, test) if one), "cycles")
    # Two events cannot be compared; that of one arm alone is nothing to compare either.
    if base is None or test is None or base.event != test.event:
        return Difference(event=event, samples=(_samples(base), _samples(test)), symbols=[])
    before, after = _by_name(base), _by_name(test)
    moved = [_moved(key, before, after) for key in {**before, **after}]
    moved.sort(key=lambda one: (-abs(one.test_share - one.base_share), one.place, one.name))
    return Difference(event=event, samples=(_samples(base), _samples(test)), symbols=moved[:_KEPT])


class _Sum(NamedTuple):
    period: int = 0
    samples: int = 0


_Names = Mapping[tuple[str, str], _Sum]


def _moved(key: tuple[str, str], before: _Names, after: _Names) -> Moved:
    """Shares are of periods; their standard error is that of two binomial shares, `sqrt(p (1 - p) (1/n + 1/m))`."""
    base, test = before.get(key, _Sum()), after.get(key, _Sum())
    whole, other = (_Sum(*map(sum, zip(*found.values(), strict=True))) for found in (before, after))
    shares = base.period / whole.period, test.period / other.period
    pooled = (base.samples + test.samples) / (whole.samples + other.samples)
    error = math.sqrt(pooled * (1 - pooled) * (1 / whole.samples + 1 / other.samples))
    return Moved(
        name=key[1],
        place=key[0],
        base=base.period,
        test=test.period,
        base_share=shares[0],
        test_share=shares[1],
        errors=(shares[1] - shares[0]) / error if error else 0.0,
    )


def _samples(profile: Profile | None) -> int:
    return sum(symbol.samples for symbol in profile.symbols) if profile else 0


def _by_name(profile: Profile) -> _Names:
    found: dict[tuple[str, str], _Sum] = {}
    for symbol in profile.symbols:
        key = symbol.place, "[no symbol]" if symbol.name.startswith("0x") else symbol.name
        known = found.get(key, _Sum())
        found[key] = _Sum(known.period + symbol.period, known.samples + symbol.samples)
    return found
