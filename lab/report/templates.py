"""The one way to a page, which is a file that loads nothing, or to a long text: a template of `reports/templates`."""

from __future__ import annotations

import base64
import hashlib
import textwrap
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from lab.core import paths
from lab.core.text import number, visible
from lab.report import plots, wording
from lab.stats.verdict import percent


def fill(name: str, *, style: str = "", own: str = "", **values: object) -> str:
    """The page that a template makes of some values.

    style: more rules. own: the name of a style sheet and a script that pages of this kind have besides the common ones.
    """
    style = _source("page.css") + (_source(f"{own}.css") if own else "") + style
    script = _source("page.js") + (_source(f"{own}.js") if own else "")
    return _environment(_folder()).get_template(name).render(
        style=Markup(style),  # noqa: S704  (files of ours)
        script=Markup(script),  # noqa: S704
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )  # fmt: skip


def text(name: str, **values: object) -> str:
    """A plain text that a template makes of some values."""
    return _environment(_folder()).get_template(name).render(**values).rstrip("\n") + "\n"


@cache
def _environment(folder: Path) -> jinja2.Environment:
    """The templates of a folder, each compiled once, and the words that all may use."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=jinja2.select_autoescape(["html.j2", "xml.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "wording": wording, "plots": plots, "number": number, "percent": percent,
        "Tick": plots.Tick, "Chart": plots.Chart,
    }  # fmt: skip
    environment.filters |= {
        "wrapped": _wrapped, "commands": commands, "visible": visible, "labels": _labels,
    }  # fmt: skip
    return environment


def commands(words: str) -> Markup:
    """Text for a page, in which a command between backticks is set as code."""
    parts = str(escape(words)).split("`")
    if len(parts) % 2 == 0:  # a backtick that begins no command
        return escape(words)
    return Markup("".join(f"<code>{one}</code>" if i % 2 else one for i, one in enumerate(parts)))  # noqa: S704  (escaped)


def _labels(labels: Mapping[str, str]) -> str:
    """The labels of a sample, in the text format of OpenMetrics."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
    return "{{{}}}".format(",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items()))


def _wrapped(words: str, indent: str = "") -> str:
    """Text in lines for a terminal, each after the first with an indent."""
    return textwrap.fill(visible(words), 78, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _folder() -> Path:
    return paths.data_folder("reports") / "templates"


def _source(name: str) -> str:
    return (_folder() / name).read_text()
