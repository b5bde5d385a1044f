"""`mail`: a draft of a regression report for the kernel's lists. It is written to be completed; nothing is sent.

After Documentation/admin-guide/reporting-regressions.rst, with the comparison table of the kernel test robot.
What the sender must fill in is marked <<like this>>.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from email.message import EmailMessage
from email.policy import SMTPUTF8

from lab.core.errors import UserError
from lab.reporting import byhand, culprit, figures, zeroday
from lab.reporting.culprit import Change
from lab.reporting.stored import Report, Reports
from lab.results import AbResult, CaseResult, interval, primary_of
from lab.stats.verdict import Outcome

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
    case = figures.headline(report.result)
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
    primary = primary_of(case)
    what = change.introduced[:10] if change.commit else change.introduced
    modelled = " modelled" if "modelled" in primary.unit else ""
    return f"[REGRESSION] {what}: {case.workload}.{case.case}.{primary.name} {figures.change(primary)}{modelled}"


def _body(report: Report, case: CaseResult, change: Change, trail: Sequence[str]) -> Iterator[str]:
    result = report.result
    yield from _to_do(change)
    yield from _finding(result, case, change)
    yield from trail
    yield from _circumstances(report, case, change)
    yield zeroday.table(result, _changed(result), case)
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
    primary = primary_of(case)
    name = f"{case.workload}.{case.case}.{primary.name}"
    yield "Hello,"
    yield ""
    yield from _paragraph(
        f"{name} got worse: {figures.change(primary)} (interval {interval(primary)}, over "
        f"{len(primary.base)} pairs of runs) {'with' if change.commit else 'between'}:"
    )
    if change.commit:
        yield f'commit: {change.introduced} ("{change.subject}")'
        if change.upstream:
            yield f"        as {change.commit} in the tree that was measured"
    else:
        yield f"range: {change.introduced}"
    yield ""
    yield f"last good: {figures.arm_words(result.base)}"
    yield f"first bad: {figures.arm_words(result.test)}"
    yield ""
    if "modelled" in primary.unit:
        yield from _paragraph(
            f"{figures.unit(primary, result)[:1].upper()}{figures.unit(primary, result)[1:]}: computed by a cost "
            "model from the instructions and memory accesses that the guest executed in QEMU, not measured on "
            "hardware."
        )
        if (clock := figures.clock(case)) is not None:
            yield from _paragraph(
                f"By the guest's own clock, which counts instructions, {clock.name} changed by "
                f"{figures.change(clock)} {interval(clock)}."
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
    yield f"config: <<attach {byhand.kconfig_path(report) or 'the .config'}>>"
    yield f"test machine: QEMU {around.qemu}, {around.machine}, {around.cpu}{size}"
    for arm, chosen in (("base", result.base), ("test", result.test)):
        yield from textwrap.wrap(
            f"parameters ({arm}): " + " ".join(f"{key}={value}" for key, value in chosen.settings.items()),
            _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    yield ""


def _changed(result: AbResult) -> list[CaseResult]:
    """The cases that count as changed, better ones too: a report shows the whole picture."""
    return [case for case in result.cases if case.verdict in figures.CHANGED and case.holm is not False]


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
    settings = {arm: byhand.guest_settings(report, case, arm) for arm in ("base", "test")}
    if settings["base"] == settings["test"]:
        settings = {"": settings["base"]}
    for arm, commands in settings.items():
        yield from ([f"     # {arm}"] if arm else [])
        yield from (f"     {command}" for command in commands)
    yield from (f"     {command}" for command in byhand.guest_command(report, case))
    yield ""
    yield "3. Boot each and read report.jsonl:"
    boots = byhand.qemu_commands(report, case)
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
