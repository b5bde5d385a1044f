"""`md` of a bisection: for an issue or a merge request. Every word from elsewhere is in a code span."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from lab.bisection.answer import Answer, Found, Step
from lab.reporting import bisections, figures
from lab.reporting.bisections import Bisection, certainty, effect_of, short
from lab.reporting.markdown import code, table
from lab.results import interval, number
from lab.stats.verdict import Comparison, percent

_SUSPECTS = 20


def render(one: Bisection) -> str:
    """The answer, what was found, and the path behind a fold."""
    answer = one.answer
    lines = [f"### Kernel bisection: {answer.outcome}", "", code(bisections.sentence(answer)), ""]
    for word, end in zip(answer.words, (answer.old, answer.new), strict=True):
        lines.append(f"- {word}: {code(end.id)} {code(end.title)}")
    if answer.ends is not None:
        lines.append(f"- ends: {_comparison(answer.ends)}: {answer.ends.verdict}")
    lines += [f"- searched: {answer.candidates} {answer.kind}, {code(f'{answer.workload}:{answer.case}')}", ""]
    for change in answer.changes:
        lines += _change(one, change)
    lines += [*_path(answer), *_around(answer)]
    return "\n".join(lines).rstrip() + "\n"


def _change(one: Bisection, change: Found) -> Iterator[str]:
    word = f"**{change.direction or 'change'}**"
    if change.settled:
        yield f"{word}: {code(change.commit)} {code(change.title)}"
        yield ""
        yield from [f"- author: {code(change.author)}, {change.date}"] if change.author else []
    else:
        yield f"{word}: one of {len(change.among)}, which could not be told apart:"
        yield ""
        titles = {place.candidate.id: place.candidate.title for place in one.places}
        for name in change.among[:_SUSPECTS]:
            why = "could not be tested" if name in change.untested else "not measured"
            yield f"- {code(short(name))} {code(titles.get(name, ''))}" + ("" if name == change.commit else f" ({why})")
        if len(change.among) > _SUSPECTS:
            yield f"- and {len(change.among) - _SUSPECTS} more"
    if (effect := effect_of(change)) is not None:
        yield f"- effect: {_comparison(effect)}"
    yield f"- confidence: {certainty(change)}"
    yield from _proof(change, bisections.fresh_words(one.answer))
    yield ""
    yield from _functions(change)


def _proof(change: Found, fresh: str) -> Iterator[str]:
    proof = change.proof
    if proof is None:
        return
    if proof.same_image:
        yield "- proof: its kernel is its parent's, byte for byte: it cannot be the culprit"
    else:
        yield f"- proof: {fresh} against its parent {'say the same' if proof.confirmed else 'do NOT confirm it'}"
    if proof.reverted is not None:
        yield f"- reverted on the newer end: {_comparison(proof.reverted)}: {proof.reverted.verdict}"
    elif proof.not_reverted:
        yield f"- not reverted on the newer end: {code(proof.not_reverted)}"


def _functions(change: Found) -> Iterator[str]:
    if not change.proof or not change.proof.functions:
        return
    rows = [("function", "before", "with it")]
    rows += [(code(f.name), number(f.base), number(f.test)) for f in change.proof.functions]
    yield "<details><summary>Functions that changed, modelled cycles an operation</summary>"
    yield ""
    yield from table(rows, right=(1, 2))
    yield ""
    yield "</details>"
    yield ""


def _path(answer: Answer) -> Iterator[str]:
    if not answer.path:
        return
    yield f"<details><summary>Path taken: {answer.measured} measured, {len(answer.skipped)} not testable</summary>"
    yield ""
    rows = [("step", "commit", "subject", "state", "change")]
    rows += [(str(i), *_step(step)) for i, step in enumerate(answer.path, start=1)]
    yield from table(rows, right=(0, 4))
    yield ""
    yield "</details>"
    yield ""


def _step(step: Step) -> tuple[str, str, str, str]:
    why = f": {code(step.why)}" if step.why else ""
    change = percent(step.ratio) if step.ratio is not None else ""
    return code(short(step.commit)), code(step.title), f"{code(step.decision)}{why}", change


def _around(answer: Answer) -> Iterator[str]:
    if (around := answer.environment) is not None:
        yield f"QEMU {code(around.qemu)}, {code(around.machine)}, fingerprint {code(around.fingerprint)}. "
    yield f"Repeat with {code(shlex.join(answer.reproduce))}; result {code(answer.result)}."


def _comparison(c: Comparison) -> str:
    unit = f"{c.name}, {c.unit}"
    return f"{percent(c.ratio)} {interval(c)} {code(unit)} ({figures.shown(c.base)} → {figures.shown(c.test)})"
