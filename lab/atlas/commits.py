"""The commits behind steps: a bisection between the sources of two kernels, where a tree has both."""

from __future__ import annotations

import shlex

import msgspec

from lab.atlas.data import Atlas, Bisected, CaseInfo, Column
from lab.bisection import packages, request, search, session
from lab.bisection.commit_range import Candidate
from lab.bisection.packages import SourceRange
from lab.bisection.request import BisectRequest
from lab.compare import result_folders
from lab.core.errors import Undecided, UserError
from lab.core.executor import Work
from lab.guests.costs import Basis
from lab.kernels import trees


def sources(base: Column, test: Column) -> SourceRange:
    """The range between the sources of two kernels, in the first tree that has both."""
    ends = [Candidate(id=one.id, title=one.version, spec=one.spec, parents=()) for one in (base, test)]
    found = packages.source_range(*ends)
    if found is None:
        raise UserError(
            f"no tree known here leads from {base.version} to {test.version}",
            hint=f"lab tree add {trees.STABLE} --name stable",
        )
    return found


def bisect(case: CaseInfo, base: Column, test: Column, basis: Basis, work: Work) -> Bisected:
    """Bisect a step, as long as the budget lasts; a search that was stopped is gone on with by `lab bisect resume`.

    Kernels are built with the lab's own configuration, so the step has to show again between the ends.
    """
    between = sources(base, test)
    metric = None if basis == "cycles" else basis  # cycles decide by themselves
    wanted = BisectRequest(
        old=between.old, new=between.new, tree=between.tree, workload=case.name, metric=metric, mode="exact"
    )
    argv = ["lab", "bisect", "--old", between.old, "--new", between.new, "--tree", between.tree]
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
    titles = {step.commit: step.title for step in answer.path} | {answer.new.id: answer.new.title}
    return Bisected(
        case=case.name, base=base.id, test=test.id, commit=largest.commit,
        subject=titles.get(largest.commit, largest.title), result=name,
    )  # fmt: skip


def added(atlas: Atlas, found: Bisected) -> Atlas:
    """The atlas with a commit; an older answer for the same step goes."""
    key = found.case, found.base, found.test
    others = [one for one in atlas.bisected if (one.case, one.base, one.test) != key]
    return msgspec.structs.replace(atlas, bisected=(*others, found))
