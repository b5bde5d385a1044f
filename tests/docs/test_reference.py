"""The pages that are made from the code: the command reference, and the tables of stored records."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from pathlib import Path
from typing import Literal

import click
import msgspec
import pytest

import lab
from lab.core.records import Record
from lab.stats.verdict import Outcome
from lab.workloads import selection
from lab.workloads.file import limits
from lab.workloads.spec import Workload

from . import dryrun

TOP = Path(__file__).resolve().parents[2]
sys.path.append(str(TOP / "docs" / "_ext"))

import commandpages  # noqa: E402
import recordtables  # noqa: E402
import workloadlists  # noqa: E402

CONTEXTS = list(commandpages.walk(commandpages.top()))


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_there_is_a_page_for_each_command_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "lab-gone.md").write_text("a command that was removed")
    pages = commandpages.write(tmp_path)
    assert _files(tmp_path) == {f"{name}.md" for name in pages}
    assert {"lab", "lab-ab", "lab-bisect-step", "lab-kernel-gc"} <= set(pages)
    assert pages["lab-ab"].startswith("Compare two kernels")


def test_a_page_that_did_not_change_is_left_alone(tmp_path: Path) -> None:
    commandpages.write(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    commandpages.write(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ctx", CONTEXTS, ids=commandpages.page_name)
def test_a_page_has_all_options_and_an_example(ctx: click.Context) -> None:
    text = commandpages.page(ctx)
    for option in ctx.command.get_params(ctx):
        if isinstance(option, click.Option) and not option.hidden:
            assert all(re.search(rf"^`.*{re.escape(name)}\b.*`$", text, re.MULTILINE) for name in option.opts), option
    if not isinstance(ctx.command, click.Group):
        assert re.search(r"^## Examples?\n\n```text\n.*\blab ", text, re.MULTILINE), "no example in its help"


@pytest.mark.parametrize("ctx", CONTEXTS, ids=commandpages.page_name)
def test_examples_are_taken(ctx: click.Context) -> None:
    for line in re.findall(r"^lab (.*)$", commandpages.page(ctx).partition("## Example")[2], re.MULTILINE):
        dryrun.parse(line)


@click.command()
@click.option("--much", help="Of `a|b`, not <c> or *d*.", default="x_y", show_default=True)
def made_up(much: str) -> None:
    """Do it.

    As `lab --help` says:
    with [all] of it.

    \b
    Examples:
      lab made-up --much 1 | tee log
        lab made-up
    """


def test_what_help_says_is_text() -> None:
    above = commandpages.top()
    text = commandpages.page(click.Context(made_up, info_name="made-up", parent=above))
    assert text.startswith("# lab made-up\n")
    assert "As `lab --help` says: with \\[all\\] of it." in text
    assert "`--much TEXT`\n: Of `a|b`, not \\<c\\> or \\*d\\*. \\[default: x\\_y\\]" in text
    assert text.endswith("## Examples\n\n```text\nlab made-up --much 1 | tee log\n  lab made-up\n```\n")


class Inner(msgspec.Struct):
    """In it."""

    one: int


class Outer(msgspec.Struct, tag_field="t", tag="outer"):
    """A record, <of> sorts."""

    inner: list[Inner]
    words: dict[str, list[str]]
    kind: Literal[1, "two"]
    verdict: Outcome = Outcome.SAME
    pair: tuple[int, str] | None = None
    late: list[float] = msgspec.field(default_factory=list, name="later")


def test_a_record_is_a_table_in_words_of_json() -> None:
    assert recordtables.closure(Outer) == [Outer, Inner]
    assert recordtables.markdown(Outer).splitlines() == [
        "**`Outer`**: A record, \\<of> sorts.",
        "",
        "| field | type | if it is missing |",
        "|---|---|---|",
        '| `t` | "outer" | |',
        "| `inner` | list of `Inner` | an error |",
        "| `words` | object of list of string | an error |",
        '| `kind` | `1` or `"two"` | an error |',
        '| `verdict` | `regression`, `improvement`, `same`, `unknown` | `"same"` |',
        "| `pair` | list: integer, string or null | `null` |",
        "| `later` | list of number | `[]` |",
    ]


def test_the_limits_of_exact_mode_are_a_list_with_reasons() -> None:
    lines = workloadlists.limit_list().splitlines()
    assert len(lines) == len(limits())
    for line, limit in zip(lines, limits().values(), strict=True):
        assert line.startswith(f"- **{limit.name}**: {limit.brief}. ") and line.endswith(limit.reason.split()[-1])


@pytest.mark.parametrize("workload", selection.list_workloads(), ids=lambda workload: workload.name)
def test_each_case_is_a_line_with_a_note(workload: Workload) -> None:
    lines = workloadlists.case_table(workload).splitlines()
    assert len([line for line in lines if line.startswith("| `")]) == len(workload.cases)
    assert all(case.note for case in workload.cases)


# What people write, and what only others are made of: each has a page of its own, or needs none.
WRITTEN = {
    "lab.bisection.request.Recipe", "lab.guests.exact.ExactMachine", "lab.guests.image.Recipe",
    "lab.guests.hardware.Machine", "lab.guests.live_machine.LiveMachine", "lab.guests.model_version._File", "lab.compare.counters._File",
    "lab.kernels.architecture.Architecture", "lab.kernels.compilers._File", "lab.nightly.plan.NightlyPlan",
    "lab.compare.plan.CommonPlan", "lab.compare.plan.ComparisonPlan", "lab.compare.runs._Table",
    "lab.workloads.selection._Suites", "lab.workloads.file._Limits", "lab.atlas.plan.AtlasPlan",
}  # fmt: skip


def _with_schema() -> set[str]:
    """All records that carry a schema's name or number."""
    for found in pkgutil.walk_packages(lab.__path__, "lab."):
        if found.name != "lab.__main__":
            importlib.import_module(found.name)
    pending, names = [Record], set()
    while pending:
        pending += (record := pending.pop()).__subclasses__()
        if "schema" in record.__struct_fields__ and record.__module__.startswith("lab."):
            names.add(f"{record.__module__}.{record.__name__}")
    return names


def test_every_stored_record_is_on_the_page() -> None:
    listed = re.findall(r"^```\{record\} (\S+)$", (TOP / "docs" / "formats.md").read_text(), re.MULTILINE)
    assert all(recordtables.load(path) for path in listed)
    missing = _with_schema() - WRITTEN - set(listed)
    assert not missing, f"docs/formats.md has nothing of {missing}"
    assert not WRITTEN - _with_schema()
