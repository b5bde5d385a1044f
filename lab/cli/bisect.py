"""`lab bisect`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from lab.bisection import answer, git_step, request, search, session
from lab.bisection.answer import Answer
from lab.bisection.request import BisectRequest
from lab.cli import options
from lab.cluster import exact_only
from lab.compare import result_folders
from lab.core.errors import UserError
from lab.core.text import visible, width_of
from lab.guests import hardware
from lab.history import remember
from lab.report import bisection_text
from lab.stats import defaults

_PATHS = "lab.bisect.paths"
_ARGUMENTS = "lab.bisect.arguments"
_WHERE = ("--result", "--cluster", "--share")
"""Options for the place of a bisection: the command that repeats it leaves them out."""


class WithPaths(click.Group):
    """A group that is a command itself, and takes paths behind `--` as git does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the words behind `--` aside: click would take it for a subcommand."""
        ctx.meta[_ARGUMENTS] = list(args)
        ctx.meta[_PATHS] = ()
        if "--" in args and not any(argument in self.commands for argument in args[: args.index("--")]):
            end = args.index("--")
            ctx.meta[_PATHS] = tuple(args[end + 1 :])
            args = args[:end]
        return super().parse_args(ctx, args)


# The options that name the ends, and that say how a commit is decided.
_ends = options.together(
    options.spec("--good", "The older end, before it got worse."),
    options.spec("--bad", "The newer end, which is worse."),
    options.spec("--old", "The older end; any change is looked for, to either side."),
    options.spec("--new", "The newer end."),
    click.option("--recipe", metavar="NAME|FILE", help="Take options that are not given here from a recipe."),
    click.option(
        "--workload", "-w", metavar="NAME[:CASE]", shell_complete=options.complete_workload, help="The workload."
    ),
    options.any_metric("The metric that decides (default: the workload's)."),
    click.option(
        "--threshold", type=options.Share(), help="Changes up to this size do not count; the estimate decides (2%)."
    ),
    click.option("--seeds", type=click.IntRange(min=1), help="Exactly that many seeds a commit."),
    click.option("--model", type=click.Choice(["auto", "none", "tlb", "full"]), help="Cost model, as in `lab ab`."),
    options.machine(f"The machine that is modelled ({hardware.DEFAULT})."),
    click.option("--cc", help="Compiler of all kernels (gcc)."),
    click.option("--arch", metavar="NAME", help="Architecture of the guests of all commits (x86_64)."),
    options.qemu,
    options.guest_timeout,
    options.snapshot,
)

_result_id = click.argument("result_id", metavar="[ID]", default="latest", shell_complete=options.complete_result)


@click.group(cls=WithPaths, invoke_without_command=True, subcommand_metavar="[COMMAND] [-- PATH...]")
@_ends
@click.option(
    "--suite",
    metavar="NAME",
    shell_complete=options.complete_suite,
    help="Choose the case that changed most from all of a suite, such as quick.",
)
@options.tree
@click.option(
    "--series",
    metavar="deb:PATTERN|dir:PATTERN|MAILBOX|FOLDER",
    help="Search packages by version, or patches put on --good.",
)
@click.option(
    "--options",
    nargs=2,
    metavar="LIST LIST",
    help="Search the options that two kconfigs, or lists of settings, differ in.",
)
@click.option(
    "--run", metavar="COMMAND", help="Search by whether this command of this host works in the guest, or fails."
)
@click.option("--file", metavar="PATH", multiple=True, help="With --run: a file or folder for the command.")
@click.option(
    "--by",
    type=click.Choice(["files", "hunks"]),
    help="Search the differences of the ends, without history: the files, or the hunks, that carry the change.",
)
@click.option("--first-parent", is_flag=True, default=None, help="Follow only the first parent of merges.")
@options.mode
@options.live_guest
@click.option("--confidence", type=options.Share(), help="How sure the answer has to be, 95% or more (95%).")
@click.option(
    "--max-seeds",
    type=click.IntRange(min=6),
    default=defaults.MAX_SEEDS,
    show_default=True,
    help="To tell the ends apart.",
)
@click.option(
    "--probe", type=click.IntRange(min=0), metavar="N", help="With ends that are alike, measure N commits inside (3)."
)
@click.option("--inside/--no-inside", default=True, help="From packages go on to the commits they were made from.")
@click.option("--speculate/--no-speculate", default=True, help="While guests run, build kernels that may be next.")
@options.means
@options.result
@options.json_output
@click.pass_context
def bisect(
    ctx: click.Context,
    /,
    budget: float | None,
    jobs: int | None,
    cluster: str | None,
    share: str | None,
    result: Path | None,
    as_json: bool,
    file: tuple[str, ...],
    **rest: Any,
) -> int:
    """Find the commit that changed a measurement, say how sure that is, and prove it.

    Exits 0 when a commit, or a range that cannot be narrowed down, is named; 5 when there is no culprit.

    \b
    Examples:
      lab bisect --good v6.6 --bad v6.7 -w alloc-burst:layout-4632k -- mm/
      lab bisect --old efa7df3e3bb5^ --new HEAD -w alloc-burst:layout-4632k
      lab bisect --mode live --good v6.6 --bad v6.7 -w alloc-burst:layout-4632k
      lab bisect --series 'deb:linux-image-6.12.*-cloud-amd64' -w alloc-burst:alternate-2048k-1400k
      lab bisect --series 'deb:linux-image-6.*-cloud-amd64' --run ./uses-a-new-call
      lab bisect --by hunks --old src:trixie-backports/7.2 --new src:trixie-backports/7.3 -w syscalls:pipe-stream
      lab bisect --cluster tcp://head:8786 --share /net/lab --good v6.6 --bad v6.7 -w alloc-burst:layout-4632k
      lab bisect --recipe alloc-burst
    """
    if ctx.invoked_subcommand is not None:
        if any(ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE for name in ctx.params):
            raise UserError(
                f"options of a new search do not apply to {ctx.invoked_subcommand}; its own follow its name"
            )
        return 0
    rest["mode"] = exact_only(cluster, rest["mode"])
    if rest["run"] is not None:
        if rest["workload"]:
            raise UserError("--run and --workload exclude each other", hint="leave one of them out")
        rest["workload"] = str(options.command_folder(rest["run"], file))
    elif file:
        raise UserError("--file brings a file along for the command of --run", hint="give one, or leave --file out")
    wanted = BisectRequest(**rest, paths=ctx.meta[_PATHS])
    with options.work(jobs, budget, cluster, share) as work:
        plan, history = request.plan(wanted, _command(ctx.meta[_ARGUMENTS]), work.progress)
        folder = result_folders.new_folder(result)
        with result_folders.claimed(folder):
            made = session.create(folder, plan, history)
            concluded = search.conclude(made, work)
            remember(folder, work.progress)
    return _print(concluded, as_json=as_json)


def _command(arguments: list[str]) -> list[str]:
    """The command line that repeats the search into a new result."""
    left_out = ("--json", *_WHERE)
    command = ["lab", "bisect"]
    for before, argument in pairwise(["", *arguments]):
        if before not in _WHERE and argument.partition("=")[0] not in left_out:
            command.append(argument)
    return command


def _print(concluded: Answer, *, as_json: bool) -> int:
    if as_json:
        options.print_json(concluded)
    else:
        click.echo(bisection_text.render(concluded, width_of()), nl=False)
    return 0 if concluded.named else 5


@bisect.command()
@_result_id
@options.means
@options.json_output
def resume(result_id: str, as_json: bool, **means: Any) -> int:
    """Go on with a bisection that was stopped; nothing is measured twice. A finished one prints its answer.

    \b
    Example:
      lab bisect resume latest
    """
    found = session.find(result_id)
    if (found.folder / answer.FILE).exists():
        return _print(answer.load(found.folder), as_json=as_json)
    exact_only(means["cluster"], found.plan.mode)
    with options.work(**means) as work, result_folders.claimed(found.folder):
        concluded = search.conclude(session.load(found.folder), work)
        remember(found.folder, work.progress)
    return _print(concluded, as_json=as_json)


@bisect.command("status")
@_result_id
@options.json_output
def status_(result_id: str, as_json: bool) -> None:
    """Show the findings of a bisection, their cost, and the suspects that are left.

    \b
    Example:
      lab bisect status latest
    """
    found = session.find(result_id)
    if as_json:
        options.print_json(session.status(found))
    else:
        options.print_lines(session.text(found))


@bisect.command()
@_result_id
def log(result_id: str) -> None:
    """Print commands that rebuild a bisection: the lab's own, and git's.

    \b
    Example:
      lab bisect log latest > log && git bisect replay log
    """
    for line in session.log(session.find(result_id)):
        # Commands are for git, and stay as they are.
        click.echo(visible(line) if line.startswith("#") else line)


@bisect.command()
@_result_id
def undo(result_id: str) -> None:
    """Take the last measurement back; `lab bisect resume` makes it again.

    \b
    Example:
      lab bisect undo latest
    """
    found = session.find(result_id)
    with result_folders.claimed(found.folder):
        commit = session.undo(session.load(found.folder))
    click.echo(f"{commit.name} is not measured any more; go on by lab bisect resume {found.name}")


@bisect.command()
@_ends
@options.jobs
@options.quiet
def step(jobs: int | None, **rest: Any) -> int:
    """Decide the commit that the current folder is at, for `git bisect run`.

    The default ends are those of `git bisect start`. Exits 0 for good (or old), 1 for bad (or new), 125 for an
    untestable commit, and 128 for anything else, which stops `git bisect run`.

    \b
    Example:
      git bisect run lab bisect step --recipe alloc-burst
    """
    with options.work(jobs) as work:
        decision = git_step.take(BisectRequest(**rest), Path.cwd(), work)
    click.echo(visible(decision.text))
    return decision.status
