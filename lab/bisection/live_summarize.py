"""The answer of a bisection in live mode: the same document as exact mode's, with what the posterior says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.bisection.answer import Answer, Found, OutcomeWord, Posterior, Proof, Step, Suspicion
from lab.bisection.live_search import Done, Outcome, Part
from lab.bisection.live_state import LiveState, certainty
from lab.bisection.packages import way_on
from lab.bisection.session import Session
from lab.bisection.summarize import answer_of, direction_of
from lab.stats import verdict
from lab.stats.defaults import ALPHA
from lab.stats.verdict import Comparison

_GAPS = 10


def make(session: Session, state: LiveState, done: Done, *, out_of_time: bool = False) -> Answer:
    """What is known, as an answer; the proof beyond the fresh boots of the search is not in it yet."""
    found = [_found(state, done)] if done.suspects else []
    outcome, reason = _outcome(state, done, found)
    steps = _steps(state)
    ends = state.search.ends
    return answer_of(
        session,
        outcome="undecided" if out_of_time else outcome,
        reason=reason,
        metric=state.metric,
        ends=_compared(state, *state.pairs(Part.ENDS, ends), ALPHA) if ends.x else None,
        changes=found,
        path=steps,
        skipped=[step for step in steps if step.why],
        started=min((one.at for one in state.kernels.values()), default=""),
        build_s=state.build_s,
        run_s=state.run_s,
        live=_posterior(state, done),
    )


def _outcome(state: LiveState, done: Done, found: Sequence[Found]) -> tuple[OutcomeWord, str]:
    if done.outcome is Outcome.NO_CULPRIT:
        return "no culprit", done.reason
    if done.outcome is Outcome.UNDECIDED or not found:
        return "undecided", done.reason
    (one,) = found
    if one.proof and one.proof.same_image:
        return "undecided", "the kernels of both neighbours are the same, byte for byte: one of them was misread"
    words = f"{certainty(done.probability)} sure" + (f"; {done.reason}" if done.reason else ", and confirmed")
    if not one.settled:
        return "range", f"{words}; the other commits of the range cannot be tested"
    return "found", words


def _found(state: LiveState, done: Done) -> Found:
    history = state.history
    one, before = (history[history.number(state.name(n))] for n in (done.first_bad, done.last_good))
    named = done.outcome in (Outcome.CONFIRMED, Outcome.FOUND)
    proof = _fresh(state, done) if named else None
    limited_out = bool(history.paths) and one.id == history.new.id
    return Found(
        commit=one.id,
        title=one.title,
        author=one.author,
        date=one.date,
        among=[state.name(number) for number in done.suspects],
        untested=[state.name(number) for number in done.suspects if number in state.search.untestable],
        before=before.id,
        effect=proof.fresh if proof else None,
        direction=direction_of(state.metric, math.exp(done.effect.value)),
        confidence=done.probability,
        merge=one.merge,
        outside_paths=limited_out,
        inside=way_on(state.plan, before, one) if history.kind == "packages" and len(done.suspects) == 1 else None,
        proof=proof,
    )


def _fresh(state: LiveState, done: Done) -> Proof:
    """The comparison of both neighbours with boots that the search did not have."""
    duel = state.search.confirming
    fresh = None
    if duel and duel.x:
        fresh = _compared(state, *state.pairs(Part.CONFIRM, duel), state.plan.alpha)
    images = [state.kernels[state.name(number)].image for number in (done.last_good, done.first_bad)]
    same = images[0] == images[1]
    return Proof(confirmed=done.outcome is Outcome.CONFIRMED and not same, same_image=same, fresh=fresh)


def _compared(state: LiveState, base: Sequence[float], test: Sequence[float], alpha: float) -> Comparison:
    return verdict.compare_metric(
        state.metric, base, test, threshold=state.plan.threshold, alpha=alpha, min_blocks=4, exact=False
    )


def _steps(state: LiveState) -> list[Step]:
    """Every commit but the ends, in the order in which they were first tried."""
    ends = (state.history.old.id, state.history.new.id)
    tried = dict.fromkeys([*state.kernels, *state.skipped])
    return [_step(state, name) for name in tried if name not in ends]


def _step(state: LiveState, name: str) -> Step:
    one = state.history[state.history.number(name)]
    built, skipped = state.kernels.get(name), state.skipped.get(name)
    values = state.values(name)
    old = state.values(state.history.old.id)
    return Step(
        commit=name,
        title=one.title,
        decision=f"untestable: {skipped.untestable}" if skipped else likeness(state, name),
        ratio=math.exp(_mean_log(values) - _mean_log(old)) if values and not skipped else None,
        values=[] if skipped else values,
        build=built.kernel if built else "",
        why=skipped.why if skipped else "",
        log=skipped.log if skipped else None,
        build_s=built.build_s if built else skipped.build_s if skipped else 0.0,
        run_s=round(math.fsum(boot.run_s for boot in state.boots if boot.commit == name), 3),
    )


def likeness(state: LiveState, name: str) -> str:
    """A commit's place in words, with how sure that is."""
    chance = state.chance(name)
    if chance is None:
        return "not known yet"
    old, new = state.plan.words
    return f"like {new} ({certainty(chance)})" if chance > 0.5 else f"like {old} ({certainty(1 - chance)})"


def _mean_log(values: Sequence[float]) -> float:
    return math.fsum(map(math.log, values)) / len(values)


def _posterior(state: LiveState, done: Done) -> Posterior:
    known = bool(state.search.differ())
    belief = state.search.belief if known else None
    return Posterior(
        outcome=done.outcome,
        probability=done.probability,
        boots=len(state.boots),
        kernels=len(state.kernels),
        effect=math.exp(done.effect.value),
        noise=math.expm1(belief.noise) if belief else None,
        suspicions=suspicions(state)[:_GAPS],
    )


def suspicions(state: LiveState) -> list[Suspicion]:
    """The likeliest places of the culprit."""
    return [
        Suspicion(after=state.name(low), up_to=state.name(high), commits=high - low, probability=round(chance, 6))
        for low, high, chance in state.search.status().gaps
    ]
