"""`lab bisect` from the command line to the answer, on real git histories with kernels and guests that are fakes."""

import re
from pathlib import Path

import msgspec
import pytest

from lab.bisection.answer import Answer
from lab.compare import measurement, result_folders
from lab.compare.runs import Run
from lab.workloads import selection

from ..fakes.bisection import WORKLOAD, commit, dice, line, start, wobbly
from ..fakes.bisector import Bisector, culprits
from ..fakes.command import Lab
from ..fakes.guest import FakeInstrument, write_workload
from ..fakes.kernel import fingerprint, git

# ---- the answer


def test_the_culprit_is_found_proved_and_described(bisector: Bisector) -> None:
    commits, answer = bisector.search_line([100.0] * 20 + [60.0] * 12)
    assert answer.schema == "lab.bisect/1" and answer.outcome == "found"
    (found,) = answer.changes
    assert found.commit == commits[20] and found.title == "change 20" and found.author == "A <a@b>"
    assert found.direction == "regression" and found.effect is not None and found.effect.ratio == pytest.approx(0.6)
    assert found.proof is not None and found.proof.confirmed and not found.proof.same_image
    assert found.proof.fresh is not None and found.proof.fresh.ratio == pytest.approx(0.6)
    stored = result_folders.load_result(result_folders.open_folder(found.proof.result or ""))
    assert min(answer.seeds) > 100 and not set(stored.seeds) & set(answer.seeds), "seeds that the search did not have"
    assert answer.proof_result() == found.proof.result, "that is what a bundle of it holds"
    assert found.confidence > 0.99
    assert answer.measured == 5 and not answer.skipped
    assert answer.reproduce[:2] == ["lab", "bisect"] and "--json" not in answer.reproduce


def test_the_revert_on_the_new_end_is_measured(bisector: Bisector) -> None:
    commits = [start(bisector.tree)]
    for i in range(1, 8):
        # Later commits leave `fate` alone, so that taking the culprit back gives the old one.
        if i == 3:
            commits.append(commit(bisector.tree, "the culprit", 60.0))
        else:
            fate = (bisector.tree / "fate").read_text()
            commits.append(commit(bisector.tree, f"change {i}", fate, f"mm/file{i}.c"))
    answer = bisector.search(commits[0], commits[-1])
    proof = answer.changes[0].proof
    assert culprits(answer) == [commits[3]] and proof is not None
    assert proof.reverted is not None and proof.reverted.ratio == pytest.approx(100 / 60)
    assert proof.reverted.verdict == "improvement"


def test_the_first_after_a_broken_stretch_is_not_blamed_alone_as_the_page_says(bisector: Bisector, lab: Lab) -> None:
    commits = line(bisector.tree, [100.0] * 6 + ["build", "panic"] + [60.0] * 6)
    ends = ("--good", commits[0], "--bad", commits[-1], "--tree", str(bisector.tree))
    assert bisector.run(*ends, "-w", bisector.workload) == 0
    page = bisector.printed
    for part in ("regression: one of 3 commits", "could not be tested", "does not build", "panicked", "-40.0 %"):
        assert part in page, page
    assert bisector.report() == page
    assert "range" in lab("report").out
    answer = msgspec.json.decode(bisector.report("json"), type=Answer)
    (found,) = answer.changes
    assert answer.outcome == "range" and found.suspects == commits[6:9] and found.untested == commits[6:8]


def test_an_improvement_is_asked_for_with_old_and_new_and_else_not_blamed_on_anybody(bisector: Bisector) -> None:
    commits, answer = bisector.search_line([60.0] * 9 + [100.0] * 8)
    assert answer.outcome == "no culprit" and "--old and --new" in answer.reason
    answer = bisector.search(commits[0], commits[-1], words="old new")
    assert culprits(answer) == [commits[9]] and answer.changes[0].direction == "improvement"


@pytest.mark.parametrize(
    ("levels", "proved"),
    [((98.5, 97.0), 2), ((98.95, 97.9), 2), ((95.0, 96.5), 2), ((98.1, 97.5), 1)],
    ids=["1.5 % twice", "1.05 % twice", "5 %, then 1.5 % back", "1.9 % and .6 %, which is below the band"],
)
def test_the_proof_asks_no_more_than_the_search(bisector: Bisector, levels: tuple[float, float], proved: int) -> None:
    """Changes that are smaller than the threshold, but parts of one that is not."""
    commits, answer = bisector.search_line([100.0] * 7 + [levels[0]] * 9 + [levels[1]] * 6)
    assert answer.outcome == "found", answer.reason
    assert culprits(answer) == [commits[7], commits[16]][:proved]
    for found in answer.changes:
        assert found.proof is not None and found.proof.confirmed
        assert found.effect is not None and found.effect.is_change and found.confidence > 0.99


def test_a_proof_that_fails_leaves_no_confidence(bisector: Bisector) -> None:
    """Fresh seeds, from 1 on, do not show what those of the search do."""
    bisector.guests.value = lambda value, seed, case: value if seed > 100 else 100.0
    _, answer = bisector.search_line([100.0] * 7 + [95.0] * 9)
    (found,) = answer.changes
    assert answer.outcome == "undecided" and "do not confirm" in answer.reason
    assert found.proof is not None and not found.proof.confirmed and found.confidence == 0


def test_where_the_ends_need_more_seeds_a_commit_needs_but_three(bisector: Bisector) -> None:
    bisector.guests.value = wobbly
    commits, answer = bisector.search_line([100.0] * 9 + [60.0] * 13 + [66.0] * 10)
    assert culprits(answer) == [commits[9], commits[22]]
    assert len(answer.seeds) == 6
    assert {len(step.values) for step in answer.path} == {3, 6}


def test_more_confidence_takes_more_seeds_and_less_than_95_percent_is_95(bisector: Bisector) -> None:
    commits = line(bisector.tree, [100.0] * 3 + [90.0] * 3)
    bisector.guests.value = lambda value, seed, case: value * (1 + dice(f"{value} {seed}").gauss(0, 0.05))
    seeds = {}
    for asked in ("0.5", "0.95", "0.99", "0.9999"):
        answer = bisector.search(commits[0], commits[-1], "--confidence", asked, "--max-seeds", "40")
        seeds[asked] = len(answer.seeds)
        assert answer.outcome == "found" and answer.changes[0].confidence >= max(float(asked), 0.95)
    assert seeds["0.5"] == seeds["0.95"] < seeds["0.99"] < seeds["0.9999"]


def test_culprit_and_fix_between_ends_that_are_alike(bisector: Bisector) -> None:
    commits, answer = bisector.search_line([100.0] * 20 + [60.0] * 24 + [100.0] * 20, words="old new")
    assert answer.ends is not None and answer.ends.verdict == "same"
    assert culprits(answer) == [commits[20], commits[44]]


# ---- no culprit


@pytest.mark.parametrize("seed", range(20))
def test_ends_that_are_alike_name_nobody(bisector: Bisector, seed: int) -> None:
    draw = dice(seed)
    wobble = [100.0 * (1 + draw.uniform(-0.004, 0.004)) for _ in range(12)]
    _, answer = bisector.search_line(wobble, words=draw.choice(["good bad", "old new"]))
    assert answer.outcome == "no culprit" and not answer.changes and answer.measured <= 3


def test_kernels_that_are_the_same_are_not_measured_twice(bisector: Bisector) -> None:
    commits = [start(bisector.tree)]
    for i in range(1, 9):
        path = "mm/file.c" if i == 5 else f"Documentation/{i}.rst"
        commits.append(commit(bisector.tree, f"change {i}", 60.0 if i >= 5 else 100.0, path))
    answer = bisector.search(commits[0], commits[-1])
    assert culprits(answer) == [commits[5]]
    assert all(step.same_as for step in answer.path)


# ---- what cannot be tested


def test_stretches_that_cannot_be_tested_are_passed_by(bisector: Bisector) -> None:
    fates: list[float | str] = [100.0] * 16 + ["build"] * 14 + [100.0] * 6 + [60.0] * 4 + ["panic"] * 4 + [60.0] * 4
    commits, answer = bisector.search_line(fates)
    assert culprits(answer) == [commits[36]]
    assert answer.skipped and all(step.why for step in answer.skipped)


def test_an_end_that_panics_is_no_end_unless_a_recipe_hunts_panics(bisector: Bisector, tmp_path: Path) -> None:
    commits = line(bisector.tree, [100.0] * 6 + ["panic"] * 5)
    assert "the bad end cannot be measured" in bisector.refused(4, "--good", commits[0], "--bad", commits[-1])
    recipe = tmp_path / "panics.toml"
    recipe.write_text(f'schema = 1\nworkload = "{tmp_path}/mine"\ncase = "large"\npanics = "bad"\n')
    answer = bisector.search(commits[0], commits[-1], "--recipe", str(recipe))
    assert culprits(answer) == [commits[6]]


# ---- this machine's failures


def test_a_guest_that_the_host_lost_is_tried_once_more(bisector: Bisector) -> None:
    commits = line(bisector.tree, [100.0] * 4 + [60.0] * 4)
    bisector.guests.failures[commits[3]] = 1
    assert culprits(bisector.search(commits[0], commits[-1])) == [commits[4]]


def test_a_host_that_fails_twice_stops_the_search_and_blames_nobody(bisector: Bisector) -> None:
    commits = line(bisector.tree, [100.0] * 4 + ["host"] + [60.0] * 3)
    said = bisector.refused(4, "--good", commits[0], "--bad", commits[-1])
    assert "QEMU died" in said
    assert bisector.run("status") == 0 and "next" in bisector.printed


# ---- histories that are no line


def branched(top: Path) -> dict[str, str]:
    """A main line with a side branch; the culprit is on the side, a second change on the main line."""
    ids = {"old": start(top)}
    git(top, "checkout", "-q", "-b", "side")
    for i in range(6):
        ids[f"side {i}"] = commit(top, f"side {i}", 60.0 if i >= 3 else 100.0, f"net/side{i}.c")
    git(top, "checkout", "-q", "main")
    for i in range(6):
        (top / "mm" / "extra").write_text(str(i))
        ids[f"main {i}"] = commit(top, f"main {i}", 100.0, f"mm/main{i}.c")
    git(top, "merge", "-q", "--no-ff", "-m", "merge side", "side", "-X", "theirs")
    (top / "fate").write_text("60.0")
    ids["merge"] = git(top, "rev-parse", "HEAD")
    for i in range(3):
        ids[f"late {i}"] = commit(top, f"late {i}", 60.0, f"mm/late{i}.c")
    return ids


def test_a_culprit_on_a_side_branch_is_by_first_parents_the_merge_and_by_paths_nobody(bisector: Bisector) -> None:
    ids = branched(bisector.tree)
    assert culprits(bisector.search(ids["old"], "HEAD")) == [ids["side 3"]]
    answer = bisector.search(ids["old"], "HEAD", "--first-parent")
    assert culprits(answer) == [ids["merge"]]
    assert answer.changes[0].merge and answer.candidates == 10
    answer = bisector.search(ids["old"], "HEAD", "--", "mm/late0.c")
    (found,) = answer.changes
    assert found.commit == ids["late 0"] and answer.outcome == "undecided"
    assert found.proof is not None and not found.proof.confirmed, "the culprit is outside of the paths"


# ---- modelled cycles beside the count of instructions


@pytest.fixture
def modelled(bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bisector:
    """The command, whose workload has a cost model: 60 operations a second are 67 % more cycles than 100."""
    monkeypatch.setattr(measurement, "load_instrument", lambda machine, model: FakeInstrument())
    file = tmp_path / "mine" / "workload.toml"
    file.write_text(file.read_text().replace('model = "none"', 'model = "tlb"'))
    return bisector


def fewer(fate: float) -> float:
    """A fifth fewer instructions in the kernels that modelled cycles call worse."""
    return 1000.0 if fate == 100.0 else 800.0


DISPUTED = "model +66.7 %, instructions -20.0 %: rests on the model"


def test_ends_of_which_cycles_and_instructions_disagree_are_not_searched(modelled: Bisector) -> None:
    modelled.guests.counts = fewer
    commits, answer = modelled.search_line([100.0] * 8 + [60.0] * 8)
    choose = "choose the metric that decides: --metric instructions, or --metric cycles"
    assert (answer.outcome, answer.reason) == ("undecided", f"the ends disagree: {DISPUTED}; {choose}")
    assert not answer.changes and {commit for commit, _ in modelled.guests.calls} == {commits[0], commits[-1]}
    assert f"nothing is searched: {DISPUTED}; {choose}" in modelled.said
    assert answer.instructions is not None and answer.instructions.ratio == pytest.approx(0.8)
    assert "; instructions -20.0 % exact: unknown" in modelled.report()


@pytest.mark.parametrize(("metric", "direction"), [("cycles", "regression"), ("instructions", "improvement")])
def test_the_users_choice_is_searched_and_proved(modelled: Bisector, metric: str, direction: str) -> None:
    modelled.guests.counts = fewer
    commits, answer = modelled.search_line([100.0] * 8 + [60.0] * 8, "--metric", metric, words="old new")
    assert answer.outcome == "found" and culprits(answer) == [commits[8]] and answer.chosen == metric
    (found,) = answer.changes
    assert found.direction == direction and found.proof is not None and found.proof.confirmed
    assert answer.metric == {"cycles": "cycles_per_op", "instructions": "instructions_per_op"}[metric]
    assert answer.reproduce[-2:] == ["--metric", metric]
    text = modelled.report()
    assert f"decided by --metric {metric}" in text and f"--metric {metric}" in text.partition("repeat: ")[2]


def test_instructions_stand_beside_the_cycles_of_ends_path_and_effect(modelled: Bisector) -> None:
    modelled.guests.counts = lambda fate: 1000.0 if fate == 100.0 else 1500.0
    _, answer = modelled.search_line([100.0] * 8 + [60.0] * 8)
    (found,) = answer.changes
    assert answer.outcome == "found" and found.instructions is not None
    assert found.instructions.ratio == pytest.approx(1.5)
    assert {round(step.instructions or 0, 6) for step in answer.path} == {1.0, 1.5}
    lines = [one for one in modelled.report().splitlines() if "instructions " in one]
    assert len(lines) == 2 + answer.measured, "\n".join(lines)
    markdown = modelled.report("md")
    assert "| step | commit | subject | state | change | instructions |" in markdown
    assert markdown.count("instructions +50.0 %") == 2, "the ends and the effect"
    assert re.search(r'<td class="n" data-value="1\.[45]\d*">\+50\.0 %</td>', modelled.report("html"))


# ---- the whole cost beside the caller's


def test_ends_between_which_work_moved_are_not_searched(modelled: Bisector) -> None:
    modelled.guests.whole = lambda fate: {
        "deferred_cycles": 200.0 if fate == 60.0 else 200.0 + 6500.0 - 32.0, "guest_time": 900.0, "waited": 0.0,
    }  # fmt: skip
    commits, answer = modelled.search_line([60.0] * 4 + [100.0] * 4, words="old new")
    assert answer.outcome == "undecided"
    assert "the ends disagree: moved to threads and softirqs: -40.0 %" in answer.reason
    assert answer.whole is not None and answer.whole.deferred is not None and answer.whole.deferred.base == 200
    assert not answer.changes and {commit for commit, _ in modelled.guests.calls} == {commits[0], commits[-1]}


def test_the_whole_cost_stands_beside_the_effect(modelled: Bisector) -> None:
    modelled.guests.whole = lambda fate: {"deferred_cycles": 200.0, "guest_time": 900.0, "waited": 100.0}
    _, answer = modelled.search_line([100.0] * 4 + [60.0] * 4)
    (found,) = answer.changes
    assert answer.outcome == "found" and found.whole is not None and found.whole.moved == 1
    said = "deferred 200 to 200 cycles (0.0 % of the caller), together +66.7 %, elapsed 900 ns to 900 ns (0.0 %), of it"
    for kind in ("text", "md", "html"):
        assert modelled.report(kind).count(f"{said} ") == 2, "the ends and the effect"


def test_ends_that_leave_processes_behind_are_not_searched(modelled: Bisector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "left_processes", lambda run, case: float(run.metrics(case)["cycles_per_op"] < 12_000))
    _, answer = modelled.search_line([60.0] * 3 + [100.0] * 3, words="old new")
    why = "leaves 0 against 1 processes behind, whose work is in no number; choose the metric that decides"
    assert answer.outcome == "undecided" and answer.reason.startswith(f"the ends disagree: {why}")
    assert not answer.changes


# ---- the CPU that kernels believe in


def deluded(fate: float) -> dict[str, str]:
    """Guests that report page table isolation in the kernels that are slow."""
    return {"vulnerability.meltdown": "Mitigation: PTI" if fate == 60.0 else "Not affected"}


def test_ends_that_believe_in_another_cpu_are_not_searched(modelled: Bisector) -> None:
    modelled.guests.settings = deluded
    commits, answer = modelled.search_line([100.0] * 3 + [60.0] * 3)
    why = f"{commits[-1][:12]} believes in another CPU than sapphire-rapids: meltdown; search with mitigations=off"
    assert (answer.outcome, answer.reason) == ("undecided", f"the ends disagree: {why}")
    assert not answer.changes and f"nothing is searched: {why}" in modelled.said


def test_a_culprit_that_believes_in_another_cpu_than_its_parent_has_no_word(modelled: Bisector) -> None:
    modelled.guests.settings = deluded
    commits, answer = modelled.search_line([100.0] * 4 + [60.0] * 3 + [80.0] * 3)
    assert culprits(answer) == [commits[4], commits[7]] and answer.outcome == "undecided"
    assert "test believes in another CPU than sapphire-rapids: meltdown" in answer.reason
    assert all((found.direction, found.confidence) == (None, 0) for found in answer.changes)
    for kind in ("text", "md", "html"):
        assert modelled.report(kind).count("no word") == 2


# ---- several cases


def test_of_a_suite_the_case_that_changed_most_decides(
    bisector: Bisector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_workload(tmp_path / "other", WORKLOAD.replace('name = "mine"', 'name = "other"'))
    groups = {"one": (f"{other}:small",), "two": (str(tmp_path / "mine"),)}
    made = selection.Suite(name="both", description="two workloads", groups=groups)
    monkeypatch.setattr(selection, "suites", lambda: {"both": made})
    commits = line(bisector.tree, [100.0] * 4 + [60.0] * 4)
    ends = ("--good", commits[0], "--bad", commits[-1], "--tree", str(bisector.tree))
    assert bisector.run(*ends, "--suite", "both", "--json") == 0
    answer = msgspec.json.decode(bisector.printed, type=Answer)
    assert (answer.workload, answer.case) == ("mine", "large") and culprits(answer) == [commits[4]]
    assert "in all cases of both" in bisector.said
    assert "exclude each other" in bisector.refused(2, *ends[:4], "--suite", "both")
    assert bisector.run(*ends, "--suite", "bth") == 2 and "no suite is called 'bth'" in bisector.said
    assert bisector.run(*ends, "--suite", "both", "--mode", "live") == 2 and "a suite has many" in bisector.said


def test_a_tree_of_the_users_is_not_touched(bisector: Bisector) -> None:
    commits = line(bisector.tree, [100.0] * 8 + [60.0] * 8)
    git(bisector.tree, "bisect", "start", commits[-1], commits[0])
    (bisector.tree / "mm" / "file.c").write_text("work in progress\n")
    before = fingerprint(bisector.tree)
    assert culprits(bisector.search(commits[0], commits[-1])) == [commits[8]]
    assert fingerprint(bisector.tree) == before
