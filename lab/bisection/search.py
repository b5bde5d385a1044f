"""The whole of a bisection: the search, the proof, the search between two packages, and the answer that is kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lab.bisection import difference_runner, exact_runner, packages
from lab.bisection.answer import FILE, Answer, Culprit
from lab.bisection.commit_range import SPLIT
from lab.bisection.difference_runner import DifferenceProver
from lab.bisection.exact_runner import ExactRunner
from lab.bisection.proof import Prover
from lab.bisection.search_state import SearchState
from lab.bisection.session import Session
from lab.core import records
from lab.core.executor import Work

if TYPE_CHECKING:
    from lab.bisection.live_runner import LiveRunner


def conclude(session: Session, work: Work) -> Answer:
    """Do the rest of a session, and keep the answer."""
    started = time.monotonic()
    runner: ExactRunner | LiveRunner
    prover = Prover(session, work)
    if session.plan.is_live:
        from lab.bisection import live_runner  # imports numpy, which exact mode does without

        runner = live_runner.start(session, work)
    elif session.history.kind in SPLIT:
        runner, prover = difference_runner.start(session, work), DifferenceProver(session, work)
    else:
        runner = exact_runner.start(session, work)
    runner.run()
    answer = summarize(session, runner.state, out_of_time=runner.out_of_time)
    answer = prover.prove(answer)
    answer, whole = packages.search_between_packages(session, answer, conclude, work)
    work.progress.log(f"{time.monotonic() - started:.0f} s in all")
    if whole and not runner.out_of_time and not any(change.needs_proof for change in answer.changes):
        records.save(session.folder / FILE, answer)
    else:
        work.progress.log(f"the budget was used up before all was done; go on by lab bisect resume {session.name}")
    return answer


def summarize(session: Session, state: SearchState, *, out_of_time: bool = False) -> Answer:
    """The answer of the search so far, without the proofs that follow it."""
    plan, history, journal = session.plan, session.history, session.journal
    culprits = [_with_advice(session, change) for change in state.culprits()]
    outcome, reason = state.outcome(culprits, out_of_time=out_of_time)
    path = [state.step(commit) for commit in state.tried]
    return Answer(
        outcome=outcome,
        reason=reason,
        mode=plan.mode,
        terms=plan.terms,
        old=history.old,
        new=history.new,
        kind=history.kind,
        tree=history.tree,
        first_parent=history.first_parent,
        paths=history.paths,
        candidates=state.size,
        workload=plan.workload,
        case=plan.case or "",
        metric=state.metric.name,
        unit=state.metric.unit,
        threshold=plan.threshold,
        seeds=journal.seeds or [],
        ends=state.ends,
        changes=culprits,
        path=path,
        skipped=[step for step in path if step.why],
        measured=sum(bool(step.values) for step in path),
        environment=session.conditions.environment if session.conditions else None,
        started=journal.started,
        build_s=round(journal.build_s, 1),
        run_s=round(journal.run_s, 1),
        result=session.name,
        reproduce=plan.command,
        live=state.posterior(),
        chosen=plan.metric,
        instructions=state.ends_instructions,
        whole=state.ends_whole,
    )


def _with_advice(session: Session, change: Culprit) -> Culprit:
    """A change between two packages, with the command that searches the commits between them."""
    history = session.history
    if history.kind != "packages" or not change.is_single:
        return change
    return replace(
        change, inside=packages.advice(session.plan, history.find(change.before), history.find(change.commit))
    )


def interim_answer(session: Session) -> Answer | None:
    """The answer so far of a bisection that is not finished; None before both ends were measured."""
    state = session.state
    if state is None or (session.plan.is_live and state.ends is None):
        return None
    remaining = state.remaining()
    if session.plan.is_live:
        progress = f"{len(session.journal.boots)} boots so far"
    elif remaining.next is not None:
        progress = f"about {remaining.steps} more to measure"
    else:
        progress = f"{session.afterwards} is left"
    reason = f"not finished, {progress}: go on by lab bisect resume {session.name}"
    return replace(summarize(session, state), outcome="undecided", reason=reason)
