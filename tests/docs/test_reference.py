"""The pages that are made from the code: the command reference, and the tables of stored records."""

import importlib
import pkgutil
import re
import sys
from pathlib import Path

import click
import pytest

import lab
from lab.compare import result_folders
from lab.core.records import Record
from lab.workloads import selection
from lab.workloads.spec import Workload

from ..fakes import result as fakeresult
from . import blocks, dryrun

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


@pytest.mark.parametrize("ctx", CONTEXTS, ids=commandpages.page_name)
def test_a_page_has_all_options_and_an_example_that_is_taken(ctx: click.Context) -> None:
    text = commandpages.page(ctx)
    for option in ctx.command.get_params(ctx):
        if isinstance(option, click.Option) and not option.hidden:
            assert all(re.search(rf"^`.*{re.escape(name)}\b.*`$", text, re.MULTILINE) for name in option.opts), option
    if not isinstance(ctx.command, click.Group):
        assert re.search(r"^## Examples?\n\n```text\n.*\blab ", text, re.MULTILINE), "no example in its help"
    for line in re.findall(r"^lab (.*)$", text.partition("## Example")[2], re.MULTILINE):
        dryrun.parse(line)


@pytest.mark.parametrize("workload", selection.list_workloads(), ids=lambda workload: workload.name)
def test_each_case_is_a_line_with_a_note(workload: Workload) -> None:
    lines = workloadlists.case_table(workload).splitlines()
    assert len([line for line in lines if line.startswith("| `")]) == len(workload.cases)
    assert all(case.note for case in workload.cases)


# What people write, and what only others are made of: each has a page of its own, or needs none.
WRITTEN = {
    "lab.bisection.request.Recipe", "lab.guests.exact.ExactMachine", "lab.guests.image.Recipe",
    "lab.guests.hardware.Machine", "lab.guests.live_machine.LiveMachine", "lab.compare.counters._File",
    "lab.kernels.architecture.Architecture", "lab.kernels.compilers._File", "lab.nightly.plan.NightlyPlan",
    "lab.compare.plan.CommonPlan", "lab.compare.plan.ComparisonPlan", "lab.compare.estimates._Table",
    "lab.workloads.selection._Suites", "lab.workloads.spec._Limits", "lab.atlas.plan.AtlasPlan",
    "lab.guests.model_version._File", "lab.kernels.symbols._Kallsyms",
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


@pytest.mark.usefixtures("own_home")
def test_the_example_in_python_reads_a_stored_result(capsys: pytest.CaptureFixture[str]) -> None:
    document = fakeresult.result(fakeresult.SLOWER)
    fakeresult.store(result_folders.results_dir() / document.result, document)
    exec(blocks.files((TOP / "docs" / "python.md").read_text())["cases.py"], {})  # noqa: S102 - the page's own example
    assert capsys.readouterr().out.startswith(f"{document.cases[0].workload} {document.cases[0].case} regression ")
