"""The version of exact mode's numbers, `machines/model.toml`: raised by hand when numbers change, not by edits."""

from __future__ import annotations

from functools import cache

from lab.core import toml
from lab.core.errors import LabError
from lab.core.paths import data_folder
from lab.core.records import Record


class ModelVersion(Record, frozen=True, kw_only=True):
    """One version, and the reason why its numbers differ from those of the version before."""

    number: int
    reason: str


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


def current() -> int:
    """The version of the numbers that guests of this lab give."""
    return history()[-1].number


def reasons(then: int, now: int) -> str:
    """The reasons why numbers of two versions differ, the older one first; empty if that is not known."""
    return "; ".join(one.reason for one in history() if 0 < then < one.number <= now)


def changes(then: int) -> str:
    """The difference between a stored version and this lab's, with the reasons; empty without any.

    then: the stored one; 0 for results that were stored before versions were.
    """
    now = current()
    if then == now:
        return ""
    why = reasons(then, now)
    return f"model version {then or 'unknown'} then, {now} here" + (f": {why}" if why else "")
