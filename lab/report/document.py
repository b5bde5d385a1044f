"""`json`: finished documents as stored, raw strings and all. The schema of a comparison is in `reports/schemas/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from lab.compare.results import AbResult
from lab.core import paths, records
from lab.report.inputs import Comparisons, StoredBisection, StoredMatrix

AB = "lab.ab/1"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def comparison(comparisons: Comparisons) -> str:
    """One result unchanged; several as `lab.reports/1`, with their warning."""
    if not comparisons.several:
        return records.encode(comparisons.items[0].raw).decode()
    document = {
        "schema": "lab.reports/1",
        "comparable": not comparisons.mark,
        "note": comparisons.mark or None,
        "results": [item.raw for item in comparisons.items],
    }
    return records.encode(document).decode()


def as_printed(stored: StoredBisection | StoredMatrix) -> str:
    """The document as `lab bisect --json` or `lab matrix --json` printed it."""
    return records.encode(stored.raw).decode()


def schema() -> dict[str, Any]:
    """The JSON Schema of `lab ab --json`, made from the record itself."""
    (found,), definitions = msgspec.json.schema_components([AbResult], ref_template="#/$defs/{name}")
    definitions["AbResult"]["properties"] |= {
        "schema": {"const": AB},
        "seal": {"type": "string", "description": "result.json only: the SHA-256 of the rest of the file"},
        "explain": {"type": "object", "description": "`lab ab --explain --json` only: a lab.explain/1 document"},
    }
    return {
        "$schema": DIALECT,
        "title": f"{AB}: what `lab ab --json` and `lab report --format json` print",
        **found,
        "$defs": definitions,
    }


def schema_path() -> Path:
    return paths.data_folder("reports") / "schemas" / "lab.ab-1.json"


def write_schema() -> None:
    """Make the file again from the record; a test says when that is due."""
    records.write_atomic(schema_path(), records.encode(schema()))
