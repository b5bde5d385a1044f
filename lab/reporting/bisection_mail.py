"""`mail` of a bisection: the regression report of its culprit, with how it was found. A draft; nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator

from lab.bisection.answer import Answer, Found, Step
from lab.core.errors import UserError
from lab.reporting import mail
from lab.reporting.bisections import Bisection, short
from lab.reporting.stored import Reports
from lab.stats.verdict import Outcome, percent

_STEPS = 40


def render(one: Bisection) -> str:
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
    return mail.render(Reports(items=[proof]), trail=_trail(answer, change))


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
