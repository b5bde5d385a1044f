"""What must hold of a culprit that live mode found, beyond the fresh boots that the search itself ends with.

It is taken out of the newer end, and both are compared as `lab ab --mode live` does; and one guest each of exact mode,
of it and of its parent, says which functions cost something else: counting instructions needs no clock.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lab.bisection.answer import Answer, Found
from lab.bisection.proof import Prover
from lab.core.errors import LabError


def complete(prover: Prover, answer: Answer) -> Answer:
    """The answer with the rest of its proof, where it is one commit."""
    return replace(answer, changes=[_completed(prover, answer, one) for one in answer.changes])


def _completed(prover: Prover, answer: Answer, one: Found) -> Found:
    if not one.settled or one.proof is None or one.proof.same_image or answer.outcome != "found":
        return one
    history = prover.history
    culprit, before = (history[history.number(name)] for name in (one.commit, one.before))
    place = prover.place(culprit)
    more: dict[str, Any] = prover.revert(place, culprit) if history.kind == "commits" else {}
    try:
        more["functions"] = prover.explain(place / "explain", before.spec, culprit.spec)
    except LabError as error:
        more["note"] = f"not explained: {error.message}"
    return replace(one, proof=replace(one.proof, **more))
