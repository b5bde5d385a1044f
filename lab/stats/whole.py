"""The whole cost of a case: the caller's, the work that it leaves to others, and its time.

The caller's cost decides. It is not a verdict if the work went to threads and softirqs, or if the caller waits for work
that others do: docs/verdict.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from lab.core.records import Record
from lab.core.text import duration
from lab.stats.sequential import Interval
from lab.stats.verdict import Comparison, Outcome, band, compare_again, numbers, percent

MAD_TO_SD = 1.4826

FAR = 8
"""Robust standard deviations from the median beyond which a seed's deferred work is of another kind.

With 6, work that scatters widely by itself was pulled in: of 20,000 simulated comparisons whose caller only moved 3 %
of its cost, 1.25 % were called improvements. With 8, it is 0.78 % (docs/statistics.md).
"""

FEW = 3
"""At most one seed in so many is odd: with more of them there are two kinds, and neither is the odd one."""


class Amount(Record, frozen=True, kw_only=True):
    """A cost of one operation in both arms, the mean of all seeds. ratio: None from zero."""

    base: float
    test: float
    ratio: float | None
    interval: Interval | None = None

    @classmethod
    def of(cls, compared: Comparison | None) -> Amount | None:
        """The compared amounts; None if a seed has none."""
        if compared is None or not compared.base or None in compared.base + compared.test:
            return None
        base, test = _mean(compared.base), _mean(compared.test)
        return cls(base=base, test=test, ratio=compared.ratio, interval=compared.interval)


class Whole(Record, frozen=True, kw_only=True):
    """The whole cost of a case by its parts.

    caller: the cost that decides. deferred: cycles of softirqs and of threads but idle, without stray work,
    and of pages that are still to be written. together: the caller's cost, and in the arm with more deferred work
    that much more. elapsed: guest time, in ns. waited: the part of it in which nothing ran. A part without a
    measurement is None.
    """

    caller: Amount
    deferred: Amount | None = None
    together: Amount | None = None
    elapsed: Amount | None = None
    waited: Amount | None = None

    @property
    def moved(self) -> float | None:
        """The ratio of the caller's cost in base with the change of deferred work to that without it."""
        if self.deferred is None or self.caller.base <= 0:
            return None
        return 1 + (self.deferred.test - self.deferred.base) / self.caller.base


def together(caller: Comparison, deferred: Comparison, *, threshold: float, alpha: float) -> Comparison | None:
    """The caller's cost with the change of its deferred work, which the arm with more of it pays.

    Work that is in both arms alike would only dilute the change. None if a number is missing.
    """
    amounts = [*caller.base, *caller.test, *deferred.base, *deferred.test]
    if None in amounts or len(caller.base) != len(deferred.base):
        return None
    more = [late - early for early, late in zip(numbers(deferred.base), numbers(deferred.test), strict=True)]
    base = [own + max(0.0, -change) for own, change in zip(numbers(caller.base), more, strict=True)]
    test = [own + max(0.0, change) for own, change in zip(numbers(caller.test), more, strict=True)]
    return compare_again(caller, base, test, threshold=threshold, alpha=alpha)


def without_stray(amounts: Sequence[float]) -> list[float]:
    """Amounts of deferred work by seed; the few seeds with work of another kind are pulled in to the median.

    Now and then a thread does work in the window that nothing there caused: it frees the remains of an earlier case.
    """
    middle = median(amounts)
    far = FAR * MAD_TO_SD * median(abs(amount - middle) for amount in amounts)
    stray = [abs(amount - middle) > far for amount in amounts]
    if sum(stray) * FEW > len(amounts):
        return list(amounts)
    return [middle if odd else amount for amount, odd in zip(amounts, stray, strict=True)]


def _settled(deferred: Comparison | None) -> Comparison | None:
    """Deferred work without stray work; None if a seed has no number."""
    if deferred is None or not deferred.base or None in [*deferred.base, *deferred.test]:
        return None
    base, test = (list(without_stray(numbers(arm))) for arm in (deferred.base, deferred.test))
    ratio = fmean(test) / fmean(base) if any(base) else None
    return msgspec.structs.replace(deferred, base=base, test=test, ratio=ratio, interval=None)


def waits(elapsed: Comparison, waited: Comparison, *, threshold: float, alpha: float) -> Comparison | None:
    """The guest time if nothing but the waits had changed; None if a number is missing."""
    if None in [*elapsed.base, *waited.base, *waited.test] or len(elapsed.base) != len(waited.base):
        return None
    base = numbers(elapsed.base)
    changes = zip(base, numbers(waited.base), numbers(waited.test), strict=True)
    test = [time - before + after for time, before, after in changes]
    return compare_again(elapsed, base, test, threshold=threshold, alpha=alpha)


def beside_deferred(caller: Comparison, deferred: Comparison, both: Comparison, threshold: float) -> Comparison:
    """The comparison of the caller's cost; `unknown` if the caller's deferred work turns the word.

    deferred: without stray work. both: as `together` compares it. A caller that is the same stays so while its best
    estimate is small.
    """
    change = caller.is_change
    if caller.verdict in (None, Outcome.UNKNOWN, both.verdict) or (not change and _is_small(both, threshold)):
        return caller
    open_ = both.verdict == Outcome.UNKNOWN and not (change and _is_half_taken_back(caller, both))
    where = "from" if change and (caller.ratio or 1) > 1 else "to"
    amount = "more" if _mean(deferred.test) > _mean(deferred.base) else "less"
    moved = f"{'may have ' * open_}moved" if change else f"{'perhaps ' * open_}{amount} is left"
    parts = [
        f"{percent(caller.ratio)} in the caller" if change else "the same in the caller",
        f"{percent(deferred.ratio) if deferred.ratio is not None else 'from none'} there",
        f"{percent(both.ratio)} {both.interval_text if open_ else ''}".rstrip() + " together",
    ]
    reason = f"{moved} {where} threads and softirqs: {', '.join(parts)}"
    return caller.unknown(reason, both.more_blocks if open_ else None)


def _is_small(compared: Comparison, threshold: float) -> bool:
    low, high = band(threshold)
    return compared.ratio is not None and low <= math.log(compared.ratio) <= high


def _is_half_taken_back(caller: Comparison, both: Comparison) -> bool:
    """True if at least half of the caller's change is certainly gone with the work that it leaves to others."""
    if both.interval is None or not caller.ratio:
        return False
    low, high = both.interval
    half = math.sqrt(caller.ratio)
    return low >= half if caller.ratio < 1 else high <= half


def beside_waits(caller: Comparison, waited: Comparison, time: Comparison) -> Comparison:
    """The comparison of the caller's cost; `unknown` if the waits make the same work later, or a gain longer.

    time: as `waits` compares it. The same work is the same only if it certainly waits as long.
    """
    if not time.ratio or caller.verdict in (None, Outcome.UNKNOWN, time.verdict):
        return caller
    if caller.is_change and not time.is_change:
        return caller
    undecided = time.verdict == Outcome.UNKNOWN
    longer = time.ratio > 1
    span = duration(abs(_mean(waited.test) - _mean(waited.base)))
    reason = f"waits {span} {'longer' if longer else 'less'}"
    if caller.is_change:
        reason = f"{percent(caller.ratio)} in the caller, which {reason}: {percent(time.ratio)} of its time"
    else:
        reason += f" ({percent(time.ratio)}): the same work, {'perhaps ' * undecided}{'later' if longer else 'sooner'}"
    return caller.unknown(reason, time.more_blocks if undecided else None)


def weigh(
    caller: Comparison, deferred: Comparison | None, elapsed: Comparison | None, waited: Comparison | None,
    *, threshold: float, alpha: float, chosen: bool,
) -> tuple[Comparison, Whole | None]:  # fmt: skip
    """The comparison of the caller's cost as its whole cost allows, and the whole cost; None without numbers.

    chosen: the user had one number decide, so the word is the caller's.
    """
    own = Amount.of(caller)
    if own is None:
        return caller, None
    deferred = _settled(deferred)
    both = time = None
    if deferred is not None and deferred.unit.partition(" ")[0] == caller.unit.partition(" ")[0]:
        both = together(caller, deferred, threshold=threshold, alpha=alpha)
    if elapsed is not None and waited is not None:
        time = waits(elapsed, waited, threshold=threshold, alpha=alpha)
    whole = Whole(
        caller=own,
        deferred=Amount.of(deferred),
        together=Amount.of(both),
        elapsed=Amount.of(elapsed),
        waited=Amount.of(waited),
    )
    if not chosen and deferred is not None and both is not None:
        caller = beside_deferred(caller, deferred, both, threshold)
    if not chosen and waited is not None and time is not None:
        caller = beside_waits(caller, waited, time)
    return caller, whole


def _mean(values: Sequence[float | None]) -> float:
    return fmean(numbers(values))
