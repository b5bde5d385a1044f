"""A search among files or hunks under way: the ends, their differences, then one mix of both after another.

A mix is a patch on the new end, so each is a kernel like any other, built where the new end was built.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from lab.bisection import exact_runner, suspects
from lab.bisection.answer import Culprit, Proof
from lab.bisection.commit_range import Candidate
from lab.bisection.difference_search import DifferenceState, Mix, Pending, mix_name
from lab.bisection.exact_runner import ExactRunner, Measurer, OutOfTime
from lab.bisection.hunks import Difference
from lab.bisection.proof import Prover, same_side
from lab.bisection.session import DIFFERENCE, HISTORY, Session
from lab.bisection.sources import Sources
from lab.compare import chains, explain, result_folders
from lab.compare.plan import ArmPlan
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, LabError, UserError
from lab.core.executor import Work
from lab.core.records import Record
from lab.core.text import plural
from lab.kernels import build
from lab.kernels.kernel import KernelSpec
from lab.kernels.symbols import base_name, kernel_symbols
from lab.stats.verdict import percent

_NAMED = 10
"""Functions that a line of the log names."""


class DifferenceRunner(ExactRunner):
    """Measures mixes until the state of the search asks for none, or time is up."""

    def run(self) -> None:
        """Go on from the journal's last event."""
        super().run()  # the ends
        try:
            while not self.out_of_time and self._step():
                pass
        except OutOfTime:
            self.out_of_time = True

    def _step(self) -> bool:
        """Measure the next mix; False if there is none."""
        if self.session.difference is None:
            if not self.state.differ:
                return False
            self._split()
        state = self.state
        assert isinstance(state, DifferenceState)  # noqa: S101
        if (pending := state.pending) is None:
            return False
        if self.work.out_of_time:
            raise OutOfTime
        self._measure_mix(state, pending)
        return True

    def _split(self) -> None:
        """Store the differences of the files that the builds of both ends read."""
        session, plan, log = self.session, self.session.plan, self.work.progress.log
        read = self.measurer.files_read(plan.old.spec) | self.measurer.files_read(plan.new.spec)
        sources = Sources(plan.old.spec, plan.new.spec)
        made = sources.difference(read)
        if not made.hunks:
            raise UserError("the ends differ in no file that a build reads", hint="compare them by `lab explain`")
        moved: dict[str, float] = {}
        try:
            moved, one_end = self._moved(sources.labels(made))
            whole = sum(map(abs, moved.values()))
            functions = {name: abs(change) / whole for name, change in moved.items() if change}
            made = replace(made, functions=functions, one_end=one_end)
        except LabError as error:
            log(f"the functions that changed are not known: {error.message}")
        with suppress(LabError):  # without the kernels' symbols, only named functions are suspects
            found = sources.inlined(made, [self._symbols(end.spec) for end in (plan.old, plan.new)])
            made = replace(made, functions=found | made.functions)
        records.save(session.folder / DIFFERENCE, made)
        session.difference = made
        as_newer = f", with {plural(len(made.names), 'name')} as in the newer end" if made.names else ""
        log(
            f"{plural(made.files, 'file')} differ, of which the builds read {len(made.by_path)}: "
            f"{plural(len(made.hunks), 'hunk')}"
            f"{as_newer}; functions that changed most: {', '.join(list(moved)[:_NAMED]) or 'none is known'}"
        )

    def _symbols(self, spec: KernelSpec) -> set[str]:
        """The names of the functions in a kernel, without the compiler's suffixes."""
        kernel = self.measurer.obtain(spec)
        table = kernel_symbols(kernel.vmlinux or kernel.bzimage, kernel.symbols)
        return {base_name(symbol.name) for symbol in table}

    def _moved(self, labels: Sequence[Set[str]]) -> tuple[dict[str, float], list[str]]:
        """The kernel's functions whose code changed the cost, by call chains if guests have them, and the amounts.

        Then the functions that one end alone runs, the most expensive first. labels: those of each assembly source.
        """
        session, place = self.session, self.session.folder / "explain"
        old, new = (end.spec for end in session.history.ends)
        functions = Prover(session, self.work).explain(place, old, new)
        kernel = [one for one in functions if one.space == "kernel"]
        moved = {one.name: one.own for one in kernel}
        alone = {one.name for one in kernel if not min(one.base, one.test)}
        changes = suspects.netted({one.name: one.test - one.base for one in kernel}, labels)
        one_end = [name for name in changes if name in alone]
        result = result_folders.load_result(place)
        try:
            found = chains.find(place, result.cases[0], self.work, cost=functions[0].cost if functions else "cycles")
        except LabError as error:
            self.work.progress.log(f"callers are not known: {error.message}")
            return moved, one_end
        explained = explain.remembered(place, result.cases[0])
        named = suspects.named(chains.changes(found, explained.explanation.call_ratios() if explained else {}))
        return suspects.netted(named, labels) or moved, one_end

    def _measure_mix(self, state: DifferenceState, pending: Pending) -> None:
        session, log = self.session, self.work.progress.log
        candidate = _candidate(session, state.difference, pending.mix)
        log(f"{candidate.name} ({pending.why}): {candidate.title}; about {plural(pending.left, 'build')} left")
        known = [*state.readings.values(), *state.mixes.values()]
        reading = self.measurer.measure(candidate, session.journal.seeds or [], known)
        if reading.untestable:
            reading = replace(reading, errors=_errors(reading.log, reading.why))
        session.journal.append(reading)
        after = self.state
        log(f"{candidate.name}: {after.describe(candidate.id)}; about {plural(after.steps_left, 'build')} left")


def _errors(log: str | Path | None, why: str) -> list[str]:
    """The errors of a failed build, while its log is there."""
    found: list[str] = []
    if log:
        with suppress(OSError):
            found = build.errors(Path(log).read_text(errors="replace"))
    return found or build.errors(why)


def _candidate(session: Session, difference: Difference, mix: Mix) -> Candidate:
    """A mix as a candidate of the history, added to it if it is new."""
    name, plan = mix_name(mix), session.plan
    if name in {candidate.id for candidate in session.history.candidates}:
        return session.history.find(name)
    place = session.folder.resolve() / "mixes" / f"{name}.patch"
    spec = Sources(plan.old.spec, plan.new.spec).without(difference, mix, place)
    made = Candidate(id=name, title=difference.describe(mix), spec=spec, parents=())
    *others, new = session.history.candidates
    session.history = replace(session.history, candidates=[*others, made, new])
    records.save(session.folder / HISTORY, session.history)
    return made


class Applied(Record, frozen=True, kw_only=True):
    """`proof/*/apply-*.json`: the hunks of the new end that the old end gets next, after builds that failed.

    error: that of the first of these builds. refused: hunks that it was given and does not build with.
    """

    schema: int = 1
    hunks: list[int]
    error: str
    refused: list[int] = msgspec.field(default_factory=list)


class DifferenceProver(Prover):
    """Confirms the parts of a search among files or hunks, both ways."""

    def _prove(self, change: Culprit) -> Culprit:
        """A part with its proof, the commits that touched its lines, and the declarations that it was lent."""
        proved = super()._prove(change)
        mix, difference = self._mix(change.commit), self.session.difference
        if proved.hunks is None or mix is None or difference is None:
            return proved
        sources = Sources(self.plan.old.spec, self.plan.new.spec)
        lent = sorted({name for own in sources.lent(difference, mix).values() for name in own})
        return replace(proved, hunks=replace(proved.hunks, commits=sources.commits(difference, mix), lent=lent))

    def _sides(self, change: Culprit) -> tuple[str, str]:
        """The new end without the hunks, and the new end."""
        return self.history.find(change.commit).spec, self.history.new.spec

    def _with_revert(self, proof: Proof, culprit: Candidate) -> Proof:
        """The proof with the other way: the old end with the hunks, and those that they need, against the old end."""
        if (mix := self._mix(culprit.id)) is None:
            return proof
        place, base = self.place(culprit), self._arm(self.history.old.spec)
        try:
            test, taken = self._applied(mix, place.resolve() / f"apply-{culprit.name}.patch")
            result = self._compare(place / "applied", base, test, "the older end with these hunks of the newer one")
        except (BuildFailed, GuestFailed) as error:
            return replace(proof, not_applied=error.message)
        applied = self._comparison(result)
        same = applied.is_change and (proof.fresh is None or same_side(applied, proof.fresh))
        return replace(
            proof, applied=applied, applied_result=result.result, applied_more=len(taken - mix),
            confirmed=proof.confirmed and same, contradicted=proof.confirmed and not same,
            note=None if same else f"the older end with them changes by {percent(applied.ratio)}",
        )  # fmt: skip

    def _applied(self, mix: Mix, place: Path) -> tuple[ArmPlan, Mix]:
        """The old end with hunks of the new one, and with those that a failing build of it names. Raises `BuildFailed`.

        Such a hunk defines a function that the new end has, or removes another use of one that it has not. If it does
        not build either, it is left out again: of several errors, which one make meets first is chance.
        """
        difference = self.session.difference
        assert difference is not None  # noqa: S101
        turned, measurer = difference.turned, Measurer(self.session, self.work)
        sources, kept = Sources(self.plan.new.spec, self.plan.old.spec), place.with_suffix(".json")
        known = records.find(kept, Applied) or Applied(hunks=sorted(mix), error="")
        while True:
            taken = frozenset(known.hunks)
            arm = self._arm(sources.without(turned, taken, place))
            try:
                measurer.obtain(arm.spec)
            except BuildFailed as error:
                first = known.error or error.message  # the later ones are about the hunks that were added
                said = suspects.complaint(_errors(error.log, error.message))
                paths, refused = turned.paths(taken), set(known.refused)
                more = [number for number in suspects.additions(turned, taken, said) if number not in refused]
                more = [number for number in more if turned.hunks[number].path in paths] or more
                gone: set[int] = set()
                if not more or len(taken) + len(more) > len(mix) + suspects.MOST_ADDED:
                    more, gone = [], set(suspects.omissions(turned, taken, said)) - mix
                    if not gone:
                        raise BuildFailed(first) from None
            else:
                return arm, taken
            then = f"without {len(gone)} of them" if gone else f"{len(more)} more"
            self.work.progress.log(f"the older end with {plural(len(taken), 'hunk')} does not build; {then}")
            known = Applied(hunks=sorted(taken.union(more) - gone), error=first, refused=sorted(refused | gone))
            records.save(kept, known)

    def _mix(self, name: str) -> Mix | None:
        """The hunks of a part; None of the old end, which has all."""
        state = self.session.state
        found = state.found if isinstance(state, DifferenceState) else None
        return next((part.mix for part in found.parts if mix_name(part.mix) == name), None) if found else None


def start(session: Session, work: Work) -> DifferenceRunner:
    """Log the plan of the search, and choose the case if that is open."""
    known = len(session.journal.readings)
    work.progress.log(
        f"between {session.history.old.name} and {session.history.new.name} by {session.history.kind}, {known} "
        f"readings so far; then the proof. To go on after any stop: lab bisect resume {session.name}"
    )
    if session.plan.case is None:
        exact_runner.choose_case(session, work)
    return DifferenceRunner(session=session, work=work)
