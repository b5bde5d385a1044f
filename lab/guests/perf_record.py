"""`perf record` of each arm in a boot of its own: the share of time of each function, and how it differs.

Sampling disturbs the program, so these boots are in no verdict. `perf record -e cycles` falls back to `cpu-clock` if
there is no PMU; the report names the event. perf reports in the guest, where the symbols of its kernel are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lab.core.records import Record
from lab.guests.initrd import BUSYBOX
from lab.guests.perf_stat import KEEP_STATUS, PERF

FREQUENCY_HZ = 999
"""Not a round number: in step with a timer of the kernel, every sample would hit the timer."""

_BEGIN, _END = "lab-perf-report", "lab-perf-report-end"
_DATA = "/perf.data"
_SCRIPT = (
    f"{PERF} record -q -N -F {FREQUENCY_HZ} -e cycles -o {_DATA} -- {BUSYBOX} sh -c '{KEEP_STATUS}' sh \"$@\"; "
    f"status=$?; echo {_BEGIN} >&2; "
    f"{PERF} report --stdio --no-children -g none -F period,sample,dso,sym -t '|' -i {_DATA} >&2; "
    f"echo {_END} >&2; exit $status"
)
_EVENT = re.compile(r"# Samples: \S+ +of event '([^']+)'")
_ROW = re.compile(r" *(\d+) *\| *(\d+) *\|([^|]*)\|\[(.)\] (.*)")
_KEPT, _SHOWN = 20, 5
#: In standard errors: among the hundreds of functions of a profile, some reach three by chance.
_BEYOND_CHANCE = 4.0


class Symbol(Record, frozen=True, kw_only=True):
    """A function: its file, its part of the event's count, and its samples."""

    name: str
    place: str
    period: int
    samples: int


class Profile(Record, frozen=True, kw_only=True):
    """One guest's samples of a case. event: `cycles`, or `cpu-clock` (nanoseconds)."""

    event: str
    symbols: list[Symbol]


class SymbolDifference(Record, frozen=True, kw_only=True):
    """A function in both arms: its part of the event's count, its share, and the difference of the shares in standard
    errors of sampling."""

    name: str
    place: str
    base: int
    test: int
    base_share: float
    test_share: float
    errors: float


class Difference(Record, frozen=True, kw_only=True):
    """The difference of two arms' profiles, the largest first. samples: the number in each arm."""

    event: str
    samples: tuple[int, int]
    symbols: list[SymbolDifference]

    def __str__(self) -> str:
        if not all(self.samples):
            return "perf took no samples: the case is too short for it"
        if not self.symbols:
            return "the arms were sampled by different events, which do not compare"
        moved = [symbol for symbol in self.symbols if abs(symbol.errors) >= _BEYOND_CHANCE]
        shares = [f"{one.name} {100 * one.base_share:.1f} % -> {100 * one.test_share:.1f} %" for one in moved[:_SHOWN]]
        event = "cpu-clock, there being no PMU" if self.event == "cpu-clock" else self.event
        of = f"share of {event}, {self.samples[0]} and {self.samples[1]} samples of one boot each"
        return f"{of}: {'; '.join(shares) or 'no function moved beyond the noise of sampling'}"


def wrap(command: Sequence[str]) -> list[str]:
    """A case's command, sampled, and perf's report behind it. Its status and output stay the same."""
    return [BUSYBOX, "sh", "-c", _SCRIPT, "sh", *command]


def read(lines: Sequence[str]) -> tuple[Profile | None, list[str]]:
    """The profile, if perf took samples, and the other lines, of a program's stderr."""
    if _BEGIN not in lines:
        return None, list(lines)
    begin = lines.index(_BEGIN)
    end = lines.index(_END, begin) if _END in lines[begin:] else len(lines)
    report = lines[begin + 1 : end]
    event = next((match[1] for line in report if (match := _EVENT.match(line))), None)
    symbols = [_symbol(match) for line in report if (match := _ROW.fullmatch(line.rstrip()))]
    return Profile(event=event, symbols=symbols) if event and symbols else None, [*lines[:begin], *lines[end + 1 :]]


def _symbol(row: re.Match[str]) -> Symbol:
    place = "kernel" if row[4] in "kg" else row[3].strip()
    return Symbol(name=row[5].strip(), place=place, period=int(row[1]), samples=int(row[2]))


def difference(base: Profile | None, test: Profile | None) -> Difference:
    """The functions by how much their shares moved. Functions without a name count as one for each file."""
    event = next((profile.event for profile in (base, test) if profile), "cycles")
    if base is None or test is None or base.event != test.event:
        return Difference(event=event, samples=(_samples(base), _samples(test)), symbols=[])
    before, after = _sums(base), _sums(test)
    moved = [_moved(key, before, after) for key in {**before.periods, **after.periods}]
    moved.sort(key=lambda symbol: (-abs(symbol.test_share - symbol.base_share), symbol.place, symbol.name))
    return Difference(event=event, samples=(_samples(base), _samples(test)), symbols=moved[:_KEPT])


class _Sums(NamedTuple):
    """Periods and samples of functions, by file and name."""

    periods: Counter[tuple[str, str]]
    samples: Counter[tuple[str, str]]


def _moved(key: tuple[str, str], before: _Sums, after: _Sums) -> SymbolDifference:
    """Shares are of periods; their standard error is that of two binomial shares, `sqrt(p (1 - p) (1/n + 1/m))`."""
    base, test = before.periods[key], after.periods[key]
    base_share, test_share = base / before.periods.total(), test / after.periods.total()
    n, m = before.samples.total(), after.samples.total()
    pooled = (before.samples[key] + after.samples[key]) / (n + m)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return SymbolDifference(
        name=key[1],
        place=key[0],
        base=base,
        test=test,
        base_share=base_share,
        test_share=test_share,
        errors=(test_share - base_share) / error if error else 0.0,
    )


def _samples(profile: Profile | None) -> int:
    return sum(symbol.samples for symbol in profile.symbols) if profile else 0


def _sums(profile: Profile) -> _Sums:
    sums = _Sums(Counter(), Counter())
    for symbol in profile.symbols:
        key = symbol.place, "[no symbol]" if symbol.name.startswith("0x") else symbol.name
        sums.periods[key] += symbol.period
        sums.samples[key] += symbol.samples
    return sums
