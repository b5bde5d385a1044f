"""The proof of a culprit: it differs from its parent, fresh measurements confirm that, and a revert undoes it.

Each comparison is a stored result like any of `lab ab`, in the session's folder, so it can be shown, explained and
replayed by itself, and an interrupted proof continues where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from lab.bisection.answer import Answer, Culprit, Function, Proof
from lab.bisection.commit_range import Candidate, History
from lab.bisection.exact_runner import Measurer
from lab.bisection.exact_state import CHOOSE
from lab.bisection.journal import safe_name
from lab.bisection.plan import FAILED, BisectPlan
from lab.bisection.session import Session
from lab.compare import explain, result_folders
from lab.compare.comparison import measure_part
from lab.compare.lines import MetLine, differing
from lab.compare.plan import ArmPlan, Plan
from lab.compare.results import AbResult
from lab.compare.runs import Run
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, LabError, UserError
from lab.core.executor import Work
from lab.guests import hardware
from lab.kernels import trees
from lab.kernels.kernel import KernelSpec
from lab.stats.defaults import FIRST_LOOK_SEEDS
from lab.stats.verdict import Comparison, Outcome, compare_metric, percent

_FUNCTIONS = 10
_LINES = 5


@dataclass(frozen=True)
class Prover:
    """Confirms the culprits of one session."""

    session: Session
    work: Work

    @property
    def plan(self) -> BisectPlan:
        return self.session.plan

    @property
    def history(self) -> History:
        return self.session.history

    def prove(self, answer: Answer) -> Answer:
        """The answer with the proofs of its culprits, within the budget."""
        if self.plan.is_live:
            # The search itself ended with fresh boots of the culprit and its parent: the rest needs a confirmed one.
            if answer.outcome != "found" or self.work.out_of_time:
                return answer
            return replace(answer, changes=[self._complete(change) for change in answer.changes])
        changes = [self._prove(c) if c.needs_proof and not self.work.out_of_time else c for c in answer.changes]
        answer = replace(answer, changes=changes)
        unsure = [
            change
            for change in changes
            if change.proof and not (change.proof.confirmed and change.confidence >= 1 - self.plan.alpha)
        ]
        if not unsure or answer.outcome != "found":
            return answer
        names = ", ".join(change.commit[:12] for change in unsure)
        reason = f"fresh seeds do not confirm {names} with {100 * (1 - self.plan.alpha):g} % confidence"
        if all(change.proof and change.proof.contradicted for change in unsure):
            reason = f"the older end with the hunks of {names} does not change like that"
        disputed = [change.proof.fresh for change in unsure if change.proof and change.proof.fresh]
        reason += "".join(
            f"; {fresh.reason}{f'; {CHOOSE}' if fresh.rests_on_model else ''}"
            for fresh in disputed[:1]
            if fresh.verdict == Outcome.UNKNOWN
        )
        return replace(answer, outcome="undecided", reason=reason)

    def _prove(self, change: Culprit) -> Culprit:
        """A change with a comparison of its commit and the parent by fresh seeds, and the revert."""
        assert change.effect is not None  # noqa: S101  (else it is not `needs_proof`)
        culprit = self.history.find(change.commit)
        if self.plan.run:
            return self._prove_outcome(change, culprit)
        self.work.progress.log(f"{culprit.name} changed it by {percent(change.effect.ratio)}; proving that")
        place = self.place(culprit)
        base, test = (self._arm(spec) for spec in self._sides(change))
        result = self._compare(place / "parent", base, test, f"{culprit.name} against its parent, fresh seeds")
        fresh = self._comparison(result)
        same_image = self._booted(result, "base") == self._booted(result, "test")
        functions, lines = self._explained(place / "parent", result) if fresh.is_change else ([], [])
        proof = Proof(
            confirmed=not same_image and fresh.is_change and same_side(fresh, change.effect),
            same_image=same_image,
            fresh=fresh,
            result=result.result,
            functions=functions,
            lines=lines,
        )
        disputed = (fresh.verdict, fresh.more_blocks) == (Outcome.UNKNOWN, None)
        denied = same_image or disputed or fresh.verdict == Outcome.SAME or not same_side(fresh, change.effect)
        confidence = 0.0 if denied else 1 - fresh.p_value
        return replace(change, proof=self._with_revert(proof, culprit), confidence=confidence)

    def _prove_outcome(self, change: Culprit, culprit: Candidate) -> Culprit:
        """A change in whether a command works, by fresh seeds: a failure has no result that could be compared."""
        measurer, seeds = Measurer(self.session, self.work), range(1, FIRST_LOOK_SEEDS + 1)
        base, test = (measurer.measure(one, seeds) for one in (self.history.find(change.before), culprit))
        same = base.image == test.image
        fresh = compare_metric(
            FAILED, base.values, test.values, threshold=self.plan.threshold, alpha=self.plan.alpha, exact=True
        )
        assert change.effect is not None  # noqa: S101
        confirmed = not same and fresh.verdict == change.effect.verdict
        proof = Proof(confirmed=confirmed, same_image=same, fresh=fresh)
        return replace(change, proof=proof, confidence=1 - fresh.p_value if confirmed else 0.0)

    def _sides(self, change: Culprit) -> tuple[str, str]:
        """The kernel to compare a culprit with, and the culprit's, as specs."""
        culprit = self.history.find(change.commit).spec
        if self.history.kind != "commits":
            return self.history.find(change.before).spec, culprit
        # With path limits the parent in the range may be far off; the proof is about the commit itself.
        suffix = self.history.new.spec.removeprefix(self.history.new.id)
        return f"{change.commit}^{suffix}", culprit

    def _complete(self, change: Culprit) -> Culprit:
        """A change found by boots, with the revert, and the functions by exact mode: counting needs no clock."""
        assert change.proof is not None  # noqa: S101  (a change that is found was booted afresh)
        culprit, before = self.history.find(change.commit), self.history.find(change.before)
        proof = self._with_revert(change.proof, culprit)
        try:
            functions = self.explain(self.place(culprit) / "explain", before.spec, culprit.spec)
        except LabError as error:
            return replace(change, proof=replace(proof, note=f"not explained: {error.message}"))
        return replace(change, proof=replace(proof, functions=functions))

    def place(self, culprit: Candidate) -> Path:
        """The folder of a culprit's comparisons."""
        return self.session.folder / "proof" / safe_name(culprit.name)

    def explain(self, folder: Path, parent: str, culprit: str) -> list[Function]:
        """The functions whose cost changed against the parent, by a comparison in exact mode made for this."""
        base, test = (self._arm(spec) for spec in (parent, culprit))
        plan = replace(
            self.plan.comparison(base, test), mode="exact", live=None, seeds=1, fixed_seeds=True, model="full",
            machine=hardware.DEFAULT,
        )  # fmt: skip
        return self._explained(folder, self._compare(folder, base, test, "which functions changed", plan))[0]

    def _arm(self, spec: str) -> ArmPlan:
        return ArmPlan(spec=self.history.kernel(spec, progress=self.work.progress), cc=self.plan.new.cc)

    def _compare(self, folder: Path, base: ArmPlan, test: ArmPlan, what: str, plan: Plan | None = None) -> AbResult:
        """A comparison, unless it was finished before."""
        if result_folders.is_finished(folder):
            return result_folders.load_result(folder)
        self.work.progress.log(f"proof: {what}")
        return measure_part(plan or self.plan.comparison(base, test, self._threshold), folder, self.work.until(None))

    @cached_property
    def _threshold(self) -> float | None:
        """The search's: by the plan's own, a part of a change could not be proved, though the search found it."""
        state = self.session.state
        return state.threshold if state else None

    def _comparison(self, result: AbResult) -> Comparison:
        """The comparison of the search's own metric."""
        (case,) = result.cases
        metric = self.session.conditions.metric.name if self.session.conditions else None
        return next((c for c in case.metrics if c.name == metric), None) or case.primary

    def _booted(self, result: AbResult, arm: str) -> tuple[str, dict[str, str]]:
        """The digest of the kernel that an arm's guests booted, and the settings in them."""
        folder = result_folders.open_folder(result.result)
        run = records.load(next((folder / "runs").glob(f"*-{arm}-*.json")), Run)
        settings = (result.base if arm == "base" else result.test).settings
        return records.file_digest(Path(run.argv[run.argv.index("-kernel") + 1])), settings

    # ---- without the culprit

    def _with_revert(self, proof: Proof, culprit: Candidate) -> Proof:
        """The proof with a comparison of the new end and the new end without the culprit."""
        if self.history.kind != "commits":
            return proof
        place, new = self.place(culprit), self._arm(self.history.new.spec)
        try:
            without = self._without(place, culprit, new.spec)
        except UserError as error:
            return replace(proof, not_reverted=error.message)
        try:
            result = self._compare(place / "reverted", new, without, f"the new end without {culprit.name}")
        except (BuildFailed, GuestFailed) as error:
            return replace(proof, not_reverted=error.message)
        return replace(proof, reverted=self._comparison(result), revert_result=result.result)

    def _without(self, place: Path, culprit: Candidate, new: KernelSpec) -> ArmPlan:
        tree = trees.open_tree(self.history.tree)
        patch = place / f"revert-{culprit.name}.patch"
        place.mkdir(parents=True, exist_ok=True)
        argv = ("diff-tree", "-p", "--binary", "--full-index", "-R", f"{culprit.id}^", culprit.id)
        records.write_atomic(patch, tree.source.git_bytes(*argv))
        suffix = self.history.new.spec.removeprefix(self.history.new.id)
        return self._arm(f"{self.history.new.id}+{patch}{suffix}")

    # ---- the functions that changed

    def _explained(self, folder: Path, result: AbResult) -> tuple[list[Function], list[MetLine]]:
        """The functions and the lines that differ most, from one guest of each arm; reports find them again."""
        why = explain.find(folder, result, self.work)
        explanation, cost = why.explanation, why.cost
        functions = [
            Function(
                name=row.name,
                space=row.space,
                base=_digits(explanation.per_operation(row, "base", cost)),
                test=_digits(explanation.per_operation(row, "test", cost)),
                cost=cost,
                base_calls=_optional(explanation.calls_per_operation(row, "base")),
                test_calls=_optional(explanation.calls_per_operation(row, "test")),
            )
            for row in explain.differing(explanation, cost)[:_FUNCTIONS]
        ]
        return functions, differing(why.lines)[:_LINES]


def same_side(one: Comparison, other: Comparison) -> bool:
    """True if both changes go in the same direction."""
    return one.ratio is None or other.ratio is None or (one.ratio > 1) == (other.ratio > 1)


def _optional(value: Fraction | None) -> float | None:
    return None if value is None else _digits(value)


def _digits(value: Fraction) -> float:
    return round(float(value), 3)
