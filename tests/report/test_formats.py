"""Formats, but the page and the mail: what people must find, and what programs of others read."""

import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from junitparser import JUnitXml
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from lab import report
from lab.compare import counters, result_folders
from lab.compare.cause import Cause, CauseFunction
from lab.compare.results import AbResult, CaseResult, Robustness
from lab.core import records
from lab.core.errors import UserError
from lab.core.text import visible
from lab.report import csv_rows, document, inputs, junit, markdown, openmetrics, wording
from lab.report import text as report_text
from lab.stats.verdict import Metric, Outcome

from ..fakes import result as fakeresult
from ..fakes.command import Lab
from ..fakes.result import (
    DISPUTED,
    EQUAL,
    FAILED,
    FASTER,
    HOSTILE,
    MODEL,
    SLOWER,
    UNSUPPORTED,
    UNSURE,
    WHOLE,
    arm,
    case,
    hostile,
    reports,
    result,
)


@pytest.fixture
def kept(own_home: None) -> Path:
    """Two stored results of the same environment, and one of another."""
    folder = result_folders.results_dir()
    for name, fingerprint in (("one", "f" * 16), ("two", "f" * 16), ("strange", "e" * 16)):
        fakeresult.store(folder / name, result(SLOWER, EQUAL, name=name, fingerprint=fingerprint))
    (folder / "matrix").mkdir()
    (folder / "matrix" / "plan.json").write_text('{"kind": "matrix"}')
    return folder


def _on_four_vcpus(**more: Any) -> AbResult:
    document = result(**more)
    shapes = {name: replace(shape, vcpus=4) for name, shape in document.environment.guests.items()}
    return replace(document, environment=replace(document.environment, guests=shapes))


SHARES = [
    fakeresult.compared(Metric(name=f"{share}_cycles", unit="cycles", better="lower"), [100.0] * 6, [to] * 6)
    for share, to in (("kernel", 123.0), ("user", 177.0))
]
ROBUST = Robustness(
    low=0.996, high=1.09, depends_on=["walk_4k"], machine="zen4", others={"sapphire-rapids": 1.003}, holds_on=["zen4"]
)
CLEARED = CauseFunction(name="clear_page", delta=48.0, share=0.96, base_calls=0, test_calls=2)
CAUSE = Cause(case=SLOWER.name, cost="cycles", functions=[CLEARED])
PACKAGES = [arm("deb:6.12", "1", commit=None), arm("deb:7.2", "2", commit=None, compiler="gcc 14.2.0")]
TURNS = "4 vCPUs take turns: exact mode does not see contention (CPUs that wait for a lock) or false-sharing"


@pytest.mark.parametrize("name", ["text", "md", "html"])
@pytest.mark.parametrize(
    ("document", "words"),
    [
        (result(threshold=0.035), ["threshold 3.5 %"]),
        (_on_four_vcpus(), [TURNS]),
        (result(replace(SLOWER, metrics=[*SLOWER.metrics, *SHARES])), ["+23.0 %", "+77.0 %"]),
        (result(replace(SLOWER, notes=["arms differ: 1 against 14 VMAs"])), ["arms differ: 1 against 14 VMAs"]),
        (
            result(replace(SLOWER, robustness=ROBUST)),
            [
                "at other costs, within the ranges of zen4; other machines with one seed:",
                "depends on walk_4k: -0.4 % to +9.0 %; only on zen4 (sapphire-rapids +0.3 %)",
            ],
        ),
        (result(replace(SLOWER, whole=WHOLE)), ["deferred", "+15.0 %", "+25.0 %"]),
        (result(cause=CAUSE), ["clear_page makes 96 % of it (+48 cycles per operation, 2 new calls)"]),
        (
            result(base=PACKAGES[0], test=PACKAGES[1]),
            ["another compiler and configuration (gcc 12.2.0, gcc 14.2.0): differences below 10 % mean little"],
        ),
    ],
)
def test_every_format_for_people_says_what_a_plain_result_does_not_have(
    name: str, document: AbResult, words: list[str], tmp_path: Path
) -> None:
    found, plain = (
        " ".join(html.unescape(report.render(name, reports(tmp_path / folder, one))).split())
        for folder, one in (("found", document), ("plain", result()))
    )
    for said in words:
        assert said in found and said not in plain, said


@pytest.mark.parametrize("name", ["text", "md", "html"])
def test_vcpus_of_live_mode_do_not_take_turns(name: str, tmp_path: Path) -> None:
    assert "take turns" not in report.render(
        name, reports(tmp_path, _on_four_vcpus(mode="live", live=fakeresult.live()))
    )


@pytest.mark.parametrize("name", ["text", "md", "html", "junit", "json", "csv", "openmetrics"])
def test_a_case_that_failed_is_shown_with_its_error(name: str, tmp_path: Path) -> None:
    document = result(SLOWER, FAILED)
    shown = report.render(name, reports(tmp_path, document))
    if name == "openmetrics":
        assert 'lab_case_failed{result="20261121-090000-aaaa",workload="alloc-burst",case="layout-1m"} 1' in shown
    elif name == "csv":
        assert "alloc-burst,layout-1m,false,failed," in shown
    else:
        assert "alloc-burst:layout-1m exited with status 3: no" in html.unescape(shown)
        assert "guests/alloc-burst-test-0001/report.jsonl" in shown


@pytest.mark.parametrize(("name", "word"), [
    ("text", r"^layout-2m .* unsupported$(.|\n)*layout-2m: unsupported in the base arm only: base arm, seed 1: "),
    ("md", r"layout-2m`? .*unsupported"),
    ("html", '<tr class="unsupported" '),
    ("junit", '<skipped message="unsupported in the base arm only: .*Invalid argument'),
    ("csv", "alloc-burst,layout-2m,false,unsupported,"),
    ("openmetrics", 'lab_case_failed{.*case="layout-2m"} 0'),
])  # fmt: skip
def test_a_case_that_a_kernel_lacks_is_skipped(name: str, word: str, tmp_path: Path) -> None:
    shown = report.render(name, reports(tmp_path, result(SLOWER, UNSUPPORTED)))
    assert re.search(word, shown, re.MULTILINE)


def test_the_costs_that_a_verdict_depends_on_are_a_few() -> None:
    costs = ["walk_4k", "memory", "atomic", "fence", "msr"]
    robust = replace(ROBUST, low=1.0, high=1.5, depends_on=costs, others={})
    assert robust.corners == "depends on walk_4k, memory, atomic or 2 more: 0.0 % to +50.0 %"
    together = replace(robust, depends_on=costs[:2], together=True)
    assert str(together) == "depends on walk_4k and memory together: 0.0 % to +50.0 %; other machines were not measured"


def test_several_results_are_columns(tmp_path: Path) -> None:
    text = report_text.comparison(reports(tmp_path, result(SLOWER, EQUAL), result(FASTER, EQUAL, name="other")))
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("alloc-burst")}
    assert re.search(r"\+5\d\.\d % .*regression +-$", lines["alloc-burst:layout-4632k"])
    assert re.search(r" - +-\d\d\.\d % .*improvement$", lines["alloc-burst:single-2052k"])
    assert lines["alloc-burst:layout-512k"].count("same") == 2


def test_a_case_that_is_better_in_one_and_worse_in_the_other_is_named(tmp_path: Path) -> None:
    slower, faster = (case("fork", [100.0] * 6, [test] * 6) for test in (120.0, 80.0))
    text = report_text.comparison(reports(tmp_path, result(slower), result(faster, name="other")))
    assert "opposite directions: alloc-burst:fork" in text
    text = report_text.comparison(reports(tmp_path / "alike", result(slower), result(slower, name="other")))
    assert "opposite" not in text


def test_numbers_of_different_units_are_never_in_one_row(tmp_path: Path) -> None:
    rate = case("layout-4632k", [100.0] * 6, [90.0] * 6, primary=fakeresult.RATE)
    text = report_text.comparison(reports(tmp_path, result(SLOWER), result(rate, name="other")))
    assert len([line for line in text.splitlines() if line.startswith("alloc-burst:layout-4632k")]) == 2


def test_markdown_has_a_row_for_each_case_and_ends_what_it_begins(tmp_path: Path) -> None:
    text = markdown.comparison(reports(tmp_path, result()))
    rows = [line for line in text.splitlines() if line.startswith("| `alloc-burst:")]
    assert len([row for row in rows if "cycles_per_op" in row]) == 5
    assert "**regression**" in text and MODEL in text and text.count("<details>") == text.count("</details>") == 1


@pytest.mark.parametrize("text", ["plain", "`", "a`b``c", "``", "|", "<b>&amp;</b>", "[x](y)", "@all #1", "a|`|"])
def test_code_spans_hold_whatever_is_in_them(text: str) -> None:
    span = markdown.code(text)
    fence = re.match("`+", span)
    assert fence is not None and span.endswith(fence[0])
    inside = span[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside)
    assert not re.search(r"(?<!\\)\|", span)
    assert inside.strip(" ").replace("\\|", "|") == text


def test_a_hostile_name_stays_in_its_cell(tmp_path: Path) -> None:
    text = markdown.comparison(reports(tmp_path, hostile()))
    for line in text.splitlines():
        outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
        assert "<script>" not in outside and "@all" not in outside, line


# --- figures


@pytest.mark.parametrize(
    ("base", "test", "words"),
    [([0.0, 0.0], [0.0, 0.0], "0.0 %"), ([0.0, 4.0], [2.0, 0.0], "-50.0 %"), ([0.0, 0.0], [5.0, 5.0], "n/a")],
)
def test_a_change_from_zero_is_no_percentage(base: list[float], test: list[float], words: str) -> None:
    assert wording.change(fakeresult.compared(fakeresult.FAULTS, base, test)) == words


def test_a_percentage_changes_by_points_unless_it_decides() -> None:
    one = fakeresult.compared(fakeresult.SHARE, [25.0] * 6, [26.0] * 6)
    assert wording.change(one) == "+1.0"
    assert wording.change(replace(one, primary=True)) == "+4.0 %"


def test_what_moved_is_ranked_and_one_event_is_little() -> None:
    pairs = {"one": (0.0, 1.0), "many": (10.0, 400.0), "gone": (46.0, 0.0), "none": (5.0, 5.0)}
    metrics = [
        fakeresult.compared(Metric(name=name, unit="events", better="neither"), [base] * 6, [test] * 6)
        for name, (base, test) in pairs.items()
    ]
    assert [c.name for c in counters.ranked(metrics)] == ["gone", "many", "one", "none"]


def test_costs_and_latencies_explain_no_change() -> None:
    names = ("stores", "kernel_cycles", "cycles_p99", "irqs_off_max_cycles", "irqs_off_max_instructions")
    moved = [
        fakeresult.compared(Metric(name=name, unit="n", better="lower"), [100.0] * 6, [200.0] * 6) for name in names
    ]
    found = replace(SLOWER, metrics=[*SLOWER.metrics[:1], *moved])
    assert [c.name for c in counters.movers(found, 0.02)] == ["stores"]


def test_the_headline_is_the_case_that_moved_most_and_counts() -> None:
    small = case("small", [100.0 + i for i in range(6)], [110.0 + i for i in range(6)], holm=True)
    chance = case("chance", [100.0 + i for i in range(6)], [300.0 + i for i in range(6)], holm=False)
    found = result(small, SLOWER, chance, EQUAL).headline
    assert found is not None and found.case == "layout-4632k"
    assert result(EQUAL).headline is None


@pytest.mark.parametrize("one", [SLOWER, UNSURE, EQUAL])
def test_the_sentence_has_verdict_number_and_machine(one: CaseResult) -> None:
    words = wording.sentence(result(one))
    assert words.startswith(f"{one.verdict}: ") and "6 seeds" in words
    assert (MODEL in words) == (one.verdict == Outcome.REGRESSION)


# --- the command


def test_results_of_different_environments_are_refused_by_name(kept: Path) -> None:
    with pytest.raises(UserError, match="fingerprint"):
        inputs.open_comparisons(["one", "strange"])
    assert inputs.open_comparisons(["one", "two"]).mark == ""
    assert "ENVIRONMENTS DIFFER" in inputs.open_comparisons(["one", "strange"], anyway=True).mark


@pytest.mark.parametrize(("words", "complaint"), [
    ("one strange", "do not compare"),
    ("one matrix", "result of `lab matrix`"),
    ("one --format pdf", "pdf"),
    ("none", "no result"),
    ("--format html", "which result"),
    ("one --json --format csv", "contradict"),
    ("one two --format mail", "one result"),
    ("one -f csv -o /nowhere/at/all.csv", "no folder"),
])  # fmt: skip
def test_bad_input_is_misuse(kept: Path, words: str, complaint: str, lab: Lab) -> None:
    said = lab("report", *words.split(), status=2)
    assert complaint in said.err and "Traceback" not in said.err and said.out == ""


def test_several_without_a_format_are_side_by_side(kept: Path, lab: Lab) -> None:
    out = lab("report", "one", "strange", "--anyway").out
    assert out.startswith("A  one") and "ENVIRONMENTS DIFFER" in out


def test_the_list_says_what_was_run_and_what_can_go_on(kept: Path, lab: Lab) -> None:
    (kept / "stopped").mkdir()
    records.save(kept / "stopped" / "plan.json", {"kind": "matrix"})
    fakeresult.store(kept / "hostile", hostile())
    listed = lab("report").out
    one, *_ = [line for line in listed.splitlines() if line.startswith("one ")]
    assert "alloc-burst" in one and " ago" in one
    assert not set(listed) & set("\x1b\u202e\x00")
    lab("report", "one", "stopped", "--delete")
    assert "one " not in lab("report").out
    assert not (kept / "stopped").exists()


def test_on_a_terminal_the_list_has_what_was_compared_below(
    kept: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = arm("deb:6.12@" + ",".join(f"sysctl.vm.number_{n}={n}" for n in range(9)), "1")
    fakeresult.store(kept / "long", replace(result(SLOWER, name="long"), base=long))
    monkeypatch.setattr("lab.cli.report.width_of", lambda: 80)
    lines = lab("report").out.splitlines()
    assert all(len(line) <= 80 for line in lines if long.spec not in line)
    named = [i for i, line in enumerate(lines) if line.startswith("one ")]
    assert len(named) == 1 and lines[named[0] + 1].startswith("    ") and " .. " in lines[named[0] + 1]
    assert f"    {long.spec}" in lines


# ---- for tools


MARK = "ENVIRONMENTS DIFFER (qemu)"

DISPUTE = "model -7.0 %, instructions +26.0 %: rests on the model"


@pytest.mark.parametrize("name", ["text", "md", "html", "json", "junit"])
def test_cycles_and_instructions_that_disagree_are_the_reason_in_every_format(name: str, tmp_path: Path) -> None:
    text = report.render(name, reports(tmp_path, result(DISPUTED)))
    assert DISPUTE in text and "undecided: model" not in text.replace(f"undecided: {DISPUTE}", "")


# --- json


def test_the_schema_file_is_up_to_date() -> None:
    made = records.encode(document.schema())
    assert document.schema_path().read_bytes() == made, "make it again with `make schema`"


def _schema() -> Any:
    return json.loads(document.schema_path().read_text())


@pytest.mark.parametrize("made", [result, hostile])
def test_documents_fit_the_schema(made: Any, tmp_path: Path) -> None:
    text = document.comparison(reports(tmp_path, made()))
    jsonschema.Draft202012Validator.check_schema(_schema())
    jsonschema.validate(json.loads(text), _schema())
    assert msgspec.json.decode(text, type=AbResult) == made()


@pytest.mark.parametrize(
    ("path", "value"),
    [(("verdict",), "maybe"), (("schema",), "lab.ab/2"), (("surprise",), 1), (("cases", 0, "metrics", 0, "base"), "1")],
)
def test_the_schema_refuses_what_is_no_result(path: tuple[Any, ...], value: Any, tmp_path: Path) -> None:
    changed = json.loads(document.comparison(reports(tmp_path, result())))
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, _schema())


def test_several_documents_are_one_that_says_whether_they_compare(tmp_path: Path) -> None:
    together = reports(tmp_path, result(), result(name="other", fingerprint="e" * 16), mark=MARK)
    found = json.loads(document.comparison(together))
    assert (found["schema"], found["comparable"], found["note"]) == ("lab.reports/1", False, MARK)
    for one in found["results"]:
        jsonschema.validate(one, _schema())


# --- csv


def test_csv_has_every_sample_with_its_seed(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_rows.comparison(reports(tmp_path, result())))))
    for one in result().cases:
        for metric in one.metrics:
            mine = [row for row in rows if (row["case"], row["metric"]) == (one.case, metric.name)]
            assert [row["seed"] for row in mine] == ["1", "2", "3", "4", "5", "6"]
            for name in ("base", "test"):
                values = [None if row[name] == "" else float(row[name]) for row in mine]
                assert values == getattr(metric, name)
            assert {row["case_verdict"] for row in mine} == {str(one.verdict)}
    assert {row["model"] for row in rows} == {MODEL}


def test_csv_cells_are_no_formulas(tmp_path: Path) -> None:
    rows = list(csv.reader(io.StringIO(csv_rows.comparison(reports(tmp_path, hostile())))))
    assert not [cell for row in rows for cell in row if re.match(r"[=@]|[+-][^0-9.]", cell)]


# --- junit


def test_junit_is_read_by_a_junit_parser(tmp_path: Path) -> None:
    xml = JUnitXml.fromstring(junit.comparison(reports(tmp_path, result())).encode())
    (suite,) = list(xml)
    kinds = {case.name: [type(one).__name__ for one in case.result] for case in suite}
    assert kinds == {
        "layout-4632k": ["Failure"],
        "single-2052k": [],
        "layout-512k": [],
        "burst-2m-8m": ["Skipped"],
        "layout-0k": ["Error"],
    }
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (5, 1, 1, 1)
    failure = next(case.result[0] for case in suite if case.name == "layout-4632k")
    assert "cycles_per_op" in failure.message and MODEL in failure.message and "page_faults" in failure.text
    assert failure.message.endswith("(threshold 2 %)")


# --- openmetrics


def _samples(text: str) -> list[Any]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_openmetrics_is_read_by_the_parser_of_prometheus(tmp_path: Path) -> None:
    samples = _samples(openmetrics.comparison(reports(tmp_path, result())))
    ratios = {(s.labels["case"], s.labels["metric"]): s.value for s in samples if s.name == "lab_ratio"}
    for one in result().cases:
        for metric in one.metrics:
            assert ratios.get((one.case, metric.name)) == metric.ratio
    states = {
        s.labels["case"]: s.labels["lab_case_verdict"] for s in samples if s.name == "lab_case_verdict" if s.value
    }
    assert states == {one.case: str(one.verdict) for one in result().cases}
    assert f"modelled cycles/op ({MODEL})" in {s.labels["unit"] for s in samples if s.name == "lab_ratio"}


def test_openmetrics_labels_survive_hostile_words(tmp_path: Path) -> None:
    (info,) = [s for s in _samples(openmetrics.comparison(reports(tmp_path, hostile()))) if s.name == "lab_result_info"]
    assert info.labels["base"] == visible(HOSTILE)


# --- all of them


@pytest.mark.parametrize("name", sorted(set(report.FORMATS["comparison"]) - {"mail"}))
def test_what_does_not_compare_is_marked_in_every_format(name: str, tmp_path: Path) -> None:
    other = result(name="other", fingerprint="e" * 16)
    text = report.render(name, reports(tmp_path, result(), other, mark=MARK))
    wanted = {"csv": ",false,"}.get(name, MARK)
    assert wanted in text


@pytest.mark.parametrize("name", sorted(set(report.FORMATS["comparison"]) - {"mail", "json"}))
def test_no_format_passes_on_what_is_obeyed(name: str, tmp_path: Path) -> None:
    text = report.render(name, reports(tmp_path, hostile()))
    assert not set(text) & set("\x1b\x00\r\u202e\u2066\ufeff")
    assert not re.search(r"^X-Injected", text, re.MULTILINE)
