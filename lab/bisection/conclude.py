"""The whole of a bisection: the search, the proof, the search between two packages, and the answer that is kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lab.bisection import exact_runner, packages
from lab.bisection.answer import FILE, Answer
from lab.bisection.exact_runner import ExactRunner
from lab.bisection.proof import Prover
from lab.bisection.session import Session
from lab.bisection.summarize import summarize
from lab.core import records
from lab.core.executor import Work

if TYPE_CHECKING:
    from lab.bisection.live_runner import LiveRunner


def conclude(session: Session, work: Work) -> Answer:
    """Do what is left of a session, and keep the answer."""
    started = time.monotonic()
    runner: ExactRunner | LiveRunner
    if session.plan.is_live:
        from lab.bisection import live_runner  # imports numpy, which exact mode does without

        runner = live_runner.start(session, work)
    else:
        runner = exact_runner.start(session, work)
    runner.run()
    answer = summarize(session, runner.state, out_of_time=runner.out_of_time)
    answer = Prover(session, work).prove(answer)
    answer, whole = packages.search_between_packages(session, answer, conclude, work)
    work.progress.log(f"{time.monotonic() - started:.0f} s in all")
    if whole and not runner.out_of_time and not any(change.needs_proof for change in answer.changes):
        records.save(session.folder / FILE, answer)
    else:
        work.progress.log(f"the budget was used up before all was done; go on by lab bisect resume {session.name}")
    return answer
