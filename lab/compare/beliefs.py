"""The CPU that a kernel believes in: the mitigations that guests report, beside those of the modelled machine.

QEMU cannot show a guest all signs by which a kernel finds its CPU's vulnerabilities. If the kernel then does more or
less than on the machine, its numbers are not the machine's, and no verdict rests on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from lab.compare.runs import Run
from lab.core.records import Record
from lab.guests.hardware import UNAFFECTED, Machine
from lab.stats.verdict import Comparison, Outcome

PREFIX = "vulnerability."
"""The guest's report of a file of /sys/devices/system/cpu/vulnerabilities, among its settings."""

_VERDICT = re.compile(r"^(mitigation|vulnerable)\b[:;]?\s*|\s+attempted$")

# Nothing that a guest without threads and without guests of its own executes; the entries of pages that are not
# present, which every kernel inverts; and the filled return stack, which depends on the kernel's version: older ones
# fill it on every CPU.
_IDLE = re.compile(
    r"$|not affected|unknown|no mitigations|no microcode|kvm: |pte inversion|ibpb before exit to userspace|smt |stibp"
    r"|rsb filling|pbrsb-eibrs: |[a-z0-9]+: (disabled|not affected|vulnerable)"
)

# Work of the CPU for the kernel at no instruction, or at an instruction whose cost the model does not know.
_HARDWARE = frozenset({"enhanced / automatic ibrs", "bhi: bhi_dis_s", "clear cpu buffers"})


def in_force(report: str) -> frozenset[str]:
    """The mitigations that a guest's kernel executes, by the text of a file of vulnerabilities.

    `Not affected` and `Vulnerable` are the same here: nothing is done. So are `Mitigation: Safe RET` and
    `Vulnerable: Safe RET, no microcode`: the kernel does its part.
    """
    parts = (_VERDICT.sub("", part.strip()) for part in re.split(r"[;,] ", report.strip().lower()))
    return frozenset(part for part in parts if not _IDLE.match(part))


def reported(settings: Mapping[str, str]) -> dict[str, str]:
    """The vulnerabilities in a guest's report of its settings; none if its mitigations are off."""
    return {name.removeprefix(PREFIX): text for name, text in settings.items() if name.startswith(PREFIX)}


def differences(found: Mapping[str, str], machine: Machine) -> dict[str, str]:
    """The vulnerabilities that a guest's kernel treats otherwise than the machine's would, with both texts.

    A file that a kernel does not have, it does not have on the machine either.
    """
    expected = {name: machine.reports().get(name, UNAFFECTED) for name in sorted(found)}
    return {
        name: f"{found[name]!r}, there {there!r}"
        for name, there in expected.items()
        if in_force(found[name]) != in_force(there)
    }


class Belief(Record, frozen=True, kw_only=True):
    """The CPU that a guest's kernel believes in, by the mitigations that it reports.

    machine: the modelled one. wrong: the vulnerabilities that the kernel treats otherwise than the machine's would.
    paid: the mitigations in force that cost the CPU itself. unlisted: the machine's file lists no mitigations, but
    the guest reports some.
    """

    machine: str
    wrong: list[str] = msgspec.field(default_factory=list)
    paid: list[str] = msgspec.field(default_factory=list)
    unlisted: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, str], machine: Machine) -> Belief:
        """The belief of a guest that reported these settings."""
        found = reported(settings)
        return cls(
            machine=machine.name,
            wrong=list(differences(found, machine)) if machine.reports() else [],
            paid=sorted({part for text in found.values() for part in in_force(text)} & _HARDWARE),
            unlisted=bool(found) and not machine.reports(),
        )


def reason_of(found: Mapping[str, Belief]) -> str:
    """The reason against every word: the arms in whose guests the CPU is another than the machine; empty if none.

    found: by the names of the arms.
    """
    if (silent := next((one for one in found.values() if one.unlisted), None)) is not None:
        return f"machine {silent.machine} does not say what its kernel mitigates"
    said: dict[tuple[str, ...], list[str]] = {}
    for arm, one in found.items():
        if one.wrong:
            said.setdefault((one.machine, ", ".join(one.wrong)), []).append(arm)
    return "; ".join(
        f"{' and '.join(arms)} {'believe' if arms[1:] else 'believes'} in another CPU than {machine}: {names}"
        for (machine, names), arms in said.items()
    )


def remarks(runs: Mapping[str, Run], machine: Machine) -> list[str]:
    """A line for each arm whose guest reports something else than the machine's kernel, in the words of both."""
    apart = {arm: differences(reported(run.report.settings), machine) for arm, run in runs.items()}
    return [
        f"{arm} believes in another CPU than {machine.name}: "
        + "; ".join(f"{name} is {texts}" for name, texts in each.items())
        for arm, each in apart.items()
        if each
    ]


def uncounted(base: Belief, test: Belief, word: Outcome | None) -> list[str]:
    """The mitigations of one arm's guest alone that the CPU itself pays for, and that can make a word wrong.

    They only make that arm's cost higher.
    """
    there, here = set(base.paid), set(test.paid)
    against = {Outcome.SAME: there ^ here, Outcome.IMPROVEMENT: here - there, Outcome.REGRESSION: there - here}
    return sorted(against.get(word, set())) if word else []


def weigh(primary: Comparison, found: Mapping[str, Belief]) -> Comparison:
    """A case's primary metric: `unknown` if a guest believes in another CPU than the machine, with the reason.

    So it is if the CPU of one arm alone pays for mitigations: the model counts instructions, and they take none.
    found: of both arms by their names, base first; nothing is weighed without one of them.
    """
    if len(found) != 2 or primary.verdict is None:
        return primary
    reason, (base, test) = reason_of(found), found.values()
    if not reason and (names := uncounted(base, test, primary.verdict)):
        reason = f"no model counts what {', '.join(names)} cost the CPU of one arm"
    return primary.unknown(reason) if reason else primary
