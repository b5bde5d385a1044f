"""stress-ng's YAML (`--metrics --yaml FILE`): one entry of `metrics` for each stressor.

A document's values are those of its only stressor, under stress-ng's own names (`bogo-ops`,
`bogo-ops-per-second-real-time`, ...), with the whole under `document`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.parsers.document import Document, Unreadable


def read(lines: Sequence[str]) -> Document:
    """The YAML among stress-ng's lines: its talk stands before it, its end is three dots."""
    import yaml  # most programs need none

    starts = [number for number, line in enumerate(lines) if line == "---"]
    if not starts:
        raise Unreadable("stress-ng printed no YAML: are --metrics and --yaml among its arguments?")
    ends = [number for number, line in enumerate(lines) if line == "..." and number > starts[-1]]
    try:
        values: Any = yaml.safe_load("\n".join(lines[starts[-1] : ends[0] if ends else None]))
    except yaml.YAMLError as error:
        raise Unreadable(f"stress-ng's YAML cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise Unreadable("stress-ng's YAML is not a table")
    program = f"stress-ng {(values.get('system-info') or {}).get('stress-ng-version', 'of an unknown version')}"
    metrics = values.get("metrics")
    if not isinstance(metrics, list) or len(metrics) != 1:
        count = len(metrics) if isinstance(metrics, list) else 0
        raise Unreadable(f"{program} printed metrics of {count} stressors, not of one")
    return Document(values={**metrics[0], "document": values}, program=program)
