"""The commits behind steps: a bisection between the sources of two kernels, if a tree has both."""

from __future__ import annotations

import shlex

import msgspec

from lab.atlas.data import Atlas, Basis, Bisected, CaseInfo, Column
from lab.bisection import request, search, session
from lab.bisection.answer import Culprit
from lab.bisection.commit_range import Candidate
from lab.bisection.request import BisectRequest
from lab.bisection.search import SourceRange
from lab.compare import result_folders
from lab.core.errors import Undecided, UserError
from lab.core.executor import Work
from lab.kernels import trees
from lab.stats.verdict import percent


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


def bisect(case: CaseInfo, base: Column, test: Column, basis: Basis, work: Work) -> Bisected:
    """Bisect a step within the budget; `lab bisect resume` continues a stopped search.

    Kernels are built with the lab's own configuration, so the step has to show again between the ends. Sources of
    packages have no history: the search is among their hunks.
    """
    metric = basis if basis == "instructions" else None  # the others decide by themselves
    wanted = BisectRequest(workload=case.name, metric=metric, mode="exact")
    if all(one.spec.startswith("src:") for one in (base, test)):
        between = f"{base.spec} to {test.spec}"
        argv = ["lab", "bisect", "--by", "hunks", "--old", base.spec, "--new", test.spec]
        wanted = msgspec.structs.replace(wanted, by="hunks", old=base.spec, new=test.spec)
    else:
        found = sources(base, test)
        between = str(found)
        argv = ["lab", "bisect", "--old", found.old, "--new", found.new, "--tree", found.tree]
        wanted = msgspec.structs.replace(wanted, old=found.old, new=found.new, tree=found.tree)
    argv += ["-w", case.name, *(["--metric", metric] if metric else [])]
    plan, history = request.plan(wanted, argv, work.progress)
    folder = result_folders.new_folder(None)
    with result_folders.claimed(folder):
        answer = search.conclude(session.create(folder, plan, history), work)
    name = result_folders.reference(folder)
    single = [change for change in answer.changes if change.is_single]
    if not answer.named or not single:
        again = f"; go on by lab bisect resume {name}" if work.out_of_time else ""
        raise Undecided(f"{case.name}, {between}: {answer.outcome}: {answer.reason}", hint=shlex.join(argv) + again)
    largest = single[0]
    if largest.hunks is not None:
        return Bisected(
            case=case.name, base=base.id, test=test.id, subject=largest.title, share=round(largest.hunks.share, 3),
            result=name, proof=_proof(largest),
        )  # fmt: skip
    return Bisected(
        case=case.name, base=base.id, test=test.id, commit=largest.commit, subject=largest.title, result=name
    )


def _proof(change: Culprit) -> str:
    """The proof of hunks in a few words."""
    proof = change.proof
    if proof is None or proof.fresh is None or not proof.confirmed:
        return "not proved"
    there = f"proved by fresh seeds ({percent(proof.fresh.ratio)}"
    if proof.applied is None:
        return f"{there}; the other way does not build)"
    return f"{there}; the older kernel with them{proof.applied_beside} {percent(proof.applied.ratio)})"


def added(atlas: Atlas, found: Bisected) -> Atlas:
    """The atlas with a commit; an older answer for the same step goes."""
    key = found.case, found.base, found.test
    others = [one for one in atlas.bisected if (one.case, one.base, one.test) != key]
    return msgspec.structs.replace(atlas, bisected=(*others, found))
