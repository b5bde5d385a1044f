"""`html` of comparisons: every case with its samples, counters and functions, and the environment of both arms."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from lab.compare import counters, explain
from lab.compare.live_results import Live
from lab.compare.results import AbResult, CaseResult, mean
from lab.core.text import listed, number, plural, visible
from lab.guests import costs
from lab.kernels import architecture
from lab.report import by_hand, function_chart, plots, templates, wording
from lab.report.curves import Sweep, TimelineView, sweeps_of, sweeps_of_vcpus
from lab.report.function_chart import Functions
from lab.report.inputs import Comparisons, StoredComparison
from lab.report.plots import Chart, Curve, Scale
from lab.report.wording import shown
from lab.stats.verdict import Comparison, numbers

MOST_ROWS = 100
"""Pairs that are listed number by number; of more, the page shows the plot and a few quantiles."""

MOST_COUNTERS = 10
"""Counters that are drawn; a table has all of them."""

_FEWEST_FOR_DISTRIBUTION = 12
"""The number of pairs from which on the distribution of values is of use."""

_MOST_WORKLOADS = 4


def comparison(comparisons: Comparisons) -> str:
    views = [
        ResultView(stored=item, letter=letter, index=index)
        for index, (letter, item) in enumerate(zip(comparisons.letters, comparisons.items, strict=True), start=1)
    ]
    together: dict[str, list[CaseView]] = {}
    for case in [case for view in views for case in view.cases]:
        together.setdefault(case.case.name, []).append(case)
    return templates.fill(
        "page.html.j2",
        comparisons=comparisons,
        views=views,
        # The same case of each result stands together, all on one scale.
        together=list(together.values()) if comparisons.several else [],
        scale=_scale(comparisons.items),
        meaning=_meaning,
        remedies=wording.remedies,
        most=MOST_ROWS,
        mean=mean,
    )


def _scale(items: Sequence[StoredComparison]) -> Scale:
    """A scale for all cases of some results."""
    primaries = [case.primary for item in items for case in item.result.cases]
    return Scale.of(primaries, items[0].result.threshold)


def _meaning(name: str) -> str:
    """The meaning of a counter, from `reports/counters.toml`."""
    counter = counters.described(name)
    return counter.meaning if counter else ""


@dataclass(frozen=True, kw_only=True)
class CaseView:
    """The values in the template of one case."""

    stored: StoredComparison
    case: CaseResult
    id: str
    letter: str

    @cached_property
    def primary(self) -> Comparison:
        """The metric that the verdict is about."""
        return self.case.primary

    @cached_property
    def label(self) -> str:
        return wording.label(self.case, self.stored.result)

    @property
    def strip(self) -> Chart:
        """Raw samples of both arms."""
        label = (
            f"{self.primary.name} of {len(self.primary.base)} pairs: base {_range(self.primary.base)}, "
            f"test {_range(self.primary.test)}"
        )
        return plots.strip(self.primary.base, self.primary.test, label)

    @property
    def distribution(self) -> Chart | None:
        """The same values by how often they were seen; None of few values."""
        few = len(self.primary.base) < _FEWEST_FOR_DISTRIBUTION
        return None if few else plots.distribution(self.primary.base, self.primary.test)

    @cached_property
    def rows(self) -> list[tuple[Any, Any, Any]]:
        """Seed and both values of each pair; empty if there are too many to list."""
        if len(self.primary.base) > MOST_ROWS:
            return []
        return list(zip(self.stored.seeds(self.case), self.primary.base, self.primary.test, strict=False))

    @property
    def quantiles(self) -> list[tuple[str, ...]]:
        """Smallest, quartiles and largest value of both arms."""
        both = [sorted(numbers(values)) for values in (self.primary.base, self.primary.test)]
        names = ("smallest", "lower quartile", "median", "upper quartile", "largest")
        return [
            (name, *(number(values[round(i * (len(values) - 1) / 4)]) if values else "n/a" for values in both))
            for i, name in enumerate(names)
        ]

    @property
    def percentiles(self) -> list[tuple[str, str, Chart]]:
        """Percentile curves: family, unit, and a chart."""
        return [self._curves(family, points) for family, points in counters.percentiles(self.case).items()]

    @cached_property
    def timelines(self) -> list[TimelineView]:
        """Curves of the values that the program reported over time."""
        return [TimelineView(timeline) for timeline in counters.timelines(self.case, self.stored.runs)]

    @cached_property
    def counters(self) -> list[Comparison]:
        """All other metrics and the kernel's own counters that are known, the largest change first."""
        return counters.all_counters(self.case, self.stored.runs)

    @property
    def largest(self) -> list[tuple[Comparison, str, Markup]]:
        """The counters that moved most and may explain the change: each with its change and a picture of both arms."""
        moved = []
        for counter in counters.explaining(self.case, self.counters, self.stored.result.threshold)[:MOST_COUNTERS]:
            base, test = mean(counter.base) or 0.0, mean(counter.test) or 0.0
            moved.append((counter, wording.change(counter) if base else "from 0", plots.pair(base, test)))
        return moved

    @cached_property
    def functions(self) -> Functions | None:
        """The functions that differ most, if `lab explain` ran."""
        explanation = explain.remembered(self.stored.folder, self.case)
        return function_chart.view(explanation, self.case) if explanation else None

    def _curves(self, family: str, points: Sequence[tuple[float, Comparison]]) -> tuple[str, str, Chart]:
        arms = {"base": [numbers(c.base) for _, c in points], "test": [numbers(c.test) for _, c in points]}
        curves = [
            Curve(arm, [(p[0], min(v), mean(v) or 0.0, max(v)) for p, v in zip(points, values, strict=True) if v])
            for arm, values in arms.items()
        ]
        unit = wording.unit(points[0][1], self.stored.result, versions=False)
        means = "; ".join(f"{share:g} %: base {shown(c.base)}, test {shown(c.test)}" for share, c in points)
        along = {share: f"{share:g} %" for share, _ in points}
        label = f"percentiles of {family} in {unit}; {means}"
        return family, unit, plots.curves(curves, label, along, plots.share_at)


def _range(values: Sequence[float | None]) -> str:
    present = numbers(values)
    return f"{number(min(present))} to {number(max(present))}" if present else "n/a"


@dataclass(frozen=True, kw_only=True)
class ResultView:
    """The values in the template of one result. index: its number on the page, from 1."""

    stored: StoredComparison
    letter: str
    index: int

    @property
    def result(self) -> AbResult:
        return self.stored.result

    @cached_property
    def cases(self) -> list[CaseView]:
        """All cases; in a summarised result by interest."""
        cases = wording.in_order(self.result) if wording.summary(self.result) else self.result.cases
        return [
            CaseView(stored=self.stored, case=case, id=f"r{self.index}-case-{i}", letter=self.letter)
            for i, case in enumerate(cases, start=1)
        ]

    def labels(self, cases: Sequence[CaseResult]) -> str:
        """The names of some cases, without the workload if there is only one."""
        return listed([wording.label(case, self.result) for case in cases], "and")

    @property
    def sweeps(self) -> list[Sweep]:
        """The sweeps, over a size and over the number of vCPUs."""
        return [*sweeps_of(self.result), *sweeps_of_vcpus(self.result)]

    @cached_property
    def scale(self) -> Scale:
        return _scale([self.stored])

    @property
    def unit(self) -> str:
        """The primary metric and its unit if all cases share it."""
        units = {
            f"{case.primary.name}, {wording.unit(case.primary, self.result, versions=False)}"
            for case in self.result.cases
        }
        return units.pop() if len(units) == 1 else "the primary metric of each case"

    @property
    def beside(self) -> list[str]:
        """The columns beside the change: the other basis of the cost. Each case has the shares of its sides."""
        return [name for name in self.result.beside if name in costs.BASES]

    @property
    def whole(self) -> list[str]:
        """The columns of the whole cost behind those."""
        return wording.whole_columns(self.result.cases)

    @property
    def groups(self) -> tuple[dict[str, str], list[tuple[str, ...]]]:
        """The cases of a summarised result by group and verdict: columns, without verdicts of no case, and rows."""
        summary = wording.summary(self.result)
        columns = list(zip(*summary.counts, strict=True)) if summary else []
        title, *rows = zip(*(column for column in columns if set(column[1:]) != {"0"}), strict=True)
        return {name: "n" if i else "" for i, name in enumerate(title)}, rows

    @property
    def what(self) -> str:
        """The case that the verdict's number is of, and how many there are."""
        names = list(dict.fromkeys(case.workload for case in self.result.cases))
        of = f"suite {self.result.suite}" if self.result.suite else listed(names[:_MOST_WORKLOADS], "and")
        many = f"{plural(len(self.cases), 'case')} of {of}"
        if self.result.headline is None:
            return many if len(self.cases) > 1 else self.cases[0].case.name
        return f"{self.result.headline.name}, most of {many}" if len(self.cases) > 1 else self.result.headline.name

    @property
    def opened(self) -> CaseResult | None:
        """The case that is shown unfolded."""
        return self.result.headline or next(iter(self.result.cases), None)

    @property
    def measured_by(self) -> list[tuple[str, str]]:
        """The cost model of exact mode; the time of live mode, and the counts of perf."""
        model, live = self.result.environment.model, self.result.live
        if live is None:
            modelled = f"modelled: {architecture.experiment(model)}"
            return [("cost model", "none (guest clock)" if model == "none" else modelled)]
        return [
            ("time", self.result.counted_in),
            *([("perf", str(live.perf))] if live.perf else []),
            *((f"perf record, {case}", str(profile)) for case, profile in live.profiles.items()),
        ]

    @property
    def live(self) -> dict[str, Any] | None:
        return live_values(self.result.live) if self.result.live else None

    @property
    def commands(self) -> list[str]:
        """Commands that show the result and repeat it with the lab."""
        commands = [self.result.repeat, f"lab report {self.result.result}"]
        if self.live is None and (plan := self.stored.plan) is not None:
            argv = ["lab", "ab", "--base", plan.base.spec.text, "--test", plan.test.spec.text]
            argv += (
                ["--suite", plan.suite] if plan.suite else [word for name in plan.workloads for word in ("-w", name)]
            )
            if trees := wording.trees(self.result):
                argv += ["--tree", trees]
            argv += ["--model", plan.model, *(["--machine", plan.machine] if plan.machine else [])]
            argv += ["--metric", plan.metric] if plan.metric else []
            commands.append(shlex.join(argv))
        return [visible(command) for command in commands]

    @property
    def by_hand(self) -> dict[str, str]:
        """QEMU's command of each arm for the case that is shown unfolded."""
        return by_hand.qemu_commands(self.stored, self.opened) if self.opened else {}


# ---- live mode

_STATES = ("kept", "disturbed", "repeated", "died")


def live_values(live: Live) -> dict[str, Any]:
    """The values in the template of live mode: the host, every round, and each case's noise."""
    states = {each.state for each in live.rounds}
    facts = [
        ("accelerator", live.accelerator),
        ("virtme-ng", live.virtme_ng),
        ("duet", "both arms' guests at once, side by side" if live.duet else ""),
        ("huge pages", f"guest memory in pages of {live.hugepage_kb} KiB" if live.hugepage_kb else ""),
    ]
    for name, shape in live.shapes.items():
        cpus = "; ".join(",".join(map(str, cpu_set.cpus)) for cpu_set in live.cpu_sets.get(name, []))
        facts.append((f"guest of {name}", f"-smp {shape.smp}, on host CPUs {cpus}"))
    return {
        "rounds": live.rounds,
        "sentence": _quietness(live),
        "host": sorted(live.host, key=lambda fact: fact.state != "limited"),  # sources of noise first
        "states": [state for state in _STATES if state in states],
        "sampling": live.sampling,
        "facts": [(name, text) for name, text in facts if text],
        "commands": [
            (f"{workload}, {arm}", shlex.join(command.vng))
            for workload, arms in live.commands.items()
            for arm, command in arms.items()
        ],
    }


def _quietness(live: Live) -> str:
    """The quietness of the host, in a sentence."""
    limited = [fact.name for fact in live.host if fact.state == "limited"]
    parts = [f"{sum(each.counts for each in live.rounds)} rounds count, of {len(live.rounds)} that were tried"]
    for state in _STATES[1:]:
        if count := sum(each.state == state for each in live.rounds):
            parts.append(f"{count} {state}")
    quiet = f"the host adds noise: {', '.join(limited)}" if limited else "nothing about the host adds noise"
    return f"{', '.join(parts)}; {quiet}"
