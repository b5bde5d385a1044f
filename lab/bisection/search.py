"""The whole of a bisection: the search, the proof, the search between two packages, and the answer that is kept."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from lab.bisection import difference_runner, exact_runner, request, session
from lab.bisection.answer import FILE, Answer, Culprit
from lab.bisection.commit_range import SPLIT, Candidate, is_ancestor
from lab.bisection.difference_runner import DifferenceProver
from lab.bisection.exact_runner import ExactRunner
from lab.bisection.journal import safe_name
from lab.bisection.plan import BisectPlan
from lab.bisection.proof import Prover
from lab.bisection.request import BisectRequest
from lab.bisection.search_state import SearchState
from lab.bisection.session import PLAN, Session
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, Undecided, UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.kernels import revisions, trees
from lab.kernels.spec import parse

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
    answer, whole = _between_packages(session, answer, work)
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
    return replace(change, inside=advice(session.plan, history.find(change.before), history.find(change.commit)))


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


# ---- between two neighbouring packages: a bisection of its own among the commits between their sources

# It is kept in the outer bisection's folder. Its kernels are built with the lab's kconfig and without the distributor's
# additions, so the search measures both ends again, and they have to show the change again.

_UPSTREAM = re.compile(r"(?:\d+:)?(\d+\.\d+(?:\.\d+)?)(?:~(rc\d+))?")


class SourceRange(NamedTuple):
    """A tree, and the revisions in it that two packages were made from."""

    tree: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.old} to {self.new} in tree {self.tree}"

    def argv(self, plan: BisectPlan) -> list[str]:
        """The command line of a search like the plan's in this range."""
        what = ["--run", plan.run] if plan.run else ["-w", plan.selection]
        argv = ["lab", "bisect", "--old", self.old, "--new", self.new, "--tree", self.tree, *what]
        argv += ["--metric", plan.metric] if plan.metric else []
        return argv + (["--mode", "live"] if plan.live else [])


def source_range(old: Candidate, new: Candidate) -> SourceRange | None:
    """The range between the sources of two packages, in the first tree that has both."""
    for record in trees.list_trees():
        for first, last in _revision_pairs(old, new):
            if _connected(record.name, first, last):
                return SourceRange(record.name, first, last)
    return None


def advice(plan: BisectPlan, before: Candidate, culprit: Candidate) -> str:
    """The commands that lead from two packages to a commit, or the reason why there are none."""
    if sources := source_range(before, culprit):
        return shlex.join(sources.argv(plan))
    pairs = _revision_pairs(before, culprit)
    if not pairs:
        return f"{before.title} and {culprit.title} do not say which kernels they were made from"
    old, new = pairs[-1]
    first, last = parse(old).body, parse(new).body
    if first == last:
        return f"both were made from {first}: it is in the distributor's changes"
    add = shlex.join(["lab", "tree", "add", trees.STABLE, "--name", "stable"])
    search = shlex.join(SourceRange("stable", old, new).argv(plan))
    return f"no tree known here leads from {first} to {last}; `{add}`, then `{search}`"


def _revision_pairs(old: Candidate, new: Candidate) -> list[tuple[str, str]]:
    return list(zip(_revisions(old), _revisions(new), strict=False))


def _revisions(kernel: Candidate) -> list[str]:
    """A revision itself, or the tags of a package's source with its architecture and settings.

    They are the distributor's tag, as the default tree has it, and upstream's.
    """
    parsed, version = parse(kernel.spec), kernel.title
    if parsed.kind == "rev":
        return [kernel.spec]
    match = _UPSTREAM.match(version)
    if match is None:
        return []
    upstream = "-".join(part for part in match.groups() if part)
    guests = parsed.body.partition(":")[2]
    suffix = (f"%arch={guests}" if guests else "") + parsed.text.removeprefix(f"{parsed.kind}:{parsed.body}")
    tags = ("debian/" + version.replace("~", "_").replace(":", "%"), f"v{upstream}")
    return [tag + suffix for tag in tags]


def _connected(tree: str, old: str, new: str) -> bool:
    """True if a tree leads from one revision to another; False for a tree without them, or whose checkout is gone."""
    try:
        opened = trees.open_tree(tree)
        first, last = (revisions.resolve_commit(opened, parse(end).body)[0] for end in (old, new))
    except UserError:
        return False
    return first != last and is_ancestor(opened.source, first, last)


def _between_packages(outer: Session, answer: Answer, work: Work) -> tuple[Answer, bool]:
    """The answer, each change with the result of a search among the commits; and whether all of these are finished."""
    if outer.history.kind != "packages" or not outer.plan.inside:
        return answer, True
    searched = [_search_between(outer, change, work) for change in answer.changes]
    return replace(answer, changes=[change for change, _ in searched]), all(finished for _, finished in searched)


def _search_between(outer: Session, change: Culprit, work: Work) -> tuple[Culprit, bool]:
    before, culprit = outer.history.find(change.before), outer.history.find(change.commit)
    sources = source_range(before, culprit) if change.is_single else None
    if sources is None:
        return change, True
    if work.out_of_time:
        return change, False
    work.progress.log(f"going on between {sources.old} and {sources.new} of tree {sources.tree}")
    folder = outer.folder / "inside" / safe_name(change.commit)
    try:
        inner = conclude(_inner_session(outer.plan, sources, folder, work.progress), work)
    except (UserError, Undecided, BuildFailed, GuestFailed) as error:
        by_hand = shlex.join(sources.argv(outer.plan))
        text = f"{sources}: {error.message}; again by hand: {by_hand}"
        # Undecided searches had too little budget; the others would be the same again.
        return replace(change, inside=text), not isinstance(error, Undecided)
    text = f"{sources}: {_sentence(inner)} (lab report {inner.result})"
    return replace(change, inside=text, inside_result=inner.result), (folder / FILE).exists()


def _inner_session(plan: BisectPlan, sources: SourceRange, folder: Path, progress: Progress) -> Session:
    """The inner search, new or in its last state."""
    if (folder / PLAN).exists():
        return session.load(folder)
    live = plan.live
    ends: dict[str, Any] = dict(zip(plan.terms, (sources.old, sources.new), strict=True))
    model: Any = None if live else plan.model
    wanted = BisectRequest(
        **ends,
        tree=sources.tree,
        workload=plan.selection,
        metric=plan.metric,
        mode=plan.mode,
        confidence=plan.confidence,
        threshold=plan.threshold,
        seeds=plan.seeds,
        max_seeds=plan.max_seeds,
        probe=plan.probes,
        model=model,
        machine=plan.machine,
        cc=plan.new.cc,
        qemu=plan.qemu,
        guest_timeout=plan.guest_timeout_s,
        speculate=plan.speculate,
        accel=live.accelerator if live else "auto",
        cpus=live.vcpus if live else None,
        iterations=live.iterations if live else None,
        run=plan.run,
    )
    made, history = request.plan(wanted, sources.argv(plan), progress)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    return session.create(folder, made, history)


def _sentence(answer: Answer) -> str:
    if not answer.changes:
        return f"{answer.outcome}: {answer.reason}"
    return f"{answer.outcome}: {', '.join(map(_change, answer.changes))}"


def _change(change: Culprit) -> str:
    place = "by" if change.is_single else "at or before"
    return f'{change.direction or "change"} {place} {change.commit[:12]} ("{change.title}")'
