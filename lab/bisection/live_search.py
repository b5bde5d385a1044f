"""The search of live mode, one step at a time and without any I/O.

`next()` gives the images to boot, in order; each boot's value goes to `record()`, a commit that cannot be built or
booted to `skip()`. The state depends only on the arguments and on these two calls, so a journal of them restores any
search.

A search has three phases. It compares the ends, one boot of each at a time in random order, until they certainly
differ; otherwise there is no culprit. Then it boots the commits with the most expected information, until one gap
between two measured commits holds the culprit. At last it compares the two neighbours of that gap by fresh boots, of
images that are built with another layout: boots of the same images would also confirm the effects of their layouts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from lab.bisection import acquisition
from lab.bisection.acquisition import Choice, Costs
from lab.stats import evidence, verdict
from lab.stats.defaults import ALPHA, CONFIDENCE, SAME_ROUNDS
from lab.stats.evidence import Estimate, Moments
from lab.stats.posterior import (
    DRIFTS,
    LEVELS,
    Belief,
    Drift,
    Image,
    Reading,
    believe,
    known_levels,
    shortest,
)
from lab.stats.sequential import SequentialTest


class SearchOutcome(StrEnum):
    """The end of a search."""

    NO_CULPRIT = "no culprit"
    CONFIRMED = "confirmed"
    FOUND = "found"
    UNDECIDED = "undecided"


class Phase(StrEnum):
    """The purpose of a boot."""

    ENDS = "ends"
    SEARCH = "search"
    CONFIRM = "confirm"


@dataclass(frozen=True, kw_only=True)
class StoppingRules:
    """The evidence at which a search ends each of its phases.

    confidence: the probability at which a gap is the answer.
    hunch: the probability from which its neighbours are compared by fresh boots, which both confirms and measures.
    alpha: the chance that equal ends are searched at all.
    confirm_alpha: the same for the two neighbours at the end; None leaves their comparison out.
    threshold: the change within which the ends count as the same, .02 is 2 %; None: they never do.
    end_blocks, confirm_blocks: the most pairs of boots of the ends and of the neighbours.
    side_boots: the fewest boots of each neighbour.
    max_boots: the number of boots after which the search gives up.
    layouts_sd: the sd of the images' own levels by an A/A of builds, in logs; None without one.
    layouts: whether commits can be built with another layout.
    """

    confidence: float = CONFIDENCE
    hunch: float = 0.85
    alpha: float = ALPHA
    confirm_alpha: float | None = 0.05
    threshold: float | None = None
    end_blocks: int = 200
    confirm_blocks: int = 60
    side_boots: int = 2
    max_boots: int = 3000
    drifts: tuple[Drift, ...] = DRIFTS
    layouts_sd: float | None = None
    layouts: bool = True


@dataclass(frozen=True, kw_only=True)
class NextBoots:
    """Boots to make one after the other. commit: the commit to decide."""

    phase: Phase
    commit: int
    boots: tuple[Image, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The answer: the culprit is one of `suspects`, which end with the first commit seen bad.

    last_good, first_bad: the measured neighbours.
    probability: that the answer is right, by the model.
    effect: in logs, between the ends (no culprit) or the neighbours (confirmed); else the model's, without an interval.
    """

    outcome: SearchOutcome
    reason: str
    last_good: int
    first_bad: int
    suspects: tuple[int, ...]
    probability: float
    effect: Estimate


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The likely places of the culprit, and the remaining work.

    gaps: (last good, first bad, probability), likeliest first.
    """

    gaps: tuple[tuple[int, int, float], ...]
    bits_left: float
    seconds_left: float | None


FEWEST_BLOCKS = 4


@dataclass(kw_only=True)
class PairedComparison:
    """An A/B of two images in blocks of one boot each. x: the difference of logs (new - old) of each full block."""

    old: Image
    new: Image
    x: list[float] = field(default_factory=list)
    _half: dict[Image, float] = field(default_factory=dict)

    def order(self, chance: random.Random) -> tuple[Image, ...]:
        """The boots of the next block."""
        return (self.old, self.new) if chance.random() < 0.5 else (self.new, self.old)

    def add(self, image: Image, value: float) -> None:
        """Take one boot's log metric; the second of a block completes it."""
        self._half[image] = value
        if len(self._half) == 2:
            self.x.append(self._half[self.new] - self._half[self.old])
            self._half.clear()

    @property
    def log_e(self) -> float:
        """The log evidence against "no difference"; 0 before there are enough blocks."""
        return evidence.log_evidence(self.moments) if len(self.x) >= FEWEST_BLOCKS else 0.0

    def effect(self, alpha: float) -> Estimate:
        """The mean difference as tested, with an interval that holds at any look."""
        m = self.moments
        return Estimate(m.mean, evidence.interval(m, alpha))

    def is_within(self, threshold: float, alpha: float) -> bool:
        """True if the difference is certainly not beyond a threshold, with outliers counted in full too."""
        if len(self.x) < SAME_ROUNDS:
            return False
        low, high = verdict.band(threshold)
        intervals = (evidence.interval(m, alpha) for m in (self.moments, evidence.moments(self.x)))
        return all(found is not None and low <= found[0] and found[1] <= high for found in intervals)

    @property
    def moments(self) -> Moments:
        """The moments of the differences as tested."""
        return evidence.noisy_moments(self.x)


class LiveSearch:
    """A search over commits 0 (old end, without the change) to `last` (new end, with it), oldest first."""

    def __init__(
        self,
        last: int,
        *,
        costs: Costs,
        built: Collection[int] = (),
        rules: StoppingRules | None = None,
        seed: int = 0,
    ) -> None:
        """built: kernels that need no build. seed: of the order of boots."""
        self.last = last
        self.costs = costs
        self.rules = rules or StoppingRules()
        self.readings: list[Reading] = []
        self.built = {0, last, *built}
        self.untestable: set[int] = set()
        # The old end cannot be the culprit; any other commit is as likely as the next one.
        self._prior = np.concatenate([[0.0], np.full(last, 1 / last)])
        self._chance = random.Random(seed)  # noqa: S311 - the order of boots, not a secret
        self.ends = PairedComparison(old=Image(0), new=Image(last))
        self.confirming: PairedComparison | None = None
        # A hunch that its own comparison did not bear out is not followed twice.
        hunch = 1.0 if self.rules.confirm_alpha is None else self.rules.hunch
        self._enough = min(hunch, self.rules.confidence)
        self._end_turn = 0
        self.layouts = self.rules.layouts
        self._chosen: NextBoots | None = None
        self._boots_left: list[Image] = []
        self._result: Result | None = None
        self._belief: Belief | None = None
        self._choice: Choice | None = None

    # ---- the calls

    def next(self) -> NextBoots | Result:
        """The boots to make now, or the answer. The same until something is recorded."""
        if self._result:
            return self._result
        if not self._boots_left:
            step = self._step()
            if isinstance(step, Result):
                self._result = step
                return step
            self._chosen, self._boots_left = step, list(step.boots)
        assert self._chosen  # noqa: S101  (no boots are left of nothing)
        return NextBoots(phase=self._chosen.phase, commit=self._chosen.commit, boots=tuple(self._boots_left))

    def follow(self, phase: Phase, image: Image) -> None:
        """Make a boot of a journal the next one, even if the search would now choose another.

        The choice rests on the last digits of floating-point sums, which another version of a library may round
        otherwise. The boots count all the same.
        """
        step = self.next()
        if isinstance(step, NextBoots) and (step.phase, step.boots[0]) == (phase, image):
            return
        self._result = None
        if phase is Phase.CONFIRM and not (self.confirming and image in (self.confirming.old, self.confirming.new)):
            low, high = self.belief.gap(self.belief.best)
            if image.commit in (low, high):
                self.confirming = PairedComparison(old=Image(low, image.layout), new=Image(high, image.layout))
            else:
                phase = Phase.SEARCH
        self._chosen, self._boots_left = NextBoots(phase=phase, commit=image.commit, boots=(image,)), [image]

    def record(self, reading: Reading) -> None:
        """Take the value of the first boot of `next()`. ValueError: it asked for another image."""
        step = self.next()
        if isinstance(step, Result) or reading.image != step.boots[0]:
            raise ValueError(f"{reading.image} was not to be booted now")
        if not math.isfinite(reading.value):
            raise ValueError(f"commit {reading.commit}: {reading.value} is not a number")
        self._boots_left.pop(0)
        self.built.add(reading.commit)
        self.readings.append(reading)
        self._belief = None
        if step.phase is Phase.ENDS:
            self.ends.add(reading.image, reading.value)
        elif self.confirming and step.phase is Phase.CONFIRM:
            self.confirming.add(reading.image, reading.value)

    def skip(self, commit: int) -> None:
        """Leave out a commit that cannot be built, booted or measured, or not always.

        Its readings, and the boots that were to come, are dropped. ValueError: it is an end.
        """
        if commit in (0, self.last):
            raise ValueError(f"commit {commit} is an end, it cannot be skipped")
        self.next()  # so that the order of boots is drawn just as often in a replay
        self.untestable.add(commit)
        self.built.discard(commit)
        self.readings = [reading for reading in self.readings if reading.commit != commit]
        self._belief = self._choice = None
        if any(image.commit == commit for image in self._boots_left):
            self._boots_left = []
        if self.confirming and commit in (self.confirming.old.commit, self.confirming.new.commit):
            self.confirming = None

    def keep_layout(self) -> None:
        """Go on without other layouts, for when one cannot be built or booted."""
        self.next()
        self.layouts = False
        if any(image.layout for image in self._boots_left):
            self._boots_left = []
        if self.confirming and self.confirming.old.layout:
            self.confirming = None

    def conclude(self, reason: str) -> Result:
        """End the search when the budget is used up: the answer so far."""
        if self._result is None:
            self._result = self._as_far_as_it_goes(reason)
        return self._result

    # ---- its state

    @property
    def belief(self) -> Belief:
        """The posterior over all readings; only after the ends were compared."""
        if self._belief is None:
            change, rules = self.ends.moments.mean, self.rules
            sign = 1 if change > 0 else -1
            levels = LEVELS if rules.layouts_sd is None else known_levels(rules.layouts_sd / abs(change))
            self._belief = believe(self._prior, self.readings, sign, rules.drifts, levels)
        return self._belief

    def outlook(self) -> Outlook:
        """The likely places of the culprit, and the remaining work."""
        if self.differ() is None:
            return Outlook(gaps=((0, self.last, 1.0),), bits_left=math.log2(self.last), seconds_left=None)
        belief = self.belief
        order = np.argsort(-belief.gaps, kind="stable")
        return Outlook(
            gaps=tuple((*belief.gap(int(i)), float(belief.gaps[i])) for i in order),
            bits_left=acquisition.bits_left(belief, self.untestable),
            seconds_left=self._seconds_left(belief),
        )

    def _seconds_left(self, belief: Belief) -> float | None:
        """The time for the missing bits at the rate of the latest choice, and for a confirmation at this noise."""
        search_s = 0.0
        if not self.confirming:
            if self._choice is None:
                return None
            search_s = acquisition.bits_left(belief, self.untestable) / self._choice.bits_per_s
        return search_s + 2 * self.costs.boot_s * self._confirming_blocks(belief)

    def _confirming_blocks(self, belief: Belief) -> int:
        rules = self.rules
        if rules.confirm_alpha is None:
            return 0
        start = Moments(2, abs(belief.delta), math.sqrt(2) * belief.noise)
        more = SequentialTest(rules.confirm_alpha).blocks_to_settle(start, min_blocks=FEWEST_BLOCKS)
        blocks = rules.confirm_blocks if more is None else min(start.n + more, rules.confirm_blocks)
        return max(0, blocks - len(self.confirming.x)) if self.confirming else blocks

    # ---- the steps

    def _step(self) -> NextBoots | Result:
        differ = self.differ()
        if differ is None:
            return NextBoots(phase=Phase.ENDS, commit=self.last, boots=self.ends.order(self._chance))
        if not differ:
            reason = f"the ends do not differ after {len(self.ends.x)} boots of each"
            return self.without_culprit(SearchOutcome.NO_CULPRIT, reason)
        if self.confirming:
            step = self._confirm(self.confirming)
            if step:
                return step
        if len(self.readings) >= self.rules.max_boots:
            return self._as_far_as_it_goes(f"{len(self.readings)} boots were not enough")
        return self._search()

    def differ(self) -> bool | None:
        """True or False once the evidence says whether the ends differ; None before."""
        ends, rules = self.ends, self.rules
        if len(ends.x) < FEWEST_BLOCKS:
            return None
        if ends.log_e >= -math.log(rules.alpha):
            return True
        if len(ends.x) >= rules.end_blocks:
            return False
        same = rules.threshold is not None and ends.is_within(rules.threshold, rules.alpha)
        return False if same else None

    def _search(self) -> NextBoots | Result:
        belief = self.belief
        low, high = belief.gap(belief.best)
        rules = self.rules
        if belief.gaps[belief.best] >= self._enough and self.untestable.issuperset(range(low + 1, high)):
            for side in (low, high):
                missing = self.rules.side_boots - belief.boots[side]
                if missing > 0:
                    return NextBoots(phase=Phase.SEARCH, commit=side, boots=(Image(side),) * missing)
            if rules.confirm_alpha is None:
                return self._found(SearchOutcome.FOUND, "")
            layout = belief.next_layout(low, high).layout if self.layouts else 0
            self.confirming = PairedComparison(old=Image(low, layout), new=Image(high, layout))
            return self._confirmation(self.confirming)
        self._choice = acquisition.choose(belief, self.costs, self.built, self.untestable, layouts=self.layouts)
        if self._choice is None:
            return self._as_far_as_it_goes("none is left that could be measured")
        return NextBoots(phase=Phase.SEARCH, commit=self._choice.image.commit, boots=self._boots(self._choice))

    def _boots(self, choice: Choice) -> tuple[Image, ...]:
        """The image's boots, with boots of the two ends in turns spread among them at random."""
        boots = [choice.image] * choice.boots
        for _ in range(choice.end_boots):
            boots.insert(self._chance.randrange(len(boots) + 1), Image(self.last if self._end_turn else 0))
            self._end_turn = 1 - self._end_turn
        return tuple(boots)

    def _confirmation(self, comparison: PairedComparison) -> NextBoots:
        return NextBoots(phase=Phase.CONFIRM, commit=comparison.new.commit, boots=comparison.order(self._chance))

    def _confirm(self, comparison: PairedComparison) -> NextBoots | Result | None:
        """The next block of the fresh A/B, the answer, or None if the search has to continue."""
        assert self.rules.confirm_alpha  # noqa: S101  (else nothing is ever confirmed)
        belief = self.belief
        held = belief.gap(belief.best) == (comparison.old.commit, comparison.new.commit)
        certain = held and belief.gaps[belief.best] >= self.rules.confidence
        right_way = comparison.x and comparison.moments.mean * belief.delta > 0
        if certain and right_way and comparison.log_e >= -math.log(self.rules.confirm_alpha):
            return self._found(SearchOutcome.CONFIRMED, "", comparison)
        if held and len(comparison.x) < self.rules.confirm_blocks:
            return self._confirmation(comparison)
        if certain:
            return self._found(
                SearchOutcome.FOUND, f"{len(comparison.x)} blocks of the neighbours did not confirm it", comparison
            )
        self.confirming, self._enough = None, self.rules.confidence
        return None

    # ---- the answers

    def without_culprit(self, outcome: SearchOutcome, reason: str) -> Result:
        """An answer that names no commit, with the difference between the ends."""
        effect = self.ends.effect(self.rules.alpha) if self.ends.x else Estimate(0.0, None)
        return Result(
            outcome=outcome, reason=reason, last_good=0, first_bad=self.last, suspects=(), probability=0.0,
            effect=effect,
        )  # fmt: skip

    def _found(self, outcome: SearchOutcome, reason: str, comparison: PairedComparison | None = None) -> Result:
        belief = self.belief
        low, high = belief.gap(belief.best)
        effect = Estimate(belief.delta, None)
        if comparison and comparison.x:
            effect = comparison.effect(self.rules.confirm_alpha or self.rules.alpha)
        return self._answer(outcome, reason, low, high, effect)

    def _as_far_as_it_goes(self, reason: str) -> Result:
        """The shortest run of gaps that holds the culprit with the requested confidence."""
        if not self.differ():
            return self.without_culprit(SearchOutcome.UNDECIDED, f"{reason}; the ends were not yet told apart")
        belief = self.belief
        low, high = shortest(belief.mass, belief.measured, self.rules.confidence)
        return self._answer(SearchOutcome.UNDECIDED, reason, low, high, Estimate(belief.delta, None))

    def _answer(self, outcome: SearchOutcome, reason: str, low: int, high: int, effect: Estimate) -> Result:
        inside = self.belief.mass[low + 1 : high + 1]
        return Result(
            outcome=outcome,
            reason=reason,
            last_good=low,
            first_bad=high,
            suspects=tuple((np.flatnonzero(inside) + low + 1).tolist()),
            probability=min(float(inside.sum()), 1.0),
            effect=effect,
        )
