"""The state of a search among files or hunks, by the readings of a journal. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from lab.bisection import exact_state
from lab.bisection.answer import Culprit, HunkSet, OpenRange, OutcomeWord
from lab.bisection.commit_range import Candidate
from lab.bisection.difference_search import Found, Part, Pending, Result, Search, mix_name
from lab.bisection.exact_state import ExactState, paired
from lab.bisection.hunks import Difference
from lab.bisection.journal import Reading
from lab.bisection.search_state import Remaining
from lab.core.text import plural


@dataclass(frozen=True, kw_only=True)
class DifferenceState(ExactState):
    """The state by the readings of both ends and of their mixes, by name."""

    mixes: Mapping[str, Reading] = field(default_factory=dict)
    difference: Difference

    @cached_property
    def _whole(self) -> float:
        """The log ratio of the old end over the new one."""
        old, new = (self.readings[end.id] for end in self.history.ends)
        return exact_state.distance(*paired(old.values, new.values)).mean if old.values and new.values else 0.0

    def share(self, reading: Reading) -> float | None:
        """The share of the difference between the ends that a mix takes back; None without values."""
        new = self.readings[self.history.new.id]
        if not reading.values or not new.values or not self._whole:
            return None
        gone = exact_state.distance(*paired(reading.values, new.values)).mean
        return gone / self._whole if math.isfinite(gone) and math.isfinite(self._whole) else float(gone == self._whole)

    @property
    def tolerance(self) -> float:
        """The greatest difference of shares that are the same: the dead band of the search."""
        return self.band / abs(self._whole) if self._whole else 0.0

    @cached_property
    def _search(self) -> Found | Pending:
        results = {name: Result(self.share(one), tuple(one.errors)) for name, one in self.mixes.items()}
        try:
            return Search(self.difference, results, self.tolerance, hunks=self.history.kind == "hunks").run()
        except Pending as pending:
            return pending

    @property
    def pending(self) -> Pending | None:
        """The mix to measure next; None when the search is over."""
        if not self.differ or not self._is_searched or self.ends is None:
            return None
        return self._search if isinstance(self._search, Pending) else None

    @property
    def found(self) -> Found | None:
        """The end of the search; None before it."""
        return self._search if self.differ and self._is_searched and isinstance(self._search, Found) else None

    def choose(self, count: int) -> list[int]:
        """Nothing: a mix has no kernel before its patch is written."""
        return []

    @property
    def steps_left(self) -> int:
        """The number of builds that are still needed, roughly."""
        return self.pending.left if self.pending else 0

    # ---- for status, log and answer

    @property
    def size(self) -> int:
        """The files, or the hunks, that differ."""
        return len(self.difference.hunks if self.history.kind == "hunks" else self.difference.by_path)

    @property
    def tried(self) -> list[str]:
        """The mixes, in the order of the first try."""
        return list(self.mixes)

    def reading(self, commit: str) -> Reading:
        """The reading of a mix."""
        return self.mixes[commit]

    def likeness(self, commit: str) -> str:
        """The end that a mix is like."""
        share, (old, new) = self.share(self.mixes[commit]), self.plan.terms
        if share is None:
            return "not decided"
        if abs(share) <= self.tolerance:
            return f"like {new}"
        return f"like {old}" if abs(share - 1) <= self.tolerance else "like neither end"

    def describe(self, commit: str) -> str:
        """Say how much of the change a mix takes back."""
        reading = self.mixes[commit]
        share = self.share(reading)
        if share is None:
            why = reading.errors[0].partition("/src/")[2] if reading.errors else ""
            return f"not decided: {why or reading.why}"
        return f"takes {100 * share:.1f} % of the change back"

    def remaining(self) -> Remaining:
        """An estimate: each further mix takes as long as the earlier ones."""
        if (pending := self.pending) is None:
            return Remaining(None, steps=0)
        spent = [one.build_s + one.run_s for one in self.mixes.values()]
        following = Candidate(
            id=mix_name(pending.mix), title=self.difference.describe(pending.mix), spec="", parents=()
        )
        return Remaining(
            following, steps=pending.left, seconds=pending.left * math.fsum(spent) / len(spent) if spent else None
        )

    def open_changes(self) -> list[OpenRange]:
        """None: while the search goes on, any file may carry the change."""
        return []

    def culprits(self) -> list[Culprit]:
        """The parts that carry the change."""
        return [self._part(part) for part in self.found.parts] if self.found else []

    def _part(self, part: Part) -> Culprit:
        """A part as the change between the new end without it and the new end."""
        assert self.found is not None  # noqa: S101
        difference, name = self.difference, mix_name(part.mix)
        reading, new = self.mixes.get(name), self.readings[self.history.new.id]
        if reading is None:  # all of the difference, which is the old end
            reading = self.readings[self.history.old.id]
        effect, cost = self.weighed(reading, new, self.threshold)
        ratio = effect.ratio if effect else None
        hunks = [difference.hunks[number] for number in sorted(part.mix)]
        made = self.culprit(
            at=self.history.number(reading.commit), suspects=[self.history.number(reading.commit)], untested=[],
            before=self.history.number(reading.commit), effect=effect, ratio=ratio,
            confidence=1 - effect.p_value if effect else 0.0,
        )  # fmt: skip
        return replace(
            self.without_word(made, reading, new),
            title=difference.describe(part.mix),
            instructions=self.instructions(new, reading),
            whole=cost,
            hunks=HunkSet(
                files=difference.paths(part.mix),
                hunks=len(part.mix),
                share=part.share,
                diff=difference.diff(part.mix),
                functions=sorted(frozenset().union(*(hunk.functions for hunk in hunks))),
                smallest=self.found.smallest and self.found.tried,
            ),
        )

    def outcome(self, culprits: Sequence[Culprit], *, out_of_time: bool) -> tuple[OutcomeWord, str]:
        """By the ends, then by the effect of the parts together."""
        if out_of_time:
            return "undecided", f"the budget is used up, about {plural(self.steps_left, 'build')} are still to be made"
        if self.found is None:
            return super().outcome([], out_of_time=False)
        failed = sum(one.untestable is not None for one in self.mixes.values())
        spent = f"{plural(len(self.mixes), 'build')}, {failed} of them not decided"
        if not culprits:
            return "undecided", f"nothing that could be built carries the change ({spent})"
        share = f"{plural(len(culprits), 'part')} with {100 * self.found.share:.0f} % of the change ({spent})"
        if abs(self.found.share - 1) > self.tolerance:
            share += "; the rest is elsewhere"
        return ("found" if self.found.smallest else "range"), share
