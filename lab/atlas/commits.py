"""The commits behind steps: a bisection between the sources of two kernels, if a tree has both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from lab.atlas.data import NOT_PROVED, ONE_WAY, Atlas, Bisected, CaseInfo, Column
from lab.atlas.judgement import Change, Judgement
from lab.bisection import answer, request, search, session
from lab.bisection.answer import Answer, Culprit, Proof
from lab.bisection.commit_range import Candidate
from lab.bisection.plan import BisectPlan
from lab.bisection.proof import same_side
from lab.bisection.request import BisectRequest
from lab.bisection.search import SourceRange
from lab.bisection.session import Session
from lab.compare import result_folders
from lab.compare.comparison import measure_part
from lab.compare.plan import Plan
from lab.core.errors import Undecided, UserError
from lab.core.executor import Work
from lab.core.text import plural
from lab.kernels import trees
from lab.kernels.kconfig import NOTHING
from lab.stats import verdict
from lab.stats.verdict import Comparison, percent
from lab.workloads import selection

LEAST_STEP = 0.05
"""The smallest step that the hunks of another one are tried on, as a share of the cost."""

LEAST_SHARE = 0.5
"""The smallest part of a step that makes hunks its cause, if a search was about another step."""


def sources(base: Column, test: Column) -> SourceRange:
    """The range between the sources of two kernels, in the first tree that has both."""
    ends = [Candidate(id=one.id, title=one.version, spec=one.spec, parents=()) for one in (base, test)]
    found = search.source_range(*ends)
    if found is None:
        raise UserError(
            f"no tree known here leads from {base.version} to {test.version}",
            hint=f"lab tree add {trees.STABLE} --name stable",
        )
    return found


def bisect(
    atlas: Atlas, case: CaseInfo, base: Column, test: Column, command: Sequence[str], work: Work,
    resume: str | None = None,
) -> Bisected:  # fmt: skip
    """Bisect a step of an atlas within the budget. command: the command line that started it.

    resume: the search that goes on, or whose answer is taken if it has ended.

    The lab builds the kernels, so a step between packages has to show again between the ends. They have the options
    that any case of the atlas needs. Sources of packages have no history: the search is among their hunks.
    """
    started = session.find(resume) if resume else _begin(atlas, case, base, test, command, work)
    if (about := started.plan.selection) != selection.canonical(case.name):
        raise UserError(f"{started.name} is about {about}, not about {case.name}")
    with result_folders.claimed(started.folder):
        finished = (started.folder / answer.FILE).exists()
        found = answer.load(started.folder) if finished else search.conclude(started, work)
    largest = _largest(found)
    if largest is None:
        again = f"; go on by --resume {started.name}" if work.out_of_time else ""
        between = f"{base.version} to {test.version}"
        raise Undecided(f"{case.name}, {between}: {found.outcome}: {found.reason}", hint=f"{found.repeat}{again}")
    cause = Bisected(case=case.name, base=base.id, test=test.id, subject=largest.title, result=started.name)
    if largest.hunks is None:
        return replace(cause, commit=largest.commit)
    return replace(cause, share=round(largest.hunks.share, 3), proof=_proof(largest.proof))


def _begin(
    atlas: Atlas, case: CaseInfo, base: Column, test: Column, command: Sequence[str], work: Work
) -> Session:  # fmt: skip
    """A new bisection of a step."""
    basis = atlas.bases[0]
    metric = basis if basis == "instructions" else None  # the others decide by themselves
    wanted = BisectRequest(workload=case.name, metric=metric, mode="exact")
    if all(one.spec.startswith("src:") for one in (base, test)):
        wanted = replace(wanted, by="hunks", old=base.spec, new=test.spec)
    else:
        found = sources(base, test)
        wanted = replace(wanted, old=found.old, new=found.new, tree=found.tree)
    plan, history = request.plan(wanted, command, work.progress)
    folder = result_folders.new_folder(None)
    with result_folders.claimed(folder):
        return session.create(folder, replace(plan, built_in=_built_in(atlas)), history)


def _built_in(atlas: Atlas) -> list[str]:
    """The options that the kernels of an atlas have built in: those that any of its cases needs."""
    found = NOTHING
    for case in atlas.cases:
        with suppress(UserError):  # a case of another edition
            found |= selection.needs_of([case.name])
    return sorted(found.required | found.optional)


def _largest(found: Answer) -> Culprit | None:
    """The largest of the changes that are pinned down; None if there is none."""
    return next((change for change in found.changes if change.is_single), None) if found.named else None


def carried(judged: Judgement, found: Bisected, work: Work) -> Iterator[Bisected]:
    """The other steps between the same kernels of which proved hunks carry at least half, each with its own proof.

    Steps come in groups, since one change moves many cases. The kernels of the proof boot once more, with all cases
    that need nothing else built in; both comparisons of the proof must show the change.
    """
    folder = result_folders.open_folder(found.result)
    largest = _largest(answer.load(folder)) if (folder / answer.FILE).exists() else None
    if largest is None or largest.hunks is None or largest.proof is None or not largest.proof.confirmed:
        return
    plan, proof = session.load(folder).plan, largest.proof
    steps = _alike(judged, found, plan)
    if not steps:
        return
    question = f"do these hunks carry {plural(len(steps), 'other step')} between the same kernels, too?"
    if work.out_of_time:
        work.progress.log(f"{question} The budget is used up; --resume {found.result} tries that")
        return
    work.progress.log(question)
    with result_folders.claimed(folder):
        whole, *sides = _of_others(folder, plan, proof, steps, work)
    for name in [name for name in whole if all(name in one for one in sides)]:
        fresh, *applied = (one[name] for one in sides)
        share = verdict.distance(fresh.ratio) / verdict.distance(whole[name].ratio)
        if share >= LEAST_SHARE and all(same_side(one, whole[name]) for one in (fresh, *applied)):
            own = replace(proof, fresh=fresh, applied=next(iter(applied), None))
            yield replace(found, case=name, share=round(share, 3), proof=_proof(own))


def _of_others(
    folder: Path, plan: BisectPlan, proof: Proof, steps: Sequence[Change], work: Work
) -> list[dict[str, Comparison]]:  # fmt: skip
    """The changes of the steps' cases between the ends of a search, and in each comparison of its proof."""
    wanted = [(plan.comparison(plan.old, plan.new), folder / "others")]
    for place in (result_folders.open_folder(result) for result in (proof.result, proof.applied_result) if result):
        wanted.append((result_folders.load_plan(place), place.with_name(f"{place.name}-others")))
    return [_compared(arms, place, steps, work) for arms, place in wanted]


def _alike(judged: Judgement, found: Bisected, plan: BisectPlan) -> list[Change]:
    """The other large steps between the same kernels, without another cause, that need nothing else built in.

    plan: of the search.
    """
    known = {(one.case, one.base, one.test) for one in judged.atlas.bisected if one.subject != found.subject}
    needs = plan.needs(selection.select_all([found.case]))
    return [
        step
        for step in judged.steps(judged.atlas.bases[0])
        if (step.base.id, step.test.id) == (found.base, found.test) and step.is_of(LEAST_STEP)
        if (step.case.name, found.base, found.test) not in known and step.case.name != found.case
        if plan.needs(selection.select_all([step.case.name])) == needs
    ]


def _compared(plan: Plan, place: Path, steps: Sequence[Change], work: Work) -> dict[str, Comparison]:
    """The changes of the steps' cases between the arms of a plan; cases without a change are left out."""
    selected = replace(plan, workloads=[step.case.name for step in steps])
    result = measure_part(selected, place, work.until(None))
    return {case.name: case.primary for case in result.cases if not case.failed and case.verdict.is_change}


def _proof(proof: Proof | None) -> str:
    """The proof of hunks in a few words."""
    if proof is None or proof.fresh is None or not proof.confirmed:
        return NOT_PROVED
    there = f"proved by fresh seeds ({percent(proof.fresh.ratio)}"
    if proof.applied is None:
        return f"{there}; {ONE_WAY})"
    return f"{there}; the older kernel with them{proof.applied_beside} {percent(proof.applied.ratio)})"


def added(atlas: Atlas, found: Bisected) -> Atlas:
    """The atlas with a commit; an older answer for the same step goes."""
    key = found.case, found.base, found.test
    others = [one for one in atlas.bisected if (one.case, one.base, one.test) != key]
    return replace(atlas, bisected=(*others, found))
