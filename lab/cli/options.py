"""Options that several commands share, the types of their values, and the result folder that a command works in."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from lab.cluster import connect
from lab.compare import result_folders
from lab.compare.plan import ComparisonPlan
from lab.core import paths, records, settings, toml
from lab.core.errors import UserError
from lab.core.executor import Work, default_jobs
from lab.core.progress import Progress
from lab.core.records import Record
from lab.core.text import listed, seconds_of, visible
from lab.guests import hardware
from lab.guests.costs import BASES
from lab.guests.exact import QEMU
from lab.guests.host_commands import command_workload, left_here
from lab.guests.run import GUEST_TIMEOUT_S
from lab.kernels import archives, compilers, trees
from lab.stats import defaults
from lab.workloads import selection

P = TypeVar("P", bound=ComparisonPlan)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# ---- completion


class Complete:
    """A callback that completes a value. It never raises: its user sees a command line, and no place for an error."""

    def __init__(self, find: Callable[[str], Iterable[str]]) -> None:
        self.find = find

    def __call__(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """The values that begin as typed; a path is left to the shell."""
        if incomplete.startswith(("/", "./", "../", "~")):
            return [CompletionItem(incomplete, type="file")]
        try:
            return [CompletionItem(word) for word in self.find(incomplete) if word.startswith(incomplete)]
        except (Exception, SystemExit):
            return []


def _specs(typed: str) -> Iterable[str]:
    """The kinds of kernel specs, and the revisions of the checkout that one is in."""
    words = [f"{word}:" for word in ("file", "https", *archives.ARCHIVES, *settings.load().kernels)]
    if asked := archives.asked(typed):
        words = [f"{asked.word}:{start}" for start in asked.archive.beginnings()]
    elif typed.startswith("file:"):
        begun = typed.removeprefix("file:")
        place = paths.expanded(begun.rpartition("/")[0] + "/" if "/" in begun else ".")
        start = typed[: len(typed) - len(begun.rpartition("/")[2])]
        words = [f"{start}{path.name}{'/' if path.is_dir() else ''}" for path in sorted(place.iterdir())]
    parts = [f"refs/{kind}/{typed}{end}" for kind in ("heads", "tags", "remotes") for end in ("*", "*/**")]
    argv = ["git", "for-each-ref", "--format=%(refname:short)", "--count=200", "--sort=-creatordate", *parts]
    found = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1)
    return ["worktree", "HEAD", *words, *found.stdout.splitlines()]


def _cases(typed: str) -> Iterable[str]:
    """Workloads by name; after `NAME:`, their cases and groups."""
    name, colon, cases = typed.partition(":")
    if not colon:
        return selection.shipped()
    workload = selection.load(name)
    before = name + colon + cases[: cases.rfind(",") + 1]
    return [before + word for word in (*workload.groups, *(case.name for case in workload.cases))]


def _results(_typed: str) -> Iterable[str]:
    """The ids of stored results, the newest first."""
    return [
        result_folders.LATEST,
        *sorted(path.parent.name for path in result_folders.results_dir().glob("*/plan.json"))[::-1],
    ]


complete_spec = Complete(_specs)
complete_workload = Complete(_cases)
complete_result = Complete(_results)
complete_suite = Complete(lambda _: selection.suites())
complete_machine = Complete(lambda _: hardware.names(None))
complete_tree = Complete(lambda _: trees.names())


# ---- options


def spec(name: str, text: str) -> Decorator:
    """An option that names a kernel."""
    return click.option(name, metavar="SPEC", shell_complete=complete_spec, help=text)


def machine(text: str, name: str = "--machine", **more: Any) -> Decorator:
    """An option that names a machine."""
    return click.option(name, metavar="NAME|FILE", shell_complete=complete_machine, help=text, **more)


def resume(text: str) -> Decorator:
    """The option that goes on with a result."""
    return click.option("--resume", metavar="ID", shell_complete=complete_result, help=text)


def any_metric(text: str) -> Decorator:
    """The option that chooses a metric by its name."""
    return click.option("--metric", metavar="instructions|cycles|NAME", help=text)


json_output: Decorator = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
)
tree: Decorator = click.option(
    "--tree",
    metavar="NAME|PATH",
    shell_complete=complete_tree,
    help="The tree of revisions: a checkout (the one you are in), or of `lab tree list`.",
)
jobs: Decorator = click.option(
    "--jobs", "-j", type=click.IntRange(min=1), help="Guests and compilers at a time (default: all cores)."
)

_QUIET = "lab.quiet"


def _be_quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_QUIET] = value


quiet: Decorator = click.option(
    "--quiet", "-q", is_flag=True, expose_value=False, callback=_be_quiet,
    help="No progress on stderr: only the result, and errors.",
)  # fmt: skip

result: Decorator = click.option(
    "--result", type=click.Path(path_type=Path), help="Folder for the result (default: a new one)."
)
metric: Decorator = click.option(
    "--metric",
    type=click.Choice(BASES[::-1]),
    help="Exact mode: the count that decides (default: the workload's).",
)
mode: Decorator = click.option(
    "--mode",
    type=click.Choice(["exact", "live"]),
    default="exact",
    show_default=True,
    envvar="LAB_MODE",
    help="exact: modelled, the same numbers anywhere; live: in real time, by KVM if it works.",
)
qemu: Decorator = click.option("--qemu", default=QEMU, show_default=True, help="The QEMU to use.")

database: Decorator = click.option(
    "--database",
    metavar="FILE",
    help="The history's database, a SQLite file (default: $LAB_DATABASE, lab.toml, or one among the lab's data).",
)


class Share(click.ParamType[float]):
    """A share such as `2%` or `0.02`."""

    name = "SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([0-9.]+)\s*(%?)", str(value).strip())
        try:
            number = float(found[1]) / (100 if found[2] else 1) if found else 0.0
        except ValueError:
            number = 0.0
        if not 0 < number < 1:
            self.fail(f"{value!r} is not a share; write 2% or 0.02", param, ctx)
        return number


class Duration(click.ParamType[float]):
    """A time span such as `90s`, `40m`, `2h` or `1h30m`. positive: 0 is refused."""

    name = "TIME"

    def __init__(self, *, positive: bool = False) -> None:
        self.positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        seconds = seconds_of(str(value).strip())
        if seconds is None:
            self.fail(f"{value!r} is not a time span; write 90s, 40m, 2h or 1h30m", param, ctx)
        if self.positive and not seconds:
            self.fail(f"{value!r} must be longer than 0", param, ctx)
        return seconds


cluster: Decorator = click.option(
    "--cluster", metavar="ADDRESS", envvar="LAB_CLUSTER", help="Exact mode: build and run on a dask cluster (none)."
)
share: Decorator = click.option(
    "--share", metavar="FOLDER|URL", envvar="LAB_SHARE", help="With --cluster: a place that all its machines reach."
)


budget: Decorator = click.option(
    "--budget", type=Duration(positive=True), help="Stop after this time with the findings so far, e.g. 40m."
)


def guest_timeout_of(limit: str, default: float | None = None) -> Decorator:
    """The option for the time of a guest. limit: the default, for people."""
    text = f"A guest that runs longer hangs ({limit})."
    return click.option("--guest-timeout", type=Duration(positive=True), default=default, help=text)


guest_timeout = guest_timeout_of("300s", GUEST_TIMEOUT_S)


snapshot: Decorator = click.option(
    "--snapshot/--no-snapshot", default=True,
    help="Exact mode: boot once, and go on from there for every seed (on). The numbers are the same.",
)  # fmt: skip


class OutputFile(click.ParamType[Path]):
    """A file to write, in a folder that exists: anything else is refused before the work, not after it."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.is_dir():
            self.fail(f"{path} is a folder; name a file", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}", param, ctx)
        return path


class Cpus(click.ParamType["int | tuple[int, ...]"]):
    """A number of vCPUs, several of them, or `host` for as many as there are, laid out alike; 0 stands for that."""

    name = "N,...|host"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if value == "host":
            return 0
        words = str(value).split(",")
        if not all(word.isdigit() and int(word) > 0 for word in words):
            self.fail(f"{value!r} is neither a number of CPUs nor `host`", param, ctx)
        numbers = tuple(dict.fromkeys(map(int, words)))
        return numbers[0] if len(numbers) == 1 else numbers


_GROUPS = {
    "Kernels": "base test arch spec kernel kernels settings against tree cc base_cc test_cc layout",
    "Workload": "workload suite exec base_program file clocked cpus metric",
    "Evidence": "mode threshold seeds max_seeds budget fail_on require_verdict watch",
    "Exact mode": "model machine robust explain cluster share",
    "Live mode": "accel iterations numa duet rounds max_rounds perf perf_record",
    "Result": "result resume output cache_key as_json quiet",
}
"""The groups of a measurement's options in its help, by their names in the program. All others come last."""


class Defaults(Record, frozen=True, kw_only=True):
    """`lab.toml` at the top of a checkout: values of options that are not given on the command line."""

    base: str | None = None
    test: str | None = None
    workload: list[str] | None = None
    suite: str | None = None
    mode: str | None = None
    threshold: str | None = None
    seeds: int | None = None
    max_seeds: int | None = None
    budget: str | None = None
    machine: str | None = None
    fail_on: str | None = None


_DEFAULTS = "lab.toml"
_CHOICES = ("-w", "--workload", "--suite", "--exec")


def defaults_file() -> Path | None:
    """The `lab.toml` of the checkout that one is in, if it has one."""
    here = Path.cwd()
    top = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    return top / _DEFAULTS if top and (top / _DEFAULTS).is_file() else None


class MeasuringCommand(click.Command):
    """A command with so many options that its help lists them in groups, and a checkout may have defaults for them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse with the defaults of the checkout; a result that is resumed and a pipeline have their own."""
        given = [arg.partition("=")[0] for arg in args]
        file = defaults_file()
        if file and self.name != "ci" and "--resume" not in given:
            values = records.plain(toml.load(file, Defaults))
            if any(arg.startswith(_CHOICES) for arg in given):
                values |= {"workload": None, "suite": None}
            ctx.default_map = {name: value for name, value in values.items() if value is not None}
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            if error.param and ctx.get_parameter_source(error.param.name or "") is ParameterSource.DEFAULT_MAP:
                raise click.BadParameter(f"{error.message} (in {file})", ctx, error.param) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, after a line about the defaults that were used."""
        used = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP]
        if used and not ctx.meta.get(_QUIET):
            values = [f"--{name.replace('_', '-')}" for name in used]
            click.echo(visible(f"{listed(values, 'and')} as in {defaults_file()}"), err=True)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        of = {name: group for group, names in _GROUPS.items() for name in names.split()}
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in [*_GROUPS, "Other options"]}
        for param in self.get_params(ctx):
            if (row := param.get_help_record(ctx)) is not None:
                rows[of.get(param.name or "", "Other options")].append(row)
        for group, found in rows.items():
            if found:
                with formatter.section(group):
                    formatter.write_dl(found)


def together(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


executor = together(cluster, share)
"""The options of a command whose guests and builds a cluster may run."""

means = together(budget, jobs, quiet, executor)
"""The options of a command that works for long; but for `quiet`, those of `work`."""


@contextmanager
def work(
    jobs: int | None = None, budget: float | None = None, cluster: str | None = None, share: str | None = None
) -> Iterator[Work]:
    """The means of a command, by its options, while it works. budget: seconds from now."""
    deadline = time.monotonic() + budget if budget else None
    quiet = click.get_current_context().meta.get(_QUIET, False)
    with Progress(quiet=quiet) as progress, connect(cluster, share, progress) as executor:
        yield Work(progress=progress, jobs=jobs or default_jobs(), deadline=deadline, executor=executor)


@contextmanager
def result_folder(
    resume: str | None, result: Path | None, load: Callable[[Path], P], make: Callable[[], P]
) -> Iterator[tuple[Path, P]]:
    """Claim the folder of a result with its plan: an interrupted one's, or a new one's, which is stored first."""
    if resume is None:
        plan = make()
        with new_result(result, plan) as folder:
            yield folder, plan
        return
    folder = result_folders.open_folder(resume, unfinished=True)
    plan = load(folder)
    with result_folders.claimed(folder):
        yield folder, plan


@contextmanager
def new_result(chosen: Path | None, plan: ComparisonPlan) -> Iterator[Path]:
    """Claim a new folder for a result, with the plan in it."""
    folder = result_folders.new_folder(chosen)
    with result_folders.claimed(folder):
        result_folders.store_plan(folder, plan)
        yield folder


def print_json(document: object) -> None:
    """Print one JSON document, its keys sorted."""
    click.echo(records.encode(document), nl=False)


def print_in_order(document: object) -> None:
    """Print one JSON document, its keys in their own order."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())


def print_lines(lines: Iterable[str]) -> None:
    """Print each text on one line, without characters that a terminal would obey."""
    for line in lines:
        click.echo(visible(line))


def show(document: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a document, or its lines for people."""
    if as_json:
        print_json(document)
    else:
        print_lines(lines)


_CHOSEN = ("suite", "exec", "workload")


def _selections(ctx: click.Context, _: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The selections of every `--workload`, or of the suite; `--exec` has one only when the command runs."""
    given = [name for name in _CHOSEN if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    chosen = [f"--{name}" for name in given]
    if given and "suite" not in given:
        ctx.params["suite"] = None  # the command's own default
    if len(chosen) > 1:
        raise UserError(f"{listed(chosen, 'and')} exclude each other", hint="leave one of them out")
    if ctx.params.get("file") and "--exec" not in chosen:
        raise UserError("--file brings a file along for the command of --exec", hint="give one, or leave --file out")
    if ctx.params.get("clocked") and "--exec" not in chosen:
        raise UserError("--clocked is about the command of --exec", hint="a workload says it in its workload.toml")
    return selection.suite(ctx.params["suite"]).selections if ctx.params.get("suite") is not None else value


def _one_command(_: click.Context, __: click.Parameter, commands: tuple[str, ...]) -> str | None:
    """The command of `--exec`; several are refused, since a guest runs one."""
    if len(commands) > 1:
        hint = "write a script that runs them, or compare each by itself"
        raise UserError(f"--exec takes one command, and {len(commands)} are given", hint=hint)
    return commands[0] if commands else None


def with_command(values: dict[str, Any], base_program: Path | None = None) -> dict[str, Any]:
    """The values of options, with the command of `--exec` as the workload."""
    rest = {name: value for name, value in values.items() if name not in ("exec", "file", "clocked")}
    if values["exec"] is not None:
        folder = command_folder(values["exec"], values["file"], base_program=base_program, clocked=values["clocked"])
        rest["workload"] = [str(folder)]
    return rest


def command_folder(command: str, files: Sequence[str], **how: Any) -> Path:
    """The folder of `command_workload`; a line on stderr names each file of the command that stays on the host."""
    brought = [Path(file) for file in files]
    folder = command_workload(command, brought, **how)
    for word in left_here(command, brought):
        hint = f"bring it with --file {shlex.quote(word)}"
        click.echo(f"{word} is a file here, and the guest does not have it; {hint}", err=True)
    return folder


def measured(*, max_seeds: int, suite: str | None = None) -> Decorator:
    """The options of a measurement of several arms: workloads, cost model, threshold, seeds, and the means.

    suite: measured if nothing else is named, in place of alloc-burst.
    """
    return together(
        click.option(
            "--workload", "-w", "workload", multiple=True, default=["alloc-burst"], show_default=suite is None,
            metavar="NAME[:CASE,...]", help="The workload; may be given several times.", callback=_selections,
            shell_complete=complete_workload,
        ),
        click.option(
            "--suite", metavar="NAME", is_eager=True, shell_complete=complete_suite, default=suite,
            show_default=suite is not None,
            help="Run the cases of a suite instead, such as quick; `lab workload list` names them.",
        ),
        click.option(
            "--exec", metavar="COMMAND", multiple=True, is_eager=True, callback=_one_command,
            help="Run one command of this host instead, in the guest.",
        ),
        click.option(
            "--file", metavar="PATH", multiple=True, is_eager=True,
            help="With --exec: a file or folder for the command.",
        ),
        click.option(
            "--clocked", is_flag=True, is_eager=True,
            help="With --exec: the command works for a time, not for a number of operations.",
        ),
        tree,
        mode,
        click.option(
            "--model", type=click.Choice(["auto", "none", "tlb", "full"]), default="auto", show_default=True,
            help="Cost model: modelled cycles decide, by TLBs alone or by caches too; none: the guest clock does.",
        ),
        machine("The machine that is modelled.", default=hardware.DEFAULT, show_default=True),
        click.option(
            "--threshold", type=Share(), default=defaults.THRESHOLD,
            help="Changes up to this size do not count. The estimate decides, not the whole interval (2%).",
        ),
        click.option("--seeds", type=click.IntRange(min=1), help="Exactly that many seeds, decided or not."),
        click.option(
            "--max-seeds", type=click.IntRange(min=6), default=max_seeds, show_default=True,
            help="Stop adding seeds here.",
        ),
        budget,
        click.option("--cc", default=compilers.DEFAULT, show_default=True, help="Compiler of all kernels."),
        qemu,
        guest_timeout,
        snapshot,
        jobs,
        result,
        quiet,
    )  # fmt: skip


live_guest = together(
    click.option(
        "--accel", type=click.Choice(["auto", "kvm", "tcg"]), default="auto", show_default=True,
        help="Live mode: KVM if a guest boots under it; tcg is slow, and its times are an emulator's.",
    ),
    click.option("--cpus", type=Cpus(), help="vCPUs of a guest; exact mode: or a list (default: its workload's)."),
    click.option(
        "--iterations", type=click.IntRange(min=1), help="Live mode: of each case in a boot (3, or as measured)."
    ),
)  # fmt: skip
"""The options of every measurement in live mode: accelerator and CPUs of the guests, iterations of a boot."""

live = together(
    live_guest,
    click.option("--numa", type=click.IntRange(min=1), help="NUMA nodes of a guest."),
    click.option("--duet", is_flag=True, help="Both arms at once, on CPUs of their own."),
    click.option("--rounds", type=click.IntRange(min=1), help="Exactly that many rounds."),
    click.option(
        "--max-rounds", type=click.IntRange(min=6), default=defaults.MAX_ROUNDS, show_default=True,
        help="Stop adding rounds here.",
    ),
    click.option("--perf/--no-perf", default=None, help="Count events by `perf stat` (default: under KVM with a PMU)."),
    click.option(
        "--perf-record", is_flag=True, help="Afterwards, a profile of both arms by `perf record`, and their difference."
    ),
)  # fmt: skip
"""The options of a comparison that require live mode."""


def require_exact(mode: str) -> None:
    """Refuse live mode for commands of exact mode."""
    if mode == "live":
        raise UserError("this is not done in live mode", hint="measure with --mode exact, or compare with `lab ab`")
