"""`lab ab`."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from rich.console import Console

from lab.cli import options
from lab.cluster import exact_only
from lab.compare import result_folders, results
from lab.compare.attribution import attributed
from lab.compare.comparison import measure, measure_aloud
from lab.compare.explain import CaseExplanation, find
from lab.compare.plan import Plan
from lab.compare.request import ComparisonRequest, plan_of
from lab.compare.result_folders import Clock, load_plan
from lab.compare.results import AbResult, CaseResult
from lab.core import records
from lab.core.errors import BuildFailed, GuestFailed, LabError, Undecided, UserError, suggestion
from lab.core.executor import Work
from lab.core.text import plural, visible
from lab.history import remember
from lab.kernels import architecture
from lab.kernels.kernel import Source, resolve
from lab.kernels.spec import parse
from lab.report import explain_text, text
from lab.stats import defaults
from lab.stats.verdict import Outcome, percent
from lab.workloads import selection


class _Comparison(options.MeasuringCommand):
    """A command line of two kernels, and of a command behind `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse with the words behind `--` as the command of `--exec`."""
        if "--" in args:
            at = args.index("--")
            args = [*args[:at], *(["--exec", shlex.join(args[at + 1 :])] if args[at + 1 :] else [])]
        return super().parse_args(ctx, args)


@click.command(cls=_Comparison)
@click.argument("kernels", metavar="[BASE TEST] [-- COMMAND]", nargs=-1, shell_complete=options.complete_spec)
@options.spec("--base", "The kernel to compare with.")
@options.spec("--test", "The kernel in question.")
@click.option(
    "--arch",
    metavar="NAME[,NAME...]",
    help="Architecture of the guests (x86_64); several: one beside the other.",
)
@options.metric
@options.measured(max_seeds=defaults.MAX_SEEDS, suite="quick")
@options.live
@click.option("--base-cc", help="Compiler of the base kernel.")
@click.option("--test-cc", help="Compiler of the test kernel.")
@options.resume("Go on with a result that was interrupted.")
@click.option("--fail-on", metavar="VERDICT[,...]", help="Exit 1 if the verdict is one of these, e.g. regression.")
@click.option("--require-verdict", is_flag=True, help="Exit 5 if the verdict is unknown.")
@options.executor
@click.option(
    "--explain/--no-explain",
    default=None,
    help="Also print the text of `lab explain`; or leave out the sentence about the functions behind the change.",
)
@click.option("--robust", is_flag=True, help="Also say whether verdicts hold at other costs and on other machines.")
@click.option("--watch", is_flag=True, help="Compare again at every save of `--test worktree`, in a line each.")
@options.json_output
def ab(
    kernels: Sequence[str],
    resume: str | None,
    result: Path | None,
    jobs: int | None,
    budget: float | None,
    fail_on: str | None,
    require_verdict: bool,
    explain: bool | None,
    robust: bool,
    watch: bool,
    cluster: str | None,
    share: str | None,
    as_json: bool,
    **rest: Any,
) -> int:
    """Compare two kernels on a workload: same or not, by how much, and how sure.

    Exits 4 if a case failed; all other cases are judged nevertheless.

    \b
    Examples:
      lab ab deb:6.1 deb:6.12
      lab ab deb:6.1 deb:6.12 -- ./program --of-mine
      lab ab --base efa7df3e3bb5^ --test efa7df3e3bb5 -w alloc-burst:layout-4632k
    """
    rest |= _arms(kernels)
    rest["mode"] = exact_only(cluster, rest["mode"])
    asked = msgspec.convert({**options.with_command(rest), "robust": robust}, ComparisonRequest)
    failing = _verdicts(fail_on)
    if watch:
        _require_watchable(asked, once=resume or result or explain or robust or as_json or failing)
        with options.work(jobs, budget, cluster, share) as work:
            return _watch(asked, work)
    if len(guests := asked.architectures) > 1:
        if resume or result or explain or robust:
            raise UserError(
                "--arch with several names gives several results, "
                "and --resume, --result, --explain and --robust are for one",
                hint="leave them out; `lab explain ID` and `lab ab --resume ID` take one of the results",
            )
        with options.work(jobs, budget, cluster, share) as work:
            return _side_by_side(asked, guests, failing, work, as_json=as_json, explain=explain is not False)
    with (
        options.work(jobs, budget, cluster, share) as work,
        options.result_folder(resume, result, load_plan, lambda: plan_of(asked, work.progress)) as (folder, plan),
    ):
        exact_only(cluster, plan.mode)
        finished = measure_aloud(_with_robust(plan) if robust else plan, folder, work)
        finished, reason = attributed(folder, finished, work) if explain is not False else (finished, None)
        remember(folder, work.progress)
        if explain:
            reason = reason or find(folder, finished, work)
    _print(finished, reason if explain else None, as_json=as_json)
    require_every_case(finished)
    if finished.verdict in failing:
        return 1
    if require_verdict and finished.verdict == Outcome.UNKNOWN:
        raise Undecided(
            f"undecided: {finished.reason}",
            hint=f"give it more {finished.pairs}s (--max-{finished.pairs}s) or a larger threshold",
        )
    return 0


def _arms(kernels: Sequence[str]) -> dict[str, str]:
    """Base and test, if they are named without their options."""
    if not kernels:
        return {}
    if len(kernels) != 2:
        raise UserError(
            f"{plural(len(kernels), 'kernel')} to compare: {' '.join(kernels)}",
            hint="name two, as in `lab ab deb:6.1 deb:6.12`; a command stands behind `--`",
        )
    source = click.get_current_context().get_parameter_source
    if ParameterSource.COMMANDLINE in (source("base"), source("test")):
        raise UserError(f"{' '.join(kernels)}, and --base or --test", hint="name both kernels in one of the two ways")
    return dict(zip(("base", "test"), kernels, strict=True))


def _side_by_side(
    asked: ComparisonRequest,
    guests: Sequence[str],
    fail_on: Container[Outcome],
    work: Work,
    *,
    as_json: bool,
    explain: bool,
) -> int:
    """Compare in guests of each architecture, by a metric that all of them have, and print the results as one table."""
    from lab.report import document, inputs  # they bring bisections along

    counted = not all(architecture.load(name).modelled for name in guests)
    asked = msgspec.structs.replace(asked, metric=asked.metric or ("instructions" if counted else None))
    one_each = [msgspec.structs.replace(asked, arch=name) for name in guests]
    finished = []
    for plan in [plan_of(one, work.progress) for one in one_each]:
        with options.new_result(None, plan) as folder:
            one = measure_aloud(plan, folder, work)
            finished.append(attributed(folder, one, work)[0] if explain else one)
        remember(folder, work.progress)
    comparisons = inputs.open_comparisons([one.result for one in finished])
    click.echo(document.comparison(comparisons) if as_json else text.comparison(comparisons), nl=False)
    for one in finished:
        require_every_case(one)
    return 1 if any(one.verdict in fail_on for one in finished) else 0


_WATCH_SEEDS = 6
_POLL_S = 0.5
_POLL_PAUSES = 3
"""The pauses are as long as a look: a kernel's worktree has 86,000 files, and each look reads the times of all."""


def _require_watchable(asked: ComparisonRequest, *, once: object) -> None:
    """Refuse `--watch` for a kernel that does not change, and with options for one result."""
    if parse(str(asked.test or "")).kind != "worktree":
        raise UserError("--watch is for uncommitted work", hint="give --test worktree, or --test worktree:PATH")
    if asked.mode == "live":
        raise UserError("--watch requires --mode exact", hint="leave --mode out")
    if once:
        raise UserError(
            "--watch gives many results, and --resume, --result, --explain, --robust, --fail-on and --json are for one",
            hint="leave them out; `lab report` lists the results",
        )


def _watch(asked: ComparisonRequest, work: Work) -> int:
    """Compare the worktree with the base now, and at every save until it is interrupted. Failures are printed."""
    asked = msgspec.structs.replace(asked, mode="exact", seeds=asked.seeds or _WATCH_SEEDS)
    before: AbResult | None = None
    seen: Source | None = None
    while not work.out_of_time:
        began = time.monotonic()
        source = resolve(str(asked.test or ""), asked.tree).source
        if source == seen:
            time.sleep(max(_POLL_S, _POLL_PAUSES * (time.monotonic() - began)))
            continue
        seen, clock = source, Clock()
        try:
            finished = _turn(asked, before, work)
        except LabError as error:
            if before is None or isinstance(error, UserError):
                raise
            click.echo(visible(f"{_now()}  {error.message}{f' (log: {error.log})' if error.log else ''}"))
            continue
        for case in finished.cases:
            click.echo(visible(f"{_now()}  {_change(case, before)}  ({clock.seconds:.0f} s)"))
        if before is None:
            _warm(asked, work)
        before = finished
    return 0


def _warm(asked: ComparisonRequest, work: Work) -> None:
    """Have the worktree's objects here, so that a save compiles little: its kernel may be the store's."""
    if work.executor is None:
        plan = plan_of(asked, work.progress)
        plan.test.spec.warm(work, cc=plan.test.cc, needs=selection.needs_of(plan.workloads))


def _turn(asked: ComparisonRequest, before: AbResult | None, work: Work) -> AbResult:
    """Compare once. The base's guests of the last turn do not run again if they would be the same.

    A turn that does not build or is interrupted leaves no result: the next one begins with the next save.
    """
    plan = plan_of(asked, work.progress)
    with options.new_result(None, plan) as folder:
        try:
            if before:
                last = result_folders.open_folder(before.result)
                for part in ("runs", "guests"):
                    shutil.copytree(last / part, folder / part, dirs_exist_ok=True)
            return measure(plan, folder, work)
        except (BuildFailed, KeyboardInterrupt):
            shutil.rmtree(folder)
            raise


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _change(case: CaseResult, before: AbResult | None) -> str:
    """A case against the base, and against the last turn."""
    if case.failed:
        return f"{case.name}  {case.word}: {case.failed.message}"
    line = f"{case.name}  {percent(case.primary.ratio)} {case.primary.interval_text}  {case.verdict}"
    last = next((one for one in before.cases if one.name == case.name), None) if before else None
    now, then = (results.mean(one.primary.test) if one and not one.failed else None for one in (case, last))
    return f"{line}, {percent(now / then)} against the last save" if now and then else line


def require_every_case(finished: AbResult) -> None:
    """Raise the error of a result with failed cases; the others are judged and stored by then."""
    failed = [case.failed for case in finished.failed if case.failed]
    if failed:
        folder, first = result_folders.open_folder(finished.result), failed[0]
        raise GuestFailed(
            first.kind,
            f"{len(failed)} of {plural(len(finished.cases), 'case')} failed, the first {first.where}: {first.message}",
            hint=f"the others are judged; `{result_folders.resume_command(folder)}` tries it again",
            log=folder / first.log if first.log else None,
        )


def _with_robust(plan: Plan) -> Plan:
    """The plan of a result that is resumed, with `--robust`."""
    if plan.live:
        raise UserError("--robust requires --mode exact: live mode measures real time", hint="leave --robust out")
    return msgspec.structs.replace(plan, robust=True)


def _verdicts(names: str | None) -> set[Outcome]:
    if not names:
        return set()
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in list(Outcome):
            hint = suggestion(name, Outcome) or f"choose from {', '.join(Outcome)}"
            raise UserError(f"--fail-on {names}: {name!r} is no verdict", hint=hint)
    return {Outcome(name) for name in chosen}


def _print(result: AbResult, reason: CaseExplanation | None, *, as_json: bool) -> None:
    if as_json:
        found = {**records.plain(result), "explain": reason.document()} if reason else result
        options.print_json(found)
        return
    console = Console()
    text.show(result, console)
    if reason:
        click.echo()
        explain_text.show(reason, console)
