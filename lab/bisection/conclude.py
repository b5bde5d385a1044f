"""From a session to its answer: search, then proof, then the page that is kept."""

from __future__ import annotations

import time
from functools import partial

from msgspec.structs import replace

from lab.bisection import answer as answers
from lab.bisection import packages, summarize
from lab.bisection.answer import Answer, Found, Proof
from lab.bisection.exact_runner import Search
from lab.bisection.proof import Prover
from lab.bisection.session import LIVE, PLAN, Session
from lab.compare import exact, results
from lab.compare.results import AbResult
from lab.core.errors import HostFailed, Undecided, UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.core.records import save
from lab.stats.verdict import Metric, Outcome, distance, percent
from lab.workloads import selection


def conclude(session: Session, work: Work) -> Answer:
    """Do what is left of a session, and keep the answer."""
    if session.plan.mode == LIVE:
        return _conclude_live(session, work)
    started = time.monotonic()
    announce(session, work.progress)
    if session.plan.case is None:
        choose_case(session, work)
    search = Search(session=session, work=work)
    search.run()
    if not session.started:
        raise _too_short(session, "both ends were measured")
    answer = summarize.make(session, out_of_time=search.out_of_time)
    answer = _proven(session, answer, work)
    answer, whole = packages.go_on(session, answer, conclude, work)
    work.progress.log(f"{time.monotonic() - started:.0f} s in all")
    if whole and not search.out_of_time and not any(map(_unproven, answer.changes)):
        answers.save(session.folder, answer)
    else:
        work.progress.log(f"the budget was used up before all was done; go on by lab bisect resume {session.name}")
    return answer


def _conclude_live(session: Session, work: Work) -> Answer:
    from lab.bisection import live_conclude  # brings numpy along, which exact mode does without
    from lab.bisection.live_runner import Boots

    live_conclude.announce(session, work.progress)
    booter = Boots(session.plan, session.history, session.folder, work)
    prover = _prover(session, booter.metric, work)
    go_on = partial(packages.go_on, session, conclude=conclude, work=work)
    return live_conclude.conclude(session, booter, prover, work, go_on=go_on)


def announce(session: Session, progress: Progress) -> None:
    """Say what will be done, before it starts."""
    history, plan = session.history, session.plan
    count = len(history.candidates)
    steps = session.state.steps_left if session.started else (count - 1).bit_length()
    seeds = len(session.journal.seeds or []) or plan.seeds or 3
    known = len(session.journal.readings)
    ends = "" if known else ", and the ends"
    progress.log(
        f"{count} {history.kind}, {known} readings so far: about {steps} more to measure{ends}, "
        f"each a kernel and {seeds} guests; then the proof. To go on after any stop: lab bisect resume {session.name}"
    )


def choose_case(session: Session, work: Work) -> None:
    """With several cases asked for, the one that the ends differ most in decides; it is kept in the plan."""
    plan = session.plan
    work.progress.log(f"comparing the ends in all cases of {plan.selection}, to choose one")
    place = session.folder / "ends"
    (place / "runs").mkdir(parents=True, exist_ok=True)
    compared = plan.comparison(plan.old, plan.new)
    if not (place / "plan.json").exists():
        results.store_plan(place, compared)
    try:
        found = exact.measure(compared, place, work)
    except HostFailed as error:
        if work.out_of_time:
            raise _too_short(session, "a case was chosen") from error
        raise
    if work.out_of_time:
        raise _too_short(session, "a case was chosen")
    chosen = _most_changed(found, worse_only=plan.worse_only)
    only = selection.only([plan.selection], plan.workload, chosen)
    session.plan = replace(plan, case=chosen, selection=only)
    save(session.folder / PLAN, session.plan)


def _too_short(session: Session, until: str) -> Undecided:
    return Undecided(
        f"the budget was used up before {until}; what was measured is kept",
        hint=f"go on by `lab bisect resume {session.name}`",
    )


def _most_changed(found: AbResult, *, worse_only: bool) -> str:
    moved = [
        case
        for case in found.cases
        if case.verdict.is_change and (not worse_only or case.verdict == Outcome.REGRESSION)
    ]
    if not moved:
        raise UserError(
            f"no culprit: the ends do not differ in any of {len(found.cases)} cases ({found.reason})",
            hint="name one case, as in --workload NAME:CASE, to look between the ends as well",
        )
    return max(moved, key=lambda case: distance(case.primary.ratio)).case


def _proven(session: Session, answer: Answer, work: Work) -> Answer:
    """Fresh comparisons for every culprit that is one commit; as far as the budget goes."""
    assert session.conditions is not None  # noqa: S101  (the search measured something)
    prover = _prover(session, session.conditions.metric, work)
    proofs = [
        _prove(prover, session, one) if _unproven(one) and not work.out_of_time else None for one in answer.changes
    ]
    return summarize.with_proofs(answer, proofs, session.plan.alpha)


def _prover(session: Session, metric: Metric, work: Work) -> Prover:
    return Prover(plan=session.plan, history=session.history, metric=metric, folder=session.folder, work=work)


def _unproven(one: Found) -> bool:
    """Whether a change is still to be proved: a single commit whose effect is known."""
    return one.settled and one.effect is not None and one.proof is None


def _prove(prover: Prover, session: Session, one: Found) -> Proof:
    assert one.effect is not None  # noqa: S101  (of what is to be proved, it is known)
    history = session.history
    culprit = history[history.number(one.commit)]
    parent = _parent(session, one)
    prover.work.progress.log(f"{culprit.name} changed it by {percent(one.effect.ratio)}; proving that")
    return prover.prove(culprit, parent, one.effect, revert=history.kind == "commits")


def _parent(session: Session, one: Found) -> str:
    """What a culprit is compared with: its parent, as a spec."""
    history = session.history
    if history.kind != "commits":
        return history[history.number(one.before)].spec
    # With path limits the parent in the range may be far off; the commit itself is to be convicted.
    suffix = history.new.spec.removeprefix(history.new.id)
    return f"{one.commit}^{suffix}"
