"""`text` of a bisection: both ends, the changes found and how sure they are, and the path taken."""

from __future__ import annotations

from collections.abc import Iterator

from lab.bisection.answer import Answer, Culprit, HunkSet, Step
from lab.bisection.plan import FAILED, outcome_word
from lab.compare.lines import Moves
from lab.core.git import short
from lab.core.text import UNBOUND, aligned, plural, visible_record, wrapped
from lab.report import wording
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
    lines = _lines(visible_record(answer))
    return "\n".join(line if line.startswith(_HUNK) else wrapped(line, _INDENT, width) for line in lines) + "\n"


def _lines(answer: Answer) -> Iterator[str]:
    old, new = answer.terms
    if answer.tree:
        yield f"tree  {answer.tree}"
    yield f"{old:<5} {_named(answer, answer.old.id)}"
    yield f"{new:<5} {_named(answer, answer.new.id)}"
    yield f"{wording.searched(answer)}{wording.limits(answer)}; {answer.workload}:{answer.case}"
    if answer.chosen:
        yield f"      decided by --metric {answer.chosen}"
    if answer.ends is not None:
        verdict = f"{answer.ends.verdict} ({wording.threshold(answer)})"
        yield f"ends  {_effect(answer.ends)}{wording.beside(answer.instructions)}: {verdict}"
        yield from [f"      {three}"] if (three := wording.three(answer.whole)) else []
    yield ""
    if not answer.changes:
        yield f"{answer.outcome}: {answer.reason}"
    for found in answer.changes:
        yield from _change(answer, found)
        yield ""
    if answer.changes and answer.outcome != "found":
        yield f"{answer.outcome}: {answer.reason}"
    yield from _path(answer)
    yield from _footer(answer)


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


def _change(answer: Answer, found: Culprit) -> Iterator[str]:
    kind = str(found.direction or "change")
    if found.hunks is not None:
        yield from _hunks(kind, found.title, found.hunks)
    elif found.is_single:
        yield f"{kind}: {found.commit}"
        yield f"    {found.title}"
        yield from [f"    {found.author}, {found.date}"] if found.author else []
        if found.merge:
            yield f"    {_merge(answer)}"
        if found.outside_paths:
            yield "    nothing in the paths given did it: a commit after the last of them, or outside of them, did"
    else:
        yield f"{kind}: one of {len(found.suspects)} {answer.kind}, up to {_named(answer, found.commit)}"
        for name in found.suspects[:_MOST_SUSPECTS]:
            why = "" if name == found.commit else " (not measured)"
            yield f"    {_named(answer, name)}{' (could not be tested)' if name in found.untested else why}"
        if len(found.suspects) > _MOST_SUSPECTS:
            yield f"    and {len(found.suspects) - _MOST_SUSPECTS} more"
    if (effect := wording.effect_of(found)) is not None:
        yield f"  effect      {_effect(effect)}{wording.beside(found.instructions)}"
        yield from [f"  whole cost  {three}"] if (three := wording.three(found.whole)) else []
        yield from [f"  no word     {why}"] if (why := wording.against(found)) else []
    yield f"  confidence  {100 * found.confidence:.4g} %{'' if found.proof else ' (of the search alone)'}"
    yield from _proof(found)
    if found.inside is not None:
        yield f"  inside      {found.inside}"


def _hunks(kind: str, title: str, hunks: HunkSet) -> Iterator[str]:
    """The hunks that carry a change, before its proof."""
    yield f"{kind}: {title}"
    fewer = "" if hunks.smallest else ", or fewer"
    yield f"    {plural(hunks.hunks, 'hunk')}{fewer}: {100 * hunks.share:.0f} % of the change"
    yield from (f"    in {name}()" for name in hunks.functions)
    yield from (f"    touched by {commit}" for commit in hunks.commits)
    yield from (f"{_HUNK}{line}" for line in hunks.diff[:_MOST_LINES])
    if (left := len(hunks.diff) - _MOST_LINES) > 0:
        yield f"    and {left} more lines (--json has all)"


def _merge(answer: Answer) -> str:
    if answer.first_parent:
        return "a merge: the culprit is among the commits that it brought in (search without --first-parent)"
    return "a merge: none of its parents is like it"


def _proof(found: Culprit) -> Iterator[str]:
    proof = found.proof
    if proof is None:
        return
    fresh, against = proof.fresh_runs, f"against {short(found.before)}"
    if found.hunks is not None:
        against = "of the new end, against the new end with these hunks of the old one,"
    stored = f" (lab report {proof.result})" if proof.result else ""
    if proof.same_image:
        yield "  proof       its kernel is its parent's, byte for byte: it cannot be the culprit"
    elif proof.confirmed:
        yield f"  proof       {fresh} {against} say the same{stored}"
    else:
        yield f"  proof       {fresh} {against} do NOT confirm it{stored}"
    if proof.reverted is not None:
        yield f"  reverted    on the newer end: {_effect(proof.reverted)}: {proof.reverted.verdict}"
    elif proof.not_reverted:
        yield f"  reverted    not on the newer end: {proof.not_reverted}"
    if proof.applied is not None:
        effect = f"{_effect(proof.applied)}: {proof.applied.verdict} (lab report {proof.applied_result})"
        yield f"  other way   the old end with them{proof.applied_beside}: {effect}"
    elif proof.not_applied:
        yield f"  other way   the old end with them cannot be tested: {proof.not_applied}"
    if proof.functions:
        yield f"  functions   that changed, {unit_of(proof.functions[0].cost)} an operation:"
        for function in proof.functions:
            mark = "" if function.space == "kernel" else " (program)"
            yield f"    {function.base:>14,.1f} -> {function.test:>14,.1f}  {function.name}{mark}"
    if proof.lines:
        yield "  lines       that vCPUs take from each other, moves an operation (of them for nothing):"
        for line in proof.lines:
            yield f"    {_moves(line.base)} -> {_moves(line.test)}  {line.place}: {', '.join(line.functions)}"


def _moves(moves: Moves) -> str:
    return f"{moves.moved:.2f} ({moves.false:.2f})"


def _path(answer: Answer) -> Iterator[str]:
    if not answer.path:
        return
    yield f"path taken ({answer.measured} measured, {len(answer.skipped)} could not be tested):"
    names = aligned([[short(step.commit), step.decision] for step in answer.path])
    for step, (name, decision) in zip(answer.path, names, strict=True):
        yield f"    {name}  {decision}  {_step(step)}"
    yield ""


def _step(step: Step) -> str:
    change = percent(step.ratio) if step.ratio is not None else ""
    why = f": {step.why}" if step.why else ""
    same = f" (same kernel as {short(step.same_as)})" if step.same_as else ""
    count = f", instructions {percent(step.instructions)}" if step.instructions is not None else ""
    return f'{change:>9}{count}  "{step.title}"{why}{same}'


def _footer(answer: Answer) -> Iterator[str]:
    around = answer.environment
    if around is not None:
        mode = f"{answer.mode} mode, {wording.answer_counted_in(answer)}"
        yield f"{mode}: QEMU {around.qemu}, {around.machine}, fingerprint {around.fingerprint}"
    yield f"building {answer.build_s:.0f} s, measuring {answer.run_s:.0f} s, {_effort(answer)}"
    yield f"result {answer.result}   page: lab report {answer.result} -f html -o {answer.result}.html"
    yield f"repeat: {answer.repeat}"


def _effort(answer: Answer) -> str:
    live = answer.live
    if live is None:
        return f"{len(answer.seeds)} seeds a {answer.one}"
    noise = f", which differ by {100 * live.noise:.2g} % (sd)" if live.noise is not None else ""
    return f"{live.boots} boots of {live.kernels} kernels{noise}"
