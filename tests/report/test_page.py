"""The page without a browser: one file, small, everything escaped, pictures where they should be."""

import html.parser
import re
from pathlib import Path

from lab.compare import explain
from lab.compare.explain import Explanation, FunctionRow
from lab.compare.lines import MetLine, Moves
from lab.compare.profiles import Call
from lab.core.text import visible
from lab.report import page, plots, wording
from lab.report.page import live_values

from ..fakes.result import HOSTILE, RATE, SLOWER, case, hostile, large, live, reports, result

VOID = {"meta", "link", "input", "br"}


class _Reader(html.parser.HTMLParser):
    """Tags that are opened and closed in order, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_it_is_one_file_that_asks_nobody(tmp_path: Path) -> None:
    text = page.comparison(reports(tmp_path, result()))
    reader = _read(text)
    links = [value for _, attrs in reader.tags for key in ("src", "href") if (value := attrs.get(key))]
    assert links and all(link.startswith(("#", "data:")) for link in links)
    assert "default-src 'none'" in text and "@import" not in text and "url(" not in text
    assert "Host gate" not in text, "it is of live mode"


def test_ids_are_unique_and_links_lead_to_them(tmp_path: Path) -> None:
    reader = _read(page.comparison(reports(tmp_path, result(), result(name="other"))))
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {value[1:] for _, attrs in reader.tags if (value := attrs.get("href")) and value.startswith("#")}
    labels = {attrs["aria-labelledby"] for _, attrs in reader.tags if "aria-labelledby" in attrs}
    assert targets | labels <= set(ids)


def test_every_number_stands_in_its_arms_column_with_its_unit(tmp_path: Path) -> None:
    document = result()
    (item,) = (together := reports(tmp_path, document)).items
    said = " ".join(_read(page.comparison(together)).text.split())
    overview, _, details = said.partition("Case by case")
    for one in document.cases:
        view = page.CaseView(stored=item, case=one, id="x", letter="A")
        base, test = one.primary.base, one.primary.test
        means, change = [wording.shown(arm) for arm in (base, test)], wording.change(one.primary)
        assert re.search(rf"{one.case}.* {' '.join(means)} {one.word} ", overview)
        assert f"cycles_per_op: {' → '.join(means)} modelled cycles/op (full made-up-machine), {change}" in details
        own, _, raw = details.partition(f"counters of {one.name} ")[2].partition(f"Raw numbers of {one.name} ")
        pairs = " ".join(f"{seed}{b}{t}" for seed, b, t in zip(document.seeds, base, test, strict=True))
        assert raw.startswith(f"seed base test {pairs.replace('None', 'n/a')} ")
        for counter in view.counters:
            moved = " ".join(wording.shown(arm) for arm in (counter.base, counter.test))
            assert f"{counter.name} {moved} {wording.change(counter)} {counter.unit}" in own
    (pgfault, change, bars), *_ = page.CaseView(stored=item, case=SLOWER, id="x", letter="A").largest
    assert (pgfault.name, change, bars) == ("pgfault", "x100.0", plots.pair(5.0, 500.0))
    assert f"pgfault {change} 5 → 500 events" in details
    assert "lab ab --base 'v1^' --test v1 -w alloc-burst --model full --machine made-up-machine" in details


def test_curves_and_quantiles_are_of_their_arms(tmp_path: Path) -> None:
    numbers = [float(number) for number in range(401)]
    document = result(case("many", numbers[::-1], [2 * number for number in numbers], primary=RATE))
    (item,) = reports(tmp_path, document).items
    view = page.CaseView(stored=item, case=document.cases[0], id="x", letter="A")
    assert [row[1:] for row in view.quantiles] == [(f"{100 * i}", f"{200 * i}") for i in range(5)]
    ((_, unit, chart),) = view.percentiles
    heights = {
        arm: [int(y) for y in re.findall(r" (\d+)", line)]
        for arm, line in re.findall(r'class="line (\w+)" d="([^"]+)"', chart.picture)
    }
    assert unit == "ns" and len(heights["base"]) == 3
    assert all(test < base for base, test in zip(heights["base"], heights["test"], strict=True)), "more is higher"


def test_hostile_words_are_text(tmp_path: Path) -> None:
    reader = _read(page.comparison(reports(tmp_path, hostile())))
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert visible(HOSTILE) in reader.text
    assert not [attrs for _, attrs in reader.tags if any(key.startswith("on") for key in attrs)]


def test_ten_thousand_samples_are_a_small_page(tmp_path: Path) -> None:
    text = page.comparison(reports(tmp_path, large(10_000)))
    assert len(text.encode()) < 1_000_000
    assert "10000 pairs; the JSON has them all" in text


def test_a_stored_explanation_is_drawn_and_written_out(tmp_path: Path) -> None:
    together = reports(tmp_path, result())
    rows = [
        FunctionRow(name="clear_page_rep", space="kernel", base_cycles=10_000, test_cycles=90_000),
        FunctionRow(name=f"<b>{HOSTILE}", space="user", base_cycles=50_000, test_cycles=40_000),
    ]
    kept = explain.StoredExplanation(
        workload="alloc-burst", case=SLOWER.case, machine="made-up-machine", model="full", cost="cycles",
        explanation=Explanation(base_operations=10, test_operations=10, rows=rows),
        lines=[MetLine(place="file.<b>f_op", functions=["fput"], base=Moves(moved=1), test=Moves(moved=3, false=2))],
        initcalls=explain.initcalls({Call("<i>init"): 2_000, Call("gone"): 1_000}, {Call("<i>init"): 12_345}),
    )  # fmt: skip
    explain.remember(together.items[0].folder, kept)
    reader = _read(page.comparison(together))
    assert "Difference in modelled cycles/op (full made-up-machine), by function" in reader.text
    assert re.search(r"clear_page_rep\s*\+8\s*114.3 %\s*1\s*9\s*0\s*kernel", reader.text)
    assert re.search(r"file\.<b>f_op\s*fput\s*0/0\s*1\.00 -> 3\.00\s*0\.00 -> 2\.00", reader.text)
    drawn = [attrs["class"] for tag, attrs in reader.tags if tag == "rect"]
    assert [kind for kind in drawn if kind in ("bar more", "bar less")] == ["bar more", "bar less"]
    assert re.search(r"<i>init\s*2\.0\s*12\.3\s*\+10\.3\s*gone\s*1\.0\s*-\s*-1\.0\s*total\s*3\.0", reader.text)


def test_kernel_counters_of_the_runs_are_ranked_with_the_metrics(tmp_path: Path) -> None:
    (item,) = reports(tmp_path, result(SLOWER)).items
    view = page.CaseView(stored=item, case=SLOWER, id="x", letter="A")
    moved = {c.name: c for c in view.counters}
    assert moved["pgfault"].base == [5.0] * 6 and moved["pgfault"].test == [500.0] * 6
    assert list(moved)[:2] == ["pgfault", "page_faults"]
    assert "nr_free_pages" not in moved  # nobody has described it


# ---- live mode


def test_the_sentence_counts_rounds_and_names_what_adds_noise() -> None:
    words = live_values(live())["sentence"]
    assert words.startswith("3 rounds count, of 5 that were tried, 1 disturbed, 1 repeated, 1 died")
    assert words.endswith("the host adds noise: governor")
    assert [fact.name for fact in live_values(live())["host"]] == ["governor", "SMT"], "what adds noise comes first"


def test_the_page_has_every_round_with_its_reasons(tmp_path: Path) -> None:
    document = result(mode="live", live=live(), seeds=[1, 2, 3, 4, 5, 6])
    text = page.comparison(reports(tmp_path, document))
    rows = re.findall(r'<tr data-case="[^"]*" data-verdict="(\w+)">\n<th scope="row" data-value="(\d+)">', text)
    assert rows == [("kept", "1"), ("repeated", "2"), ("disturbed", "2"), ("died", "3"), ("kept", "3")]
    assert "others kept 1.8 CPUs busy" in text and "measure on bare metal" in text
    assert "--qemu /usr/bin/qemu" in text
    assert "lab ab --base" not in text, "exact mode's command would measure something else"
