"""`html`: one file that needs nothing else. Its words are in `reports/templates/page.html.j2`, pictures in `plots`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from lab import explain, mechanisms, profiles
from lab.core.text import visible
from lab.reporting import byhand, figures, flames, overtime, plots, template, textual
from lab.reporting.liverounds import LiveView
from lab.reporting.overtime import OverTime
from lab.reporting.plots import Curve, Scale
from lab.reporting.stored import Report, Reports
from lab.results import CaseResult, counted_in, number, primary_of
from lab.stats.verdict import Comparison, Outcome

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
        return primary_of(self.case)

    @property
    def name(self) -> str:
        """The full name."""
        return figures.case_name(self.case)

    @cached_property
    def label(self) -> str:
        """The name as far as it is needed: without the workload where there is only one."""
        several = len({case.workload for case in self.report.result.cases}) > 1
        return self.name if several else self.case.case

    @property
    def unit(self) -> str:
        """The primary metric's unit, with the machine if it is modelled."""
        return figures.unit(self.primary, self.report.result)

    @property
    def interval_plot(self) -> Markup | None:
        """Its row of the forest plot; None where there is no ratio."""
        if not self.primary.ratio:
            return None
        return plots.interval(self.scale, self.primary.ratio, self.primary.interval)

    @property
    def strip(self) -> Markup:
        """Raw samples of both arms."""
        label = (
            f"{self.primary.name} of {len(self.primary.base)} pairs: base {self._span(self.primary.base)}, "
            f"test {self._span(self.primary.test)}"
        )
        return plots.strip(self.primary.base, self.primary.test, label)

    @property
    def distribution(self) -> Markup:
        """The same values by how often they were seen."""
        return plots.distribution(self.primary.base, self.primary.test)

    @property
    def ends(self) -> tuple[str, str]:
        """The labels at both ends of the samples' axis."""
        axis = plots.axis_of(self.primary.base, self.primary.test)
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
        both = [sorted(figures.numbers(values)) for values in (self.primary.base, self.primary.test)]
        names = ("smallest", "lower quartile", "median", "upper quartile", "largest")
        return [
            (name, *(number(values[round(i * (len(values) - 1) / 4)]) if values else "n/a" for values in both))  # type: ignore[misc]
            for i, name in enumerate(names)
        ]

    @property
    def percentiles(self) -> list[dict[str, Any]]:
        """Percentile curves: one plot per family that the case has."""
        return [self._curves(family, points) for family, points in figures.percentiles(self.case)]

    @cached_property
    def over_time(self) -> list[OverTime]:
        """What the program reported over time."""
        return overtime.of_case(self.report.runs, self.case)

    @property
    def counters(self) -> list[Comparison]:
        """All other metrics and the kernel's own counters that are known, what moved most first."""
        kernel = profiles.counted_in(self.report.runs, self.case, mechanisms.counters())
        others = [c for c in self.case.metrics if not c.primary]
        return figures.ranked([*others, *(c for c in kernel if c.base != c.test)])

    @cached_property
    def flame(self) -> dict[str, Any] | None:
        """The differential flame graph, where `lab explain` was run."""
        stored = explain.remembered(self.report.folder, self.case)
        return flames.view(stored, self.case, self.report.result) if stored else None

    def _span(self, values: Sequence[float | None]) -> str:
        found = figures.numbers(values)
        return f"{number(min(found))} to {number(max(found))}" if found else "n/a"

    def _curves(self, family: str, points: list[tuple[float, Comparison]]) -> dict[str, Any]:
        arms = [
            Curve(
                arm=arm,
                points=[
                    (share, min(found), figures.mean(found) or 0.0, max(found))
                    for share, c in points
                    if (found := figures.numbers(c.base if arm == "base" else c.test))
                ],
            )
            for arm in ("base", "test")
        ]
        unit = figures.unit(points[0][1], self.report.result)
        words = [f"{share:g} %: base {figures.shown(c.base)}, test {figures.shown(c.test)}" for share, c in points]
        return {
            "family": family,
            "unit": unit,
            "plot": plots.curves(arms, f"percentiles of {family} in {unit}; {'; '.join(words)}"),
            "ticks": [plots.Tick(at=plots.share_at(share) / 10, text=f"{share:g} %") for share, _ in points],
            "top": number(plots.curves_axis(arms).high),
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
        return figures.sentence(self.report.result)

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
        case = figures.headline(self.report.result) or (self.cases[0].case if self.cases else None)
        return figures.case_name(case) if case else ""

    @property
    def environment(self) -> list[tuple[str, str]]:
        """What was around both arms."""
        around = self.report.result.environment
        return [
            ("fingerprint", around.fingerprint),
            ("mode", self.report.result.mode),
            *self._measured_by(),
            *figures.guest_facts(around),
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
            ("time", counted_in(self.report.result)),
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
        case = figures.headline(self.report.result) or next((c.case for c in self.cases), None)
        return byhand.qemu_commands(self.report, case) if case else {}


def render(reports: Reports) -> str:
    """The whole page."""
    views = [
        _view(item, letter, i)
        for i, (letter, item) in enumerate(zip(textual.letters(reports), reports.items, strict=True))
    ]
    return template.fill(
        "page.html.j2",
        reports=reports,
        views=views,
        together=_together(views) if reports.several else [],
        meaning=_meaning,
        figures=figures,
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
            primary = primary_of(case)
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
    known = mechanisms.counters()
    found = known.get(name) or known.get(name.removeprefix("user_").removeprefix("kernel_"))
    return found.meaning if found else ""
