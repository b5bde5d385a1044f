"""`mail`: a draft of a regression report for the kernel's lists. It is written to be completed; nothing is sent.

It follows Documentation/admin-guide/reporting-regressions.rst, with the comparison table of the kernel test robot, and
that of a bisection says how the culprit was found. Marks <<like this>> stand for words of the sender's.
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from email.message import EmailMessage
from email.policy import SMTPUTF8

from lab.bisection.answer import Answer, Culprit
from lab.bisection.commit_range import Candidate
from lab.compare import counters
from lab.compare.results import AbResult, ArmResult, CaseResult, mean
from lab.core.errors import UserError
from lab.core.git import short
from lab.core.text import plural
from lab.report import by_hand, culprit, templates, wording
from lab.report.culprit import Change
from lab.report.inputs import Comparisons, StoredBisection, StoredComparison
from lab.stats.verdict import Comparison, Outcome, numbers

_WIDTH, _WIDE = 75, 110
_MOST_CASES, _MOST_COUNTERS = 6, 12


def comparison(comparisons: Comparisons, trail: str = "", between: str = "") -> str:
    """One result's report; `UserError` for several, or for a result that is not a regression.

    trail: about the search for the change. between: the sources that it came between, if no commit is known.
    """
    if comparisons.several:
        raise UserError("a mail is about one result", hint="give one ID, or use --format text")
    (stored,) = comparisons.items
    result = stored.result
    if stored.raw.verdict != Outcome.REGRESSION:
        raise UserError(
            f"{result.result} is no regression but: {result.verdict}",
            hint="a regression report about it would be untrue; use --format text or md",
        )
    case = result.headline
    if case is None:
        raise UserError(f"{result.result} has no case that speaks for its verdict")
    change = culprit.between(stored, is_searched=bool(trail))
    if between:
        change = replace(change, introduced=between)
    return _headers(result, case, change) + _body(stored, case, change, trail)


def bisection(stored: StoredBisection) -> str:
    """The report of the one proved regression; `UserError` if there is none, or more than one."""
    answer = stored.answer
    worse = [found for found in answer.changes if found.direction == Outcome.REGRESSION]
    if not worse:
        raise UserError(
            f"{answer.result} found no regression but: {answer.outcome}",
            hint="a regression report about it would be untrue; use --format text or md",
        )
    proved = [found for found in worse if found.is_single and found.proof and found.proof.confirmed]
    if not proved:
        raise UserError(
            f"{answer.result} has no culprit that was proved, and the lists want one commit",
            hint="use --format text or md, or search again with commits that can be tested",
        )
    if len(worse) > 1:
        names = ", ".join(short(found.commit) for found in worse)
        result = (proved[0].proof and proved[0].proof.result) or answer.result
        raise UserError(
            f"{answer.result} found {len(worse)} regressions ({names}), and a mail is about one",
            hint=f"`lab report {result} --format mail` writes one",
        )
    (found,) = proved
    proof = stored.proof(found)
    if proof is None:
        raise UserError(f"the proof of {short(found.commit)} is not in {stored.folder} any more")
    between = "..".join(_source(end) for end in (answer.old, answer.new)) if answer.is_split else ""
    return comparison(Comparisons(items=[proof]), trail=_trail(answer, found), between=between)


def _source(end: Candidate) -> str:
    """An end of a search without history: a revision, or the version of a package's source."""
    version = re.search(r"\d+\.\d+(\.\d+)?", end.title) if end.spec.startswith("src:") else None
    return f"v{version[0]}" if version else short(end.id)


# ---- how a bisection found the commit


def _trail(answer: Answer, found: Culprit) -> str:
    return templates.text("trail.j2", answer=answer, found=found, short=short)


# ---- the mail


def _headers(result: AbResult, case: CaseResult, change: Change) -> str:
    """Headers as a mailer reads them (`mutt -H`, `git send-email`); From is the sender's own."""
    people = [*change.people]
    if culprit.same_stable_series(result.base.release, result.test.release):
        people.append(culprit.STABLE)
    message = EmailMessage(policy=SMTPUTF8.clone(linesep="\n", max_line_length=120))
    message["To"] = culprit.REGRESSIONS
    if people:
        message["Cc"] = ", ".join(people)
    message["Subject"] = _subject(case, change)
    message["MIME-Version"] = "1.0"
    message["Content-Type"] = "text/plain; charset=utf-8"
    message["Content-Transfer-Encoding"] = "8bit"
    return message.as_string()


def _subject(case: CaseResult, change: Change) -> str:
    primary = case.primary
    commit = change.introduced[:10] if change.commit else change.introduced
    modelled = " modelled" if "modelled" in primary.unit else ""
    return f"[REGRESSION] {commit}: {_dotted(case)}.{primary.name} {wording.change(primary)}{modelled}"


def _dotted(case: CaseResult) -> str:
    return f"{case.workload}.{case.case}"


def _body(stored: StoredComparison, case: CaseResult, change: Change, trail: str) -> str:
    result, packages = stored.result, by_hand.packages(stored)
    # Better cases too: a report shows the whole picture.
    changed = [case for case in result.cases if case.counts_as_change]
    worse = sum(case.verdict == Outcome.REGRESSION for case in changed)
    boots = by_hand.boot_commands(stored, case, _WIDE)
    if boots and boots.get("test") == boots.get("base"):
        boots = {"each K": boots["base"]}
    settings = {name: by_hand.guest_settings(stored, case, name) for name in ("base", "test")}
    if settings["base"] == settings["test"]:
        settings = {"": settings["base"]}
    return templates.text(
        "mail.j2",
        stored=stored,
        case=case,
        change=change,
        dotted=_dotted(case),
        trail=trail,
        by_hand=by_hand,
        packages=packages,
        parameters=_parameters(result),
        table=_table(result, changed, case, is_packaged=bool(packages)),
        counted=plural(len(result.cases), "case"),
        worse=worse,
        better=len(changed) - worse,
        settings=settings,
        boots=boots,
        item=_item,
        paragraph=lambda text: textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False),
    ).rstrip("\n")


def _item(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False)


def _parameters(result: AbResult) -> Iterator[str]:
    """The settings of both arms if they differ; the commands have others."""
    if result.base.settings == result.test.settings:
        return
    for name, settings in (("base", result.base.settings), ("test", result.test.settings)):
        yield textwrap.fill(
            f"parameters ({name}): " + " ".join(f"{key}={value}" for key, value in settings.items()),
            _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


# ---- the table, as the kernel test robot prints it and readers of the kernel's lists know it
#
# Left the base with its relative standard deviation, in the middle the change in percent (or in points, without a
# percent sign, if the metric is a percentage itself), right the test kernel.

_LEAST_DEVIATION = 0.01
_LEFT, _MIDDLE, _RIGHT = 16, 13, 22


def _table(
    result: AbResult, cases: Sequence[CaseResult], detailed: CaseResult, *, is_packaged: bool = False
) -> Iterator[str]:
    """The primary metric of the cases, then the largest changes in one of them; of packages, only the metrics."""
    base, test = (arm.release if is_packaged else _id(arm) for arm in (result.base, result.test))
    left = max(_LEFT, len(base)) if is_packaged else _LEFT
    if not is_packaged:
        yield "=" * 89
        yield from _axes(result, cases)
        yield "commit:"
        for arm in (result.base, result.test):
            quoted = f'"{arm.subject}"' if arm.subject else f"{arm.spec}, Linux {arm.release}"
            yield f"  {_id(arm)[:10]} ({quoted})"
        yield ""
    yield f"{base[:left].ljust(left)} {test[: _LEFT + 11]}"
    yield f"{'-' * left} {'-' * (_LEFT + 11)}"
    yield f"{'%stddev':>{_LEFT}}{'%change':>{_MIDDLE}}{'%stddev':>{_RIGHT - 6}}"
    yield f"{chr(92):>{_LEFT - 3}}{'|':>{_MIDDLE}}{chr(92):>{_RIGHT - 6}}"
    yield from _first(_MOST_CASES, [_row(case.primary, case.name.replace(":", ".") + ".") for case in cases])
    if (moved := counters.changed(detailed)) and not is_packaged:
        yield f"in {detailed.name.replace(':', '.')}:"
        yield from _first(_MOST_COUNTERS, [_row(c, "") for c in moved])


def _first(most: int, rows: Sequence[str]) -> Iterator[str]:
    yield from rows[:most]
    if len(rows) > most:
        yield f"and {len(rows) - most} more"


def _axes(result: AbResult, cases: Sequence[CaseResult]) -> Iterator[str]:
    around = result.environment
    workloads = "+".join(dict.fromkeys(case.workload for case in cases))
    guest = next((around.guests[case.workload] for case in cases if case.workload in around.guests), None)
    axes = {
        "compiler": (result.test.compiler or "unknown").split(" ")[0],
        "mode": result.mode,
        "model": around.model,
        "qemu": around.qemu.split(" ")[0],
        "machine": around.machine,
        "vcpus": str(guest.vcpus) if guest else "?",
        "memory": f"{guest.memory_mb}M" if guest else "?",
        "testcase": workloads,
    }
    yield "/".join(axes) + ":"
    yield "  " + "/".join(value.replace("/", "_") for value in axes.values())


def _id(arm: ArmResult) -> str:
    return arm.commit or arm.build or arm.spec


def _row(comparison: Comparison, prefix: str) -> str:
    return (
        f"{_side(comparison.base):>{_LEFT}}{_change(comparison):>{_MIDDLE}}{_side(comparison.test):>{_RIGHT}}  "
        f"{prefix}{comparison.name} ({comparison.unit})"
    )


def _side(values: Sequence[float | None]) -> str:
    """The mean of one arm, and its deviation unless that is very small."""
    present = numbers(values)
    middle = mean(present)
    if middle is None:
        return "n/a"
    text = f"{middle:.2f}" if abs(middle) < 1000 else f"{middle:.0f}"
    deviation = statistics.stdev(present) / abs(middle) if len(present) > 1 and middle else 0.0
    return f"{text} ±{100 * deviation:3.0f}%" if deviation >= _LEAST_DEVIATION else f"{text}      "


def _change(comparison: Comparison) -> str:
    base, test = mean(comparison.base), mean(comparison.test)
    if base is None or test is None:
        return "n/a"
    if comparison.unit == "%":
        return f"{test - base:+.1f}"
    ratio = comparison.ratio if comparison.ratio is not None else (test / base if base else None)
    return "new" if ratio is None else f"{100 * (ratio - 1):+.1f}%"
