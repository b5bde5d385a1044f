"""One step for `git bisect run`: the commit that the user's checkout is at, decided against both ends.

The checkout is only read: the commit's kernel is built in the lab's own folders. All readings are kept, those of the
ends too, so that each step measures one commit, and no commit is measured twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lab.bisection import exact_state
from lab.bisection.commit_range import Candidate, History, suffix_of
from lab.bisection.exact_runner import ExactRunner
from lab.bisection.exact_state import ExactState
from lab.bisection.journal import Journal, Reading
from lab.bisection.plan import BisectPlan
from lab.bisection.request import BisectRequest, Terms, plan_for
from lab.bisection.session import JOURNAL, Session, conditions
from lab.compare import result_folders
from lab.core import paths, records
from lab.core.errors import UserError
from lab.core.executor import Work
from lab.core.git import Repo
from lab.core.process import CommandFailed
from lab.core.progress import Progress
from lab.guests import exact, image
from lab.guests.plugin import load_instrument
from lab.kernels import architecture, trees
from lab.kernels.kernel import KernelSpec
from lab.workloads import selection

GOOD, BAD, UNTESTABLE = 0, 1, 125


@dataclass(frozen=True)
class Decision:
    """The exit status for `git bisect run`, and a line for people."""

    status: int
    text: str


def take(request: BisectRequest, checkout: Path, work: Work) -> Decision:
    """Decide the commit that a checkout is at. An exception never says anything about the commit."""
    tree = trees.open_local(checkout)
    if not request.terms() and (begun := _begun_with(tree.source)) is not None:
        terms, ends = begun
        request = replace(request, **dict(zip(terms, ends, strict=True)))
    request = replace(request, tree=tree.name).completed()
    plan = plan_for(request, *request.ends(), [], work.progress)
    if plan.case is None:
        raise UserError(f"{plan.workload} has several cases", hint="name one: NAME:CASE, or `case` in the recipe")
    commit = _commit_at(tree.source)
    first, last = _id(plan.old.spec), _id(plan.new.spec)
    if commit in (first, last):
        return Decision(BAD if commit == last else GOOD, f"it is the {plan.terms[commit == last]} end")
    history = _history(plan, tree.name, first, commit, last)
    folder = _folder(plan, work.progress)
    with result_folders.claimed(folder):
        session = Session(
            folder=folder, plan=plan, history=history, journal=Journal(folder / JOURNAL), conditions=conditions(folder)
        )
        runner = ExactRunner(session=session, work=work)
        reading = runner.single(history[0])
        return decided(runner.state, reading)


def _begun_with(repo: Repo) -> tuple[Terms, tuple[str, str]] | None:
    """The ends that a running `git bisect` started with, from its own log."""
    try:
        log = repo.path_of("BISECT_LOG").read_text()
        terms = repo.path_of("BISECT_TERMS").read_text().split()
    except (OSError, CommandFailed):
        return None
    bad, good = (*terms, "bad", "good")[:2] if len(terms) == 2 else ("bad", "good")
    found = [re.search(rf"^# {re.escape(term)}: \[([0-9a-f]{{40}})\]", log, re.MULTILINE) for term in (good, bad)]
    if not all(found):
        return None
    first, last = (match[1] for match in found if match)
    return ("good", "bad") if (good, bad) == ("good", "bad") else ("old", "new"), (first, last)


def _commit_at(repo: Repo) -> str:
    """The commit to decide: BISECT_HEAD if git does not check out, else HEAD."""
    commit = repo.commit("BISECT_HEAD") or repo.commit("HEAD")
    if commit is None:
        raise UserError(f"{repo.git_dir} has no commit checked out")
    return commit


def _history(plan: BisectPlan, tree: str, first: str, commit: str, last: str) -> History:
    """A range of the commit and its ends alone."""
    suffix = suffix_of(plan.new.spec.text)
    old, middle, new = (
        Candidate(id=name, title=name[:12], spec=name + suffix, parents=(before,) if before else ())
        for name, before in ((first, ""), (commit, first), (last, commit))
    )
    return History(kind="commits", old=old, candidates=[middle, new], tree=tree)


def _id(spec: KernelSpec) -> str:
    if spec.tree_source is None:
        raise UserError(f"{spec.text} is no revision", hint="`git bisect run` steps through commits")
    return spec.tree_source.commit


def _folder(plan: BisectPlan, progress: Progress) -> Path:
    """The folder of all steps with the same plan, emulator, machine, image and model."""
    workload, _ = selection.select(plan.selection)
    instrument = load_instrument(plan.machine, workload.model_for(plan.model))
    guests = architecture.load(plan.new.spec.architecture)
    conditions_ = [
        plan,
        exact.find_qemu(plan.qemu, guests, contends=workload.contends),
        exact.exact_machine(guests.name),
        image.obtain(progress, packages=workload.packages, guests=guests.name)[0].sha256,
        instrument.of(workload.name).identity if instrument else "none",
    ]
    return paths.cache_dir("steps", records.digest(conditions_)[:24])


def decided(state: ExactState, reading: Reading) -> Decision:
    """A reading as a status. One like neither end goes to an end that is much nearer: git knows no third side."""
    old, new = state.plan.terms
    text = reading.failure if reading.untestable else state.describe(reading.commit)
    level = state.known.levels.get(0)
    if level is None:
        return Decision(UNTESTABLE, text)
    if level in (0, 1):
        return Decision((GOOD, BAD)[level], text)
    if not reading.values:
        return Decision(BAD, text)
    ends = [state.readings[end.id].values for end in state.history.ends]
    far = [exact_state.distance(reading.values[: len(end)], end[: len(reading.values)]).size for end in ends]
    if 2 * min(far) > max(far):
        return Decision(UNTESTABLE, f"{text}: between {old} and {new}, perhaps another change")
    nearest = far.index(min(far))
    return Decision((GOOD, BAD)[nearest], f"{text}, nearer to {(old, new)[nearest]}: there is another change")
