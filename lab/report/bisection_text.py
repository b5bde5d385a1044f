"""`text` of a bisection: both ends, the changes found and how sure they are, and the path taken."""

from __future__ import annotations

from collections.abc import Iterator

from lab.bisection.answer import Answer, Step
from lab.bisection.plan import FAILED, outcome_word
from lab.core.git import short
from lab.core.text import UNBOUND, aligned, plural, visible_record, wrapped
from lab.report import templates
from lab.report.explain_text import unit_of
from lab.report.inputs import StoredBisection
from lab.report.wording import shown
from lab.stats.verdict import Comparison, percent

_MOST_SUSPECTS = 12
_MOST_LINES = 80
_HUNK = "    | "
_INDENT = 14


def bisection(stored: StoredBisection) -> str:
    return render(stored.answer)


def render(answer: Answer, width: int = UNBOUND) -> str:
    """The whole text, with everything from elsewhere made visible; lines of hunks are not wrapped."""
    answer = visible_record(answer)
    text = templates.text(
        "bisection.txt.j2", answer=answer, named=lambda commit: _named(answer, commit), effect=_effect,
        path=list(_path(answer)), effort=_effort(answer), plural=plural, short=short, unit_of=unit_of, HUNK=_HUNK,
        MOST_LINES=_MOST_LINES, MOST_SUSPECTS=_MOST_SUSPECTS,
    )  # fmt: skip
    lines = text.removesuffix("\n").split("\n")
    return "\n".join(line if line.startswith(_HUNK) else wrapped(line, _INDENT, width) for line in lines) + "\n"


def _named(answer: Answer, commit: str) -> str:
    titles = {answer.old.id: answer.old.title, answer.new.id: answer.new.title}
    titles |= {step.commit: step.title for step in answer.path}
    title = titles.get(commit, "")
    return f'{short(commit)} ("{title}")' if title and title != commit else short(commit)


def _effect(c: Comparison) -> str:
    span = c.interval_text
    span = " exactly" if span == "exact" else f" {span}".rstrip()
    if c.name == FAILED.name:
        return f"{outcome_word(c.base)} -> {outcome_word(c.test)}"
    return f"{percent(c.ratio)}{span} {c.name} ({shown(c.base)} -> {shown(c.test)} {c.unit})"


def _path(answer: Answer) -> Iterator[str]:
    names = aligned([[short(step.commit), step.decision] for step in answer.path])
    for step, (name, decision) in zip(answer.path, names, strict=True):
        yield f"{name}  {decision}  {_step(step)}"


def _step(step: Step) -> str:
    change = percent(step.ratio) if step.ratio is not None else ""
    why = f": {step.why}" if step.why else ""
    same = f" (same kernel as {short(step.same_as)})" if step.same_as else ""
    count = f", instructions {percent(step.instructions)}" if step.instructions is not None else ""
    return f'{change:>9}{count}  "{step.title}"{why}{same}'


def _effort(answer: Answer) -> str:
    live = answer.live
    if live is None:
        return f"{len(answer.seeds)} seeds a {answer.one}"
    noise = f", which differ by {100 * live.noise:.2g} % (sd)" if live.noise is not None else ""
    return f"{live.boots} boots of {live.kernels} kernels{noise}"
