"""Figures that several formats show: means, spreads, intervals, what moved, and what a number is counted in."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from lab.compare import rounds
from lab.compare.results import AbResult, ArmResult, CaseResult, ResultEnvironment
from lab.core.text import number
from lab.stats.verdict import Comparison, Outcome, percent
from lab.stats.verdict import distance as distance_of


def numbers(values: Sequence[float | None]) -> list[float]:
    """The values that are there."""
    return [value for value in values if value is not None]


def mean(values: Sequence[float | None]) -> float | None:
    """Their mean; None without any."""
    found = numbers(values)
    return math.fsum(found) / len(found) if found else None


def shown(values: Sequence[float | None]) -> str:
    """Their mean for people."""
    middle = mean(values)
    return "n/a" if middle is None else number(middle)


def relative_deviation(values: Sequence[float | None]) -> float | None:
    """The standard deviation over the mean, as a fraction; None where there is none."""
    found = numbers(values)
    centre = mean(found)
    return statistics.stdev(found) / abs(centre) if len(found) > 1 and centre else None


def change(comparison: Comparison) -> str:
    """The change of a comparison for people; a percentage changes by points."""
    base, test = mean(comparison.base), mean(comparison.test)
    if comparison.unit == "%" and base is not None and test is not None:
        return f"{test - base:+.1f}" if test != base else "0.0"
    if comparison.ratio is None and base is not None and test is not None:
        # Where single pairs have no ratio, their means may.
        return percent(1.0 if test == base else test / base if base > 0 <= test else None)
    return percent(comparison.ratio)


def guest_facts(around: ResultEnvironment) -> list[tuple[str, str]]:
    """The machine and the guests that all numbers of a result come from."""
    guests = "; ".join(f"{name}: {g.vcpus} vCPU, {g.memory_mb} MiB" for name, g in around.guests.items())
    return [
        ("QEMU", around.qemu),
        ("machine", f"{around.machine}, {around.cpu}"),
        ("guests", guests),
        ("kernel command line", " ".join(around.cmdline)),
        ("guest settings", " ".join(f"{key}={value}" for key, value in around.settings.items())),
        ("image", around.image),
    ]


def case_name(case: CaseResult) -> str:
    """A case by its full name."""
    return f"{case.workload}:{case.case}"


def unit(comparison: Comparison, result: AbResult) -> str:
    """The unit; what is modelled also says on which machine."""
    return with_model(comparison.unit, result)


def with_model(text: str, result: AbResult) -> str:
    """Words that speak of modelled numbers, with the machine they are modelled on."""
    return f"{text} ({model(result)})" if "modelled" in text else text


def model(result: AbResult) -> str:
    """What modelled numbers depend on: model, machine file, and the versions of both. Some workloads have none."""
    return ", ".join(part for part in result.environment.model.split(", ") if part != "none") or "none"


def arm_words(arm: ArmResult) -> str:
    """An arm in one line: spec, commit, subject, release."""
    words = [arm.spec]
    if arm.commit and arm.commit != arm.spec:
        words.append(arm.commit[:12])
    if arm.subject:
        words.append(f'("{arm.subject}")')
    return " ".join([*words, f"Linux {arm.release}"])


def headline(result: AbResult) -> CaseResult | None:
    """The case that speaks for the result: of those that its verdict rests on, the one that moved most."""
    counted = [case for case in result.cases if case.verdict == result.verdict and case.holm is not False]
    if not result.verdict.is_change or not counted:
        return None
    return max(counted, key=lambda case: distance(case.primary))


def sentence(result: AbResult) -> str:
    """The verdict in a sentence."""
    words = f"{result.verdict}: {result.reason}"
    if (case := headline(result)) is not None:
        primary = case.primary
        words += f"; most in {case_name(case)}: {primary.name} {change(primary)} {primary.interval_text}".rstrip()
        words += f", in {unit(primary, result)}"
    return f"{words} (threshold {100 * result.threshold:g} %, {len(result.seeds)} {result.pairs}s, {result.mode} mode)"


def clock(case: CaseResult) -> Comparison | None:
    """What the guest's own clock says of the case, where modelled cycles are the primary metric."""
    return next((c for c in case.metrics if c.name == case.guest_clock), None)


def why(case: CaseResult, result: AbResult) -> str:
    """Why a case's verdict is not plainer; empty where it is plain."""
    primary = case.primary
    if case.verdict == Outcome.UNKNOWN:
        beside = rounds.beside(case.metrics) if result.live else ""
        return "; ".join(filter(None, [result.undecided(primary), beside]))
    if case.verdict == Outcome.SAME and "below threshold" in primary.reason:
        return primary.reason
    return "not beyond chance over all cases" if case.holm is False else ""


def measured(case: CaseResult) -> bool:
    """Whether the case gave numbers that can be compared at all."""
    return case.primary.method != "none"


def distance(comparison: Comparison) -> float:
    """How far a comparison moved: |log ratio|, and where zeros forbid that, |log((test + 1) / (base + 1))|."""
    if comparison.ratio:
        return distance_of(comparison.ratio)
    base, test = mean(comparison.base), mean(comparison.test)
    if base is None or test is None:
        return 0.0
    # Counters are whole events: from 0 to 1 is less than from 10 to 400, yet finite.
    return abs(math.log1p(max(test, 0.0)) - math.log1p(max(base, 0.0)))


def ranked(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The secondary ones of some comparisons, the one that moved most first."""
    return sorted((c for c in comparisons if not c.primary), key=lambda c: (-distance(c), c.name))


def percentiles(case: CaseResult) -> Iterator[tuple[str, list[tuple[float, Comparison]]]]:
    """Each family of percentiles (`latency`, `cycles`) with its points, in order."""
    for family in ("latency", "cycles"):
        points = []
        for comparison in case.metrics:
            stem, _, share = comparison.name.rpartition("_p")
            if stem == family and share.isdigit():
                # p999 is 99.9 %.
                points.append((float(f"{share[:2]}.{share[2:] or 0}"), comparison))
        if len(points) > 1:
            yield family, sorted(points, key=lambda point: point[0])
