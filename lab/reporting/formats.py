"""All formats by name, for each kind of result; a format is a function of a module that is loaded when asked for."""

from __future__ import annotations

import importlib

from lab.core.errors import UserError

FORMATS = {
    "text": "textual",
    "md": "markdown",
    "mail": "mail",
    "html": "page",
    "json": "document",
    "csv": "sheet",
    "junit": "junit",
    "ktap": "ktap",
    "bmf": "bmf",
    "benchstat": "benchstat",
    "kcidb": "kcidb",
    "openmetrics": "openmetrics",
}
"""Of comparisons."""

OF_BISECTIONS = {
    "text": "bisections:text",
    "md": "bisection_markdown",
    "mail": "bisection_mail",
    "html": "bisection_page",
    "json": "bisections:json",
}
OF_MATRICES = {
    "text": "matrices:text",
    "md": "matrix_markdown",
    "html": "matrix_page",
    "json": "matrices:json",
    "csv": "matrix_sheet",
    "svg": "matrices:svg",
}
ALL = tuple(dict.fromkeys([*FORMATS, *OF_BISECTIONS, *OF_MATRICES]))


def render(name: str, subject: object, known: dict[str, str] = FORMATS, noun: str = "comparison") -> str:
    """A result, or several comparisons, in one format; `UserError` where its kind does not have that one."""
    if name not in known:
        raise UserError(f"a {noun} has no format {name!r}", hint=f"it has {', '.join(known)}")
    module, _, function = known[name].partition(":")
    text = getattr(importlib.import_module(f"lab.reporting.{module}"), function or "render")(subject)
    assert isinstance(text, str)  # noqa: S101
    return text
