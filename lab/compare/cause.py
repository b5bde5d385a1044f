"""The functions that make most of a case's change, as a record and as the sentence that every report shows."""

from __future__ import annotations

from typing import Literal

import msgspec

from lab.core.records import Record
from lab.core.text import listed, number


class CauseFunction(Record, frozen=True, kw_only=True):
    """The part of one function in the change of an operation's cost.

    delta: test minus base. share: of the whole change. calls: per operation; None if they were not seen.
    """

    name: str
    delta: float
    share: float
    base_calls: float | None = None
    test_calls: float | None = None

    @property
    def signed(self) -> str:
        """The difference with its sign."""
        return f"{'+' * (self.delta > 0)}{number(self.delta)}"

    @property
    def calls(self) -> str:
        """The calls per operation and how they differ; empty if they were not seen."""
        base, test = self.base_calls, self.test_calls
        if base is None or test is None:
            return ""
        if not base:
            return f"{_times(test, 'new call')}"
        if not test:
            return f"{_times(base, 'call')} fewer"
        return f"{_times(base, 'call')} as before" if base == test else f"calls {number(base)} -> {number(test)}"


class Cause(Record, frozen=True, kw_only=True):
    """The functions that make most of a case's change, the largest first.

    case: its full name. cancelling: two functions; one gains the loss of the other, as moved code does.
    """

    case: str
    cost: Literal["cycles", "instructions"]
    functions: list[CauseFunction]
    cancelling: list[CauseFunction] = msgspec.field(default_factory=list)

    def __str__(self) -> str:
        """`prot_commit_flush_ptes makes 96 % of it (+104,760 cycles per operation, 2,048 new calls)`, and so on."""
        parts: list[str] = []
        for function in self.functions:
            made = "" if parts else "makes "
            unit = "" if parts else f" {self.cost} per operation"
            inside = ", ".join(filter(None, [f"{function.signed}{unit}", function.calls]))
            parts.append(f"{function.name} {made}{100 * function.share:.0f} %{'' if parts else ' of it'} ({inside})")
        text = listed(parts, "and")
        if self.cancelling:
            names = listed([function.name for function in self.cancelling], "and")
            left = number(abs(sum(function.delta for function in self.cancelling)))
            text += f"; {names} cancel out but for {left} {self.cost}"
        return text


def _times(count: float, noun: str) -> str:
    return f"{number(count)} {noun}{'s' * (count != 1)}"
