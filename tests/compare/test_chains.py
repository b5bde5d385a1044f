"""Call chains: stacks by name, and costs that are shared out to the last digit."""

import pytest

from lab.compare import chains
from lab.compare.explain import Cost
from lab.compare.profiles import ArmProfile
from lab.guests.plugin import Window
from lab.kernels.symbols import Label, SymbolTable

from ..guests import test_plugin as output

K = 0xFFFFFFFF80000000
KERNEL = SymbolTable(
    [Label(K + 0x100 * number, "T", name) for number, name in enumerate(("entry", "work", "tail", "leaf"))]
)
USER = SymbolTable([Label(0x401000, "T", "main", 0x100)])

# Blocks of main, entry, and leaf; leaf is called by work twice and by tail, to which work jumped, once.
PROFILE = f'{{"t":"profile","sequence":0,"blocks":[[{0x401000},2,400,2],[{K},0,90,9],[{K + 0x300},1,110,3]]}}'
CALLS = (
    f'{{"t":"chains","sequence":0,"calls":[[0,{0x401000},{K}],[1,{K + 8},{K + 0x100}],[2,{K + 0x104},{K + 0x300}],'
    f'[2,{K + 0x204},{K + 0x300}]],"executions":[[0,0,2],[1,1,9],[3,2,2],[4,2,1]]}}'
)


def window(*lines: str) -> Window:
    return output.parse(output.HEADER, output.WINDOW, *lines, output.END)[0]


@pytest.mark.parametrize(("cost", "leaf"), [("cycles", (74, 36)), ("instructions", (1, 0))])
def test_a_block_is_shared_out_by_its_executions(cost: Cost, leaf: tuple[int, int]) -> None:
    profile = ArmProfile(blocks=[], operations=1, kernel=[KERNEL], user=[USER], windows=[window(PROFILE, CALLS)])
    found = {"/".join(name for _, name in stack): share for stack, share in chains.stacks(profile, cost).items()}
    own = {"main": 400, "main/entry": 90} if cost == "cycles" else {"main": 2}
    calls = dict(zip(("main/entry/work/leaf", "main/entry/work/tail/leaf"), leaf, strict=True))
    assert found == {**own, **{stack: share for stack, share in calls.items() if share}}


@pytest.mark.parametrize(("calls", "message"), [
    (CALLS.replace("[[0,", "[[2,", 1), "a call was made by a later one"),
    (CALLS.replace("[4,2,1]", "[5,2,1]"), "a call or a block that is not there"),
    (CALLS.replace("[4,2,1]", "[4,3,1]"), "a call or a block that is not there"),
    (CALLS.replace('sequence":0', 'sequence":1'), "out of order"),
])  # fmt: skip
def test_chains_that_cannot_be_are_refused(calls: str, message: str) -> None:
    with pytest.raises(output.GuestFailed, match=message):
        window(PROFILE, calls)


def stack(names: str) -> chains.Stack:
    return tuple(("kernel", name) for name in names.split("/"))


@pytest.mark.parametrize(
    ("base", "test", "calls", "found"),
    [
        ({"call/a/slow": 30}, {"call/a/fast": 10}, {}, {"call": 0, "a": -20}),
        ({"call/a/walk/b": 30}, {"call/a/b": 30}, {}, {"b": 0}),
        ({"call/a/b": 30}, {"call/a/b": 90}, {"b": 3.0}, {"a": 60, "b": 0}),
        ({"call/a/b": 30}, {"call/a/b": 70}, {"b": 2.0}, {"a": 30, "b": 10}),
        ({"call/a/b": 30}, {"call/a/b": 90}, {"a": 3.0, "b": 3.0}, {"call": 60, "a": 0, "b": 0}),
        ({"call/a/b": 30, "call/c": 5}, {"call/a/c/b": 30, "call/a": 1}, {}, {"a": 1, "call": -5}),
    ],
    ids=["another callee", "inlined", "more calls", "more and dearer calls", "more calls of the caller", "moved"],
)
def test_a_change_is_made_by_the_function_whose_code_makes_it(
    base: dict[str, int], test: dict[str, int], calls: dict[str, float], found: dict[str, float]
) -> None:
    both = chains.Chains(
        base={stack(names): cost for names, cost in base.items()},
        test={stack(names): cost for names, cost in test.items()},
        operations={"base": 1, "test": 1}, cost="instructions", machine="m",
    )  # fmt: skip
    changes = chains.changes(both, {("kernel", name): ratio for name, ratio in calls.items()})
    assert {name: changes.get(("kernel", name), 0) for name in found} == pytest.approx(found)
