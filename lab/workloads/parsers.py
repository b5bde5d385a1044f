"""Numbers from the output of programs: JSON lines, regular expressions, fio's JSON and stress-ng's YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from lab.core.records import DAMAGED, convert


class Unparsable(Exception):
    """The output is not in the format that the program documents; the message names the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Structured output of a program. program: its name and version. text: numbers are strings."""

    values: Any
    program: str
    text: bool = False

    def number(self, path: str) -> float | None:
        """The number at a path such as `jobs.0.read.iops`; None if the document has no such path.

        Keys may contain dots (`percentile.99.000000`), so every way to split the path is tried. Raises `Unparsable` if
        the value is not a finite number.
        """
        for value in _at(self.values, path.split(".")):
            number = _number(value) if self.text and isinstance(value, str) else _finite(value)
            if number is None:
                raise Unparsable(f"{self.program} printed {path} = {_short(value)}, which is not a number")
            return number
        return None


def _number(text: str) -> float | None:
    """A finite number in text; None for anything else."""
    try:
        return _finite(float(text))
    except ValueError:
        return None


def _finite(value: object) -> float | None:
    """A value that is a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def _short(value: object) -> str:
    """A value for people, without all its digits."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # more digits than Python prints
        return "an integer without end"


def _at(value: Any, parts: list[str]) -> Iterator[Any]:
    if not parts:
        yield value
    elif isinstance(value, list):
        if parts[0].isdigit() and int(parts[0]) < len(value):
            yield from _at(value[int(parts[0])], parts[1:])
    elif isinstance(value, dict):
        for cut in range(1, len(parts) + 1):
            key = ".".join(parts[:cut])
            if key in value:
                yield from _at(value[key], parts[cut:])


class _Spread(msgspec.Struct):
    mean: float
    percentile: dict[str, float] = {}


class _Side(msgspec.Struct):
    """A direction's I/O. Times are in ns; a direction without I/O may lack them."""

    total_ios: float
    io_bytes: float
    iops: float
    bw_bytes: float
    lat_ns: _Spread | None = None
    clat_ns: _Spread | None = None


class _Job(msgspec.Struct):
    ctx: float
    jobname: str = "without a name"
    error: int = 0
    read: _Side | None = None
    write: _Side | None = None
    trim: _Side | None = None


class _Fio(msgspec.Struct):
    jobs: list[_Job]


_SUMS = {"ios": "total_ios", "bytes": "io_bytes", "iops": "iops", "bw_bytes": "bw_bytes"}
_PERCENTILES = {"clat_p50": "50.000000", "clat_p95": "95.000000", "clat_p99": "99.000000"}


def read_fio(lines: Sequence[str]) -> Document:
    """fio's JSON (`--output-format=json`, see its HOWTO); warnings may be before and after it.

    A table `total` over all jobs and directions is added, so that the same metrics suit every job file: `ios`, `bytes`,
    `iops`, `bw_bytes` (bytes per second), `ctx` (context switches), and, if only one job in one direction did I/O,
    `lat_mean`, `clat_mean`, `clat_p50`, `clat_p95`, `clat_p99` in ns. Percentiles of several jobs cannot be joined.
    """
    text = "\n".join(lines)
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise Unparsable("fio printed no JSON: is --output-format=json among its arguments?")
    try:
        values: Any = msgspec.json.decode(text[start : end + 1])
    except DAMAGED as error:
        raise Unparsable(f"fio's JSON cannot be read: {error}") from error
    program = str(values.get("fio version", "fio of an unknown version"))
    try:
        jobs = convert(values, _Fio).jobs
    except DAMAGED as error:
        raise Unparsable(f"{program} printed other fields than it documents: {error}") from error
    if not jobs:
        raise Unparsable(f"{program} printed no jobs")
    if failed := next((job for job in jobs if job.error), None):
        raise Unparsable(f"{program}: job {failed.jobname} failed with error {failed.error}")
    return Document(values={**values, "total": _total(jobs)}, program=program)


def _total(jobs: list[_Job]) -> dict[str, float]:
    sides = [side for job in jobs for side in (job.read, job.write, job.trim) if side and side.total_ios]
    total = {name: sum(getattr(side, field) for side in sides) for name, field in _SUMS.items()}
    total["ctx"] = sum(job.ctx for job in jobs)
    if len(sides) == 1:
        (side,) = sides
        if side.lat_ns:
            total["lat_mean"] = side.lat_ns.mean
        if side.clat_ns:
            found = side.clat_ns.percentile
            total["clat_mean"] = side.clat_ns.mean
            total |= {name: found[key] for name, key in _PERCENTILES.items() if key in found}
    return total


def read_json_lines(lines: Sequence[str]) -> Document:
    """The table `metrics` of the last line that is an object with one; an empty table when no line is."""
    metrics = _last(lines).get("metrics", {})
    if not isinstance(metrics, dict):
        raise Unparsable("it printed metrics that are not a table of numbers")
    return Document(values=metrics, program="it")


def read_series(lines: Sequence[str]) -> dict[str, list[list[float]]]:
    """The curves beside the metrics, by name: each a list of points with equally many numbers."""
    series = _last(lines).get("series", {})
    if not isinstance(series, dict):
        raise Unparsable("it printed series that are not a table of curves")
    for name, points in series.items():
        if not isinstance(points, list) or not all(_is_point(point, points[0]) for point in points):
            raise Unparsable(f"it printed series {name}, which is not a list of points of equally many numbers")
    return {name: [[float(value) for value in point] for point in points] for name, points in series.items()}


def _last(lines: Sequence[str]) -> dict[str, Any]:
    for line in reversed(lines):
        if not line.startswith("{"):
            continue
        try:
            value: Any = msgspec.json.decode(line)
        except DAMAGED:
            continue
        if isinstance(value, dict) and "metrics" in value:
            return value
    return {}


def _is_point(point: object, first: object) -> bool:
    if not isinstance(point, list) or not isinstance(first, list) or len(point) != len(first):
        return False
    return bool(point) and all(_finite(value) is not None for value in point)


def number(lines: Sequence[str], pattern: str) -> float | None:
    """The one group of the last match of a pattern; None without a match. `^` and `$` match at lines."""
    matches = list(re.finditer(pattern, "\n".join(lines), re.MULTILINE))
    if not matches:
        return None
    text = matches[-1][1]
    value = None if text is None else _number(text)
    if value is None:
        raise Unparsable(f"the pattern {pattern!r} found {_short(text)}, which is not a number")
    return value


_YAML_MAX = 1 << 16
"""The most characters of stress-ng's YAML, which has a few thousand."""


def read_stress_ng(lines: Sequence[str]) -> Document:
    """stress-ng's YAML (`--metrics --yaml FILE`), which three dots end; other lines are before it.

    The values are those of its only stressor, under stress-ng's names (`bogo-ops`, `bogo-ops-per-second-real-time`,
    ...), with everything else under `document`.
    """
    import yaml  # most programs need none

    starts = [number for number, line in enumerate(lines) if line == "---"]
    if not starts:
        raise Unparsable("stress-ng printed no YAML: are --metrics and --yaml among its arguments?")
    ends = [number for number, line in enumerate(lines) if line == "..." and number > starts[-1]]
    text = "\n".join(lines[starts[-1] : ends[0] if ends else None])
    if len(text) > _YAML_MAX:
        raise Unparsable(f"stress-ng's YAML has {len(text)} characters; up to {_YAML_MAX} are read")
    try:
        # Scalars stay text: dates and numbers to the base of 60 are not worth their errors and time.
        values: Any = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506
    except (yaml.YAMLError, *DAMAGED) as error:
        raise Unparsable(f"stress-ng's YAML cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise Unparsable("stress-ng's YAML is not a table")
    system = values.get("system-info")
    version = system.get("stress-ng-version") if isinstance(system, dict) else None
    program = f"stress-ng {version or 'of an unknown version'}"
    metrics = values.get("metrics")
    if not isinstance(metrics, list) or len(metrics) != 1 or not isinstance(metrics[0], dict):
        count = len(metrics) if isinstance(metrics, list) else 0
        raise Unparsable(f"{program} printed metrics of {count} stressors, not of one")
    return Document(values={**metrics[0], "document": values}, program=program, text=True)
