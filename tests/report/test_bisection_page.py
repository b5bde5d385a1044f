"""A bisection in every format: how each commit stands, what is said of it, and words that attack the reader."""

import re
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab import report
from lab.compare import result_folders
from lab.compare.explain import Cost
from lab.core.errors import BuildFailed, UserError
from lab.report import bisection_page, bisection_text, inputs, mail, markdown, wording
from lab.report.inputs import CommitStatus, range_commits, stretches
from lab.stats.verdict import Outcome

from ..bisection.test_live_runner import Host, begin, fails, search
from ..fakes import answer as fakeanswer
from ..fakes import bisection as fakebisect
from ..fakes.answer import BROKEN, CULPRIT, answer, bisection, history, name_of
from ..fakes.bisector import Bisector
from ..fakes.command import Lab

# --- how commits stand


def test_every_commit_stands_where_the_search_left_it_and_those_not_told_apart_are_equally_suspect() -> None:
    found = {place.number: place for place in range_commits(answer(), history())}
    assert len(found) == 31
    assert {n for n, p in found.items() if p.status == CommitStatus.UNTESTABLE} == set(BROKEN)
    assert found[0].status == found[5].status == found[11].status == CommitStatus.OLD
    assert found[CULPRIT].status == found[14].status == found[17].status == CommitStatus.NEITHER
    assert found[22].status == found[25].status == found[30].status == CommitStatus.NEW
    assert [n for n, p in found.items() if p.culprit] == [CULPRIT]
    assert found[11].measured and not found[10].measured
    assert [n for n, p in sorted(found.items(), key=lambda item: item[1].order or 99) if p.order][:3] == [15, 8, 18]
    chances = [place.chance for place in range_commits(answer(), history())]
    assert chances[CULPRIT] == pytest.approx(0.995)
    assert [chances[i] for i in range(18, 23)] == pytest.approx([0.199] * 5)
    assert sum(chances) == pytest.approx(2 * 0.995)


def test_a_merge_of_both_kinds_is_not_guessed_at() -> None:
    line = history(4).candidates
    merged = [line[0], replace(line[1], parents=(name_of(0),)), replace(line[2], parents=(name_of(1), name_of(2)))]
    made = replace(history(4), candidates=[*merged, line[3]])
    told = answer(changes=[], path=[fakeanswer._step(line[1], "like bad", fakeanswer.SLOWER)], skipped=[])
    found = range_commits(told, made)
    assert [place.status for place in found[1:4]] == [CommitStatus.OLD, CommitStatus.NEW, CommitStatus.OPEN]


def test_what_was_not_tried_is_put_together() -> None:
    rows = stretches(range_commits(answer(5000, changes=[]), history(5000)))
    assert sum(map(len, rows)) == 5001
    assert len(rows) < 30 and max(map(len, rows)) == 5000 - 23


# --- formats


def test_the_sentence_has_all_of_it() -> None:
    words = wording.answer_sentence(answer())
    assert words.startswith(f'regression by {name_of(CULPRIT)[:12]} ("change 12"), +')
    assert "99.5 % sure; regression by one of 5 that could not be told apart" in words


def test_what_is_not_certain_never_reads_as_if_it_were() -> None:
    assert [wording.share(p) for p in (0.5, 0.99989, 0.99999999, 1.0)] == ["50 %", "99.99 %", "over 99.99 %", "100 %"]


def test_markdown_names_what_was_found_and_the_path(tmp_path: Path) -> None:
    text = markdown.bisection(bisection(tmp_path / "b"))
    assert f"**regression**: `{name_of(CULPRIT)}` `change 12`" in text
    assert text.count("(could not be tested)") == 4
    rows = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == len(answer().path) and "`untestable: build`" in rows[2]


@pytest.mark.parametrize(("cost", "unit"), [("cycles", "modelled cycles"), ("instructions", "instructions")])
def test_functions_have_the_unit_that_they_were_counted_in(tmp_path: Path, cost: Cost, unit: str) -> None:
    plain = answer()
    first = plain.changes[0]
    assert first.proof is not None
    functions = [replace(one, cost=cost) for one in first.proof.functions]
    change = replace(first, proof=replace(first.proof, functions=functions))
    counted = bisection(tmp_path / "b", replace(plain, changes=[change, *plain.changes[1:]]))
    assert f"that changed, {unit} an operation:" in bisection_text.render(counted.answer)
    assert "0.00 (0.00) -> 2.00 (1.50)  file.change {}: fput" in bisection_text.render(counted.answer)
    assert f"Functions that changed, {unit} an operation" in markdown.bisection(counted)
    shutil.rmtree(counted.folder / "proof")
    assert f"</code>, {unit} an operation</h3>" in bisection_page.bisection(counted)


def test_packages_are_not_called_commits(tmp_path: Path) -> None:
    stored = bisection(tmp_path / "b", replace(answer(), kind="packages"))
    text = bisection_page.bisection(stored)
    assert "The range, package by package" in text and "7 packages, none of them measured" in text
    assert "one of 5 packages" in text and ">package</button>" in text
    for words in ("against its parent", "commit by commit", "one of 5 commits", ">commit</button>", "seeds a commit"):
        assert words not in text
    assert "one of 5 packages, up to" in bisection_text.bisection(stored)
    text = markdown.bisection(stored)
    assert "one of 5 packages, which could not be told apart" in text and "| package | subject |" in text


def _culprits(at: list[int], kind: str) -> list[tuple[float, int]]:
    """Place and row of the culprits' labels in a range of 30 commits, or packages with their long names."""
    commits = range_commits(answer(), history())
    for number, place in enumerate(commits):
        name = name_of(number) if kind == "commits" else f"linux-image-6.12.{number}+deb13-cloud-amd64"
        commits[number] = place._replace(culprit=number in at, candidate=replace(place.candidate, id=name))
    return [(label.at, label.row) for label in bisection_page._Range(answer(), commits).culprits()]


@pytest.mark.parametrize(
    ("at", "kind", "rows"),
    [
        ([3, 20], "commits", [0, 0]),
        ([12, 13], "commits", [0, 1]),
        ([4, 5, 6], "packages", [0, 1, 2]),
        ([14, 16], "commits", [0, 1]),  # to the right of the one, and to the left of the other
        ([1, 29], "packages", [0, 0]),  # long names are cut off
    ],
)
def test_the_names_of_culprits_do_not_collide(at: list[int], kind: str, rows: list[int]) -> None:
    assert [row for _, row in _culprits(at, kind)] == rows


def test_a_result_below_the_usual_folder_is_named_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_folders, "results_dir", lambda: tmp_path)
    folder = tmp_path / "20261129-081845-934f" / "proof" / "c1" / "parent"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    assert result_folders.reference(folder) == "20261129-081845-934f/proof/c1/parent"
    assert result_folders.open_folder(result_folders.reference(folder)) == folder


def test_a_range_of_thousands_is_still_a_small_page(tmp_path: Path) -> None:
    made = answer(20_000)
    wide = replace(made.changes[1], suspects=[name_of(i) for i in range(30, 20_001)], commit=name_of(20_000))
    one = bisection(tmp_path / "b", replace(made, changes=[made.changes[0], wide]))
    assert len(bisection_page.bisection(one).encode()) < 1_000_000


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_the_command_that_repeats_it_names_the_tree_and_the_threshold_is_beside_the_ends(
    tmp_path: Path, form: str
) -> None:
    command = ["lab", "bisect", "--good", "v1", "--bad", "v2", "--", "mm"]
    made = replace(answer(), reproduce=command, threshold=0.035)
    text = report.render(form, bisection(tmp_path / "b", made))
    assert "lab bisect --good v1 --bad v2 --tree default -- mm" in text
    assert re.search(r"regression(</span></span>)? \(threshold 3.5 %\)", text)
    chosen = replace(made, reproduce=[*made.reproduce[:6], "--tree=mine"])
    assert chosen.repeat == "lab bisect --good v1 --bad v2 --tree=mine"
    assert replace(chosen, reproduce=made.reproduce[:6], tree=None).repeat == "lab bisect --good v1 --bad v2"
    of_step = replace(made, reproduce=["lab", "atlas", "bisect", "mincore", "7.2", "7.3"])
    assert of_step.tree and of_step.repeat == "lab atlas bisect mincore 7.2 7.3"


def test_a_mail_is_about_one_culprit_that_was_proved(tmp_path: Path) -> None:
    made = answer()
    with pytest.raises(UserError, match="found 2 regressions"):
        mail.bisection(bisection(tmp_path / "two", made))
    with pytest.raises(UserError, match="no culprit that was proved"):
        mail.bisection(bisection(tmp_path / "range", replace(made, changes=made.changes[1:])))
    with pytest.raises(UserError, match="found no regression"):
        mail.bisection(bisection(tmp_path / "none", replace(made, changes=[], outcome="no culprit")))


def test_the_trail_of_a_mail_says_how_it_was_found() -> None:
    text = mail._trail(answer(), answer().changes[0])
    assert "Found by bisecting 30 commits" in text and "could not be tested" in text
    assert f"{name_of(15)[:12]} like neither end" in text and "reverted" in text


# --- the command


def test_an_improvement_is_no_regression() -> None:
    made = answer()
    better = [replace(made.changes[0], direction=Outcome.IMPROVEMENT)]
    assert bisection_page.tone(replace(made, changes=better, outcome="found")) == "improvement"
    assert bisection_page.tone(made) == "regression"


# --- from a real history to every place where a subject is shown


def test_a_subject_that_attacks_is_shown_wherever_the_search_names_it(
    bisector: Bisector, tmp_path: Path, lab: Lab
) -> None:
    """Terminal, status, log, page, Markdown and mail of a search whose culprit has a subject made to harm."""
    subject = "mm: <img src=x onerror=alert(1)> \x1b[31m\u202e @all `|`"
    first = fakebisect.start(bisector.tree)
    fakebisect.commit(bisector.tree, "mm: nothing", 100.0)
    culprit = fakebisect.commit(bisector.tree, subject, 60.0)
    last = fakebisect.commit(bisector.tree, "mm: nothing more", 60.0)
    assert bisector.run("--good", first, "--bad", last, "--tree", str(bisector.tree), "-w", bisector.workload) == 0
    said = bisector.said + bisector.printed
    assert culprit in said and "\\x1b[31m\\u202e" in said
    for words in (["bisect", "status"], ["bisect", "log"], ["report", "latest"], ["report"]):
        said += lab(*words).out
    for form in ("html", "md", "mail"):
        lab("report", "latest", "-f", form, "-o", str(tmp_path / form))
        text = (tmp_path / form).read_text()
        assert "\\x1b[31m\\u202e" in text, form
        assert not re.search("<img src=x", text) or form != "html"
        said += text
    assert not set(said) & set("\x1b\u202e")


def test_what_is_known_of_a_search_that_is_not_finished_can_be_shown(
    bisector: Bisector, tmp_path: Path, lab: Lab
) -> None:
    commits = fakebisect.line(bisector.tree, [100.0] * 9 + [60.0] * 9)
    bisector.search(commits[0], commits[-1])
    lab("bisect", "undo")
    lab("report", "latest", "-f", "html", "-o", str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text()
    assert "undecided: not finished, about 1 more to measure" in text and "not measured, may be the culprit" in text
    assert "lab bisect resume" in lab("report", "latest").out


# --- live mode


def test_live_modes_posterior_is_on_the_page(tmp_path: Path) -> None:
    host = Host(culprit=41, gain=0.7)
    host.fates["c32"] = fails(BuildFailed("c32 does not build"))
    made = search(begin(tmp_path / "r", 64), host)
    one = inputs.open_bisection(tmp_path / "r")
    chances = [place.chance for place in one.commits]
    assert made.live is not None and chances.index(max(chances)) == 41
    assert sum(chances) == pytest.approx(sum(s.probability for s in made.live.suspicions))
    text = bisection_page.bisection(one)
    assert "like bad (over 99.9 %)" in text and f"{made.live.boots} of {made.live.kernels} kernels" in text
    for shown in (text, markdown.bisection(one)):
        assert "fresh boots with another layout against its parent say the same" in shown
