"""Attributes the change of a case to functions: to the ones that make most of it, and to pairs that cancel out."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import msgspec

from lab.compare import result_folders
from lab.compare.cause import Cause, CauseFunction
from lab.compare.explain import CaseExplanation, Cost, Explanation, FunctionRow, differing, find, total
from lab.compare.results import AbResult, CaseResult
from lab.core.errors import LabError
from lab.core.executor import Work
from lab.guests import costs

_MOST = 3
"""Functions that are named at most."""

_ENOUGH = Fraction(3, 5)
"""The part of the change from which on no further function is named."""

_CANCEL = Fraction(1, 10)
"""Two functions cancel out if no more than this part of the larger difference is left of both."""

_WORTH_A_WORD = Fraction(1, 5)
"""The part of the change that functions which cancel out need to be named."""


def cost_of(case: CaseResult) -> Cost | None:
    """The cost that decides a case, as functions are counted in; None if its metric is not such a cost."""
    if (other := costs.beside(case.primary.name)) is None:
        return None
    return "cycles" if other[0] == "instructions" else "instructions"


def cause_of(explanation: Explanation, case: CaseResult, cost: Cost) -> Cause | None:
    """The functions that make most of a change; None if they do not account for it.

    Code that moved from one function to another is not a cause: the text names pairs of functions that gain and lose
    alike as such.
    """
    rows = differing(explanation, cost)
    whole = explanation.delta(total(explanation.rows), cost)
    ratio = case.primary.ratio
    if not whole or not ratio or (whole > 0) != (ratio > 1):
        return None
    pairs = _cancelling(explanation, rows, cost)
    aside = [row for pair in pairs for row in pair]
    named: list[FunctionRow] = []
    made = Fraction()
    for row in rows:
        if len(named) == _MOST or made >= _ENOUGH * abs(whole):
            break
        delta = explanation.delta(row, cost)
        if row not in aside and (delta > 0) == (whole > 0):
            named.append(row)
            made += abs(delta)
    if not named:
        return None
    moved = next((pair for pair in pairs if abs(explanation.delta(pair[0], cost)) >= _WORTH_A_WORD * abs(whole)), ())
    return Cause(
        case=case.name,
        cost=cost,
        functions=[_function(explanation, row, cost) for row in named],
        cancelling=[_function(explanation, row, cost) for row in moved],
    )


def attributed(folder: Path, result: AbResult, work: Work) -> tuple[AbResult, CaseExplanation | None]:
    """Explain the case that speaks for a finished result, and store the cause in its document.

    The result stays as it is if no case changed, and if functions are not known: in live mode, and without a cost
    model.
    """
    case = result.headline
    if case is None or result.live is not None or (cost := cost_of(case)) is None:
        return result, None
    try:
        why = find(folder, result, work, case.name, cost=cost)
    except LabError as error:
        work.progress.log(f"not explained: {error.message}")
        return result, None
    found = msgspec.structs.replace(result, cause=cause_of(why.explanation, case, why.cost))
    result_folders.store_result(folder, found)
    return found, why


def _cancelling(explanation: Explanation, rows: list[FunctionRow], cost: Cost) -> list[tuple[FunctionRow, FunctionRow]]:
    """Pairs of functions that gain and lose alike, one of them in one arm alone; the largest first."""
    pairs: list[tuple[FunctionRow, FunctionRow]] = []
    for one, other in combinations(rows, 2):
        if any(row in pair for pair in pairs for row in (one, other)):
            continue
        first, second = explanation.delta(one, cost), explanation.delta(other, cost)
        alone = not all(row.cost(arm, cost) for row in (one, other) for arm in ("base", "test"))
        if alone and abs(first + second) <= _CANCEL * max(abs(first), abs(second)):
            pairs.append((one, other))
    return pairs


def _function(explanation: Explanation, row: FunctionRow, cost: Cost) -> CauseFunction:
    base, test = (explanation.calls_per_operation(row, arm) for arm in ("base", "test"))
    return CauseFunction(
        name=row.name,
        delta=_digits(explanation.delta(row, cost)),
        share=_digits(explanation.share(row, cost) or Fraction()),
        base_calls=None if base is None else _digits(base),
        test_calls=None if test is None else _digits(test),
    )


def _digits(value: Fraction) -> float:
    return round(float(value), 4)
