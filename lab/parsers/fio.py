"""fio's JSON (`--output-format=json`), as documented in its HOWTO under "JSON output".

Beside fio's own fields a document gets a table `total` over all jobs and directions, so that any job file can be
measured by the same metrics: `ios`, `bytes`, `iops`, `bw_bytes` (bytes per second), `ctx` (context switches), and,
where only one job in one direction did I/O, `lat_mean`, `clat_mean`, `clat_p50`, `clat_p95`, `clat_p99` in ns.
Percentiles of several jobs cannot be joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lab.parsers.document import Document, Unreadable

_DIRECTIONS = ("read", "write", "trim")
_SUMS = {"ios": "total_ios", "bytes": "io_bytes", "iops": "iops", "bw_bytes": "bw_bytes"}
_PERCENTILES = {"clat_p50": "50.000000", "clat_p95": "95.000000", "clat_p99": "99.000000"}


def read(lines: Sequence[str]) -> Document:
    """The JSON document among fio's lines: warnings may stand before and after it."""
    text = "\n".join(lines)
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise Unreadable("fio printed no JSON: is --output-format=json among its arguments?")
    try:
        values: Any = msgspec.json.decode(text[start : end + 1])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(f"fio's JSON cannot be read: {error}") from error
    program = str(values.get("fio version", "fio of an unknown version"))
    jobs = values.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise Unreadable(f"{program} printed no jobs")
    failed = [job.get("jobname") for job in jobs if job.get("error")]
    if failed:
        raise Unreadable(f"{program}: job {failed[0]} failed with error {_error(jobs, failed[0])}")
    return Document(values={**values, "total": _total(program, jobs)}, program=program)


def _error(jobs: list[dict[str, Any]], name: Any) -> Any:
    return next(job["error"] for job in jobs if job.get("jobname") == name)


def _total(program: str, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    sides = [(direction, job[direction]) for job in jobs for direction in _DIRECTIONS if direction in job]
    busy = [side for _, side in sides if _field(program, side, "total_ios")]
    total = {name: sum(_field(program, side, field) for side in busy) for name, field in _SUMS.items()}
    total["ctx"] = sum(_field(program, job, "ctx") for job in jobs)
    if len(busy) == 1:
        (side,) = busy
        total |= {f"{kind}_mean": _field(program, side, f"{kind}_ns", "mean") for kind in ("lat", "clat")}
        percentiles = side["clat_ns"].get("percentile", {})
        total |= {name: percentiles[key] for name, key in _PERCENTILES.items() if key in percentiles}
    return total


def _field(program: str, side: dict[str, Any], *names: str) -> Any:
    value: Any = side
    for name in names:
        if not isinstance(value, dict) or name not in value:
            raise Unreadable(f"{program} printed no {'.'.join(names)}")
        value = value[name]
    return value
