"""News as an Atom feed (RFC 4287)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from xml.etree import ElementTree

from lab.core.text import visible
from lab.nightly.night import Event, Night
from lab.nightly.status import line

_ATOM = "http://www.w3.org/2005/Atom"
_NEWEST = 100


def render(plan: str, nights: Sequence[Night], url: str | None) -> str:
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
