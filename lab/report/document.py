"""`json`: the finished document as stored; several in one list. Its schema is `reports/schemas/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from lab.compare.results import AbResult
from lab.core import paths, records
from lab.report.inputs import Reports

AB = "lab.ab/1"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render(reports: Reports) -> str:
    """One result as it is, raw strings and all; several as `lab.reports/1`, with what is to be said about them."""
    if not reports.several:
        return records.encode(reports.items[0].raw).decode()
    document = {
        "schema": "lab.reports/1",
        "comparable": not reports.mark,
        "note": reports.mark or None,
        "results": [item.raw for item in reports.items],
    }
    return records.encode(document).decode()


def schema() -> dict[str, Any]:
    """The JSON Schema of `lab ab --json`, made from the record itself."""
    (found,), definitions = msgspec.json.schema_components([AbResult], ref_template="#/$defs/{name}")
    definitions["AbResult"]["properties"] |= {
        "schema": {"const": AB},
        "explain": {"type": "object", "description": "`lab ab --explain --json` only: a lab.explain/1 document"},
    }
    return {
        "$schema": DIALECT,
        "title": f"{AB}: what `lab ab --json` and `lab report --format json` print",
        **found,
        "$defs": definitions,
    }


def schema_path() -> Path:
    """Where the schema is kept."""
    return paths.room("reports") / "schemas" / "lab.ab-1.json"


def write_schema() -> None:
    """Make the file again from the record; a test says when that is due."""
    records.write_atomic(schema_path(), records.encode(schema()))
