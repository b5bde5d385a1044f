"""Steps and creeps of an atlas: which cells differ from their neighbours by more than chance, and by more than 2 %.

Seeds of one kernel differ by things that should not matter. Their spread is a case's A/A band: pooled over all pairs of
neighbours, so that three seeds of many kernels know it well. A change beyond the threshold and the band is a step if
it survives Holm's correction over all cases of the newer kernel; the rules of `lab.stats.verdict` then apply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import msgspec

from lab.atlas.data import Atlas, Basis, Bisected, CaseInfo, Cell, Column, Explained
from lab.atlas.plan import Known
from lab.stats import evidence, multiple, verdict
from lab.stats.defaults import ALPHA
from lab.stats.verdict import Comparison, Outcome, percent

LEAST_SPAN = 3
"""Columns from which on a slow change is a creep and not a step."""

_UNITS: dict[Basis, str] = {"cycles": "modelled cycles/op", "instructions": "instructions/op", "nanoseconds": "ns"}


class Band(NamedTuple):
    """The scatter of a case between seeds: standard deviation of a log ratio, and its degrees of freedom."""

    sd: float
    freedom: float

    def half_width(self, seeds: int, alpha: float = ALPHA) -> float:
        """The log ratio within which two measurements of one kernel lie, except with a chance of alpha."""
        if self.freedom < 1:
            return math.inf
        from scipy.special import stdtrit  # not at the top: a refused command does without

        return float(stdtrit(self.freedom, 1 - alpha / 2)) * self.sd / math.sqrt(seeds)


class Change(NamedTuple):
    """A case in two columns. comparison: of one basis, judged. creep: it came slowly."""

    case: CaseInfo
    base: Column
    test: Column
    basis: Basis
    comparison: Comparison
    creep: bool = False

    @property
    def ratio(self) -> float:
        """Newer by older."""
        return self.comparison.ratio or 1.0

    @property
    def word(self) -> str:
        """Worse or better."""
        return "worse" if self.comparison.verdict == Outcome.REGRESSION else "better"

    @property
    def dated(self) -> str:
        """The versions that it came between, and the date of the newer one."""
        when = f" ({self.test.date})" if self.test.date else ""
        return f"{self.base.version} to {self.test.version}{when}"

    def is_of(self, least: float) -> bool:
        """True for a change of so much and more, as a share of the older cost."""
        return abs(self.ratio - 1) >= least

    @property
    def size(self) -> float:
        """The distance from no change, for sorting."""
        return verdict.distance(self.ratio)


class Break(NamedTuple):
    """Two neighbours of a series that are not compared as a step, and the reason."""

    base: Column
    test: Column
    why: str


class Judgement:
    """The verdicts of an atlas. Nothing is stored: they follow from its cells."""

    def __init__(self, atlas: Atlas) -> None:
        self.atlas = atlas
        self._bands: dict[tuple[str, Basis], Band] = {}

    # ---- neighbours

    @cached_property
    def chains(self) -> list[list[Column]]:
        """The columns of each series, cut at changes of the builder or the kind of machine; holes belong to none."""
        chains: list[list[Column]] = []
        for column in self.atlas.columns:
            if column.hole:
                continue
            if chains and not _apart(chains[-1][-1], column):
                chains[-1].append(column)
            else:
                chains.append([column])
        return chains

    @cached_property
    def breaks(self) -> list[Break]:
        """The places where a series breaks."""
        ends = [(one[-1], other[0]) for one, other in pairwise(self.chains)]
        return [Break(base, test, _apart(base, test)) for base, test in ends if base.series == test.series]

    def neighbours(self, case: CaseInfo) -> Iterator[tuple[Column, Column]]:
        """The pairs of columns that follow each other in a chain, over holes."""
        for chain in self.chains:
            measured = [column for column in chain if isinstance(self.cell(case, column), Cell)]
            yield from pairwise(measured)

    def cell(self, case: CaseInfo, column: Column) -> Cell | str:
        return self.atlas.cells[case.name][self._places[column.id]]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {column.id: index for index, column in enumerate(self.atlas.columns)}

    # ---- comparing

    def band(self, case: CaseInfo, basis: Basis) -> Band:
        key = case.name, basis
        if key not in self._bands:
            squares, freedom, pairs = 0.0, 0, 0
            for base, test in self.neighbours(case):
                logs = self._logs(case, base, test, basis)
                if len(logs) > 1:
                    mean = math.fsum(logs) / len(logs)
                    squares += math.fsum((x - mean) ** 2 for x in logs)
                    freedom += len(logs) - 1
                    pairs += 1
            # Pairs that follow each other share a kernel: their log ratios are correlated by -1/2.
            shared = 1 + (pairs - 1) / (2 * pairs) if pairs else 1.0
            self._bands[key] = Band(math.sqrt(squares / freedom) if freedom else 0.0, freedom / shared)
        return self._bands[key]

    def _logs(self, case: CaseInfo, base: Column, test: Column, basis: Basis, strings: bool = True) -> list[float]:
        """The log ratios by seed; none if either has no numbers. strings: with the starts of strings."""
        old, new = self.cell(case, base), self.cell(case, test)
        if not isinstance(old, Cell) or not isinstance(new, Cell):
            return []
        sides = [_values(cell, basis, strings) for cell in (old, new)]
        return [math.log(t / b) for b, t in zip(*sides, strict=False) if b > 0 and t > 0]

    def compare(self, case: CaseInfo, base: Column, test: Column, basis: Basis) -> Comparison | None:
        """A case in two columns, before it is corrected for the number of cases; None if nothing is compared."""
        if base.machine != test.machine:
            return None
        logs = self._logs(case, base, test, basis)
        if len(logs) < 2:
            return None
        found = self._judged(case, base, test, basis, logs)
        if basis != "cycles":
            return found
        # vCPUs that contend wait by executing instructions: their count contradicts nothing.
        if not case.vcpus and (count := self.compare(case, base, test, "instructions")) is not None:
            found = verdict.beside_count(found, count, self.atlas.threshold)
        without = self._logs(case, base, test, basis, strings=False)
        if found.is_change and len(without) == len(logs) and without != logs:
            again = self._judged(case, base, test, basis, without)
            found = verdict.beside_strings(found, again, self.atlas.threshold)
        return found

    def _judged(self, case: CaseInfo, base: Column, test: Column, basis: Basis, logs: Sequence[float]) -> Comparison:
        """The word for log ratios by the case's band, or by their own scatter if that is larger."""
        n = len(logs)
        mean = math.fsum(logs) / n
        own = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1))
        pooled = self.band(case, basis)
        band = Band(max(pooled.sd, own), max(pooled.freedom, n - 1))
        half = band.half_width(n)
        p_value = _p_value(mean, band, n)
        low, high = verdict.band(self.atlas.threshold)
        word, reason = Outcome.UNKNOWN, f"within its A/A band of ±{100 * math.expm1(half):.1f} %"
        if low <= mean <= high:
            if low <= mean - half and mean + half <= high:
                word, reason = Outcome.SAME, f"differs by {percent(math.exp(mean))}, below threshold"
            elif abs(mean) > half:
                reason = "may be below the threshold"
        elif p_value <= ALPHA:
            word = Outcome.REGRESSION if mean > 0 else Outcome.IMPROVEMENT
            reason = f"beyond its A/A band of ±{100 * math.expm1(half):.1f} %"
        old, new = (self.cell(case, column) for column in (base, test))
        assert isinstance(old, Cell) and isinstance(new, Cell)  # noqa: S101
        return Comparison(
            name=case.metric(basis),
            unit=_UNITS[basis],
            better="lower",
            primary=True,
            base=list(old.values(basis)),
            test=list(new.values(basis)),
            ratio=math.exp(mean),
            interval=(math.exp(mean - half), math.exp(mean + half)) if math.isfinite(half) else None,
            verdict=word,
            p_value=p_value,
            reason=reason,
            method="planned",
        )

    def pair(self, base: Column, test: Column, basis: Basis) -> list[Change]:
        """All cases that both columns have, changes corrected for their number; the largest change first."""
        found = [
            Change(case, base, test, basis, comparison)
            for case in self.atlas.cases
            if (comparison := self.compare(case, base, test, basis)) is not None
        ]
        return sorted(corrected(found), key=lambda change: (-change.size, change.case.name))

    # ---- over time

    def steps(self, basis: Basis) -> list[Change]:
        """All changes between neighbours, in the order of the columns."""
        by_column: dict[str, list[Change]] = {column.id: [] for column in self.atlas.columns}
        for case in self.atlas.cases:
            for base, test in self.neighbours(case):
                comparison = self.compare(case, base, test, basis)
                if comparison is not None:
                    by_column[test.id].append(Change(case, base, test, basis, comparison))
        return [change for family in by_column.values() for change in corrected(family) if change.comparison.is_change]

    def creeps(self, basis: Basis, steps: Sequence[Change]) -> list[Change]:
        """The changes between the first and the last column of a stretch without steps, corrected over all of them."""
        at = {(step.case.name, step.test.id) for step in steps}
        found = []
        for case in self.atlas.cases:
            for stretch in self._stretches(case, at):
                comparison = self.compare(case, stretch[0], stretch[-1], basis)
                if comparison is not None:
                    found.append(Change(case, stretch[0], stretch[-1], basis, comparison, creep=True))
        return [change for change in corrected(found) if change.comparison.is_change]

    def _stretches(self, case: CaseInfo, steps: set[tuple[str, str]]) -> Iterator[list[Column]]:
        for chain in self.chains:
            stretch: list[Column] = []
            for column in chain:
                if not isinstance(self.cell(case, column), Cell):
                    continue
                if (case.name, column.id) in steps:
                    if len(stretch) >= LEAST_SPAN:
                        yield stretch
                    stretch = []
                stretch.append(column)
            if len(stretch) >= LEAST_SPAN:
                yield stretch

    @cached_property
    def changes(self) -> dict[Basis, list[Change]]:
        """Steps and creeps by basis, the largest first."""
        found = {}
        for basis in self.atlas.bases:
            steps = self.steps(basis)
            found[basis] = sorted([*steps, *self.creeps(basis, steps)], key=lambda one: (-one.size, one.case.name))
        return found

    # ---- facts about a change

    def explained(self, change: Change) -> Explained | None:
        """The functions of a step that moved most."""
        return self.atlas.by_functions.get((change.case.name, change.base.id, change.test.id))

    def known(self, change: Change) -> Known | None:
        """The published change that came with a step."""
        names = change.case.name, change.base.upstream, change.test.upstream
        return next((known for known in self.atlas.known if known.explains(*names)), None)

    def bisected(self, change: Change) -> Bisected | None:
        """The cause that a bisection named for a step, or for that between the sources of both kernels."""
        ids, releases = (change.base.id, change.test.id), (change.base.upstream, change.test.upstream)
        found = (one for one in self.atlas.bisected if one.case == change.case.name)
        return next((one for one in found if (one.base, one.test) == ids or self._releases(one) == releases), None)

    def _releases(self, bisected: Bisected) -> tuple[str, str] | None:
        """The releases of two sources of packages, as upstream has them; None of other kernels."""
        ends = [self.atlas.columns[self.atlas.at(one)] for one in (bisected.base, bisected.test)]
        return None if any(end.is_package for end in ends) else (ends[0].release, ends[1].release)

    def why(self, change: Change) -> str:
        """The functions that make most of a change: `f +120, g -40 and h +8 cycles: 95 % of it`; empty without any."""
        basis, found = change.basis, self.explained(change)
        moved = sorted(found.functions, key=lambda one: -abs(one.delta(basis)))[:3] if found else []
        moved = [one for one in moved if one.delta(basis)]
        if not found or not moved:
            return ""
        sizes = ((one.name, one.delta(basis)) for one in moved)
        names = [f"{name} {size:+,.0f}" if abs(size) >= 10 else f"{name} {size:+.2g}" for name, size in sizes]
        whole = found.total.delta(basis)
        share = sum(one.delta(basis) for one in moved) / whole if whole else 0.0
        listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        return f"{listed} {basis}: {100 * share:.0f} % of {whole:+,.0f}" if share else f"{listed} {basis}"


def _values(cell: Cell, basis: Basis, strings: bool) -> tuple[float, ...]:
    if strings or basis != "cycles" or not cell.strings:
        return cell.values(basis)
    return tuple(cost - start for cost, start in zip(cell.cycles, cell.strings, strict=True))


def _apart(base: Column, test: Column) -> str:
    """The reason why two columns are not neighbours; empty if they are."""
    if base.series != test.series:
        return f"{test.series} follows {base.series}"
    if base.compiler != test.compiler:
        return f"built by {test.compiler or 'another compiler'}, before by {base.compiler or 'another one'}"
    if base.machine != test.machine:
        return f"boots on {test.machine}, before on {base.machine}"
    return ""


def _p_value(mean: float, band: Band, n: int) -> float:
    """The chance of a mean that far from 0 in a case without a change."""
    if band.sd == 0:
        return 0.0 if mean else 1.0
    from scipy.special import stdtr

    return float(2 * stdtr(band.freedom, -abs(mean) * math.sqrt(n) / band.sd))


def corrected(family: Sequence[Change]) -> list[Change]:
    """The changes of a family; a change that does not survive Holm's correction is `unknown`."""
    adjusted = evidence.holm([change.comparison.p_value for change in family])
    found = []
    for change, p_value in zip(family, adjusted, strict=True):
        comparison = change.comparison
        if comparison.is_change and p_value > ALPHA:
            reason = f"{multiple.NOT_BEYOND_CHANCE} cases"
            comparison = msgspec.structs.replace(comparison, verdict=Outcome.UNKNOWN, reason=reason)
        found.append(change._replace(comparison=comparison))
    return found
