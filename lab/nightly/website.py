"""The nightly site: static pages that link each other by relative paths, so they work from disk and from any server.

<output>/index.html             how it stands, all trends, all nights
<output>/nights/N.html          a night
<output>/trends/NAME.html       one case's primary metric over time, with its steps
<output>/changes/ID.html        a piece of news, with its bisection in words
<output>/bisections/ID.html     that bisection, commit by commit
<output>/results/ID.html        the report of a comparison that news are about
<output>/mails/ID.eml           a draft of a mail about a regression
<output>/feed.xml, metrics.txt  for readers that are programs
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from lab import report
from lab.compare.results import number
from lab.core import paths, records
from lab.core.errors import LabError, UserError
from lab.core.progress import Meter
from lab.core.text import visible_record
from lab.history import indexing, trends
from lab.history.database import opened
from lab.history.trends import Change, Trend, Wanted
from lab.nightly import bisected, feed, letters, metrics, night, pictures, sharing
from lab.nightly.bisected import Bisected
from lab.nightly.memory import Memory, remember
from lab.nightly.night import Ack, Event, Mode, Night
from lab.report import inputs
from lab.stats.verdict import percent

_MARK = ".lab-nightly-site"
_TONES: Mapping[str, str] = {
    "fixed": "improvement", "mended": "improvement", "broken": "unknown", "unfounded": "same",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A trend as the index shows it. verdict: of the last night's comparison with the one before."""

    trend: Trend
    slug: str
    verdict: str
    change: str
    spark: Markup


def write(plan: str, output: Path, *, url: str | None, database: str | None, meter: Meter) -> int:
    """Write the whole site; how many files it has."""
    _claim(output)
    nights = night.load_all(plan)
    if not nights:
        raise UserError(f"{plan} had no night yet", hint="`lab nightly run` runs one")
    with opened(database) as base:
        indexing.catch_up(base, meter)
        with base.reading() as connection:
            known = {(one.tree, one.branch) for one in nights[-1].branches}
            found = [
                trends.trend(connection, one)
                for tree, branch in sorted(known)
                for one in trends.newest(trends.list_series(connection, Wanted(tree=tree, branch=branch)))
            ]
    acks = sharing.known_acks(sharing.team_if_it_works(database, meter))
    site = _Site(plan, nights, found, url if not url or url.endswith("/") else f"{url}/", acks)
    count = 0
    for name, text in site.files():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        records.write_atomic(path, text.encode())
        count += 1
    return count


def _claim(output: Path) -> None:
    """Only an empty folder, or one that is a site already, is written to."""
    if output.is_dir() and any(output.iterdir()) and not (output / _MARK).exists():
        raise UserError(f"{output} is not empty, and is no nightly site", hint="name another folder")
    output.mkdir(parents=True, exist_ok=True)
    (output / _MARK).touch()


class _Site:
    """Everything the pages are made of."""

    def __init__(
        self, plan: str, nights: Sequence[Night], found: Sequence[Trend], url: str | None, acks: Mapping[str, Ack]
    ) -> None:
        self.plan, self.url, self.acks = plan, url, acks
        self.nights = [visible_record(one) for one in nights]
        self.trends = [visible_record(one) for one in found]
        self.raw = nights
        self._environment = _environment()

    @cached_property
    def memory(self) -> Memory:
        return remember(self.nights, self.acks)

    @cached_property
    def reports(self) -> dict[str, str]:
        """The pages of the comparisons that news are about."""
        wanted = {event.result for one in self.raw for event in one.events if event.result}
        wanted |= {measured.result for branch in self.raw[-1].branches for measured in branch.measured}
        found = {}
        for name in sorted(wanted):
            try:
                found[name] = report.render("html", inputs.open_reports([name]))
            except LabError:
                continue  # cleaned away; what the night kept of it is still told
        return found

    @cached_property
    def bisections(self) -> dict[str, Bisected]:
        """The bisections of news, by their event."""
        return bisected.by_event(self.raw)

    def files(self) -> Iterator[tuple[str, str]]:
        """Every file by its path in the site."""
        yield "index.html", self._page("index", "", **self._index())
        for one in self.nights:
            yield f"nights/{one.number}.html", self._page("night", "../", night=one, reports=self.reports)
        for trend in self.trends:
            yield f"trends/{slug(trend)}.html", self._page("trend", "../", **self._trend(trend))
        for raw in self.raw:
            for event in raw.events:
                mail = letters.draft(event)
                yield f"changes/{event.id}.html", self._page("change", "../", **self._change(event, mail))
                if mail is not None:
                    yield f"mails/{event.id}.eml", mail
        for name, text in self.reports.items():
            yield f"results/{name}.html", text
        for name, text in {one.name: one.page for one in self.bisections.values() if one.page}.items():
            yield f"bisections/{name}.html", text
        yield "feed.xml", feed.render(self.plan, self.nights, self.url)
        yield "metrics.txt", metrics.render(self.plan, self.nights, self.memory, self.trends)

    def _page(self, name: str, top: str, **values: Any) -> str:
        template = self._environment.get_template(f"nightly/{name}.html.j2")
        return template.render(plan=self.plan, top=top, acks=self.memory.acks, **values)

    def _index(self) -> Mapping[str, Any]:
        return {
            "nights": self.nights,
            "last": self.nights[-1],
            "open": list(self.memory.open.values()),
            "broken": list(self.memory.broken.values()),
            "rows": [self._row(trend) for trend in self.trends],
            "first": self.nights[0].number,
        }

    def _row(self, trend: Trend) -> Row:
        values = [dot.value for dot in trend.points if dot.value is not None]
        ratio = values[-1] / values[0] if len(values) > 1 and values[0] else None
        words = f"trend of {trend.series.workload}:{trend.series.case}"
        return Row(
            trend=trend, slug=slug(trend), verdict=self._verdict(trend), change=percent(ratio) if ratio else "",
            spark=pictures.picture(trend, words=words).svg,
        )  # fmt: skip

    def _verdict(self, trend: Trend) -> str:
        one = trend.series
        said = [
            str(case.verdict)
            for branch in self.nights[-1].branches
            if (branch.tree, branch.branch) == (one.tree, one.branch)
            for measured in branch.measured_in(_mode(trend))[:1]
            for case in measured.cases
            if case.name == (one.workload, one.case)
        ]
        return said[0] if said else ""

    def _trend(self, trend: Trend) -> Mapping[str, Any]:
        one = trend.series
        about = [
            event
            for each in self.nights
            for event in each.events
            if (event.tree, event.branch) == (one.tree, one.branch)
            and (one.workload, one.case, _mode(trend)) in {case.key for case in event.cases}
        ]
        words = f"{one.metric} of {one.workload}:{one.case} over {len(trend.points)} nights"
        return {"trend": trend, "picture": pictures.picture(trend, words=words), "events": about}

    def _change(self, event: Event, mail: str | None) -> Mapping[str, Any]:
        fixed = next((e for one in self.nights for e in one.events if e.kind == "fixed" and e.closes == event.id), None)
        return {
            "one": visible_record(event),
            "fixed": fixed,
            "open": self.memory.open,
            "report": event.result if event.result in self.reports else None,
            "mail": mail,
            "bisection": self.bisections.get(event.id),
        }


def slug(trend: Trend) -> str:
    """A trend's file name: readable, and of no other trend."""
    one = trend.series
    readable = re.sub(r"[^a-z0-9]+", "-", f"{one.branch} {one.workload} {one.case} {one.metric}".lower()).strip("-")
    decisive = [one.tree, one.branch, one.workload, one.case, one.metric, *([one.mode] if one.mode != "exact" else [])]
    return f"{readable[:80]}-{records.digest(decisive)[:8]}"


def _mode(trend: Trend) -> Mode:
    return "live" if trend.series.mode == "live" else "exact"


def _tone(event: Event) -> str:
    return _TONES.get(event.kind, "regression")


def _night_tone(one: Night) -> str:
    tones = {"green": "improvement", "regression": "regression", "no news": "regression", "nothing new": "same"}
    return tones.get(one.outcome or "", "unknown")


def _step_tone(trend: Trend, change: Change) -> str:
    if trend.series.better == "neither":
        return "same"
    return "regression" if (change.ratio > 1) == (trend.series.better == "lower") else "improvement"


def _environment() -> jinja2.Environment:
    folder = paths.room("reports") / "templates"
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = (folder / "page.css").read_text() + (folder / "nightly" / "nightly.css").read_text()
    made.globals |= {
        "style": Markup(css),  # noqa: S704  (the lab's own)
        "percent": percent,
        "number": number,
        "tone": _tone,
        "night_tone": _night_tone,
        "step_tone": _step_tone,
    }
    return made
