"""Output formats of stored results. A new format is one function and one row here; modules are imported when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lab.core.errors import UserError

if TYPE_CHECKING:
    from lab.report.inputs import Stored

FORMATS = {
    "comparison": {
        "text": "text:comparison",
        "md": "markdown:comparison",
        "mail": "mail:comparison",
        "html": "page:comparison",
        "json": "document:comparison",
        "csv": "csv_rows:comparison",
        "junit": "junit:comparison",
        "openmetrics": "openmetrics:comparison",
    },
    "bisection": {
        "text": "bisection_text:bisection",
        "md": "markdown:bisection",
        "mail": "mail:bisection",
        "html": "bisection_page:bisection",
        "json": "document:as_printed",
    },
    "matrix": {
        "text": "matrix_text:matrix",
        "md": "markdown:matrix",
        "html": "matrix_page:matrix",
        "json": "document:as_printed",
        "csv": "csv_rows:matrix",
    },
}
"""The function that renders each kind of result in each format, as `module:function`."""

NAMES = tuple(dict.fromkeys(name for formats in FORMATS.values() for name in formats))
"""The names of all formats."""


def render(name: str, stored: Stored) -> str:
    """Render a stored result in one format; `UserError` if its kind does not have that format."""
    formats = FORMATS[stored.kind]
    if name not in formats:
        raise UserError(f"a {stored.kind} has no format {name!r}", hint=f"it has {', '.join(formats)}")
    module, _, function = formats[name].partition(":")
    text = getattr(importlib.import_module(f"lab.report.{module}"), function)(stored)
    assert isinstance(text, str)  # noqa: S101
    return text
