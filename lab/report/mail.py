"""`mail`: a draft of a regression report for the kernel's lists. It is written to be completed; nothing is sent.

After Documentation/admin-guide/reporting-regressions.rst, with the comparison table of the kernel test robot.
What the sender must fill in is marked <<like this>>.

`mail` of a bisection: the regression report of its culprit, with how it was found. A draft; nothing is sent.

The comparison table as the kernel test robot prints it, which is what readers of the kernel's lists know.

Left the base with its relative standard deviation, in the middle the change in percent (or in points, without a
percent sign, where the metric is a percentage itself), right the test kernel. A deviation below 1 % is left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from email.message import EmailMessage
from email.policy import SMTPUTF8

from lab.bisection.answer import Answer, Found, Step
from lab.compare.results import AbResult, ArmResult, CaseResult
from lab.core.errors import UserError
from lab.report import by_hand, culprit, wording
from lab.report.culprit import Change
from lab.report.inputs import Bisection, Report, Reports, short
from lab.stats.verdict import Comparison, Outcome, percent

_LEAST_DEVIATION = 0.01
_LEFT, _MIDDLE, _RIGHT = 16, 13, 22


def table(result: AbResult, cases: Sequence[CaseResult], detailed: CaseResult) -> str:
    """The primary metric of the cases, then all that moved in one of them."""
    lines = ["=" * 89, *_axes(result, cases), "commit:"]
    lines += [f"  {_short(arm)} ({_quoted(arm)})" for arm in (result.base, result.test)]
    lines += ["", *_heading(result)]
    for case in cases:
        lines.append(_row(case.primary, wording.case_name(case).replace(":", ".")))
    moved = [c for c in wording.ranked(detailed.metrics) if c.base != c.test]
    if moved:
        prefix = wording.case_name(detailed).replace(":", ".")
        lines += ["", f"in {prefix}:", *(_row(c, "") for c in moved)]
    return "\n".join(lines)


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


def _heading(result: AbResult) -> Iterator[str]:
    yield f"{_id(result.base)[:_LEFT].ljust(_LEFT)} {_id(result.test)[: _LEFT + 11]}"
    yield f"{'-' * _LEFT} {'-' * (_LEFT + 11)}"
    yield f"{'%stddev':>{_LEFT}}{'%change':>{_MIDDLE}}{'%stddev':>{_RIGHT - 6}}"
    yield f"{chr(92):>{_LEFT - 3}}{'|':>{_MIDDLE}}{chr(92):>{_RIGHT - 6}}"


def _row(comparison: Comparison, prefix: str) -> str:
    name = f"{prefix}.{comparison.name}" if prefix else comparison.name
    return (
        f"{_side(comparison.base):>{_LEFT}}{_change(comparison):>{_MIDDLE}}{_side(comparison.test):>{_RIGHT}}  "
        f"{name} ({comparison.unit})"
    )


def _side(values: Iterable[float | None]) -> str:
    found = wording.numbers(list(values))
    middle = wording.mean(found)
    if middle is None:
        return "n/a"
    text = f"{middle:.2f}" if abs(middle) < 1000 else f"{middle:.0f}"
    deviation = wording.relative_deviation(found)
    return f"{text} ±{100 * deviation:3.0f}%" if deviation and deviation >= _LEAST_DEVIATION else f"{text}      "


def _change(comparison: Comparison) -> str:
    base, test = wording.mean(comparison.base), wording.mean(comparison.test)
    if base is None or test is None:
        return "n/a"
    if comparison.unit == "%":
        return f"{test - base:+.1f}"
    ratio = comparison.ratio if comparison.ratio is not None else (test / base if base else None)
    return "new" if ratio is None else f"{100 * (ratio - 1):+.1f}%"


def _id(arm: ArmResult) -> str:
    return arm.commit or arm.build or arm.spec


def _short(arm: ArmResult) -> str:
    return _id(arm)[:10]


def _quoted(arm: ArmResult) -> str:
    return f'"{arm.subject}"' if arm.subject else f"{arm.spec}, Linux {arm.release}"


_WIDTH = 75


def render(reports: Reports, trail: Sequence[str] = ()) -> str:
    """One result's report; `UserError` for several, or for a result that is no regression.

    trail: lines on how the change was found.
    """
    if reports.several:
        raise UserError("a mail is about one result", hint="give one ID, or use --format text")
    (report,) = reports.items
    if report.raw.verdict != Outcome.REGRESSION:
        raise UserError(
            f"{report.result.result} is no regression but: {report.result.verdict}",
            hint="a regression report about it would be untrue; use --format text or md",
        )
    case = wording.headline(report.result)
    if case is None:
        raise UserError(f"{report.result.result} has no case that speaks for its verdict")
    change = culprit.between(report)
    return _headers(report, case, change) + "\n" + "\n".join(_body(report, case, change, trail))


def _headers(report: Report, case: CaseResult, change: Change) -> str:
    """Headers as a mailer reads them (`mutt -H`, `git send-email`); From is the sender's own."""
    result = report.result
    people = [*change.people]
    if culprit.same_stable_series(result.base.release, result.test.release):
        people.append(culprit.STABLE)
    message = EmailMessage(policy=SMTPUTF8.clone(linesep="\n", max_line_length=120))
    message["To"] = culprit.REGRESSIONS
    if people:
        message["Cc"] = ", ".join(people)
    message["Subject"] = _subject(result, case, change)
    message["MIME-Version"] = "1.0"
    message["Content-Type"] = "text/plain; charset=utf-8"
    message["Content-Transfer-Encoding"] = "8bit"
    return message.as_string()


def _subject(result: AbResult, case: CaseResult, change: Change) -> str:
    primary = case.primary
    what = change.introduced[:10] if change.commit else change.introduced
    modelled = " modelled" if "modelled" in primary.unit else ""
    return f"[REGRESSION] {what}: {case.workload}.{case.case}.{primary.name} {wording.change(primary)}{modelled}"


def _body(report: Report, case: CaseResult, change: Change, trail: Sequence[str]) -> Iterator[str]:
    result = report.result
    yield from _to_do(change)
    yield from _finding(result, case, change)
    yield from trail
    yield from _circumstances(report, case, change)
    yield table(result, _changed(result), case)
    yield ""
    yield from _relevance(result, case)
    yield from _steps(report, case, change)
    yield from _closing(change, result)


def _to_do(change: Change) -> Iterator[str]:
    """What to do before sending, on top where nobody can miss it."""
    yield "<<DRAFT, not sent. Before you send it:"
    yield from _item("check that the latest mainline has the regression too, and that reverting the change cures it")
    yield from _item("read everything below, fill in what is marked like this, and delete this paragraph")
    for note in change.notes:
        yield from _item(note)
    yield ">>"
    yield ""


def _item(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False)


def _paragraph(text: str) -> list[str]:
    return [*textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False), ""]


def _finding(result: AbResult, case: CaseResult, change: Change) -> Iterator[str]:
    primary = case.primary
    name = f"{case.workload}.{case.case}.{primary.name}"
    yield "Hello,"
    yield ""
    yield from _paragraph(
        f"{name} got worse: {wording.change(primary)} (interval {primary.interval_text}, over "
        f"{len(primary.base)} pairs of runs) {'with' if change.commit else 'between'}:"
    )
    if change.commit:
        yield f'commit: {change.introduced} ("{change.subject}")'
        if change.upstream:
            yield f"        as {change.commit} in the tree that was measured"
    else:
        yield f"range: {change.introduced}"
    yield ""
    yield f"last good: {wording.arm_words(result.base)}"
    yield f"first bad: {wording.arm_words(result.test)}"
    yield ""
    if "modelled" in primary.unit:
        yield from _paragraph(
            f"{wording.unit(primary, result)[:1].upper()}{wording.unit(primary, result)[1:]}: computed by a cost "
            "model from the instructions and memory accesses that the guest executed in QEMU, not measured on "
            "hardware."
        )
        if (clock := wording.clock(case)) is not None:
            yield from _paragraph(
                f"By the guest's own clock, which counts instructions, {clock.name} changed by "
                f"{wording.change(clock)} {clock.interval_text}."
            )
    elif result.mode == "exact":
        yield from _paragraph("Time here is QEMU's count of the guest's instructions, not time on hardware.")


def _circumstances(report: Report, case: CaseResult, change: Change) -> Iterator[str]:
    result = report.result
    around = result.environment
    guest = around.guests.get(case.workload)
    size = f", {guest.vcpus} vCPU, {guest.memory_mb} MiB" if guest else ""
    yield f"testcase: {case.workload}, case {case.case}"
    if change.tree:
        yield f"tree: {change.tree}"
    yield f"compiler: {result.test.compiler or '<<compiler>>'}"
    yield f"config: <<attach {by_hand.kconfig_path(report) or 'the .config'}>>"
    yield f"test machine: QEMU {around.qemu}, {around.machine}, {around.cpu}{size}"
    for arm, chosen in (("base", result.base), ("test", result.test)):
        yield from textwrap.wrap(
            f"parameters ({arm}): " + " ".join(f"{key}={value}" for key, value in chosen.settings.items()),
            _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    yield ""


def _changed(result: AbResult) -> list[CaseResult]:
    """The cases that count as changed, better ones too: a report shows the whole picture."""
    return [case for case in result.cases if case.verdict.is_change and case.holm is not False]


def _relevance(result: AbResult, case: CaseResult) -> Iterator[str]:
    worse = sum(one.verdict == Outcome.REGRESSION for one in _changed(result))
    better = len(_changed(result)) - worse
    yield from _paragraph(
        f"Relevance: of {len(result.cases)} cases {worse} got worse and {better} better. {case.workload} is a "
        "micro-benchmark. Documentation/admin-guide/reporting-regressions.rst: a five percent slow-down in a "
        "micro-benchmark is unlikely to qualify as regression, unless it also influences the results of a broad "
        "benchmark by more than one percent."
    )
    yield from _paragraph("<<Say which real workload is slower by more than one percent, or that none is known.>>")


def _steps(report: Report, case: CaseResult, change: Change) -> Iterator[str]:
    result = report.result
    yield "To repeat it without the tool that found it:"
    yield ""
    yield "1. Build both kernels with the same .config, each into its own folder:"
    for arm, chosen in (("base", result.base), ("test", result.test)):
        yield f"     git checkout --detach {chosen.commit or chosen.spec}"
        yield f"     mkdir -p {arm} && cp .config {arm}/ && make O={arm} olddefconfig && make O={arm} -j$(nproc)"
    yield ""
    yield f"2. Make an initramfs (initrd.cpio) whose init runs {case.workload}"
    yield f"   (<<attach the source of {case.workload}>>):"
    settings = {arm: by_hand.guest_settings(report, case, arm) for arm in ("base", "test")}
    if settings["base"] == settings["test"]:
        settings = {"": settings["base"]}
    for arm, commands in settings.items():
        yield from ([f"     # {arm}"] if arm else [])
        yield from (f"     {command}" for command in commands)
    yield from (f"     {command}" for command in by_hand.guest_command(report, case))
    yield ""
    yield "3. Boot each and read report.jsonl:"
    boots = by_hand.qemu_commands(report, case)
    for command in boots.values():
        yield textwrap.indent(command, "     ")
        yield ""
    if any("-plugin" in command for command in boots.values()):
        yield from _paragraph(
            "-plugin is the cost model: without it the program's own numbers are the same, the modelled ones missing."
        )
    if not boots:
        yield "     <<the records of the runs are gone: give the command>>"
        yield ""


def _closing(change: Change, result: AbResult) -> Iterator[str]:
    yield f"#regzbot introduced: {change.introduced}"
    yield ""
    yield "If you fix this in a separate commit, please add:"
    yield "| Reported-by: <<YOUR NAME AND ADDRESS>>"
    yield "| Closes: https://lore.kernel.org/r/<<MESSAGE-ID OF THIS MAIL>>"
    yield ""
    yield f"(result {result.result}, lab {result.environment.lab}, fingerprint {result.environment.fingerprint})"
    yield ""


_STEPS = 40


def render_bisection(one: Bisection) -> str:
    """The mail about its one regression that was proved; `UserError` where there is none, or more than one."""
    answer = one.answer
    worse = [change for change in answer.changes if change.direction == Outcome.REGRESSION]
    if not worse:
        raise UserError(
            f"{answer.result} found no regression but: {answer.outcome}",
            hint="a regression report about it would be untrue; use --format text or md",
        )
    told = [change for change in worse if change.settled and change.proof and change.proof.confirmed]
    if not told:
        raise UserError(
            f"{answer.result} has no culprit that was proved, and the lists want one commit",
            hint="use --format text or md, or search again with commits that can be tested",
        )
    if len(worse) > 1:
        names = ", ".join(short(change.commit) for change in worse)
        raise UserError(
            f"{answer.result} found {len(worse)} regressions ({names}), and a mail is about one",
            hint=f"`lab report {(told[0].proof and told[0].proof.result) or answer.result} --format mail` writes one",
        )
    (change,) = told
    proof = one.proof(change)
    if proof is None:
        raise UserError(f"the proof of {short(change.commit)} is not in {one.folder} any more")
    return render(Reports(items=[proof]), trail=_trail(answer, change))


def _trail(answer: Answer, change: Found) -> list[str]:
    """How the commit was found."""
    return [*_found(answer, change), "", *_path(answer), ""]


def _found(answer: Answer, change: Found) -> Iterator[str]:
    kind = answer.kind if answer.candidates != 1 else answer.kind.removesuffix("s")
    yield f"Found by bisecting {answer.candidates} {kind} from"
    yield f"  {answer.old.name} ({answer.words[0]}) to {answer.new.name} ({answer.words[1]}):"
    yield f"  {answer.measured} measured, {len(answer.skipped)} could not be tested."
    proof = change.proof
    if proof and proof.reverted is not None:
        back = f"{percent(proof.reverted.ratio)}: {proof.reverted.verdict}"
        yield f"With it reverted, {answer.new.name} changes by {back}."
    elif proof and proof.not_reverted:
        yield "It could not be reverted on top of the newer end."


def _path(answer: Answer) -> Iterator[str]:
    yield "bisection log:"
    for step in answer.path[:_STEPS]:
        yield f"  {_step(step)}"
    if len(answer.path) > _STEPS:
        yield f"  and {len(answer.path) - _STEPS} more"


def _step(step: Step) -> str:
    change = f" ({percent(step.ratio)})" if step.ratio is not None else ""
    return f"{short(step.commit)} {step.decision}{change}: {step.title}"
