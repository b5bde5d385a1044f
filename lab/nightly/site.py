"""The nightly site: static pages with relative links, which work from disk and from any server.

<output>/index.html             open events, all trends, all nights
<output>/nights/N.html          a night
<output>/trends/NAME.html       a case's primary metric over time, with its steps
<output>/changes/ID.html        an event, with its bisection as text
<output>/bisections/ID.html     that bisection, commit by commit
<output>/results/ID.html        the report of a comparison that an event refers to
<output>/mails/ID.eml           a draft of a mail about a regression
<output>/feed.xml, metrics.txt  events as an Atom feed, values for OpenMetrics
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import report
from lab.compare import result_folders
from lab.core import records
from lab.core.errors import LabError, UserError
from lab.core.progress import Progress
from lab.core.text import visible, visible_lines, visible_record
from lab.history import index, trends
from lab.history.database import opened
from lab.history.trends import Change, Trend
from lab.nightly import record
from lab.nightly.events import PlanState
from lab.nightly.record import Ack, BranchNight, Event, Night
from lab.nightly.status import line
from lab.report import bisection_text, inputs, mail, plots, templates
from lab.report.plots import Chart, Scale, Series
from lab.stats.defaults import THRESHOLD
from lab.stats.verdict import percent

_MARK = ".lab-nightly-site"
_TONES = {"fixed": "improvement", "mended": "improvement", "broken": "unknown", "unfounded": "same"}
"""The colours of events by kind; all others are regressions."""

_NIGHT_TONES = {"green": "improvement", "regression": "regression", "no news": "regression", "nothing new": "same"}


def write(plan: str, output: Path, *, url: str | None, database: str | None, progress: Progress) -> int:
    """Write the whole site into an empty folder or over an older site; returns the number of files."""
    if output.is_dir() and any(output.iterdir()) and not (output / _MARK).exists():
        raise UserError(f"{output} is not empty, and is not a nightly site", hint="name another folder")
    output.mkdir(parents=True, exist_ok=True)
    (output / _MARK).touch()
    nights = record.load_all(plan)
    if not nights:
        raise UserError(f"{plan} had no night yet", hint="`lab nightly run` runs one")
    with opened(database) as base:
        index.catch_up(base, progress)
        with base.reading() as connection:
            branches = sorted({branch.key for branch in nights[-1].branches})
            series = [trend for branch in branches for trend in trends.branch_trends(connection, *branch)]
    site = _Site(plan, nights, series, url if not url or url.endswith("/") else f"{url}/", record.load_acks())
    count = 0
    for name, text in site.files():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        records.write_atomic(path, text.encode())
        count += 1
    return count


class _Site:
    """The pages. `stored` are the nights as they are on disk; `nights` and `trends` have only visible characters."""

    def __init__(
        self, plan: str, nights: Sequence[Night], series: Sequence[Trend], url: str | None, acks: Mapping[str, Ack]
    ) -> None:
        self.plan, self.url = plan, url
        self.stored = nights
        self.nights = [visible_record(night) for night in nights]
        self.trends = [visible_record(trend) for trend in series]
        self.state = PlanState.after(self.nights, acks)
        self.reports = _reports(nights)
        self.bisections = _bisections(nights)

    def files(self) -> Iterator[tuple[str, str]]:
        """The path in the site and the content of every file."""
        yield "index.html", self._index()
        for night in self.nights:
            yield f"nights/{night.number}.html", self._page("night", "../", night=night, reports=self.reports)
        for trend in self.trends:
            yield f"trends/{_slug(trend)}.html", self._trend(trend)
        for event in [event for night in self.stored for event in night.events]:
            draft = _mail(event)
            yield f"changes/{event.id}.html", self._change(event, draft)
            if draft is not None:
                yield f"mails/{event.id}.eml", draft
        for name, text in self.reports.items():
            yield f"results/{name}.html", text
        for name, text in {one.name: one.page for one in self.bisections.values() if one.page}.items():
            yield f"bisections/{name}.html", text
        yield "feed.xml", render_feed(self.plan, self.nights, self.url)
        yield "metrics.txt", render_metrics(self.plan, self.nights, self.state, self.trends)

    def _page(self, name: str, top: str, **values: Any) -> str:
        return templates.fill(
            f"nightly/{name}.html.j2", plan=self.plan, top=top, acks=self.state.acks, tones=_TONES,
            night_tones=_NIGHT_TONES, step_tone=_step_tone, short=record.short, **values,
        )  # fmt: skip

    def _index(self) -> str:
        scale = Scale.holding([ratio for trend in self.trends for ratio in _ratios(trend) if ratio], THRESHOLD)
        return self._page(
            "index", "", nights=self.nights, last=self.nights[-1], open=list(self.state.open.values()),
            broken=list(self.state.broken.values()), rows=[self._row(trend, scale) for trend in self.trends],
            first=self.nights[0].number, threshold=THRESHOLD,
        )  # fmt: skip

    def _row(self, trend: Trend, scale: Scale) -> Mapping[str, Any]:
        """A trend, drawn on a scale that all share, with the verdict of the last night's first comparison."""
        series = trend.series
        verdicts = [
            str(case.verdict)
            for branch in self.nights[-1].branches
            if branch.key == (series.tree, series.branch)
            for comparison in branch.measured_in(series.mode)[:1]
            for case in comparison.cases
            if case.name == (series.workload, series.case)
        ]
        ratios = [ratio for ratio in _ratios(trend) if ratio is not None]
        change = percent(ratios[-1]) if len(ratios) > 1 else ""
        label = f"{series.workload}:{series.case} over {len(trend.points)} nights: {change or 'no change known'}"
        return {
            "trend": trend, "slug": _slug(trend), "verdict": verdicts[0] if verdicts else "", "change": change,
            "spark": plots.spark(_ratios(trend), scale, label),
        }  # fmt: skip

    def _trend(self, trend: Trend) -> str:
        series = trend.series
        key = (series.workload, series.case, series.mode)
        events = [
            event
            for night in self.nights
            for event in night.events
            if event.branch_key == (series.tree, series.branch) and key in {case.key for case in event.cases}
        ]
        label = f"{series.metric} of {series.workload}:{series.case} over {len(trend.points)} nights"
        ratios = [ratio for ratio in _ratios(trend) if ratio is not None]
        return self._page(
            "trend", "../", trend=trend, picture=picture(trend, label=label), events=events, threshold=THRESHOLD,
            change=percent(ratios[-1]) if len(ratios) > 1 else "", direction=_direction(trend, ratios),
        )  # fmt: skip

    def _change(self, event: Event, draft: str | None) -> str:
        events = [event for night in self.nights for event in night.events]
        fixed = next((other for other in events if other.kind == "fixed" and other.closes == event.id), None)
        return self._page(
            "change", "../", one=visible_record(event), fixed=fixed, open=self.state.open,
            report=event.result if event.result in self.reports else None, mail=draft,
            bisection=self.bisections.get(event.id),
        )  # fmt: skip


def _step_tone(trend: Trend, change: Change) -> str:
    if trend.series.better == "neither":
        return "same"
    return "regression" if (change.ratio > 1) == (trend.series.better == "lower") else "improvement"


def _direction(trend: Trend, ratios: Sequence[float]) -> str:
    """The word for the last value against the first one."""
    ratio = ratios[-1] if ratios else 1.0
    if 1 / (1 + THRESHOLD) <= ratio <= 1 + THRESHOLD:
        return "steady"
    if trend.series.better == "neither":
        return "changed"
    return "worse" if (ratio > 1) == (trend.series.better == "lower") else "better"


def _slug(trend: Trend) -> str:
    """A readable and unique file name for a trend."""
    series = trend.series
    names = [series.branch, series.workload, series.case, series.metric]
    readable = re.sub(r"[^a-z0-9]+", "-", " ".join(names).lower()).strip("-")
    decisive = [series.tree, *names, *([series.mode] if series.mode != "exact" else [])]
    return f"{readable[:80]}-{records.digest(decisive)[:8]}"


# ---- references of events


def _reports(nights: Sequence[Night]) -> dict[str, str]:
    """The pages of the comparisons that events and the last night refer to, by result."""
    names = {event.result for night in nights for event in night.events if event.result}
    names |= {comparison.result for branch in nights[-1].branches for comparison in branch.measured}
    pages = {}
    for name in sorted(names):
        try:
            pages[name] = report.render("html", inputs.open_comparisons([name]))
        except LabError:
            continue  # its folder was deleted; the night has the numbers
    return pages


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionPage:
    """A bisection as text, and as `lab report --format html` writes it; without a page if its folder was deleted."""

    name: str
    text: str
    page: str = ""


def _bisections(nights: Sequence[Night]) -> dict[str, BisectionPage]:
    """The bisection of each event that has one."""
    references = {
        event.id: reference
        for night in nights
        for branch in night.branches
        for event in branch.events
        if (reference := _bisection_of(event, branch))
    }
    pages = {reference: _bisection_page(reference) for reference in sorted(set(references.values()))}
    return {event: pages[reference] for event, reference in references.items()}


def _bisection_of(event: Event, branch: BranchNight) -> str | None:
    """The bisection that named the culprit, else the last one for the event."""
    if event.culprit is not None:
        return event.culprit.bisection
    begun = [reference for name, reference in branch.bisections.items() if name.split()[0] == event.id]
    return begun[-1] if begun else None


def _bisection_page(reference: str) -> BisectionPage:
    try:
        folder = result_folders.open_folder(reference)
        bisection = inputs.open_bisection(folder)
        text = visible_lines(bisection_text.bisection(bisection))
        return BisectionPage(name=folder.name, text=text, page=report.render("html", bisection))
    except LabError as error:
        return BisectionPage(name=reference, text=visible(f"the bisection is gone: {error.message}"))


def _mail(event: Event) -> str | None:
    """A draft from the comparison that proves the culprit, else from the night's own; None without either."""
    if event.kind not in ("regression", "creep"):
        return None
    for reference in (event.culprit.proof if event.culprit else None, event.result):
        try:
            if reference is not None:
                return mail.comparison(inputs.open_comparisons([reference]))
        except LabError:
            continue
    return None


# ---- pictures


def picture(trend: Trend, *, label: str) -> Chart:
    """A trend with its steps and outliers; the band is the threshold around the first value."""
    values = [dot.value for dot in trend.points]
    first = next((value for value in values if value is not None), 0.0)
    series = Series(
        values=values,
        names=[str(dot.night) for dot in trend.points],
        band=(first / (1 + THRESHOLD), first * (1 + THRESHOLD)),
        steps=[change.at for change in trend.changes],
        outliers=trend.outliers,
    )
    return plots.series(series, label)


def _ratios(trend: Trend) -> list[float | None]:
    """The values of a trend against its first one."""
    values = [dot.value for dot in trend.points]
    first = next((value for value in values if value), None)
    return [value / first if first and value is not None else None for value in values]


# ---- the feed, RFC 4287

_NEWEST = 100


def render_feed(plan: str, nights: Sequence[Night], url: str | None) -> str:
    """The newest events first. url: of the site; without it, the entries have no links."""
    entries = [(night, event) for night in nights for event in night.events]
    updated = (night.finished or night.started for night in nights)
    return templates.text(
        "nightly/feed.xml.j2",
        plan=plan,
        url=url,
        updated=max(updated, default="1970-01-01T00:00:00+00:00"),
        entries=entries[::-1][:_NEWEST],
        urn=_urn,
        line=line,
    )


def _urn(name: str) -> str:
    """An identifier that does not depend on the site's address."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"lab nightly {name}").urn


# ---- metrics, in the text format of OpenMetrics


def render_metrics(plan: str, nights: Sequence[Night], state: PlanState, series: Sequence[Trend]) -> str:
    """The open events, the success of the last night, and the last value and the steps of every trend."""
    return templates.text(
        "nightly/metrics.txt.j2",
        plan=plan,
        nights=nights,
        branches=nights[-1].branches if nights else [],
        kinds=(*record.HARMFUL, "known"),
        open=[event.kind for event in state.unacknowledged],
        series=series,
        labels_of=lambda trend: _labels(plan, trend),
    )


def _labels(plan: str, trend: Trend) -> Mapping[str, str]:
    series = trend.series
    return {
        "plan": plan, "tree": series.tree, "branch": series.branch, "workload": series.workload, "case": series.case,
        "metric": series.metric, "unit": series.unit, "mode": series.mode,
    }  # fmt: skip
