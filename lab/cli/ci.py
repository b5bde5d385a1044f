"""`lab ci`: a change against its base in a pipeline, as a comment, a page and a status."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
import msgspec

from lab import report
from lab.bisection.commit_range import merge_base
from lab.cli import ab, options
from lab.compare import result_folders
from lab.compare.comparison import measure_aloud
from lab.compare.explain import find
from lab.compare.measurement import Measurement
from lab.compare.plan import Plan
from lab.compare.request import ComparisonRequest, plan_of
from lab.compare.results import AbResult
from lab.core import records
from lab.core.errors import HostFailed, LabError, UserError
from lab.core.executor import Work
from lab.core.progress import Progress
from lab.core.text import plural, visible_lines
from lab.guests import image
from lab.guests.host_commands import PROGRAM_OF
from lab.guests.run import Arm
from lab.history import remember
from lab.kernels import compilers, trees
from lab.kernels.build import is_input
from lab.kernels.kernel import common_machine
from lab.report import inputs, markdown
from lab.stats import defaults
from lab.stats.verdict import Outcome, distance
from lab.workloads import selection

_BUDGET_S = 1800.0
_FILES_NAMED = 8


class Nothing(Exception):
    """There is nothing to measure, and the change is not to blame. word: for the heading. reason: as Markdown."""

    def __init__(self, word: str, reason: str) -> None:
        super().__init__(reason)
        self.word = word
        self.reason = reason


@click.command(cls=options.MeasuringCommand, context_settings={"auto_envvar_prefix": "LAB_CI"})
@click.option("--base", metavar="REV", default="", help="The change's base: the commit where both have parted.")
@click.option("--test", metavar="REV", default="HEAD", show_default=True, help="The change.")
@click.option(
    "--kernel",
    "kernels",
    metavar="SPEC",
    multiple=True,
    help="For a program: the kernel that it runs on; given twice, compares these two.",
)
@click.option(
    "--base-program", metavar="PATH", help="With --exec and one --kernel: the program as built from the change's base."
)
@options.metric
@options.measured(max_seeds=defaults.MAX_SEEDS, suite="quick")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("lab-ci"),
    show_default=True,
    help="Folder for comment.md, report.html and result.json.",
)
@click.option("--cache-key", is_flag=True, help="Only print the keys of a cache of kernels and image, if needed.")
def ci(
    base: str,
    test: str,
    kernels: tuple[str, ...],
    base_program: str | None,
    output: Path,
    cache_key: bool,
    **rest: Any,
) -> int:
    """Compare a change with its base in a pipeline, in exact mode, and write a comment about it.

    In a kernel checkout, --test is measured against the commit where it left --base. With --kernel, a program is: on
    two kernels, or its base's build and its own on one. Every option can be given by the environment, as LAB_CI_BUDGET.

    Exits 1 for a regression and for nothing else. A missing base is not a failure.

    \b
    Examples:
      lab ci --base origin/master --suite quick
      lab ci --kernel deb:6.12 --exec './bench 1000' --base-program ../base/bench
    """
    options.require_exact(rest["mode"])
    comment = ""
    with options.work(rest["jobs"], rest["budget"] or _BUDGET_S) as work:
        try:
            arms, tree = _arms(base, test, kernels, base_program, rest["tree"], work.progress)
            plan = _plan(arms, tree, base_program, rest, work.progress)
            _require_inputs_changed(plan)
            if cache_key:
                _print_keys(plan)
                return 0
            finished, comment = _measured(plan, rest["result"], work, output)
        except Nothing as nothing:
            if not cache_key:
                _write(output, _titled(nothing.word, nothing.reason))
            return 0
        except (LabError, OSError, KeyboardInterrupt) as error:
            if not cache_key:
                _write(output, comment or _titled("not measured", _reason(error)))
            raise
    _write(output, comment)
    if finished.verdict == Outcome.REGRESSION:
        return 1
    ab.require_every_case(finished)
    return 0


# ---- kernels


def _arms(
    base: str, test: str, kernels: Sequence[str], base_program: str | None, tree: str | None, progress: Progress
) -> tuple[list[str], str | None]:
    """The specs of both arms, and the tree of their revisions."""
    if len(kernels) > 2:
        raise UserError(f"{len(kernels)} times --kernel", hint="give one, or two to compare")
    if len(kernels) == 2:
        if base_program:
            raise UserError("--base-program is for one --kernel", hint="leave one of them out")
        return list(kernels), tree
    if kernels:
        if not base_program:
            raise Nothing("no baseline", "No build of the program from the change's base was given.")
        if not Path(base_program).is_file():
            raise Nothing("no baseline", f"There is no {markdown.code(base_program)}: the base has no such program.")
        (kernel,) = kernels
        return [f"{kernel}@{PROGRAM_OF}={arm}" for arm in ("base", "head")], tree
    if base_program:
        raise UserError("--base-program requires --kernel", hint="name the kernel that both builds run on")
    return _revisions(base, test, tree, progress)


def _revisions(base: str, test: str, tree: str | None, progress: Progress) -> tuple[list[str], str]:
    """The full ids of the change and of the commit where it left its base: no name from outside goes into a spec."""
    choice = trees.current() if tree is None else tree
    if tree is None and choice == trees.DEFAULT:
        raise UserError(f"{Path.cwd()} is no kernel checkout", hint="go to one, or give --tree, or --kernel SPEC")
    source = trees.open_tree(choice, progress=progress).source
    head = source.commit(test)
    if head is None:
        raise UserError(f"unknown revision {test!r} in {choice}")
    found = source.commit(base) if base else None
    if found is None:
        named = f"{markdown.code(base)} is not in this clone" if base else "No base was given"
        raise Nothing("no baseline", f"{named}, so there is nothing to compare the change with.")
    # The base itself if the history is cut off before the commit where both part.
    return [merge_base(source, found, head) or found, head], choice


def _plan(
    specs: Sequence[str], tree: str | None, base_program: str | None, rest: dict[str, Any], progress: Progress
) -> Plan:
    if base_program and rest["exec"] is None:
        raise UserError("--base-program requires --exec", hint="give the command that runs the program")
    values = options.with_command(rest, Path(base_program) if base_program else None)
    base, test = specs
    asked = {**values, "base": base, "test": test, "tree": tree, "mode": "exact"}
    return plan_of(msgspec.convert(asked, ComparisonRequest), progress)


def _require_inputs_changed(plan: Plan) -> None:
    """End here if no kernel is built from any of the differing files."""
    base, test = plan.base.spec.tree_source, plan.test.spec.tree_source
    if not base or not test or plan.base.spec.settings != plan.test.spec.settings:
        return
    source = trees.open_tree(test.tree).source
    listed = source.git("diff", "--name-only", "--no-renames", "-z", base.tree_id, test.tree_id, "--")
    names = [name for name in listed.split("\0") if name]
    if not any(map(is_input, names)):
        shown = ", ".join(map(markdown.code, names[:_FILES_NAMED])) + (", ..." if len(names) > _FILES_NAMED else "")
        raise Nothing(
            "nothing to measure",
            f"No kernel is built from the changed files ({plural(len(names), 'file')}): {shown}."
            if names
            else "The change and its base have the same files.",
        )


# ---- measuring


def _measured(plan: Plan, chosen: Path | None, work: Work, output: Path) -> tuple[AbResult, str]:
    """Build, measure, explain the largest regression; page and document are written, the comment is returned."""
    with options.new_result(chosen, plan) as folder:
        with result_folders.kept(folder, work.progress):
            with _limit(work):
                arms = Measurement.of(plan, folder, plan.base.spec).arms(plan.planned, work)
            _require_kernels_differ(plan, arms)
        finished = measure_aloud(plan, folder, work)
        remember(folder, work.progress)
        why = _why(folder, finished, work)
    stored = inputs.open_stored([str(folder)])
    _save(output, "report.html", report.render("html", stored))
    _save(output, "result.json", report.render("json", stored))
    is_program = not plan.test.spec.tree_source or bool(plan.base.spec.settings)
    parts = [report.render("md", stored), markdown.shares(finished) if is_program else "", why]
    return finished, "\n".join(filter(None, parts))


class _OverBudget(KeyboardInterrupt):
    """Raised in place of Ctrl-C: it ends running work in the same way."""


@contextmanager
def _limit(work: Work) -> Iterator[None]:
    """Stop building when the budget is used up; guests look at it themselves."""

    def over(_: int, __: FrameType | None) -> None:
        raise _OverBudget

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, work.remaining_s))
    try:
        yield
    except _OverBudget:
        raise HostFailed(
            "the budget was used up before both kernels were built",
            hint="give it more; if the cache is kept, the next run continues with the objects of this one",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _require_kernels_differ(plan: Plan, arms: Sequence[Arm]) -> None:
    """End here if both revisions give the same kernel."""
    kernels = [arm.kernel for arm in arms]
    if plan.base.spec.settings or plan.test.spec.settings or not all(kernel.spec.tree_source for kernel in kernels):
        return
    machine = common_machine(*kernels)
    base, test = (records.file_digest(kernel.image(machine)) for kernel in kernels)
    if base == test:
        raise Nothing(
            "nothing to measure",
            "The change and its base give the same kernel, byte for byte: "
            "the changed files are not part of a kernel with the guest's configuration.",
        )


def _why(folder: Path, finished: AbResult, work: Work) -> str:
    """The functions behind the largest regression, as Markdown; empty without one, or without a cost model."""
    worse = [case for case in finished.cases if case.verdict == Outcome.REGRESSION and not case.failed]
    if not worse or finished.environment.model == "none":
        return ""
    largest = max(worse, key=lambda case: distance(case.primary.ratio))
    try:
        return markdown.why(find(folder, finished, work, f"{largest.workload}:{largest.case}"))
    except LabError as error:
        return f"Not explained: {markdown.code(visible_lines(error.message))}\n"


# ---- words


def _titled(word: str, reason: str) -> str:
    return f"### Kernel comparison: {word}\n\n{reason}\n"


def _reason(error: BaseException) -> str:
    """An error as Markdown: this is not a verdict on the change."""
    text = error.message if isinstance(error, LabError) else str(error) or "interrupted"
    hint = f" ({markdown.code(visible_lines(error.hint))})" if isinstance(error, LabError) and error.hint else ""
    return f"{markdown.code(visible_lines(text))}{hint}\n\nThis says nothing about the speed of the change."


def _write(output: Path, comment: str) -> None:
    """Write the comment, and print it."""
    _save(output, "comment.md", comment)
    click.echo(comment, nl=False)


def _save(output: Path, name: str, text: str) -> None:
    output.mkdir(parents=True, exist_ok=True)
    records.write_atomic(output / name, text.encode())


# ---- keys of caches


def _print_keys(plan: Plan) -> None:
    """Print the keys for a pipeline's cache: exactly, by the base's kernel, and by the environment."""
    needs = selection.needs_of(plan.workloads)
    packages = [workload.packages for workload, _ in selection.select_all(plan.workloads)]
    images = sorted({image.key_of(names) for names in packages})
    around = records.digest([images, compilers.identify(plan.test.cc)])[:12]
    base, test = (arm.spec.request_key(cc=arm.cc, needs=needs)[:12] for arm in (plan.base, plan.test))
    click.echo(f"key=kernel-ab-lab-{around}-{base}-{test}")
    click.echo(f"same-base=kernel-ab-lab-{around}-{base}-")
    click.echo(f"any=kernel-ab-lab-{around}-")
