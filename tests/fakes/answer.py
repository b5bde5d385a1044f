"""Bisections and matrices that nobody measured, stored as measured ones are, with words that attack the reader."""

from pathlib import Path
from typing import Any

from lab.bisection.answer import Answer, Culprit, Function, Proof, Step
from lab.bisection.commit_range import Candidate, History
from lab.compare import matrix_results
from lab.compare.explain import Explanation, FunctionRow, StoredExplanation, remember
from lab.compare.lines import MetLine, Moves
from lab.compare.matrix_results import Cell, MatrixArm, MatrixResult
from lab.core import records
from lab.report.inputs import StoredBisection, StoredMatrix
from lab.stats import verdict
from lab.stats.verdict import Comparison, Outcome

from . import result as fakeresult
from .result import CYCLES, compared

CULPRIT, BROKEN = 12, range(18, 22)
SLOW, SLOWER = [160.0 + i for i in range(6)], [200.0 + i for i in range(6)]
FAST = [100.0 + i for i in range(6)]


def name_of(number: int) -> str:
    return f"{number:012x}{number:028x}"


def history(commits: int = 30, title: str = "change {}") -> History:
    line = [
        Candidate(
            id=name_of(i), title=title.format(i), spec=name_of(i), parents=(name_of(i - 1),) if i else (),
            author=title.format("author"), date="2026-11-21T09:00:00+00:00",
        )
        for i in range(commits + 1)
    ]  # fmt: skip
    return History(kind="commits", old=line[0], candidates=line[1:], tree="default")


def _step(one: Candidate, decision: str, values: list[float], **more: Any) -> Step:
    ratio = compared(CYCLES, FAST, values).ratio if values else None
    return Step(commit=one.id, title=one.title, decision=decision, ratio=ratio, values=values, **more)


def _change(range_: History, at: int, effect: Comparison, among: list[int], **more: Any) -> Culprit:
    one = range_.candidates[at - 1]
    return Culprit(
        commit=one.id, title=one.title, author=one.author, date=one.date, suspects=[name_of(i) for i in among],
        before=name_of(among[0] - 1), effect=effect, direction=Outcome.REGRESSION, confidence=0.995, **more,
    )  # fmt: skip


def answer(commits: int = 30, title: str = "change {}", **more: Any) -> Answer:
    """A culprit that was proved, and a second one that hides in a broken stretch; the ends are slow apart."""
    made = history(commits, title)
    one = lambda number: made.candidates[number - 1]  # noqa: E731
    first, second = compared(CYCLES, FAST, SLOW), compared(CYCLES, SLOW, SLOWER)
    proof = Proof(
        confirmed=True, same_image=False, fresh=compared(CYCLES, FAST, SLOW), result="proof",
        reverted=compared(CYCLES, SLOWER, FAST), functions=[Function(name=title, space="kernel", base=1.0, test=9.0)],
        lines=[MetLine(place=f"file.{title}", functions=["fput"], base=Moves(), test=Moves(moved=2.0, false=1.5))],
        note=title,
    )  # fmt: skip
    path = [
        _step(one(15), "like neither end", SLOW),
        _step(one(8), "like good", FAST),
        *(_step(one(i), "untestable: build", [], why=title.format("why")) for i in BROKEN),
        _step(one(11), "like good", FAST, same_as=name_of(8)),
        _step(one(CULPRIT), "like neither end", SLOW),
        _step(one(17), "like neither end", SLOW),
        _step(one(22), "like bad", SLOWER),
    ]
    around = fakeresult.result().environment
    values: dict[str, Any] = {
        "outcome": "range", "reason": "1 change cannot be narrowed down", "mode": "exact", "terms": ("good", "bad"),
        "old": made.old, "new": made.new, "kind": "commits", "tree": "default", "first_parent": False,
        "paths": (title,), "candidates": commits, "workload": title, "case": "layout-4632k", "metric": CYCLES.name,
        "unit": CYCLES.unit, "threshold": 0.02, "seeds": [101, 102, 103, 104, 105, 106],
        "ends": compared(CYCLES, FAST, SLOWER),
        "changes": [
            _change(made, CULPRIT, first, [CULPRIT], untested=[], proof=proof),
            _change(made, 22, second, [18, 19, 20, 21, 22], untested=[name_of(i) for i in BROKEN]),
        ],
        "path": path, "skipped": [step for step in path if not step.values],
        "measured": sum(bool(step.values) for step in path), "environment": around,
        "started": "2026-11-21T09:00:00+00:00", "build_s": 60.0, "run_s": 30.0, "result": "20261121-100000-bbbb",
        "reproduce": ["lab", "bisect", "--good", title, "--bad", "v2"],
    }  # fmt: skip
    return Answer(**{**values, **more})


def bisection(folder: Path, document: Answer | None = None, title: str = "change {}") -> StoredBisection:
    """A stored bisection, with the proof of its culprit and what that was explained by."""
    document = document or answer(title=title)
    folder.mkdir(parents=True)
    records.save(folder / "result.json", document)
    records.save(folder / "history.json", history(document.candidates, title))
    (folder / "plan.json").write_text('{"kind": "bisect"}')
    proof = folder / "proof" / name_of(CULPRIT)[:12] / "parent"
    case = fakeresult.case("layout-4632k", FAST, SLOW, holm=True)
    fakeresult.store(proof, fakeresult.result(case, name="proof"))
    rows = [FunctionRow(name=f"function_{i} {title}", space="kernel", test_cycles=i * 9000) for i in range(1, 9)]
    flame = StoredExplanation(
        workload=case.workload, case=case.case, machine="made-up-machine", model="full", cost="cycles",
        explanation=Explanation(base_operations=1, test_operations=1, rows=rows),
    )  # fmt: skip
    remember(proof, flame)
    return StoredBisection(raw=document, folder=folder)


def matrix(words: str = "") -> MatrixResult:
    """Two kernels, two settings, two cases: better, worse, equal, undecided, failed."""
    span = matrix_results.span(["old=v1", "new=v2"], ["thp=always,never"])
    values = {
        "old thp=always": FAST, "old thp=never": SLOW, "new thp=always": [50.0 + i for i in range(6)],
        "new thp=never": [80.0, 120.0, 90.0, 130.0, 70.0, 125.0],
    }  # fmt: skip
    cells = [
        _cell(arm.label, case, values[arm.label], words, failed=(arm.label, case) == ("new thp=never", "small"))
        for case in ("large", "small")
        for arm in span.arms
    ]
    arms = [
        MatrixArm(label=arm.label, at=arm.at, arm=fakeresult.arm(arm.spec + words, "1", subject=words or "a subject",
                                                                note=words or None))
        for arm in span.arms
    ]  # fmt: skip
    around = fakeresult.result(fakeresult.case("large", FAST, SLOW, workload=f"alloc-burst{words}")).environment
    return MatrixResult(
        mode="exact", threshold=0.02, alpha=0.01, axes=span.axes, kernels=[text + words for text in span.kernels],
        arms=arms,
        baseline="old thp=always", environment=around, cells=cells,
        summary=f"against old thp=always: some cells{words}", started="2026-11-21T09:00:00+00:00", seconds=12.0,
        result="20261121-110000-cccc", reproduce="lab replay 20261121-110000-cccc",
    )  # fmt: skip


def _cell(arm: str, case: str, values: list[float], words: str, *, failed: bool) -> Cell:
    against = None if arm == "old thp=always" or failed else verdict.compare_metric(CYCLES, FAST, values, exact=True)
    return Cell(
        arm=arm, workload=f"alloc-burst{words}", case=case, control=case == "small", metric=CYCLES.name,
        unit=CYCLES.unit, better="lower", seeds=[] if failed else [1, 2, 3, 4, 5, 6],
        values=[] if failed else [*values], mean=None if failed else sum(values) / 6, comparison=against,
        verdict=against.verdict if against else None, holm=True if against else None,
        failed=f"the guest panicked: {words or 'Oh dear'}" if failed else None, means={},
    )  # fmt: skip


def stored_matrix(folder: Path, document: MatrixResult | None = None) -> StoredMatrix:
    document = document or matrix()
    folder.mkdir(parents=True)
    records.save(folder / "result.json", document)
    (folder / "plan.json").write_text('{"kind": "matrix"}')
    return StoredMatrix(raw=document, folder=folder)
