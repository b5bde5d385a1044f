"""Atlases that are made up: costs with seeds, steps where the test says, and holes."""

import math
import random
from collections.abc import Mapping

from msgspec.structs import replace

from lab.atlas.data import Atlas, CaseInfo, Cell, Column, Explained, FunctionChange, FunctionCost, Hole
from lab.atlas.plan import Known

Steps = Mapping[tuple[int, int], float]
"""By case and column: the factor from there on."""


def columns(count: int) -> tuple[Column, ...]:
    """Kernels of two series; the first third is of the older builder."""
    made = []
    for index in range(count):
        old = index < count // 3
        version = f"6.{index + 1}.1-1" + ("~deb12u1" if old else "")
        made.append(
            Column(
                id=version, series="Debian 12" if old else "Debian 13", version=version, spec=f"deb:suite/{version}",
                release=f"6.{index + 1}.1", builder="gcc-12" if old else "gcc-14", date=f"2026-01-{index % 28 + 1:02d}",
                machine="microvm",
            )
        )  # fmt: skip
    return tuple(made)


def atlas(
    cases: int = 6,
    kernels: int = 9,
    *,
    steps: Steps | None = None,
    holes: Mapping[tuple[int, int], Hole] | None = None,
    sd: float = 0.002,
    seeds: int = 3,
    draw: int = 1,
    words: str = "",
    instructions: Steps | None = None,
) -> Atlas:
    """An atlas of made-up numbers. steps: of cycles, and of instructions unless these have their own."""
    dice = random.Random(draw)  # noqa: S311
    found = columns(kernels)
    infos = tuple(
        CaseInfo(
            name=f"syscalls:case-{number}", group=("files", "memory", "processes")[number % 3] + words,
            selection="syscalls:all", note=f"the operation number {number}{words}", code=f"OPERATION({number})",
            profile=(FunctionCost("do_it" + words, 80.0, 160.0), FunctionCost("main", 2.0, 4.0, True)),
        )
        for number in range(cases)
    )  # fmt: skip
    cells: dict[str, tuple[Cell | Hole, ...]] = {}
    for number, info in enumerate(infos):
        row: list[Cell | Hole] = []
        cycles, count = 1000.0 * (number + 1), 3000.0 * (number + 1)
        for index in range(kernels):
            factor = (steps or {}).get((number, index), 1.0)
            cycles *= factor
            count *= (steps if instructions is None else instructions or {}).get((number, index), 1.0) if steps else 1.0
            drawn = [math.exp(dice.gauss(0, sd)) for _ in range(seeds)]
            cell = Cell(tuple(round(cycles * one, 3) for one in drawn), tuple(round(count * one, 3) for one in drawn))
            row.append((holes or {}).get((number, index), cell))
        cells[info.name] = tuple(row)
    explained = tuple(
        Explained(
            case=infos[number].name, base=found[index - 1].id, test=found[index].id,
            total=FunctionChange("total", (100.0, 150.0), (300.0, 400.0)),
            functions=(FunctionChange("do_it" + words, (60.0, 110.0), (200.0, 310.0)),),
        )
        for number, index in steps or {}
    )  # fmt: skip
    return Atlas(
        name="made-up", architecture="x86_64", measured="2026-01-31T00:00:00+00:00", seeds=seeds, threshold=0.02,
        environment={"qemu": "7.2", "model": "tlb made-up"}, fingerprints={"syscalls microvm": "ab" * 32},
        columns=found, cases=infos, cells=cells, explained=explained, synthetic=True,
        known=(Known(cases=("syscalls:case-1",), releases=("6.5.1",), commit="0123456789ab", subject="a change" + words,
                     link="https://example.org/a"),),
    )  # fmt: skip


def growing(complete: Atlas, count: int, version: int = 2) -> Atlas:
    """The newer atlas beside a complete one, with its last columns so far; all numbers are half as large again."""
    cells = {
        name: tuple(
            Cell(
                tuple(round(1.5 * one, 3) for one in cell.cycles),
                tuple(round(1.5 * one, 3) for one in cell.instructions),
            )
            if isinstance(cell, Cell)
            else cell
            for cell in row[-count:]
        )
        for name, row in complete.cells.items()
    }
    return replace(complete, model_version=version, columns=complete.columns[-count:], cells=cells, explained=())
