"""The call chains of both arms: the cost of each stack of functions.

The plugin counts the executions of each block by the calls that led to it. The cost of a block is shared out in
proportion to these counts, in whole units, so all stacks add up to the profile, to the last digit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from lab.compare import profiles
from lab.compare.explain import ARMS, MILLI, Arm, Cost, FunctionKey, place
from lab.compare.profiles import ArmProfile
from lab.compare.results import CaseResult
from lab.core.executor import Work
from lab.guests.plugin import Calls

Stack = tuple[FunctionKey, ...]
"""Functions from the outermost call to the executed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """The stacks of one case. base, test: sums over all operations, in units of `cost`."""

    base: Mapping[Stack, int]
    test: Mapping[Stack, int]
    operations: Mapping[Arm, int]
    cost: Cost
    machine: str

    def per_operation(self, arm: Arm, stack: Stack) -> Fraction:
        """Modelled cycles, or instructions, of a stack in one operation, without those of its callees."""
        unit = MILLI if self.cost == "cycles" else 1
        return Fraction((self.base if arm == "base" else self.test).get(stack, 0), self.operations[arm] * unit)


def find(
    folder: Path, case: CaseResult, work: Work, *, machine: str | None = None, model: str | None = None, cost: Cost
) -> Chains:
    """The chains of a case, from one guest of each arm that runs for them, once."""
    found = profiles.collect(folder, case, work, machine=machine, model=model, chains=True)
    return Chains(
        base=stacks(found.base, cost),
        test=stacks(found.test, cost),
        operations={"base": found.base.operations, "test": found.test.operations},
        cost=cost,
        machine=found.machine,
    )


def changes(chains: Chains, calls: Mapping[FunctionKey, float]) -> dict[FunctionKey, float]:
    """The change of the cost of an operation, at the functions whose code makes it.

    A function that only one arm runs may be new, gone or inlined: its cost counts for its caller. The change of a stack
    that one arm alone has is made by the last function that both arms reach in the same way: it calls another function
    now. That of a stack of both arms is made by its last function; the part that more or fewer calls of this one
    explain is made by the nearest caller that runs as often as before.
    calls: the calls of a function in the test arm by those in the base arm; 1 if they are not known.
    """
    shared = {one for stack in chains.base for one in stack} & {one for stack in chains.test for one in stack}
    deltas: dict[Stack, float] = defaultdict(float)
    costs: dict[Stack, float] = defaultdict(float)
    ways = []
    for arm, sign in zip(ARMS, (-1, 1), strict=True):
        way: set[Stack] = set()
        for stack in getattr(chains, arm):
            kept = tuple(one for one in stack if one in shared)
            way.update(kept[:depth] for depth in range(1, len(kept) + 1))
            cost = float(chains.per_operation(arm, stack))
            deltas[kept] += sign * cost
            costs[kept] += cost if arm == "base" else 0
        ways.append(way)
    both = ways[0] & ways[1]
    found: dict[FunctionKey, float] = defaultdict(float)
    for stack, delta in deltas.items():
        common = next((stack[:depth] for depth in range(len(stack), 0, -1) if stack[:depth] in both), ())
        if common:
            ratio = calls.get(stack[-1], 1.0) if common == stack else 1.0
            steady = [one for one in common if abs(calls.get(one, 1.0) - 1) < abs(ratio - 1) / 2]
            more = costs[stack] * (ratio - 1) if steady else 0.0
            found[common[-1]] += delta - more
            if steady:
                found[steady[-1]] += more
    return dict(found)


def stacks(profile: ArmProfile, cost: Cost) -> dict[Stack, int]:
    """The cost of each stack of an arm."""
    found: dict[Stack, int] = defaultdict(int)
    for window in profile.windows:
        named = _Named(profile, window.chains)
        times: dict[int, dict[int, int]] = defaultdict(dict)
        for call, number, executions in window.chains.executions if window.chains else ():
            times[number][call] = executions
        for number, block in enumerate(window.blocks):
            whole = block.cycles if cost == "cycles" else block.instructions
            for call, share in _shared(whole, times.get(number) or {0: 1}).items():
                found[named.with_function(named.stacks[call], block.address)] += share
    return {stack: share for stack, share in found.items() if share}


@dataclass
class _Named:
    """The names of a window's calls. A tail call leaves no frame: the site of the next call is in another function."""

    profile: ArmProfile
    chains: Calls | None

    def function(self, address: int) -> FunctionKey:
        """The function that an address is in."""
        return place(address, self.profile)[0]

    @cached_property
    def stacks(self) -> list[Stack]:
        """The stack of each call, by its number; that of 0 has no function."""
        named: list[Stack] = [()]
        for before, site, target in self.chains.calls if self.chains else ():
            named.append((*self.with_function(named[before], site), self.function(target)))
        return named

    def with_function(self, stack: Stack, address: int) -> Stack:
        """A stack down to the function at an address."""
        function = self.function(address)
        return stack if stack and stack[-1] == function else (*stack, function)


def _shared(whole: int, times: Mapping[int, int]) -> dict[int, int]:
    """Whole parts in proportion to numbers; the largest one has the remainder."""
    total = sum(times.values())
    parts = {key: whole * number // total for key, number in times.items()}
    parts[max(times, key=lambda key: times[key])] += whole - sum(parts.values())
    return parts
