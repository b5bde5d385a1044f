"""What must hold of a culprit: it differs from its parent, fresh measurements say so, and without it all is well.

Each comparison is a stored result like any of `lab ab`, in the session's folder, so it can be shown, explained and
replayed by itself, and an interrupted proof goes on where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from msgspec.structs import replace

from lab.bisection.answer import Function, Proof
from lab.bisection.commit_range import Candidate, History
from lab.bisection.exact_state import changed
from lab.bisection.journal import safe_name
from lab.bisection.plan import BisectPlan
from lab.compare import exact, explain, live, results
from lab.compare.plan import ArmPlan, Plan
from lab.compare.results import AbResult
from lab.compare.runs import Run
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, UserError
from lab.core.executor import Work
from lab.guests import hardware
from lab.kernels import trees
from lab.kernels.kernel import KernelSpec, resolve
from lab.stats.verdict import Comparison, Metric

_FUNCTIONS = 10


@dataclass(frozen=True)
class Prover:
    """Confirms culprits of one session."""

    plan: BisectPlan
    history: History
    metric: Metric
    folder: Path
    work: Work

    def prove(self, culprit: Candidate, parent: str, expected: Comparison, *, revert: bool) -> Proof:
        """Everything about one culprit, against the kernel spec of its parent."""
        place = self.place(culprit)
        base, test = (self._arm(spec) for spec in (parent, culprit.spec))
        result = self._compare(place / "parent", base, test, f"{culprit.name} against its parent, fresh seeds")
        fresh = self._comparison(result)
        same_image = self._booted(result, "base") == self._booted(result, "test")
        confirmed = not same_image and changed(fresh) and _same_side(fresh, expected)
        return replace(
            Proof(
                confirmed=confirmed,
                same_image=same_image,
                fresh=fresh,
                result=result.result,
                functions=self._functions(place / "parent", result) if changed(fresh) else [],
            ),
            **(self.revert(place, culprit) if revert else {}),
        )

    def place(self, culprit: Candidate) -> Path:
        """Where the comparisons of a culprit are kept."""
        return self.folder / "proof" / safe_name(culprit.name)

    def explain(self, folder: Path, parent: str, culprit: str) -> list[Function]:
        """The functions that cost something else than in the parent, by a comparison in exact mode made for this."""
        base, test = (self._arm(spec) for spec in (parent, culprit))
        plan = replace(
            self.plan.comparison(base, test), mode="exact", live=None, seeds=1, fixed_seeds=True, model="full",
            machine=hardware.DEFAULT,
        )  # fmt: skip
        return self._functions(folder, self._compare(folder, base, test, "which functions changed", plan))

    def _arm(self, spec: str) -> ArmPlan:
        return ArmPlan(spec=resolve(spec, self.history.tree, progress=self.work.progress), cc=self.plan.new.cc)

    def _compare(self, folder: Path, base: ArmPlan, test: ArmPlan, what: str, plan: Plan | None = None) -> AbResult:
        """A comparison, unless it was finished before."""
        if (folder / "result.json").is_file():
            return results.load_result(folder)
        self.work.progress.log(f"proof: {what}")
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        plan = plan or self.plan.comparison(base, test)
        if not (folder / "plan.json").exists():
            results.store_plan(folder, plan)
        measure = live.measure if plan.live else exact.measure
        return measure(plan, folder, self.work.until(None))

    def _comparison(self, result: AbResult) -> Comparison:
        """The metric that the search went by."""
        (case,) = result.cases
        found = next((c for c in case.metrics if c.name == self.metric.name), None)
        return found or case.primary

    def _booted(self, result: AbResult, arm: str) -> tuple[str, dict[str, str]]:
        """What an arm booted, as its guests' command lines name it, and what was set in it."""
        folder = results.open_folder(result.result)
        run = records.load(next((folder / "runs").glob(f"*-{arm}-*.json")), Run)
        settings = (result.base if arm == "base" else result.test).settings
        return records.file_digest(Path(run.argv[run.argv.index("-kernel") + 1])), settings

    # ---- without the culprit

    def revert(self, place: Path, culprit: Candidate) -> dict[str, object]:
        """The new end with the culprit taken out, against the new end as it is."""
        new = self._arm(self.history.new.spec)
        try:
            without = self._without(place, culprit, new.spec)
        except UserError as error:
            return {"not_reverted": error.message}
        try:
            result = self._compare(place / "reverted", new, without, f"the new end without {culprit.name}")
        except (BuildFailed, GuestFailed) as error:
            return {"not_reverted": error.message}
        return {"reverted": self._comparison(result), "revert_result": result.result}

    def _without(self, place: Path, culprit: Candidate, new: KernelSpec) -> ArmPlan:
        tree = trees.open_tree(self.history.tree)
        patch = place / f"revert-{culprit.name}.patch"
        place.mkdir(parents=True, exist_ok=True)
        words = ("diff-tree", "-p", "--binary", "--full-index", "-R", f"{culprit.id}^", culprit.id)
        records.write_atomic(patch, tree.source.git_bytes(*words))
        suffix = self.history.new.spec.removeprefix(self.history.new.id)
        return self._arm(f"{self.history.new.id}+{patch}{suffix}")

    # ---- why

    def _functions(self, folder: Path, result: AbResult) -> list[Function]:
        """The functions that differ most, from one guest of each arm under the cost model; reports find them again."""
        told = explain.find(folder, result, self.work).explanation
        return [
            Function(
                name=row.name,
                space=row.space,
                base=_digits(told.per_operation(row, "base")),
                test=_digits(told.per_operation(row, "test")),
            )
            for row in explain.differing(told)[:_FUNCTIONS]
        ]


def _same_side(one: Comparison, other: Comparison) -> bool:
    """Whether both went the same way."""
    return one.ratio is None or other.ratio is None or (one.ratio > 1) == (other.ratio > 1)


def _digits(value: Fraction) -> float:
    return round(float(value), 3)
