"""All formats by name, each a module with a `render` of its own, loaded when it is asked for."""

from __future__ import annotations

import importlib

from lab.reporting.stored import Reports

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


def render(name: str, reports: Reports) -> str:
    """The results in one format."""
    text = importlib.import_module(f"lab.reporting.{FORMATS[name]}").render(reports)
    assert isinstance(text, str)  # noqa: S101
    return text
