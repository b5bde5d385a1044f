"""`html`: one file that needs nothing else. Its words are in `reports/templates/page.html.j2`, pictures in `plots`.

A page's words, from `reports/templates`: one file with its style and script inside, that asks nobody.

What a program reported over time (the resident size of `large-alloc`), of both arms and every seed, as curves.

A stored explanation as the page shows it: the differential flame graph, and the same as a table.

Of a result in live mode: the host as it was found, every round with what disturbed it, and each case's noise.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

from lab.compare import counters, explain, profiles
from lab.compare.explain import Remembered, by_cost, differing
from lab.compare.results import AbResult, CaseResult, Live, LiveRound
from lab.compare.runs import Run
from lab.core import paths
from lab.core.text import number, visible, visible_record
from lab.guests.host import HostFact
from lab.report import by_hand, svg, text, wording
from lab.report.inputs import Report, Reports
from lab.report.svg import SIZE, Axis, Curve, Scale, Tick, drawn
from lab.stats.verdict import Comparison, Outcome


def fill(name: str, *, more_style: str = "", **values: object) -> str:
    """The page that a template makes of some values. more_style: rules of ours beside those of all pages."""
    style, script = _source("page.css") + more_style, _source("page.js")
    return _environment().get_template(name).render(
        style=Markup(style),  # noqa: S704  (a file of ours)
        script=Markup(script),  # noqa: S704
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )  # fmt: skip


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.room("reports") / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(name: str) -> str:
    return (paths.room("reports") / "templates" / name).read_text()


MOST_SEEDS = 24
"""Of each arm, so many curves are drawn; more would hide each other."""

_MOST_POINTS = 300
_SHARES = (25, 50, 75, 100)
_ARMS = ("base", "test")

Point = Sequence[float]


def _seconds(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def _bytes(kib: float) -> str:
    for unit, size in (("GiB", 1 << 20), ("MiB", 1 << 10)):
        if abs(kib) >= size:
            return f"{kib / size:.4g} {unit}"
    return f"{kib:.4g} KiB"


class Meaning(NamedTuple):
    """What a series is, and how its numbers are written: along and up."""

    title: str
    along: Callable[[float], str]
    up: Callable[[float], str]


KNOWN = {"rss": Meaning("Resident size (RES) over guest time", _seconds, _bytes)}
"""Of the lab's own workloads; whatever else a program reports is shown as it is."""


@dataclass(frozen=True, kw_only=True)
class OverTime:
    """One series of one case: for each arm a curve by seed."""

    name: str
    curves: dict[str, dict[int, list[Point]]]

    @property
    def meaning(self) -> Meaning:
        """What it is."""
        return KNOWN.get(self.name) or Meaning(f"{self.name}, as the program reported it", number, number)

    @property
    def _points(self) -> list[Point]:
        return [point for arm in self.curves.values() for curve in arm.values() for point in curve]

    @property
    def _along(self) -> float:
        return max((point[0] for point in self._points), default=0.0) or 1.0

    @property
    def _up(self) -> float:
        return max((point[1] for point in self._points), default=0.0) or 1.0

    @property
    def top(self) -> str:
        """The label of the largest value."""
        return self.meaning.up(self._up)

    @property
    def ticks(self) -> list[Tick]:
        """Labels along: quarters of the longest time."""
        return [Tick(at=25.0 * i, text=self.meaning.along(self._along * i / 4)) for i in range(5)]

    @property
    def plot(self) -> Markup:
        """All curves."""
        axis = Axis(low=0.0, high=self._up * 1.03)
        parts = []
        for arm in _ARMS:
            lines = [self._line(curve, axis) for curve in list(self.curves[arm].values())[:MOST_SEEDS]]
            parts.append(f'<path class="line over {arm}" d="{"".join(lines)}"/>')
        return drawn(parts, self.words)

    def _line(self, curve: Sequence[Point], axis: Axis) -> str:
        step = max(1, len(curve) // _MOST_POINTS)
        kept = [*curve[:-1:step], curve[-1]]
        return "M" + "L".join(f"{round(SIZE * point[0] / self._along)} {axis.at(point[1])}" for point in kept)

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """The same in numbers: when shares of the largest value were reached, the median over the seeds."""
        return [
            (self.meaning.up(self._up * share / 100), *(self._reached(arm, share) for arm in _ARMS))  # type: ignore[misc]
            for share in _SHARES
        ]

    def _reached(self, arm: str, share: int) -> str:
        level = self._up * share / 100 * (1 - 1e-9)
        found = [next((point[0] for point in curve if point[1] >= level), None) for curve in self.curves[arm].values()]
        times = [one for one in found if one is not None]
        return self.meaning.along(statistics.median(times)) if times and len(times) == len(found) else "never by all"

    @property
    def words(self) -> str:
        """The picture in words."""
        reached = "; ".join(f"{level} after {base} in base, {test} in test" for level, base, test in self.rows)
        return f"{self.meaning.title}: {reached}"


def of_case(runs: Iterable[Run], case: CaseResult) -> list[OverTime]:
    """All series that both arms reported of a case."""
    found: dict[str, dict[str, dict[int, list[Point]]]] = {}
    for run in runs:
        outcome = run.report.case(case.case) if run.workload == case.workload else None
        for name, points in (outcome.series if outcome else {}).items():
            if run.arm in _ARMS and len(points) > 1 and len(points[0]) > 1:
                found.setdefault(name, {arm: {} for arm in _ARMS})[run.arm][run.seed] = [*points]
    return [OverTime(name=name, curves=arms) for name, arms in sorted(found.items()) if all(arms.values())]


_ROWS = 15


def view(stored: Remembered, case: CaseResult, result: AbResult) -> dict[str, Any]:
    """The picture with its text alternative, and the functions that differ most."""
    explanation, cost = visible_record(stored.explanation), stored.cost
    title = f"{case.workload}:{case.case}, {result.base.spec} against {result.test.spec}"
    machine = stored.machine if cost == "cycles" else ""
    drawn = svg.svg(explanation, cost, title=title, machine=machine)
    unit = f"modelled cycles/op ({stored.model} {machine})" if cost == "cycles" else "instructions/op"
    label = f"Differential flame graph in {unit}; the table below has the same numbers"
    rows = [
        (
            row.name,
            row.space,
            svg.short(explanation.per_operation(row, "base", cost)),
            svg.short(explanation.per_operation(row, "test", cost)),
            svg.signed(explanation.delta(row, cost)),
            float(explanation.delta(row, cost)),
        )
        for row in (differing(explanation, cost) or by_cost(explanation, cost))[:_ROWS]
    ]
    head = f'<svg role="img" aria-label="{escape(label)}" '
    return {"svg": Markup(drawn.replace("<svg ", head, 1)), "unit": unit, "rows": rows}  # noqa: S704  (it escapes)


_STATES = ("kept", "disturbed", "repeated", "died")


class Noise(NamedTuple):
    """How one case was sampled, in words."""

    case: str
    blocks: int
    iterations: str
    boot_sd: str
    iteration_sd: str
    warm_up: str
    outliers: str


@dataclass(frozen=True)
class LiveView:
    """What the page shows of it. Its strings are visible already."""

    live: Live

    @property
    def sentence(self) -> str:
        """How quiet the host was, in a sentence."""
        rounds, counted = self.live.rounds, sum(one.counts for one in self.live.rounds)
        limited = [fact.name for fact in self.live.host if fact.state == "limited"]
        words = [f"{counted} rounds count, of {len(rounds)} that were tried"]
        for state in _STATES[1:]:
            if number := sum(one.state == state for one in rounds):
                words.append(f"{number} {state}")
        quiet = f"the host adds noise: {', '.join(limited)}" if limited else "nothing about the host adds noise"
        return f"{', '.join(words)}; {quiet}"

    @property
    def host(self) -> list[HostFact]:
        """The host's facts, what adds noise first."""
        return sorted(self.live.host, key=lambda fact: fact.state != "limited")

    @property
    def rounds(self) -> list[LiveRound]:
        """All that were tried, in the order of time."""
        return list(self.live.rounds)

    @property
    def states(self) -> list[str]:
        """What rounds can be filtered by."""
        found = {one.state for one in self.live.rounds}
        return [state for state in _STATES if state in found]

    @property
    def noise(self) -> list[Noise]:
        """Each case's."""
        return [
            Noise(
                case=case,
                blocks=one.blocks,
                iterations=_span(one.iterations),
                boot_sd=_share(one.boot_sd),
                iteration_sd=_share(one.iteration_sd),
                warm_up=str(one.warm_up),
                outliers=", ".join(str(block + 1) for block in one.outliers),
            )
            for case, one in self.live.sampling.items()
        ]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """How the guests were run."""
        live = self.live
        found = [
            ("accelerator", live.accelerator),
            ("virtme-ng", live.virtme_ng),
            ("duet", "both arms' guests at once, side by side" if live.duet else ""),
            ("huge pages", f"guest memory in pages of {live.hugepage_kb} KiB" if live.hugepage_kb else ""),
        ]
        for name, shape in live.shapes.items():
            seats = "; ".join(",".join(map(str, seat.cpus)) for seat in live.seats.get(name, []))
            found.append((f"guest of {name}", f"-smp {shape.smp}, on host CPUs {seats}"))
        return [(name, words) for name, words in found if words]

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The command of each workload's guest in each arm."""
        return [
            (f"{workload}, {arm}", shlex.join(command.vng))
            for workload, arms in self.live.commands.items()
            for arm, command in arms.items()
        ]


def _share(sd: float | None) -> str:
    return "not known" if sd is None else f"{100 * sd:.2g} %"


def _span(counts: list[int]) -> str:
    found = sorted(set(counts))
    return "" if not found else str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


MOST_ROWS = 100
"""Pairs that are listed number by number; of more, the page shows the plot and a few quantiles."""


@dataclass(frozen=True, kw_only=True)
class CaseView:
    """What the template shows of one case."""

    report: Report
    case: CaseResult
    id: str
    scale: Scale
    letter: str = ""

    @cached_property
    def primary(self) -> Comparison:
        """The metric that the verdict is about."""
        return self.case.primary

    @property
    def name(self) -> str:
        """The full name."""
        return wording.case_name(self.case)

    @cached_property
    def label(self) -> str:
        """The name as far as it is needed: without the workload where there is only one."""
        several = len({case.workload for case in self.report.result.cases}) > 1
        return self.name if several else self.case.case

    @property
    def unit(self) -> str:
        """The primary metric's unit, with the machine if it is modelled."""
        return wording.unit(self.primary, self.report.result)

    @property
    def interval_plot(self) -> Markup | None:
        """Its row of the forest plot; None where there is no ratio."""
        if not self.primary.ratio:
            return None
        return svg.interval(self.scale, self.primary.ratio, self.primary.interval)

    @property
    def strip(self) -> Markup:
        """Raw samples of both arms."""
        label = (
            f"{self.primary.name} of {len(self.primary.base)} pairs: base {self._span(self.primary.base)}, "
            f"test {self._span(self.primary.test)}"
        )
        return svg.strip(self.primary.base, self.primary.test, label)

    @property
    def distribution(self) -> Markup:
        """The same values by how often they were seen."""
        return svg.distribution(self.primary.base, self.primary.test)

    @property
    def ends(self) -> tuple[str, str]:
        """The labels at both ends of the samples' axis."""
        axis = svg.axis_of(self.primary.base, self.primary.test)
        return number(axis.high), number(axis.low)

    @cached_property
    def rows(self) -> list[tuple[Any, Any, Any]]:
        """Seed and both values of each pair; empty where there are too many to list."""
        if len(self.primary.base) > MOST_ROWS:
            return []
        return list(zip(self.report.seeds(self.case), self.primary.base, self.primary.test, strict=False))

    @property
    def quantiles(self) -> list[tuple[str, str, str]]:
        """Smallest, quartiles and largest value of both arms."""
        both = [sorted(wording.numbers(values)) for values in (self.primary.base, self.primary.test)]
        names = ("smallest", "lower quartile", "median", "upper quartile", "largest")
        return [
            (name, *(number(values[round(i * (len(values) - 1) / 4)]) if values else "n/a" for values in both))  # type: ignore[misc]
            for i, name in enumerate(names)
        ]

    @property
    def percentiles(self) -> list[dict[str, Any]]:
        """Percentile curves: one plot per family that the case has."""
        return [self._curves(family, points) for family, points in wording.percentiles(self.case)]

    @cached_property
    def over_time(self) -> list[OverTime]:
        """What the program reported over time."""
        return of_case(self.report.runs, self.case)

    @property
    def counters(self) -> list[Comparison]:
        """All other metrics and the kernel's own counters that are known, what moved most first."""
        kernel = profiles.counted_in(self.report.runs, self.case, counters.counters())
        others = [c for c in self.case.metrics if not c.primary]
        return wording.ranked([*others, *(c for c in kernel if c.base != c.test)])

    @cached_property
    def flame(self) -> dict[str, Any] | None:
        """The differential flame graph, where `lab explain` was run."""
        stored = explain.remembered(self.report.folder, self.case)
        return view(stored, self.case, self.report.result) if stored else None

    def _span(self, values: Sequence[float | None]) -> str:
        found = wording.numbers(values)
        return f"{number(min(found))} to {number(max(found))}" if found else "n/a"

    def _curves(self, family: str, points: list[tuple[float, Comparison]]) -> dict[str, Any]:
        arms = [
            Curve(
                arm=arm,
                points=[
                    (share, min(found), wording.mean(found) or 0.0, max(found))
                    for share, c in points
                    if (found := wording.numbers(c.base if arm == "base" else c.test))
                ],
            )
            for arm in ("base", "test")
        ]
        unit = wording.unit(points[0][1], self.report.result)
        words = [f"{share:g} %: base {wording.shown(c.base)}, test {wording.shown(c.test)}" for share, c in points]
        return {
            "family": family,
            "unit": unit,
            "plot": svg.curves(arms, f"percentiles of {family} in {unit}; {'; '.join(words)}"),
            "ticks": [svg.Tick(at=svg.share_at(share) / 10, text=f"{share:g} %") for share, _ in points],
            "top": number(svg.curves_axis(arms).high),
        }


@dataclass(frozen=True, kw_only=True)
class ResultView:
    """What the template shows of one result."""

    report: Report
    letter: str
    cases: list[CaseView]
    scale: Scale

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        return wording.sentence(self.report.result)

    @property
    def unit(self) -> str:
        """The primary metric and its unit if all cases share it."""
        units = {f"{case.primary.name}, {case.unit}" for case in self.cases}
        return units.pop() if len(units) == 1 else "the primary metric of each case"

    @property
    def clock(self) -> str:
        """The metric by the guest's own clock that stands beside modelled cycles; empty where none does."""
        names = {case.case.guest_clock for case in self.cases if case.case.guest_clock}
        return names.pop() if len(names) == 1 else "guest clock" if names else ""

    @property
    def opened(self) -> str:
        """The case that is shown unfolded."""
        case = wording.headline(self.report.result) or (self.cases[0].case if self.cases else None)
        return wording.case_name(case) if case else ""

    @property
    def environment(self) -> list[tuple[str, str]]:
        """What was around both arms."""
        around = self.report.result.environment
        return [
            ("fingerprint", around.fingerprint),
            ("mode", self.report.result.mode),
            *self._measured_by(),
            *wording.guest_facts(around),
            (f"{self.report.result.pairs}s", ", ".join(map(str, self.report.result.seeds[:MOST_ROWS]))),
            ("started", f"{self.report.result.started}, {self.report.result.seconds:g} s"),
            ("lab", around.lab),
        ]

    def _measured_by(self) -> list[tuple[str, str]]:
        """The cost model of exact mode; what live mode's time is, and what perf saw."""
        model, live = self.report.result.environment.model, self.report.result.live
        if live is None:
            return [("cost model", "none (guest clock)" if model == "none" else f"modelled: {model}")]
        return [
            ("time", self.report.result.counted_in),
            *([("perf", str(live.perf))] if live.perf else []),
            *((f"perf record, {case}", str(found)) for case, found in live.profiles.items()),
        ]

    @property
    def live(self) -> LiveView | None:
        """The host gate and the rounds, of live mode."""
        return LiveView(self.report.result.live) if self.report.result.live else None

    @property
    def commands(self) -> list[str]:
        """How to see and repeat it with the lab."""
        result = self.report.result
        found = [result.reproduce, f"lab report {result.result}"]
        if self.live is None and (plan := self.report.plan) is not None:
            words = ["lab", "ab", "--base", plan.base.spec.text, "--test", plan.test.spec.text]
            words += [word for workload in plan.workloads for word in ("-w", workload)]
            words += ["--model", plan.model, *(["--machine", plan.machine] if plan.machine else [])]
            found.append(shlex.join(words))
        return [visible(command) for command in found]

    @property
    def by_hand(self) -> dict[str, str]:
        """QEMU's command of each arm for the case that is shown first."""
        case = wording.headline(self.report.result) or next((c.case for c in self.cases), None)
        return by_hand.qemu_commands(self.report, case) if case else {}


def render(reports: Reports) -> str:
    """The whole page."""
    views = [
        _view(item, letter, i)
        for i, (letter, item) in enumerate(zip(text.letters(reports), reports.items, strict=True))
    ]
    return fill(
        "page.html.j2",
        reports=reports,
        views=views,
        together=_together(views) if reports.several else [],
        meaning=_meaning,
        figures=wording,
        number=number,
        Outcome=Outcome,
    )


def _view(item: Report, letter: str, index: int) -> ResultView:
    scale = _scale([item])
    cases = [
        CaseView(report=item, case=case, id=f"r{index + 1}-case-{i + 1}", scale=scale, letter=letter)
        for i, case in enumerate(item.result.cases)
    ]
    return ResultView(report=item, letter=letter, cases=cases, scale=scale)


def _scale(items: Sequence[Report]) -> Scale:
    """A scale for all cases of some results."""
    ratios = []
    for item in items:
        for case in item.result.cases:
            primary = case.primary
            ratios += [*([primary.ratio] if primary.ratio else []), *(primary.interval or ())]
    return Scale.of(ratios, items[0].result.threshold)


def _together(views: Sequence[ResultView]) -> list[list[CaseView]]:
    """The cases of several results by name, on one scale: the same case of each stands together."""
    scale = _scale([view.report for view in views])
    groups: dict[str, list[CaseView]] = {}
    for view in views:
        for case in view.cases:
            shared = CaseView(report=case.report, case=case.case, id=case.id, scale=scale, letter=case.letter)
            groups.setdefault(case.name, []).append(shared)
    return list(groups.values())


def _meaning(name: str) -> str:
    """What a counter means, from `reports/counters.toml`."""
    known = counters.counters()
    found = known.get(name) or known.get(name.removeprefix("user_").removeprefix("kernel_"))
    return found.meaning if found else ""
