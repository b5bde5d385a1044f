"""Phrases that several formats share: of means, changes, units, verdicts, and the answers of bisections."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from lab.compare.live_results import Counted
from lab.compare.results import AbResult, CaseResult, ResultEnvironment, clock, mean, movement
from lab.core.git import short
from lab.core.text import duration, number, plural, span
from lab.kernels import architecture
from lab.stats.defaults import MIN_PAIRS
from lab.stats.verdict import Comparison, Outcome, percent
from lab.stats.whole import Whole

if TYPE_CHECKING:
    from lab.bisection.answer import Answer, Culprit
    from lab.compare.matrix_results import MatrixResult


def shown(values: Sequence[float | None]) -> str:
    """The mean of some values for people."""
    middle = mean(values)
    return number(math.nan if middle is None else middle)


def cut(name: str, longest: int) -> str:
    """A name with so many characters at most."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def change(comparison: Comparison) -> str:
    """The movement of a comparison; a percentage changes by points, unless its ratio decides."""
    base, test = mean(comparison.base), mean(comparison.test)
    if comparison.unit == "%" and not comparison.primary and base is not None and test is not None:
        return f"{test - base:+.1f}" if test != base else "0.0"
    if comparison.ratio is None and base is not None and test is not None:
        # If single pairs have no ratio, their means may.
        return percent(1.0 if test == base else test / base if base > 0 <= test else None)
    return percent(comparison.ratio)


# ---- comparisons


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


def unit(comparison: Comparison, result: AbResult, *, versions: bool = True) -> str:
    """The unit of a metric; a modelled one with the machine that it is modelled on."""
    return (
        f"{comparison.unit} ({model(result, versions=versions)})" if "modelled" in comparison.unit else comparison.unit
    )


def model(result: AbResult, *, versions: bool = True) -> str:
    """The basis of modelled numbers: model, machine file, and the versions of both. Some workloads have none."""
    models = [part if versions else " ".join(part.split()[:2]) for part in result.environment.model.split(", ")]
    return ", ".join(architecture.experiment(part) for part in models if part != "none") or "none"


def moved(case: CaseResult, result: AbResult) -> str:
    """The movement of a case: its metric, the change with the interval, the unit, and the instructions beside it."""
    primary = case.primary
    text = f"{primary.name} {change(primary)} {primary.interval_text}".rstrip()
    return f"{text}, {unit(primary, result)}{beside(case.instructions)}"


def beside(count: Comparison | None) -> str:
    """The change of a count of instructions, behind the words about modelled cycles."""
    return f"; instructions {change(count)} {count.interval_text}".rstrip() if count else ""


def next_steps(result: AbResult) -> dict[str, str]:
    """The commands that continue from a result, by their purpose."""
    changed = next((case for case in [result.headline] if case and case.verdict.is_change), None)
    steps = {}
    if changed and result.live is None and result.environment.model != "none":
        steps["functions" if result.cause else "why"] = f"lab explain {result.result}"
    steps["page"] = f"lab report {result.result} -f html -o {result.result}.html"
    base, test = result.base, result.test
    if changed and base.commit and test.commit and base.tree == test.tree and base.spec != f"{test.spec}^":
        ends = ["--old", base.spec, "--new", test.spec, "-w", f"{changed.workload}:{changed.case}"]
        steps["commit"] = shlex.join(["lab", "bisect", *(["--tree", test.tree] if test.tree else []), *ends])
    return {**steps, "repeat": result.repeat}


def word(result: AbResult) -> str:
    """The verdict in a word: `mixed` if some cases are worse and others better."""
    return "mixed" if result.is_mixed else str(result.verdict)


def cause(result: AbResult) -> str:
    """The functions behind the change of the case that speaks for a result, in a sentence; empty if nobody asked."""
    if (found := result.cause) is None:
        return ""
    case = next((case for case in result.cases if case.name == found.case), None)
    moved = f" {change(case.primary)}" if case else ""
    return f"{found.case}{moved}: {found}"


_KINDS = {
    Outcome.REGRESSION: "worse",
    Outcome.IMPROVEMENT: "better",
    Outcome.SAME: "same",
    Outcome.UNKNOWN: "unknown",
}


def reason(result: AbResult) -> str:
    """The reason of a verdict; of a mixed one the cases of each kind, how far they go, and the mean of all costs."""
    if not result.is_mixed:
        return result.reason
    judged = [case for case in result.cases if not case.control and not case.failed]
    parts = []
    for outcome, kind in _KINDS.items():
        if found := [case for case in judged if case.verdict == outcome]:
            most = max(found, key=lambda case: movement(case.primary))
            parts.append(f"{len(found)} {kind}" + (f" (to {change(most.primary)})" if outcome.is_change else ""))
    costs = [
        -math.log(case.primary.ratio) if case.primary.better == "higher" else math.log(case.primary.ratio)
        for case in judged
        if case.primary.ratio
    ]
    parts[-1] += f"; geometric mean of all costs {percent(math.exp(fmean(costs)))}" if costs else ""
    _, semicolon, rest = result.reason.partition("; ")
    return ", ".join(parts) + semicolon + rest


WHOLE = ("deferred", "elapsed")
"""The columns of a case's whole cost beside the caller's."""


def whole(cost: Whole | None) -> dict[str, float]:
    """The whole cost by column, as ratios: the caller's cost with the change of deferred work, and guest time."""
    if cost is None:
        return {}
    changes = {"deferred": cost.moved, "elapsed": cost.elapsed.ratio if cost.elapsed else None}
    return {name: ratio for name, ratio in changes.items() if ratio is not None}


def whole_columns(cases: Sequence[CaseResult]) -> list[str]:
    """The columns of the whole cost that any of the cases has."""
    return [name for name in WHOLE if any(name in whole(case.whole) for case in cases)]


def three(cost: Whole | None) -> str:
    """The whole cost in a line: the caller's, its work in threads and softirqs, and its time; maybe empty."""
    if cost is None:
        return ""
    parts = [f"caller {percent(cost.caller.ratio)}"]
    if (left := cost.deferred) is not None:
        share = f" ({percent(cost.moved)} of the caller)" if cost.moved else ""
        parts.append(f"deferred {number(left.base)} to {number(left.test)} cycles{share}")
    parts += [f"together {percent(cost.together.ratio)}"] if cost.together else []
    if (time := cost.elapsed) is not None:
        parts.append(f"elapsed {duration(time.base)} to {duration(time.test)} ({percent(time.ratio)})")
    if (wait := cost.waited) is not None and (wait.base or wait.test):
        parts.append(f"of it waited {duration(wait.base)} to {duration(wait.test)}")
    return ", ".join(parts) if parts[1:] else ""


def threshold(result: AbResult | Answer | MatrixResult) -> str:
    """The threshold, as a verdict shows it."""
    return f"threshold {100 * result.threshold:g} %"


def sentence(result: AbResult, *, versions: bool = True) -> str:
    """The verdict in a sentence. versions: of the cost model and the machine file, too."""
    text = f"{word(result)}: {reason(result)}"
    if (case := result.headline) is not None:
        primary = case.primary
        text += f"; most in {case.name}: {primary.name} {change(primary)} {primary.interval_text}".rstrip()
        text += f", in {unit(primary, result, versions=versions)}{beside(case.instructions)}"
    return f"{text} ({threshold(result)}, {plural(len(result.seeds), result.pairs)}, {result.mode} mode)"


MANY_CASES = 24
"""Results of more cases are summarised, as suites are. The default sweep of alloc-burst has fewer."""

MOST_CHANGES = 10
"""Changes that a summary shows with all of their numbers."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A result of many cases by group. counts: a row for each group, after the heading, and one for all of them.

    largest, smaller: the changes, largest first; the first of them, and the rest.
    open: the cases that have no verdict, failed ones first.
    same: the number of cases that are the same.
    """

    counts: list[tuple[str, ...]]
    largest: list[CaseResult]
    smaller: list[CaseResult]
    open: list[CaseResult]
    same: int

    @property
    def changes(self) -> str:
        """`largest of 24 changes`, or their number."""
        number = len(self.largest) + len(self.smaller)
        if not number:
            return "no case changed"
        return f"the {len(self.largest)} largest of {number} changes" if self.smaller else plural(number, "change")


_CHANGES = ("regression", "improvement")
_WORDS = (*_CHANGES, "same", "unknown", "failed")
_OPEN = ("failed", "unsupported", "unknown")


def summary(result: AbResult) -> Summary | None:
    """The summary of a suite, or of many cases; None for a result that is shown case by case."""
    if result.suite is None and len(result.cases) <= MANY_CASES:
        return None
    groups: dict[str, Counter[str]] = {}
    for case in result.cases:
        groups.setdefault(_group(case, result), Counter())[case.word] += 1
    every = sum(groups.values(), Counter())
    words = [word for word in (*_WORDS, "unsupported") if word in _WORDS or every[word]]
    rows = [*groups.items(), *([("all", every)] if len(groups) > 1 else [])]
    cases = in_order(result)
    changes = [case for case in cases if case.word in _CHANGES]
    return Summary(
        counts=[
            (f"suite {result.suite}" if result.suite else "group", *words),
            *((name, *(str(count[word]) for word in words)) for name, count in rows),
        ],
        largest=changes[:MOST_CHANGES],
        smaller=changes[MOST_CHANGES:],
        open=[case for case in cases if case.word in _OPEN],
        same=every["same"],
    )


def _group(case: CaseResult, result: AbResult) -> str:
    """The group of a case; without a suite, as `--workload` takes it if there are several workloads."""
    if result.suite or not several_workloads(result):
        return case.group or case.workload
    return f"{case.workload}:{case.group}" if case.group else case.workload


def in_order(result: AbResult) -> list[CaseResult]:
    """The cases by interest: changes, the largest first, open cases, and cases that are the same."""
    order = (*_OPEN, "same")

    def place(case: CaseResult) -> tuple[int, float]:
        return (-1, -movement(case.primary)) if case.word in _CHANGES else (order.index(case.word), 0.0)

    return sorted(result.cases, key=place)


def several_workloads(result: AbResult) -> bool:
    """True if the cases are of more than one workload."""
    return len({case.workload for case in result.cases}) > 1


def label(case: CaseResult, result: AbResult) -> str:
    """The name of a case, without the workload if there is only one."""
    return case.name if several_workloads(result) else case.case


def robustness(result: AbResult) -> tuple[str, list[tuple[str, str]]]:
    """A heading, and how the verdict of each case fares at other costs; no cases without `--robust`."""
    found = [(case.name, case.robustness) for case in result.cases if case.robustness]
    machines = dict.fromkeys(robustness.machine for _, robustness in found)
    others = "; other machines with one seed" if any(robustness.others for _, robustness in found) else ""
    heading = f"at other costs, within the ranges of {', '.join(machines)}{others}:"
    return heading, [(name, str(robustness)) for name, robustness in found]


def model_checks(result: AbResult) -> tuple[str, list[tuple[str, str]]]:
    """A heading, and the instructions of each case and arm by perf and by exact mode; none if no PMU counted."""
    checks = result.live.model_checks if result.live else {}
    rows = [
        (f"{case}, {arm}", f"user {_counted(check.user)}; kernel {_counted(check.kernel)}")
        for case, arms in checks.items()
        for arm, check in arms.items()
    ]
    return "instructions of the whole program for one operation, by perf in hardware and by exact mode:", rows


def _counted(count: Counted) -> str:
    return f"{number(count.perf)} and {number(count.model)}, ratio {count.ratio:.3f}"


# ---- bisections


def answer_sentence(answer: Answer) -> str:
    """The answer of a bisection in a sentence."""
    parts = [_change(found) for found in answer.changes]
    if not parts:
        return f"{answer.outcome}: {answer.reason}"
    if answer.outcome == "undecided":
        parts.append(f"undecided: {answer.reason}")
    return "; ".join(parts)


def _change(found: Culprit) -> str:
    kind = str(found.direction or "change")
    effect = effect_of(found)
    size = f", {percent(effect.ratio)} {effect.interval_text} {effect.name}".replace("  ", " ") if effect else ""
    rest = f"{size}, {share(found.confidence)} sure"
    if found.is_single:
        return f'{kind} by {short(found.commit)} ("{found.title}"){rest}'
    return f"{kind} by one of {len(found.suspects)} that could not be told apart, up to {short(found.commit)}{rest}"


def searched(answer: Answer) -> str:
    """The number of commits, or of other steps, that a bisection searched."""
    if answer.is_split and not answer.candidates:
        return f"no {answer.kind} were looked at"
    if answer.is_split:
        kind = answer.kind.removesuffix("s") if answer.candidates == 1 else answer.kind
        return f"{answer.candidates:,} {kind} that the builds read differ{'s' if answer.candidates == 1 else ''}"
    return f"{answer.counted(answer.candidates)}, the {answer.terms[1]} end included"


def limits(answer: Answer) -> str:
    """The limits of a range."""
    parents = " (first parents only)" if answer.first_parent else ""
    return parents + (f" that touch {' '.join(answer.paths)}" if answer.paths else "")


def answer_counted_in(answer: Answer) -> str:
    """The unit that the numbers of a bisection are counted in."""
    return "real time" if answer.mode == "live" or not answer.environment else clock(answer.environment.model)


def effect_of(found: Culprit) -> Comparison | None:
    """The effect of a change: by fresh seeds if there are some."""
    return found.proof.fresh if found.proof and found.proof.fresh else found.effect


def against(found: Culprit) -> str:
    """The reason why a change has no word, though it has a size; empty if it has a word."""
    effect = effect_of(found)
    if found.direction or effect is None or effect.verdict != Outcome.UNKNOWN or effect.more_blocks:
        return ""
    return effect.reason


def share(probability: float) -> str:
    """A probability in percent; only certainty reads as 100 %."""
    text = f"{100 * probability:.4g} %"
    return "over 99.99 %" if text == "100 %" and probability < 1 else text


def trees(result: AbResult) -> str:
    """The trees in which the arms' revisions were looked up; empty without one."""
    return ", ".join(dict.fromkeys(arm.tree for arm in (result.base, result.test) if arm.tree))


# ---- the option that settles an `unknown`, by its reason, with its time; docs/verdict.md has the same as a table


class Remedy(NamedTuple):
    """A remedy. reason: a pattern in the reasons that it is for. does: the option and its effect."""

    reason: str
    does: str


REMEDIES = (
    Remedy("rests on the model", "`--metric instructions` or `--metric cycles` lets one of the two decide"),
    Remedy("(?:to|from) threads and softirqs", "`--metric cycles` judges the caller's cost alone"),
    Remedy("waits .* (?:longer|less)", "`--metric cycles` judges the cost without the waits"),
    Remedy("behind, whose work", "`wait` at the command's end counts their work; `--metric cycles` judges without it"),
    Remedy("not beyond chance over all", "`-w CASE` measures the case without correction for the others"),
    Remedy("another CPU than|no model counts what", "`@mitigations=off` in both kernels compares them without any"),
    Remedy(r"^\d+ of \d+ seeds: ", "the page shows the odd seeds; `--metric instructions` counts without a model"),
    Remedy("zeros have no ratio", "`--metric NAME` takes another metric of the workload"),
)
"""The first that fits a reason is taken, if no number of seeds settles the case."""


_WIDEST = 0.5
"""A threshold of more says nothing."""


def remedy(case: CaseResult, result: AbResult) -> str:
    """The option that settles a case, with its price; empty for a case with a verdict, or without a remedy."""
    if case.word != Outcome.UNKNOWN:
        return ""
    primary, pairs = case.primary, result.pairs
    done = len(result.seeds)
    if primary.more_blocks and "cannot settle it" not in primary.reason:
        wanted = done + primary.more_blocks
        took = f", about {span(result.seconds * wanted / done)}" if done else ""
        option = f"--{pairs}s" if wanted <= MIN_PAIRS else f"--max-{pairs}s"
        return f"`{option} {wanted}` settles it ({plural(primary.more_blocks, f'more {pairs}')}{took})"
    if found := next((one for one in REMEDIES if re.search(one.reason, primary.reason)), None):
        return found.does
    return _by_threshold(primary, result.threshold)


def _by_threshold(primary: Comparison, threshold: float) -> str:
    """The threshold that the interval is inside of, in whole percent."""
    wide = max((abs(bound - 1) for bound in primary.interval or ()), default=math.inf)
    if not threshold < wide < _WIDEST:
        return "no option settles it: the case scatters too much, a longer or warmed-up one scatters less"
    return f"`--threshold {math.ceil(100 * wide + 0.1)}%` calls it the same"


def remedies(result: AbResult) -> dict[str, list[CaseResult]]:
    """The cases of a result that each remedy settles."""
    found: dict[str, list[CaseResult]] = {}
    for case in result.cases:
        if text := remedy(case, result):
            found.setdefault(text, []).append(case)
    return found
