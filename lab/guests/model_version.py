"""The version of exact mode's numbers, `machines/model.toml`: raised by hand when numbers change, not by edits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from lab.core import toml
from lab.core.errors import LabError
from lab.core.paths import data_folder
from lab.core.records import Record


class ModelVersion(Record, frozen=True, kw_only=True):
    """One version, and the reason why its numbers differ from those of the version before.

    workloads: the workloads whose numbers differ; all without any.
    """

    number: int
    reason: str
    workloads: tuple[str, ...] = ()

    def is_about(self, workloads: Iterable[str]) -> bool:
        """True if guests of some workloads have other numbers since. workloads: names, or selections of their cases."""
        return not self.workloads or any(re.split("[@:]", name)[0] in self.workloads for name in workloads)


class _File(Record, frozen=True, kw_only=True):
    """`machines/model.toml`: the versions, the oldest first."""

    schema: int
    version: list[ModelVersion]


@cache
def history() -> tuple[ModelVersion, ...]:
    """All versions, the oldest first."""
    path = data_folder("machines") / "model.toml"
    versions = toml.load(path, _File).version
    if [one.number for one in versions] != list(range(1, len(versions) + 1)):
        raise LabError(f"{path}: versions are numbered 1, 2, 3 and so on")
    return tuple(versions)


def current(workloads: Iterable[str]) -> int:
    """The version of the numbers that guests of some workloads give here."""
    names = list(workloads)
    return max(one.number for one in history() if one.is_about(names))


def reasons(then: int, now: int, workloads: Iterable[str]) -> str:
    """The reasons why numbers of two versions differ, the older one first; empty if that is not known."""
    names = list(workloads)
    return "; ".join(one.reason for one in history() if 0 < then < one.number <= now and one.is_about(names))


def changes(then: int, workloads: Iterable[str]) -> str:
    """The difference between a stored version and this lab's, with the reasons; empty without any.

    then: the stored one; 0 for results that were stored before versions were.
    """
    names = list(workloads)
    now = current(names)
    if then == now:
        return ""
    why = reasons(then, now, names)
    return f"model version {then or 'unknown'} then, {now} here" + (f": {why}" if why else "")
