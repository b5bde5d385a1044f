"""What the formats are given: finished results, made safe to show, with the folder behind each.

What the formats are given of a bisection: its answer, made safe to show, and all that lies around it.

What the formats are given of a matrix, and those formats that are a line each.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from lab.bisection import answer, session, summarize
from lab.bisection.answer import Answer, Found
from lab.bisection.commit_range import History
from lab.bisection.commit_status import Place, places
from lab.bisection.journal import safe_name
from lab.bisection.session import Session
from lab.compare import matrix_results, results
from lab.compare.matrix_results import MatrixResult
from lab.compare.plan import Plan
from lab.compare.results import AbResult, CaseResult
from lab.compare.runs import Run
from lab.core import records
from lab.core.errors import UserError
from lab.core.text import visible_record
from lab.report import bisection_text, heatmap, matrix_text
from lab.stats.verdict import Comparison, percent


@dataclass(frozen=True, kw_only=True)
class Report:
    """One result. `raw` is as stored; in `result` every string is visible, so formats show that one."""

    raw: AbResult
    folder: Path

    @cached_property
    def result(self) -> AbResult:
        """The result with its strings made visible."""
        return visible_record(self.raw)

    @cached_property
    def plan(self) -> Plan | None:
        """What was asked for; None where only the finished document was kept."""
        path = self.folder / "plan.json"
        return records.load(path, Plan) if path.is_file() else None

    @cached_property
    def runs(self) -> list[Run]:
        """The records of all guests that were kept, by seed."""
        found = [records.load(path, Run) for path in sorted((self.folder / "runs").glob("*.json"))]
        return sorted(found, key=lambda run: (run.workload, run.seed, run.arm))

    @cached_property
    def _seeds(self) -> dict[tuple[str, str], list[int]]:
        arms: dict[tuple[str, str], dict[str, set[int]]] = {}
        for run in self.runs:
            for case in run.cases:
                arms.setdefault((run.workload, case), {}).setdefault(run.arm, set()).add(run.seed)
        return {key: sorted(set.intersection(*both.values())) for key, both in arms.items() if len(both) == 2}

    def seeds(self, case: CaseResult) -> list[int | None]:
        """The seed of each pair of a case's numbers; None where it is not known any more."""
        pairs = max((len(comparison.base) for comparison in case.metrics), default=0)
        found = self._seeds.get((case.workload, case.case), self.result.seeds)
        return list(found) if len(found) == pairs else [None] * pairs


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Results to be shown together. `mark` is what must be said wherever they are: empty if they compare."""

    items: Sequence[Report]
    mark: str = ""

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.items) > 1


def open_reports(references: Sequence[str], *, anyway: bool = False) -> Reports:
    """The results of those ids; `UserError` where their environments differ, unless that is wanted anyway."""
    folders = list(dict.fromkeys(results.open_folder(reference) for reference in references))
    items = [Report(raw=results.load_result(folder), folder=folder) for folder in folders]
    return Reports(items=items, mark=_mark(items, anyway=anyway))


def _mark(items: Sequence[Report], *, anyway: bool) -> str:
    fingerprints = list(dict.fromkeys(item.result.environment.fingerprint for item in items))
    if len(fingerprints) < 2:
        return ""
    differing = ", ".join(differences(items))
    if not anyway:
        raise UserError(
            f"the environments differ ({differing}), so the numbers do not compare one by one",
            hint="repeat one in the other's environment, or show them --anyway",
        )
    return f"ENVIRONMENTS DIFFER ({differing}): numbers of different results do not compare one by one"


def differences(items: Sequence[Report]) -> list[str]:
    """The names of what differs around the results, the fingerprint aside."""
    around = [records.plain(item.result.environment) for item in items]
    names = [name for name in around[0] if name not in ("fingerprint", "lab")]
    return [name for name in names if any(one[name] != around[0][name] for one in around)] or ["fingerprint"]


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """One bisection. `raw` is as stored; every string of `answer` and `history` is visible."""

    raw: Answer
    folder: Path

    @cached_property
    def answer(self) -> Answer:
        """The answer with its strings made visible."""
        return visible_record(self.raw)

    @cached_property
    def history(self) -> History:
        """The whole range."""
        return visible_record(records.load(self.folder / session.HISTORY, History))

    @cached_property
    def places(self) -> list[Place]:
        """Where every commit stands."""
        return places(self.answer, self.history)

    def proof(self, change: Found) -> Report | None:
        """The stored comparison of a culprit with its parent, by fresh seeds."""
        return self._compared(change, "parent")

    def reverted(self, change: Found) -> Report | None:
        """The stored comparison of the new end with and without the culprit."""
        return self._compared(change, "reverted")

    def _compared(self, change: Found, what: str) -> Report | None:
        name = self.history[self.history.number(change.commit)].name
        folder = self.folder / "proof" / safe_name(name) / what
        if not (folder / "result.json").is_file():
            return None
        return Report(raw=results.load_result(folder), folder=folder)


def open_bisection(folder: Path) -> Bisection:
    """The bisection in a folder; of one that is not finished, what is known so far."""
    finished = (folder / answer.FILE).is_file()
    so_far = None if finished else _so_far(session.load(folder))
    return Bisection(raw=so_far or answer.load(folder), folder=folder)


def _so_far(found: Session) -> Answer | None:
    """None before both ends were measured."""
    if found.plan.mode == session.LIVE:
        from lab.bisection import live_summarize  # brings numpy along, which exact mode does without

        live = found.live
        if live is None or not live.search.ends.x:
            return None
        made, left = live_summarize.make(found, live, live.conclude("")), f"{len(live.boots)} boots so far"
    elif found.started:
        state = found.state
        left = (
            f"about {state.steps_left} more to measure" if state.next() is not None else f"{found.afterwards} is left"
        )
        made = summarize.make(found)
    else:
        return None
    reason = f"not finished, {left}: go on by lab bisect resume {found.name}"
    return replace(made, outcome="undecided", reason=reason)


def bisection_as_text(one: Bisection) -> str:
    """`text`: the terminal's words."""
    return bisection_text.render(one.raw)


def bisection_as_json(one: Bisection) -> str:
    """`json`: the document as `lab bisect --json` printed it."""
    return records.encode(one.raw).decode()


# ---- in words


def sentence(answer: Answer) -> str:
    """The answer in a sentence."""
    words = [_change(one) for one in answer.changes]
    if not words:
        return f"{answer.outcome}: {answer.reason}"
    if answer.outcome == "undecided":
        words.append(f"undecided: {answer.reason}")
    return "; ".join(words)


def _change(one: Found) -> str:
    kind = str(one.direction or "change")
    effect = effect_of(one)
    much = f", {effect_words(effect)}" if effect else ""
    sure = f", {certainty(one)}"
    if one.settled:
        return f'{kind} by {short(one.commit)} ("{one.title}"){much}{sure}'
    return f"{kind} by one of {len(one.among)} that could not be told apart, up to {short(one.commit)}{much}{sure}"


def effect_of(one: Found) -> Comparison | None:
    """What a change did: by fresh seeds where there are some."""
    return one.proof.fresh if one.proof and one.proof.fresh else one.effect


def effect_words(effect: Comparison) -> str:
    """How much, with the interval, and of what."""
    return f"{percent(effect.ratio)} {effect.interval_text} {effect.name}".replace("  ", " ")


def certainty(one: Found) -> str:
    """How sure a change is."""
    return f"{share(one.confidence)} sure"


def share(probability: float) -> str:
    """A probability in percent; what is not certain never reads as if it were."""
    words = f"{100 * probability:.4g} %"
    return "over 99.99 %" if words == "100 %" and probability < 1 else words


def fresh_words(answer: Answer) -> str:
    """What the proof was measured with."""
    return "fresh boots" if answer.mode == "live" else "fresh seeds"


def verdict_class(answer: Answer) -> str:
    """The verdict's word that the page colours an answer by."""
    kinds: Sequence[str] = [str(one.direction) for one in answer.changes if one.direction]
    if answer.outcome == "undecided":
        return "unknown"
    if not answer.changes:
        return "same"
    return "regression" if "regression" in kinds or not kinds else kinds[0]


def short(name: str) -> str:
    """A commit's id as people write it."""
    return name[:12] if len(name) == 40 else name


_WIDTH = 1000


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """One matrix. `raw` is as stored; in `result` every string is visible."""

    raw: MatrixResult
    folder: Path

    @cached_property
    def result(self) -> MatrixResult:
        """The matrix with its strings made visible."""
        return visible_record(self.raw)


def open_matrix(folder: Path) -> Matrix:
    """The finished matrix in a folder."""
    return Matrix(raw=matrix_results.load_result(folder), folder=folder)


def matrix_as_text(one: Matrix) -> str:
    """`text`: the terminal's table, without colour."""
    stream = io.StringIO()
    matrix_text.show(one.raw, Console(file=stream, width=_WIDTH, no_color=True))
    return stream.getvalue()


def matrix_as_json(one: Matrix) -> str:
    """`json`: the document as `lab matrix --json` printed it."""
    return records.encode(one.raw).decode()


def matrix_as_svg(one: Matrix) -> str:
    """`svg`: the heat map."""
    return heatmap.svg(one.raw)
