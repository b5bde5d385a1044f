"""Steps and creeps are found, dated and bounded: what is within its A/A band is no finding."""

import math

from msgspec.structs import replace

from lab.atlas import judgement
from lab.atlas.data import Atlas, Cell
from lab.atlas.judgement import Band, Judgement
from lab.stats.defaults import ALPHA
from lab.stats.verdict import Outcome

from ..fakes import atlas as fake


def found(atlas: Atlas, basis: str = "cycles") -> list[tuple[str, str, str]]:
    """The case, the newer kernel and the word of each change."""
    changes = Judgement(atlas).changes[basis]  # type: ignore[index]
    return [(one.case.short, one.test.version, str(one.comparison.verdict)) for one in changes]


def test_a_step_is_found_where_it_is_and_in_its_direction() -> None:
    atlas = fake.atlas(6, 12, steps={(1, 7): 1.3, (4, 9): 0.8})
    assert found(atlas) == [("case-1", "6.8.1-1", "regression"), ("case-4", "6.10.1-1", "improvement")]
    assert found(atlas, "instructions") == found(atlas)


def test_equal_kernels_give_no_finding_whatever_their_scatter() -> None:
    """Ten columns with a neighbour, and the creeps: each family may be wrong with a chance of alpha."""
    families, wrong = 0, 0
    for draw in range(150):
        judged = Judgement(fake.atlas(8, 12, sd=0.02, draw=draw))
        changes = judged.changes["cycles"]
        wrong += len({(change.test.id, change.creep) for change in changes})
        families += 11
    expected = families * ALPHA
    assert wrong <= expected + 3 * math.sqrt(expected)


def test_no_finding_is_below_its_band_or_the_threshold() -> None:
    steps = {(case, 4 + case): 1 + 0.004 * case for case in range(8)}
    for sd in (0.0, 0.001, 0.01):
        judged = Judgement(fake.atlas(8, 14, steps=steps, sd=sd))
        for change in judged.changes["cycles"]:
            half = judged.band(change.case, "cycles").half_width(3)
            assert abs(math.log(change.ratio)) > max(half, math.log1p(0.02))


def test_a_change_that_one_of_many_cases_may_have_by_chance_is_withdrawn() -> None:
    """The p-value of a change is enough alone, and not among a hundred cases."""
    atlas = fake.atlas(100, 9, sd=0.02, steps={(0, 5): 1.06}, draw=3)
    judged = Judgement(atlas)
    base, test = atlas.columns[4], atlas.columns[5]
    alone = judged.compare(atlas.cases[0], base, test, "instructions")
    assert alone is not None and alone.verdict == Outcome.REGRESSION and ALPHA / 100 < alone.p_value <= ALPHA
    family = {change.case.name: change for change in judged.pair(base, test, "instructions")}
    assert family["syscalls:case-0"].comparison.verdict == Outcome.UNKNOWN
    assert "not beyond chance over all cases" in family["syscalls:case-0"].comparison.reason


def test_a_slow_change_is_a_creep_from_the_first_to_the_last() -> None:
    atlas = fake.atlas(3, 12, steps={(1, index): 1.008 for index in range(5, 12)}, sd=0.0005)
    (creep,) = Judgement(atlas).changes["cycles"]
    assert creep.creep and (creep.base.version, creep.test.version) == ("6.5.1-1", "6.12.1-1")
    assert math.isclose(creep.ratio, 1.008**7, rel_tol=0.002)


def test_builders_are_not_compared_as_neighbours() -> None:
    atlas = fake.atlas(2, 9, steps={(0, 3): 2.0})
    judged = Judgement(atlas)
    assert [chain[0].version for chain in judged.chains] == ["6.1.1-1~deb12u1", "6.4.1-1"]
    assert found(atlas) == []
    same = replace(atlas, columns=tuple(replace(one, series="Debian 13") for one in atlas.columns))
    (broken,) = Judgement(same).breaks
    assert (broken.base.version, broken.test.version) == ("6.3.1-1~deb12u1", "6.4.1-1")
    assert broken.why == "built by gcc-14, before by gcc-12"


def test_one_compiler_by_two_names_is_one_builder() -> None:
    atlas = fake.atlas(2, 9, steps={(0, 3): 2.0})
    names = ("gcc-12 (Debian 12.2.0-14) 12.2.0", "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0")
    columns = [replace(one, series="Debian 12", builder=names[index % 2]) for index, one in enumerate(atlas.columns)]
    judged = Judgement(replace(atlas, columns=tuple(columns)))
    assert judged.breaks == [] and len(judged.chains) == 1


def test_a_step_reaches_over_a_hole_and_no_hole_is_a_number() -> None:
    holes = {(0, 5): "panic: it did not boot"}
    atlas = fake.atlas(2, 9, steps={(0, 5): 1.5}, holes=holes)
    (step,) = Judgement(atlas).changes["cycles"]
    assert (step.base.version, step.test.version) == ("6.5.1-1", "6.7.1-1")
    assert [cell for cell in atlas.cells["syscalls:case-0"] if not isinstance(cell, Cell)] == ["panic: it did not boot"]


def test_cycles_that_the_instructions_contradict_rest_on_the_model() -> None:
    atlas = fake.atlas(2, 9, steps={(0, 5): 1.1}, instructions={(0, 5): 0.9})
    judged = Judgement(atlas)
    (found_,) = [one for one in judged.pair(atlas.columns[4], atlas.columns[5], "cycles") if one.case.short == "case-0"]
    assert found_.comparison.verdict == Outcome.UNKNOWN and found_.comparison.rests_on_model
    assert judged.changes["cycles"] == []
    assert [one.word for one in judged.changes["instructions"]] == ["better"]


def test_cycles_that_are_starts_of_strings_rest_on_the_model() -> None:
    atlas = fake.atlas(1, 9, steps={(0, 5): 1.1}, instructions={}, sd=0.0)
    row = [
        Cell(cell.cycles, cell.instructions, tuple(value - 1000.0 for value in cell.cycles))
        for cell in atlas.cells["syscalls:case-0"]
        if isinstance(cell, Cell)
    ]
    judged = Judgement(replace(atlas, cells={"syscalls:case-0": tuple(row)}))
    (change,) = judged.pair(atlas.columns[4], atlas.columns[5], "cycles")
    assert change.comparison.verdict == Outcome.UNKNOWN and "starts of strings" in change.comparison.reason


def test_what_is_published_is_recognised_by_its_release() -> None:
    judged = Judgement(fake.atlas(2, 9, steps={(1, 4): 1.2, (1, 6): 1.2}))
    known = {change.test.version: judged.known(change) for change in judged.changes["cycles"]}
    assert known["6.7.1-1"] is None
    assert known["6.5.1-1"] is not None and known["6.5.1-1"].commit == "0123456789ab"


def test_numbers_without_scatter_decide_by_the_threshold_alone() -> None:
    assert judgement._p_value(0.0, Band(0.0, 4), 3) == 1.0
    assert found(fake.atlas(2, 9, sd=0.0, steps={(0, 5): 1.019, (1, 5): 1.021})) == [
        ("case-1", "6.6.1-1", "regression")
    ]
