"""The search among files and hunks: the smallest sets that carry the change between two ends. Pure.

A mix is the new end with some hunks as the old end has them; its share is the part of the change that it takes back.
The search asks for one mix after the other and begins anew with each answer, so it continues from a journal as if it
had never stopped.

It is delta debugging: the smallest part of a whole that has the whole's effect (Zeller and Hildebrandt, 2002). A part
may be undecided: its kernel does not build, boot or survive. It is then neither kept nor left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from lab.bisection import exact_state, suspects
from lab.bisection.answer import Culprit, HunkSet, OpenRange, OutcomeWord
from lab.bisection.commit_range import Candidate
from lab.bisection.exact_state import ExactState, paired
from lab.bisection.hunks import Difference
from lab.bisection.journal import Reading
from lab.bisection.search_state import Remaining
from lab.core import records
from lab.core.text import plural

Mix = frozenset[int]
"""The numbers of the hunks that are as the old end has them."""


def mix_name(mix: Mix) -> str:
    """The name of a mix in a journal."""
    return f"mix-{records.digest(sorted(mix))[:10]}"


MOST_FILES, ENOUGH = 64, 0.75
"""With more differing files, a mix that takes this part of the change back is enough: hardly anything more builds.

Half is enough when the functions that changed were tried: whole files need the headers of their release, and with those
all of the kernel is compiled again. A quarter is enough when each of the first files was tried by itself: several of
them build together even more seldom.
"""

HALF, QUARTER = 0.5, 0.25

MOST_REPAIRS, MORE_REPAIRS = 8, 2
"""Builds that are spent on one mix that does not build, and on one after a mix that took half of the change back."""

MOST_BUILDS = 96
"""Builds after which a search gives up: its answer is the best mix by then."""


Adds = Literal["any", "own", "none"]
"""The hunks that a mix gets if it does not build: any, those of its own files once, or none."""


class Result(NamedTuple):
    """A tried mix. share: of the change that it takes back; None if it is undecided, for the reason in `errors`."""

    share: float | None
    errors: tuple[str, ...] = ()


class Pending(Exception):
    """The next mix that the search needs. left: about how many builds are left, this included."""

    def __init__(self, mix: Mix, left: int, why: str) -> None:
        super().__init__(why)
        self.mix, self.left, self.why = mix, left, why


@dataclass(frozen=True)
class Part:
    """Hunks that carry a share of the change together, and independently of other parts."""

    mix: Mix
    share: float


@dataclass(frozen=True)
class Found:
    """The end of a search. share: of all parts together. smallest: False if the search gave up before that.

    tried: False if some hunks, or files, were never left out alone: those before them did not build without each other.
    """

    parts: list[Part]
    share: float
    smallest: bool = True
    tried: bool = True


@dataclass
class Search:
    """One run of the search over the known results.

    results: the tried mixes by name. tolerance: the greatest difference between shares that are the same.
    hunks: True if the answer is hunks, else files.
    """

    difference: Difference
    results: Mapping[str, Result]
    tolerance: float
    hunks: bool
    _best: Mix = field(default=frozenset(), init=False)

    def run(self) -> Found:
        """The answer. Raises `Pending` for a mix that is not known yet."""
        try:
            mix, share = self._grown()
            if not mix:
                return Found([], 0.0)
            mix = self._smallest(mix, share)
            own = self._result(mix, 1, "the smallest set").share  # differs by the tolerance at most
            share = share if own is None else own
            parts, rests = self._parts(mix, share), self._rests(mix).values()
            return Found(parts, share, tried=all(not rest or mix_name(rest) in self.results for rest in rests))
        except _GivenUp:
            share = self._result(self._best, 1, "the best mix").share or 0.0
            return Found([Part(self._best, share)] if self._best else [], share, smallest=False)

    # ---- one mix

    def _result(self, mix: Collection[int], left: int, why: str) -> Result:
        wanted = frozenset(mix)
        if not wanted:
            return Result(0.0)
        if len(wanted) == len(self.difference.hunks):
            return Result(1.0)
        name = mix_name(wanted)
        if name not in self.results:
            if len(self.results) >= MOST_BUILDS:
                raise _GivenUp
            raise Pending(wanted, max(1, left), why)
        return self.results[name]

    def _is(self, share: float | None, target: float) -> bool:
        return share is not None and abs(share - target) <= self.tolerance

    # ---- from suspects to a mix that carries the change, or some of it

    def _grown(self) -> tuple[Mix, float]:
        """A mix that takes all of the change back, or as much as can be built; none if nothing takes any back."""
        best: tuple[Mix, float] = (frozenset(), 0.0)
        grown: Mix = frozenset()
        inside = suspects.inside(self.difference) if self.hunks else []
        many = len(self.difference.by_path) > MOST_FILES
        if not many:  # between distant releases such a group has no end
            inside = [suspects.together(self.difference, group) for group in inside]
        files = suspects.tiers(self.difference)
        again: list[list[int]] = []  # grows while functions are tried, before its turn
        steps: Iterator[tuple[list[int], Adds]] = chain(
            zip(inside, repeat("own")), zip(again, repeat("none")), zip(files, repeat("any"))
        )
        for number, (tier, adds) in enumerate(steps):
            last = tier is files[-1]
            several = adds == "any" and len(self.difference.paths(tier)) > 1
            enough = ENOUGH if not inside or adds == "own" else QUARTER if several else HALF
            if many and (best[1] > enough or (last and best[0])):
                break
            wanted = frozenset(range(len(self.difference.hunks))) if last else grown | frozenset(tier)
            repairs = MORE_REPAIRS if best[1] > HALF else MOST_REPAIRS
            left = len(inside) + len(again) + len(files) - number
            mix, result = self._repaired(wanted, left, repairs, adds)
            if result.share is None and adds == "any":
                mix, result = self._repaired(wanted, left, repairs, "none")
            if result.share is None:  # its files are set aside, and a function comes again
                again += [tier, *suspects.by_function(self.difference, tier)] if adds == "own" else []
                continue
            grown = mix
            if abs(1 - result.share) < abs(1 - best[1]) - self.tolerance / 2:
                best = mix, result.share
                self._best = mix
            if self._is(result.share, 1.0):
                break
        return best

    def _repaired(self, mix: Mix, tiers_left: int, most: int, adds: Adds) -> tuple[Mix, Result]:
        """A mix that builds: hunks that a failing build names are added, and if there are none, left out.

        most: builds. adds: `own` if hunks are added once, of the same files alone: these builds are short, and end.
        `none` if they are left out alone, up to half of them: between distant releases a call has changed in a few
        places of most files, and seldom in the one that counts.
        """
        left = tiers_left + tests_left(len(mix))
        result = self._result(mix, left, "the next suspects")
        seen, added = {mix}, False
        least = len(mix) / 2 if adds == "none" else 1
        for _ in range(most):
            if result.share is not None or not result.errors:
                break
            said = suspects.complaint(result.errors)
            more = [] if adds == "none" else suspects.additions(self.difference, mix, said)
            if adds == "own":
                paths = self.difference.paths(mix)
                more = [one for one in more if self.difference.hunks[one].path in paths and not added]
            following = mix | frozenset(more)
            added = added or bool(more)
            if not more or following in seen:
                following = mix - frozenset(suspects.omissions(self.difference, mix, said))
            if following in seen or len(following) < least:
                break
            seen.add(following)
            mix = following
            result = self._result(mix, left, "with the missing parts" if more else "without what does not build")
        return mix, result

    # ---- the smallest mix

    def _smallest(self, mix: Mix, share: float) -> Mix:
        """A mix of the same share that needs each of its files, or hunks."""
        if not self.hunks or self.difference.one_sided is None:  # else groups of hunks know what needs each other
            paths = self._by_path(mix)
            mix = self._minimal(paths, share, "files", lambda path: bool(suspects.likely(self.difference, paths[path])))
        if not self.hunks:
            return mix
        ordered = suspects.by_suspicion(self.difference, mix)
        # If no function is named, hunks of comments are the least likely ones.
        likely = set(suspects.likely(self.difference, mix)) or {one for one in mix if self.difference.words[one]}
        groups = {str(group[0]): group for group in suspects.clusters(self.difference, ordered)}
        mix = self._minimal(groups, share, "hunks that share names", lambda name: bool(likely & set(groups[name])))
        ordered = suspects.by_suspicion(self.difference, mix)
        single = {str(number): [number] for number in ordered}
        return self._minimal(single, share, "hunks", lambda name: int(name) in likely)

    def _by_path(self, mix: Mix) -> dict[str, list[int]]:
        """The hunks of a mix by file, the most suspicious first."""
        paths: dict[str, list[int]] = {}
        for number in suspects.by_suspicion(self.difference, mix):
            paths.setdefault(self.difference.hunks[number].path, []).append(number)
        return paths

    def _minimal(
        self, groups: Mapping[str, Collection[int]], share: float, what: str, is_likely: Callable[[str], bool]
    ) -> Mix:
        def test(names: Collection[str], left: int) -> Outcome:
            mix = _union(groups, names)
            result = self._result(mix, left, f"{len(names)} of {len(groups)} {what}")
            if result.share is None:
                return Outcome.UNDECIDED
            if not self._is(result.share, share):
                return Outcome.LACKS
            self._best = min(self._best, mix, key=len)
            return Outcome.CARRIES

        names = list(groups)
        return _union(groups, minimal(names, test, {name for name in names if is_likely(name)}))

    # ---- independent parts

    def _parts(self, mix: Mix, share: float) -> list[Part]:
        """The parts of a minimal mix. Most losses were measured when it was made smaller."""
        rests = self._rests(mix)
        if len(rests) == 1:
            return [Part(mix, share)]
        losses: dict[str, float] = {}
        # The tried mixes come first: an undecided one makes all of them one part.
        for name in sorted(rests, key=lambda name: mix_name(rests[name]) not in self.results):
            rest = self._result(rests[name], 1, "what the rest carries").share
            if rest is None:
                return [Part(mix, share)]
            losses[name] = share - rest
        # Independent ones have losses that add up to the whole. Shares are of logs, which hardly add up to the digit;
        # elements that need each other are far off.
        if abs(math.fsum(losses.values()) - share) > max(self.tolerance, abs(share) / 5):
            return [Part(mix, share)]
        parts = [mix - rests[name] for name in sorted(losses, key=lambda name: -abs(losses[name]))]
        # Each by itself: the proof compares these kernels.
        alone = [self._result(part, len(parts) - i, "one part by itself").share for i, part in enumerate(parts)]
        if any(share is None for share in alone):
            return [Part(mix, share)]
        return [Part(part, one or 0.0) for part, one in zip(parts, alone, strict=True)]

    def _rests(self, mix: Mix) -> dict[str, Mix]:
        """A mix without each of its hunks, or files."""
        groups = {str(number): [number] for number in sorted(mix)} if self.hunks else self._by_path(mix)
        return {name: mix - frozenset(numbers) for name, numbers in groups.items()}


class _GivenUp(Exception):
    """The end of the builds that a search may cost."""


def _union(groups: Mapping[str, Collection[int]], names: Collection[str]) -> Mix:
    return frozenset(number for name in names for number in groups[name])


T = TypeVar("T")


class Outcome(Enum):
    """The outcome of a test: the part carries the effect of the whole, lacks it, or the test could not decide."""

    CARRIES = "carries"
    LACKS = "lacks"
    UNDECIDED = "undecided"


MOST_UNDECIDED = 4
"""After so many undecided tests in a row, parts of that size are taken to need each other."""

Test = Callable[[Sequence[T], int], Outcome]
"""Decides a part. It also gets an estimate of the tests that are left, this one included."""


def minimal(whole: Sequence[T], test: Test[T], likely: Collection[T] = ()) -> list[T]:
    """A part with the effect of the whole that needs each of its elements. The likeliest elements come first.

    likely: a part to try before all others. Halves are left out, then smaller parts; single elements if halves are
    undecided, because a mix without few elements builds more often. Undecided ones are tried again when others are
    gone.
    """
    left = list(whole)
    first = [element for element in left if element in likely]
    if 0 < len(first) < len(left) and test(first, 1 + tests_left(len(first))) is Outcome.CARRIES:
        left = first
    chunks = _split(left, 2)
    while len(left) > 1 and chunks:
        kept, undecided = _swept(left, chunks, test)
        if len(chunks) == 2 and len(kept) < len(left):
            chunks = _split(kept, 2)
        elif max(map(len, chunks)) > 1:
            chunks = _split(kept, len(kept) if undecided else min(2 * len(chunks), len(kept)))
        else:
            chunks = undecided if len(kept) < len(left) else []
        left = kept
    return left


def _swept(left: Sequence[T], chunks: Sequence[Sequence[T]], test: Test[T]) -> tuple[list[T], list[Sequence[T]]]:
    """Leave out every chunk that can be left out, the least likely ones first; the rest, and the undecided chunks."""
    kept, streak = list(left), 0
    undecided: list[Sequence[T]] = []
    for number, chunk in enumerate(reversed(chunks)):
        rest = [element for element in kept if element not in chunk]
        if not rest or streak == MOST_UNDECIDED:
            break
        outcome = test(rest, len(chunks) - number if len(chunks) > 2 else tests_left(len(rest)))
        if outcome is Outcome.CARRIES:
            kept = rest
        elif outcome is Outcome.UNDECIDED:
            undecided.insert(0, chunk)
        streak = streak + 1 if outcome is Outcome.UNDECIDED else 0
    return kept, undecided


def _split(elements: Sequence[T], parts: int) -> list[Sequence[T]]:
    cuts = [len(elements) * i // parts for i in range(parts + 1)]
    return [elements[low:high] for low, high in pairwise(cuts)]


def tests_left(size: int) -> int:
    """About how many tests find one element of so many."""
    return 1 + math.ceil(1.5 * math.log2(size)) if size > 1 else 1


# ---- the state of a search, by the readings of a journal


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
        return self.pending.left if self.pending else 0

    # ---- for status, log and answer

    @property
    def size(self) -> int:
        return len(self.difference.hunks if self.history.kind == "hunks" else self.difference.by_path)

    @property
    def tried(self) -> list[str]:
        return list(self.mixes)

    def reading(self, commit: str) -> Reading:
        return self.mixes[commit]

    def likeness(self, commit: str) -> str:
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
