"""All formats by name, for each kind of result; a format is a function of a module that is loaded when asked for."""

from __future__ import annotations

import importlib

from lab.core.errors import UserError

FORMATS = {
    "text": "text",
    "md": "markdown",
    "mail": "mail",
    "html": "page",
    "json": "document",
    "csv": "csv_rows",
    "junit": "junit",
    "ktap": "ktap",
    "bmf": "bench_formats:bmf",
    "benchstat": "bench_formats:benchstat",
    "kcidb": "kcidb",
    "openmetrics": "bench_formats:openmetrics",
}
"""Of comparisons."""

OF_BISECTIONS = {
    "text": "inputs:bisection_as_text",
    "md": "markdown:render_bisection",
    "mail": "mail:render_bisection",
    "html": "bisection_page",
    "json": "inputs:bisection_as_json",
}
OF_MATRICES = {
    "text": "inputs:matrix_as_text",
    "md": "markdown:render_matrix",
    "html": "matrix_page",
    "json": "inputs:matrix_as_json",
    "csv": "csv_rows:render_matrix",
    "svg": "inputs:matrix_as_svg",
}
ALL = tuple(dict.fromkeys([*FORMATS, *OF_BISECTIONS, *OF_MATRICES]))


def render(name: str, subject: object, known: dict[str, str] = FORMATS, noun: str = "comparison") -> str:
    """A result, or several comparisons, in one format; `UserError` where its kind does not have that one."""
    if name not in known:
        raise UserError(f"a {noun} has no format {name!r}", hint=f"it has {', '.join(known)}")
    module, _, function = known[name].partition(":")
    text = getattr(importlib.import_module(f"lab.report.{module}"), function or "render")(subject)
    assert isinstance(text, str)  # noqa: S101
    return text
