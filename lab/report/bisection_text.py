"""A bisection's answer as text for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from lab.bisection.answer import Answer, Found, Function, Step
from lab.core.text import number, visible_record
from lab.stats.verdict import Comparison, percent

_SHOWN = 12


def render(answer: Answer) -> str:
    """The whole page, with everything from elsewhere made visible."""
    return "\n".join(_page(visible_record(answer))) + "\n"


def _page(answer: Answer) -> Iterator[str]:
    old, new = answer.words
    yield f"{old:<5} {_named(answer, answer.old.id)}"
    yield f"{new:<5} {_named(answer, answer.new.id)}"
    kind = answer.kind if answer.candidates != 1 else answer.kind.removesuffix("s")
    yield f"{answer.candidates} {kind}, the {new} end included{_limits(answer)}; {answer.workload}:{answer.case}"
    if answer.ends is not None:
        yield f"ends  {_change(answer.ends)}: {answer.ends.verdict}"
    yield ""
    if not answer.changes:
        yield f"{answer.outcome}: {answer.reason}"
    for one in answer.changes:
        yield from _found(answer, one)
        yield ""
    if answer.changes and answer.outcome != "found":
        yield f"{answer.outcome}: {answer.reason}"
    yield from _path(answer)
    yield from _footer(answer)


def _limits(answer: Answer) -> str:
    words = [" (first parents only)"] if answer.first_parent else []
    words += [f" that touch {' '.join(answer.paths)}"] if answer.paths else []
    return "".join(words)


def _named(answer: Answer, commit: str) -> str:
    titles = {answer.old.id: answer.old.title, answer.new.id: answer.new.title}
    titles |= {step.commit: step.title for step in answer.path}
    title = titles.get(commit, "")
    return f'{_short(commit)} ("{title}")' if title and title != commit else _short(commit)


def _short(commit: str) -> str:
    return commit[:12] if len(commit) == 40 else commit


def _change(c: Comparison) -> str:
    interval = ""
    if c.interval is not None:
        low, high = c.interval
        interval = " exactly" if low == high else f" [{percent(low)}, {percent(high)}]"
    return f"{percent(c.ratio)}{interval} {c.name} ({number(_mean(c.base))} -> {number(_mean(c.test))} {c.unit})"


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else float("nan")


def _found(answer: Answer, one: Found) -> Iterator[str]:
    word = str(one.direction or "change")
    if one.settled:
        yield f"{word}: {one.commit}"
        yield f"    {one.title}"
        yield f"    {one.author}, {one.date}" if one.author else "    (no author)"
        if one.merge:
            yield f"    {_merge(answer)}"
        if one.outside_paths:
            yield "    nothing in the paths given did it: a commit after the last of them, or outside of them, did"
    else:
        yield f"{word}: one of {len(one.among)} commits, up to {_named(answer, one.commit)}"
        for name in one.among[:_SHOWN]:
            yield f"    {_named(answer, name)}{_why_open(one, name)}"
        if len(one.among) > _SHOWN:
            yield f"    and {len(one.among) - _SHOWN} more"
    effect = one.proof.fresh if one.proof and one.proof.fresh else one.effect
    if effect is not None:
        yield f"  effect      {_change(effect)}"
    yield f"  confidence  {100 * one.confidence:.4g} %{'' if one.proof else ' (of the search alone)'}"
    if one.proof is not None:
        yield from _proof(one)
    if one.inside is not None:
        yield f"  inside      {one.inside}"


def _why_open(one: Found, name: str) -> str:
    """Why a commit of a range is neither cleared nor convicted."""
    if name in one.untested:
        return " (could not be tested)"
    return " (not measured)" if name != one.commit else ""


def _merge(answer: Answer) -> str:
    if answer.first_parent:
        return "a merge: what did it is among the commits that it brought in (search without --first-parent)"
    return "a merge: none of its parents is like it"


def _proof(one: Found) -> Iterator[str]:
    proof = one.proof
    if proof is None:
        return
    fresh = "fresh seeds" if proof.result else "fresh boots"
    stored = f" (lab report {proof.result})" if proof.result else ""
    if proof.same_image:
        yield "  proof       its kernel is its parent's, byte for byte: it cannot be the culprit"
    elif proof.confirmed:
        yield f"  proof       {fresh} against {_short(one.before)} say the same{stored}"
    else:
        yield f"  proof       {fresh} against {_short(one.before)} do NOT confirm it{stored}"
    if proof.reverted is not None:
        yield f"  reverted    on the newer end: {_change(proof.reverted)}: {proof.reverted.verdict}"
    elif proof.not_reverted:
        yield f"  reverted    not on the newer end: {proof.not_reverted}"
    if proof.functions:
        yield "  functions   that changed, modelled cycles an operation:"
        for function in proof.functions:
            yield f"    {_function(function)}"


def _function(function: Function) -> str:
    mark = "" if function.space == "kernel" else " (program)"
    return f"{function.base:>14,.1f} -> {function.test:>14,.1f}  {function.name}{mark}"


def _path(answer: Answer) -> Iterator[str]:
    if not answer.path:
        return
    yield f"path taken ({answer.measured} measured, {len(answer.skipped)} could not be tested):"
    for step in answer.path:
        yield f"    {_step(step)}"
    yield ""


def _step(step: Step) -> str:
    words = (
        f'{_short(step.commit)}  {step.decision:<18} {percent(step.ratio) if step.values else "":>9}  "{step.title}"'
    )
    if step.why:
        words += f": {step.why}"
    return words + (f" (same kernel as {_short(step.same_as)})" if step.same_as else "")


def _footer(answer: Answer) -> Iterator[str]:
    around = answer.environment
    if around is not None:
        clock = "real time" if answer.live else "guest clock (instructions)"
        model = clock if around.model == "none" else f"modelled cycles ({around.model})"
        yield f"{answer.mode} mode, {model}: QEMU {around.qemu}, {around.machine}, fingerprint {around.fingerprint}"
    yield f"building {answer.build_s:.0f} s, measuring {answer.run_s:.0f} s, {_effort(answer)}"
    yield f"result {answer.result}   again: lab report {answer.result}"
    yield f"repeat: {shlex.join(answer.reproduce)}"


def _effort(answer: Answer) -> str:
    live = answer.live
    if live is None:
        return f"{len(answer.seeds)} seeds a commit"
    noise = f", which differ by {100 * live.noise:.2g} % (sd)" if live.noise is not None else ""
    return f"{live.boots} boots of {live.kernels} kernels{noise}"
