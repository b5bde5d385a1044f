"""Numbers that verdicts, plans and options start from unless the user gives others."""

from __future__ import annotations

THRESHOLD = 0.02
"""The smallest relative change that counts."""

ALPHA = 0.01
"""The chance of a wrong `regression` or `improvement`, over all looks."""

CONFIDENCE = 0.95
"""The least probability with which a bisection names a culprit."""

MIN_PAIRS = 6
"""Pairs of seeds or rounds before a change is called one: fewer have no 95 % interval."""

# ---- exact mode

FIRST_LOOK_SEEDS = 3
"""Seeds that decide numbers without any spread, and the first look of every comparison."""

SEEDS = 6
"""Seeds that a comparison runs of every case, unless all are decided before."""

MORE_SEEDS = 2
"""Seeds between two looks after that."""

MAX_SEEDS = 24
"""Seeds at which a comparison or a bisection stops."""

MATRIX_MAX_SEEDS = 12
"""The same of a matrix and of a night, which compare much more."""

# ---- live mode

FIRST_LOOK_ROUNDS = 4
"""Rounds before the first look: with fewer no evidence reaches 1 / ALPHA."""

SAME_ROUNDS = 18
"""Rounds before kernels are called the same: a kind that is a quarter of all boots is in so many, but for .6 %."""

MAX_ROUNDS = 40
"""Rounds at which a comparison stops."""
