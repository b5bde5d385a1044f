"""A command line of the lab that has ended."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ended:
    """Its status, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Lab = Callable[..., Ended]
"""Runs the words of a command line, which must end with a status: 0, or the argument of that name."""
