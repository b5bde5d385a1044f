"""Readers of what programs print: against real outputs, and against outputs of a version that differs."""

from pathlib import Path

import pytest

from lab.workloads import parsers
from lab.workloads.parsers import Document, Unparsable

DATA = Path(__file__).resolve().parents[1] / "data"
FIO = (DATA / "fio-3.33.json").read_text().splitlines()
STRESS_NG = (DATA / "stress-ng-0.15.06.yaml").read_text().splitlines()


def without(lines: list[str], word: str) -> list[str]:
    kept = [line for line in lines if word not in line]
    assert len(kept) < len(lines)
    return kept


# --- places in a document ---


def test_a_place_may_lead_through_keys_with_dots_and_lists() -> None:
    document = Document(values={"a": [{"p.99.5": 1, "p": {"99": {"5": 2}}}], "b.c": 3}, program="it")
    assert document.number("b.c") == 3
    assert document.number("a.0.p.99.5") == 2, "the shortest keys first"
    assert document.number("a.1.p.99.5") is None and document.number("a.0.q") is None


@pytest.mark.parametrize("value", ["12", None, True, [], float("nan"), float("inf"), 10**400, 10**5000], ids=type)
def test_what_is_there_and_no_number_is_an_error(value: object) -> None:
    with pytest.raises(Unparsable, match="not a number"):
        Document(values={"a": value}, program="it").number("a")


# --- fio ---


def test_fio_s_own_fields_by_their_place_and_their_total() -> None:
    document = parsers.read_fio(FIO)
    assert document.program == "fio-3.33"
    assert document.number("jobs.0.read.iops") == 7905.13834
    assert document.number("jobs.0.read.clat_ns.percentile.99.000000") == 4554752
    assert document.number("jobs.0.usr_cpu") == 34.677738
    found = {name: document.number(f"total.{name}") for name in ("ios", "bytes", "iops", "bw_bytes", "ctx")}
    assert found == {"ios": 20000, "bytes": 81920000, "iops": 7905.13834, "bw_bytes": 32379446, "ctx": 629}
    assert document.number("total.clat_p50") == 3883008 and document.number("total.clat_p99") == 4554752
    assert document.number("total.lat_mean") == 4013052.168


def test_percentiles_of_two_directions_are_not_joined() -> None:
    text = "\n".join(FIO)
    head, write, rest = text.partition('"write" : {')
    both = (
        head + write + rest.replace('"total_ios" : 0', '"total_ios" : 5', 1).replace('"iops" : 0.0', '"iops" : 2.0', 1)
    )
    document = parsers.read_fio(both.splitlines())
    assert document.number("total.ios") == 20005 and document.number("total.iops") == 7907.13834
    assert document.number("total.clat_p50") is None


@pytest.mark.parametrize(("lines", "words"), [
    ([], "--output-format=json"),
    (["{", '"jobs": ', "}"], "cannot be read"),
    (["{}"], "of an unknown version printed other fields .* `jobs`"),
    (['{"jobs": []}'], "printed no jobs"),
    (['{"jobs": ' + "[" * 100_000 + "]" * 100_000 + "}"], "cannot be read"),
    (without(FIO, '"total_ios"'), "fio-3.33 printed other fields .* `total_ios`"),
    ([line.replace('"total_ios" : 20000', '"total_ios" : "many"') for line in FIO], "got `str` .*read.total_ios"),
    ([line.replace('"ctx" : 629', '"ctx" : 1' + "0" * 400) for line in FIO], "fio"),
    ([line.replace('"error" : 0', '"error" : 5') for line in FIO], "job null-randread-4k failed with error 5"),
])  # fmt: skip
def test_fio_that_prints_something_else_is_named(lines: list[str], words: str) -> None:
    with pytest.raises(Unparsable, match=words):
        parsers.read_fio(lines)


# --- stress-ng ---


def test_stress_ng_s_fields_by_their_names() -> None:
    document = parsers.read_stress_ng(STRESS_NG)
    assert document.program == "stress-ng 0.15.06"
    assert document.number("bogo-ops") == 4 and document.number("bogo-ops-per-second-real-time") == 0.91898
    assert document.number("max-rss") == 6284
    assert document.number("document.system-info.cpus") == 1


@pytest.mark.parametrize(("lines", "words"), [
    ([], "--yaml"),
    (["---", "a: [", "..."], "cannot be read"),
    (["---", "- 1", "..."], "not a table"),
    (["---", "metrics: [1]", "..."], "of 1 stressors"),
    (["---", "system-info: 1", "metrics: {}", "..."], "of an unknown version printed metrics of 0"),
    (["---", "a: " + "[" * 30_000, "..."], "cannot be read"),
    (["---", "a: " + "1" * 70_000, "..."], "has 70007 characters"),
    (STRESS_NG[: STRESS_NG.index("metrics:")], "0.15.06 printed metrics of 0 stressors"),
    ([*STRESS_NG[: STRESS_NG.index("...") - 1], "    - stressor: brk", "..."], "of 2 stressors"),
])  # fmt: skip
def test_stress_ng_that_prints_something_else_is_named(lines: list[str], words: str) -> None:
    with pytest.raises(Unparsable, match=words):
        parsers.read_stress_ng(lines)


# --- regular expressions and JSON lines ---


def test_the_last_match_counts_and_lines_have_ends() -> None:
    lines = ["rate: 1.5 op/s", "rate: 2.5e3 op/s", "total rate: 9 op/s"]
    assert parsers.number(lines, r"^rate: (\S+) op/s$") == 2500
    assert parsers.number(lines, r"^speed: (\S+)") is None


def test_the_last_line_with_metrics_counts() -> None:
    lines = ['{"metrics": {"a": 1}}', '{"metrics": {"a": 2}}', '{"other": 3}', "{broken", "talk"]
    assert parsers.read_json_lines(lines).number("a") == 2
    assert parsers.read_json_lines(["talk"]).number("a") is None
    with pytest.raises(Unparsable, match="not a table"):
        parsers.read_json_lines(['{"metrics": [1]}'])


# --- curves beside the metrics


def test_curves_come_from_the_line_of_the_metrics() -> None:
    lines = ['{"series":{"rss":[[9]]}}', '{"metrics":{"ops":2},"series":{"rss":[[0,0],[16,4096]],"none":[]}}', "bye"]
    assert parsers.read_series(lines) == {"rss": [[0.0, 0.0], [16.0, 4096.0]], "none": []}
    assert parsers.read_json_lines(lines).number("ops") == 2.0


@pytest.mark.parametrize(
    "series",
    ["[[1,2]]", "3", '{"rss":{"1":2}}', '{"rss":[1,2]}', '{"rss":[[1,2],[3]]}', '{"rss":[[]]}', '{"rss":[[1,"2"]]}',
     '{"rss":[[1,true]]}', '{"rss":[[null]]}', '{"rss":[[1],2]}'],
)  # fmt: skip
def test_whatever_is_not_a_curve_is_refused(series: str) -> None:
    with pytest.raises(Unparsable, match="it printed series"):
        parsers.read_series([f'{{"metrics":{{}},"series":{series}}}'])
