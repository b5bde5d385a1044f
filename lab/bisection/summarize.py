"""From what a bisection knows to its answer; of live mode in `liveanswer`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from lab.bisection.answer import Answer, Found, OutcomeWord, Posterior, Proof, Step
from lab.bisection.exact_search import Change
from lab.bisection.exact_state import State
from lab.bisection.packages import way_on
from lab.bisection.session import Session
from lab.stats.verdict import Comparison, Metric, Outcome, percent


def make(session: Session, *, out_of_time: bool = False) -> Answer:
    """What is known, as an answer; without proofs."""
    state = session.state
    found = [_found(state, change) for change in state.changes] if _searched(state) else []
    outcome, reason = _outcome(state, found, out_of_time=out_of_time)
    steps = [_step(state, name) for name in state.readings if name not in _ends(state)]
    readings = list(state.readings.values())
    return answer_of(
        session,
        outcome=outcome,
        reason=reason,
        metric=state.metric,
        ends=state.ends,
        changes=found,
        path=steps,
        skipped=[step for step in steps if not step.values or step.decision == "not clear"],
        started=min((r.at for r in readings), default=""),
        build_s=math.fsum(r.build_s for r in readings),
        run_s=math.fsum(r.run_s for r in readings),
    )


def answer_of(
    session: Session,
    *,
    outcome: OutcomeWord,
    reason: str,
    metric: Metric,
    ends: Comparison | None,
    changes: list[Found],
    path: list[Step],
    skipped: list[Step],
    started: str,
    build_s: float,
    run_s: float,
    live: Posterior | None = None,
) -> Answer:
    """What a search found, with what its session says of any: the range, the plan, the conditions."""
    plan, history = session.plan, session.history
    return Answer(
        outcome=outcome,
        reason=reason,
        mode=plan.mode,
        words=plan.words,
        old=history.old,
        new=history.new,
        kind=history.kind,
        tree=history.tree,
        first_parent=history.first_parent,
        paths=history.paths,
        candidates=len(history.candidates),
        workload=plan.workload,
        case=plan.case or "",
        metric=metric.name,
        unit=metric.unit,
        threshold=plan.threshold,
        seeds=session.journal.seeds or [],
        ends=ends,
        changes=changes,
        path=path,
        skipped=skipped,
        measured=sum(bool(step.values) for step in path),
        environment=session.conditions.environment if session.conditions else None,
        started=started,
        build_s=round(build_s, 1),
        run_s=round(run_s, 1),
        result=session.name,
        reproduce=plan.command,
        live=live,
    )


def _ends(state: State) -> tuple[str, str]:
    return state.history.old.id, state.history.new.id


def _searched(state: State) -> bool:
    """Whether the ends allowed a search at all."""
    if state.ends is None:
        return True
    wrong_way = state.plan.worse_only and state.ends.verdict == Outcome.IMPROVEMENT
    return state.ends.verdict != Outcome.UNKNOWN and not wrong_way


def _outcome(state: State, found: Sequence[Found], *, out_of_time: bool) -> tuple[OutcomeWord, str]:
    old, new = state.plan.words
    if out_of_time:
        return "undecided", f"the budget is used up, about {state.steps_left} commits are still to be measured"
    if state.ends is not None and state.ends.verdict == Outcome.UNKNOWN:
        return "undecided", f"{len(state.ends.base)} seeds do not tell the ends apart: {state.ends.reason}"
    if not _searched(state) and state.ends is not None:
        better = f"the {new} end is better than the {old} one ({percent(state.ends.ratio)})"
        return "no culprit", f"{better}; to find what improved it, call the ends --old and --new"
    if not found:
        inside = len(state.known.levels) - 1
        looked = f", and so are {inside} commits between them" if inside else ""
        return "no culprit", f"the ends are alike ({percent(state.ends.ratio if state.ends else None)}){looked}"
    ranges = sum(not one.settled for one in found)
    if ranges:
        left = "the commits left cannot be tested, or lie between such"
        return "range", f"{_many(ranges, 'change')} cannot be narrowed down: {left}"
    return "found", _many(len(found), "change")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _found(state: State, change: Change) -> Found:
    history = state.history
    one, before = history[change.at], history[change.before]
    base, test = state.readings[before.id], state.readings[one.id]
    effect = state.compare(base, test) if base.values and test.values else None
    limited_out = bool(history.paths) and change.at == len(history.candidates) - 1 and one.id == history.new.id
    return Found(
        commit=one.id,
        title=one.title,
        author=one.author,
        date=one.date,
        among=[history[number].id for number in change.among],
        untested=[history[number].id for number in change.among if number in state.known.skipped],
        before=before.id,
        effect=effect,
        direction=direction_of(state.metric, effect.ratio if effect else None),
        confidence=1 - effect.p_value if effect else 1.0,
        merge=one.merge,
        outside_paths=limited_out,
        inside=way_on(state.plan, before, one) if history.kind == "packages" and len(change.among) == 1 else None,
    )


def direction_of(metric: Metric, ratio: float | None) -> Outcome | None:
    """Whether a change by this ratio is for the better or the worse; None where there is no telling."""
    if ratio is None or metric.better == "neither":
        return None
    return Outcome.IMPROVEMENT if (ratio > 1) == (metric.better == "higher") else Outcome.REGRESSION


def _step(state: State, name: str) -> Step:
    reading, number = state.readings[name], state.history.number(name)
    old = state.readings[state.history.old.id]
    ratio = state.compare(old, reading).ratio if old.values and reading.values else None
    return Step(
        commit=name,
        title=state.history[number].title,
        decision=f"untestable: {reading.untestable}" if reading.untestable else state.likeness(number),
        ratio=ratio,
        values=reading.values,
        build=reading.kernel,
        same_as=reading.same_as,
        why=reading.why or state.unclear.get(number, ""),
        log=reading.log,
        build_s=reading.build_s,
        run_s=reading.run_s,
    )


def with_proofs(answer: Answer, proofs: Sequence[Proof | None], alpha: float) -> Answer:
    """The answer, each change with what its proof said. What is not confirmed, or not surely enough, is undecided."""
    changes = [
        replace(one, proof=proof, confidence=_confidence(one, proof))
        for one, proof in zip(answer.changes, proofs, strict=True)
    ]
    unsure = [one for one in changes if one.proof and one.confidence < 1 - alpha]
    if unsure and answer.outcome == "found":
        names = ", ".join(one.commit[:12] for one in unsure)
        reason = f"fresh seeds do not confirm {names} with {100 * (1 - alpha):g} % confidence"
        return replace(answer, changes=changes, outcome="undecided", reason=reason)
    return replace(answer, changes=changes)


def _confidence(one: Found, proof: Proof | None) -> float:
    if proof is None or proof.fresh is None:
        return one.confidence
    return 1 - proof.fresh.p_value if proof.confirmed else 0.0
