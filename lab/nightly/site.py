"""The nightly site: static pages that link each other by relative paths, so they work from disk and from any server.

<output>/index.html             how it stands, all trends, all nights
<output>/nights/N.html          a night
<output>/trends/NAME.html       one case's primary metric over time, with its steps
<output>/changes/ID.html        a piece of news, with its bisection in words
<output>/bisections/ID.html     that bisection, commit by commit
<output>/results/ID.html        the report of a comparison that news are about
<output>/mails/ID.eml           a draft of a mail about a regression
<output>/feed.xml, metrics.txt  for readers that are programs

The bisections behind news: the text of each for its change's page, and a page of its own.

A draft of a mail for each regression, from the comparison that proves its culprit, else from the night's own.

News as an Atom feed (RFC 4287).

A plan for a scrape, in the OpenMetrics text format.

A trend as a picture: inline SVG without words, stretched to the room there is. See `lab.report.svg`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
from markupsafe import Markup, escape

from lab import report
from lab.compare import results
from lab.compare.results import number
from lab.core import paths, records
from lab.core.errors import LabError, UserError
from lab.core.progress import Meter
from lab.core.text import visible, visible_record
from lab.history import index, trends
from lab.history.database import opened
from lab.history.trends import Change, Trend
from lab.nightly import record, team
from lab.nightly.events import Memory, remember
from lab.nightly.record import Ack, BranchNight, Event, Mode, Night
from lab.nightly.status import line
from lab.report import inputs, mail
from lab.report.bench_formats import family, sample
from lab.stats.verdict import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected:
    """One bisection. page: as `lab report --format html` writes it; empty where it is gone."""

    name: str
    text: str
    page: str = ""


def by_event(nights: Sequence[Night]) -> dict[str, Bisected]:
    """The bisection of each event that has one; what several share, under each."""
    references = {
        event.id: reference
        for night in nights
        for branch in night.branches
        for event in branch.events
        if (reference := _reference(event, branch))
    }
    opened = {reference: _open(reference) for reference in sorted(set(references.values()))}
    return {event: opened[reference] for event, reference in references.items()}


def _reference(event: Event, branch: BranchNight) -> str | None:
    """The bisection that named the culprit, else the last one that was begun for the event."""
    if event.culprit is not None:
        return event.culprit.bisection
    begun = [reference for name, reference in branch.bisections.items() if name.split()[0] == event.id]
    return begun[-1] if begun else None


def _open(reference: str) -> Bisected:
    try:
        folder = results.open_folder(reference)
        found = inputs.open_bisection(folder)
        text = "\n".join(visible(line) for line in inputs.bisection_as_text(found).split("\n"))
        html = report.render("html", found, report.OF_BISECTIONS, "bisection")
    except LabError as error:
        return Bisected(name=reference, text=visible(f"the bisection is gone: {error.message}"))
    return Bisected(name=folder.name, text=text, page=html)


def draft(event: Event) -> str | None:
    """The mail; None where no stored comparison can speak for the event."""
    if event.kind not in ("regression", "creep"):
        return None
    proof = event.culprit.proof if event.culprit else None
    for reference in (proof, event.result):
        if reference is None:
            continue
        try:
            return mail.render(inputs.open_reports([reference]))
        except LabError:
            continue
    return None


_ATOM = "http://www.w3.org/2005/Atom"
_NEWEST = 100


def render_feed(plan: str, nights: Sequence[Night], url: str | None) -> str:
    """The newest news first. url: where the site will be; without one the entries stand for themselves."""
    ElementTree.register_namespace("", _ATOM)
    feed = ElementTree.Element(f"{{{_ATOM}}}feed")
    _text(feed, "id", _identity(f"plan {plan}"))
    _text(feed, "title", f"Nights of {plan}")
    _text(feed, "updated", max((one.finished or one.started for one in nights), default="1970-01-01T00:00:00+00:00"))
    _text(ElementTree.SubElement(feed, f"{{{_ATOM}}}author"), "name", "lab nightly")
    if url:
        _link(feed, "self", f"{url}feed.xml")
        _link(feed, "alternate", f"{url}index.html")
    told = [(one, event) for one in nights for event in one.events]
    for one, event in told[::-1][:_NEWEST]:
        _entry(feed, one, event, url)
    ElementTree.indent(feed)
    return ElementTree.tostring(feed, encoding="unicode", xml_declaration=True) + "\n"


def _entry(feed: ElementTree.Element, night: Night, event: Event, url: str | None) -> None:
    entry = ElementTree.SubElement(feed, f"{{{_ATOM}}}entry")
    _text(entry, "id", _identity(f"event {event.id}"))
    _text(entry, "title", f"{event.kind} on {event.tree}/{event.branch}, night {event.night}")
    _text(entry, "updated", night.finished or night.started)
    _text(entry, "content", line(event)).set("type", "text")
    if url:
        _link(entry, "alternate", f"{url}changes/{event.id}.html")


def _identity(of: str) -> str:
    """The same for the same thing, wherever the site is."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"lab nightly {of}").urn


def _text(parent: ElementTree.Element, name: str, text: str) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, f"{{{_ATOM}}}{name}")
    child.text = visible(text)
    return child


def _link(parent: ElementTree.Element, rel: str, href: str) -> None:
    ElementTree.SubElement(parent, f"{{{_ATOM}}}link", rel=rel, href=href)


_KINDS = ("regression", "creep", "step", "known")


def render_metrics(plan: str, nights: Sequence[Night], memory: Memory, trends: Sequence[Trend]) -> str:
    """What is open, how the last night went, and the last value of every trend."""
    return "\n".join([*_lines(plan, nights, memory, trends), "# EOF"]) + "\n"


def _lines(plan: str, nights: Sequence[Night], memory: Memory, trends: Sequence[Trend]) -> Iterator[str]:
    yield from family("lab_nightly_nights", "gauge", "Nights of the plan so far.")
    yield sample("lab_nightly_nights", {"plan": plan}, len(nights))
    yield from family("lab_nightly_open", "gauge", "Changes that are open and not acknowledged.")
    for kind in _KINDS:
        count = sum(event.kind == kind for event in memory.minded)
        yield sample("lab_nightly_open", {"plan": plan, "kind": kind}, count)
    yield from family(
        "lab_nightly_measured", "gauge", "Whether the last night measured the branch, or had nothing new."
    )
    for one in nights[-1].branches if nights else []:
        labels = {"plan": plan, "tree": one.tree, "branch": one.branch}
        yield sample("lab_nightly_measured", labels, int(one.state in ("measured", "nothing new")))
    yield from family("lab_nightly_value", "gauge", "The last value of a case's primary metric.")
    for trend in trends:
        value = next((dot.value for dot in reversed(trend.points) if dot.value is not None), None)
        if value is not None:
            yield sample("lab_nightly_value", {"plan": plan, **_labels(trend)}, value)
    yield from family("lab_nightly_steps", "gauge", "Steps in the trend of a case's primary metric.")
    for trend in trends:
        yield sample("lab_nightly_steps", {"plan": plan, **_labels(trend)}, len(trend.changes))


def _labels(trend: Trend) -> Mapping[str, str]:
    one = trend.series
    return {
        "tree": one.tree, "branch": one.branch, "workload": one.workload, "case": one.case, "metric": one.metric,
        "unit": one.unit, "mode": one.mode,
    }  # fmt: skip


_SIZE = 1000
_ROOM = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The drawing, and the values at its lower and upper edge."""

    svg: Markup
    low: float
    high: float


def picture(trend: Trend, *, words: str) -> Picture:
    """Points in their order, steps as vertical lines between them, outliers ringed; `words` say what it shows."""
    known = [(place, dot.value) for place, dot in enumerate(trend.points) if dot.value is not None]
    values = [value for _, value in known] or [0.0]
    low, high = min(values), max(values)
    span = high - low or abs(high) or 1.0
    count = max(len(trend.points) - 1, 1)

    def x(place: float) -> float:
        return round(_ROOM / 2 + place / count * (_SIZE - _ROOM), 1)

    def y(value: float) -> float:
        # Equal values are a line in the middle.
        share = (value - low) / span if high > low else 0.5
        return round(_SIZE - _ROOM - share * (_SIZE - 2 * _ROOM), 1)

    places = [f"{x(place)} {y(value)}" for place, value in known]
    outliers = [f"{x(place)} {y(value)}" for place, value in known if place in trend.outliers]
    parts = [f'<path class="step" d="M{x(change.at - 0.5)} 0V{_SIZE}"/>' for change in trend.changes]
    parts.append(f'<path class="outliers" d="{"".join(f"M{place}h0" for place in outliers)}"/>')
    parts.append(f'<path class="level" d="M{"L".join(places)}"/>' if places else "")
    parts.append(f'<path class="points" d="{"".join(f"M{place}h0" for place in places)}"/>')
    svg = (
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none" role="img" aria-label="{escape(words)}">'
        f"{''.join(parts)}</svg>"
    )
    return Picture(svg=Markup(svg), low=low, high=high)  # noqa: S704  (numbers, and words that were escaped)


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
    nights = record.load_all(plan)
    if not nights:
        raise UserError(f"{plan} had no night yet", hint="`lab nightly run` runs one")
    with opened(database) as base:
        index.catch_up(base, meter)
        with base.reading() as connection:
            branches = sorted({(one.tree, one.branch) for one in nights[-1].branches})
            found = [one for tree, branch in branches for one in trends.branch_trends(connection, tree, branch)]
    acks = team.known_acks(team.team_if_it_works(database, meter))
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
        return by_event(self.raw)

    def files(self) -> Iterator[tuple[str, str]]:
        """Every file by its path in the site."""
        yield "index.html", self._page("index", "", **self._index())
        for one in self.nights:
            yield f"nights/{one.number}.html", self._page("night", "../", night=one, reports=self.reports)
        for trend in self.trends:
            yield f"trends/{slug(trend)}.html", self._page("trend", "../", **self._trend(trend))
        for raw in self.raw:
            for event in raw.events:
                mail = draft(event)
                yield f"changes/{event.id}.html", self._page("change", "../", **self._change(event, mail))
                if mail is not None:
                    yield f"mails/{event.id}.eml", mail
        for name, text in self.reports.items():
            yield f"results/{name}.html", text
        for name, text in {one.name: one.page for one in self.bisections.values() if one.page}.items():
            yield f"bisections/{name}.html", text
        yield "feed.xml", render_feed(self.plan, self.nights, self.url)
        yield "metrics.txt", render_metrics(self.plan, self.nights, self.memory, self.trends)

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
            spark=picture(trend, words=words).svg,
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
        return {"trend": trend, "picture": picture(trend, words=words), "events": about}

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
