"""A page's words, from `reports/templates`: one file with its style and script inside, that asks nobody."""

from __future__ import annotations

import base64
import hashlib

import jinja2
from markupsafe import Markup

from lab.core import paths


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
