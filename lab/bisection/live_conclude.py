"""From a session in live mode to its answer: search, fresh boots of the neighbours, and the page that is kept."""

from __future__ import annotations

import time
from collections.abc import Callable

from lab.bisection import answer as answers
from lab.bisection import live_proof, live_summarize
from lab.bisection.answer import Answer
from lab.bisection.exact_runner import require_same
from lab.bisection.live_runner import Booter, LiveWork
from lab.bisection.live_state import rules_of
from lab.bisection.proof import Prover
from lab.bisection.session import CONDITIONS, Conditions, Session
from lab.core import records
from lab.core.executor import Work
from lab.core.progress import Progress

GoOn = Callable[[Answer], tuple[Answer, bool]]


def conclude(
    session: Session,
    booter: Booter,
    prover: Prover | None,
    work: Work,
    *,
    go_on: GoOn | None = None,
) -> Answer:
    """Do what is left of a session, and keep the answer. Without a prover, its proof is the fresh boots alone.

    go_on: what else there is to do with an answer; it says whether all of that was done.
    """
    started = time.monotonic()
    here = Conditions(metric=booter.metric, environment=booter.environment)
    require_same(session, here)
    if session.conditions is None:
        session.conditions = here
        records.save(session.folder / CONDITIONS, session.conditions)
    search = LiveWork(session=session, booter=booter, work=work)
    done = search.run()
    answer = live_summarize.make(session, search.state, done, out_of_time=search.out_of_time)
    if prover is not None and not work.out_of_time:
        answer = live_proof.complete(prover, answer)
    answer, whole = go_on(answer) if go_on else (answer, True)
    work.progress.log(f"{time.monotonic() - started:.0f} s in all")
    if whole and not search.out_of_time:
        answers.save(session.folder, answer)
    else:
        work.progress.log(f"the budget was used up before all was done; go on by lab bisect resume {session.name}")
    return answer


def announce(session: Session, progress: Progress) -> None:
    """Say what will be done, before it starts."""
    history, rules = session.history, rules_of(session.plan)
    booted = len(session.live.boots) if session.live else 0
    progress.log(
        f"{len(history.candidates)} {history.kind}, {booted} boots so far: pairs of boots of both ends until they "
        f"differ, at most {rules.end_blocks}; then commits, until one is {100 * rules.confidence:g} % sure; "
        f"then fresh pairs. To go on after any stop: lab bisect resume {session.name}"
    )
