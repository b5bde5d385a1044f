"""The command `lab`, and the only place where errors become messages and exit statuses."""

from __future__ import annotations

import errno
import importlib
import locale
import logging
import os
import signal
import sys
import traceback
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from lab import __version__
from lab.core.errors import BuildFailed, GuestFailed, LabError, Undecided, UserError

# `git bisect run` takes this status for "stop", and for no verdict on the commit.
_SKIP, _ABORT = 125, 128

# Imported when used: `lab --help` should not wait for the modules of `lab ab`.
_COMMANDS = {
    "aa": "Compare a kernel with itself: the noise, and the smallest change that can be told.",
    "ab": "Compare two kernels on a workload.",
    "atlas": "Look up the cost of every operation in every kernel, and measure it.",
    "bisect": "Find the commit that changed a measurement.",
    "ci": "Compare a change with its base in a pipeline: a comment, and red only for a regression.",
    "completion": "Print the script by which a shell completes the lab's command lines.",
    "demo": "Compare two packages, then the kernels around one commit, which are built meanwhile.",
    "doctor": "Check this machine for every mode, with a remedy for each missing thing.",
    "explain": "Say why a result's arms differ, by function.",
    "gc": "Delete files that can be made again, or that nothing reads any more.",
    "history": "Show trends over all results, and the steps in them.",
    "image": "Build and list the guest image that both arms boot.",
    "kernel": "Build kernels, list them, clear them out.",
    "machine": "List, show and compare modelled machines; measure this host as one.",
    "matrix": "Measure kernels x settings x workloads, as a table and a heat map.",
    "nightly": "Measure trees every night, and report each slowdown once.",
    "replay": "Measure a stored result, or a bundle, again and compare every number.",
    "report": "Show stored results, in any format, or list them.",
    "selftest": "Test this bench host: a page, and a document to post.",
    "shell": "Run a shell, or one command, in the guest image under a kernel.",
    "tree": "Add and list the kernel trees that revisions are looked up in.",
    "workload": "List, show, begin and check workloads.",
}
_MODULES = {"completion": "main", "image": "kernel", "replay": "report", "shell": "kernel", "tree": "kernel"}
"""Commands whose module is not called like them."""


class LazyGroup(click.Group):
    """Loads a command's module when it is called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(f"lab.cli.{_MODULES.get(name, name)}"), name)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete the commands without importing them, or the options."""
        commands = [CompletionItem(name, help=text) for name, text in sorted(_COMMANDS.items())]
        found = [item for item in commands if item.value.startswith(incomplete)]
        return found if found else click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", count=True, help="Say more on stderr; twice for every command that is run.")
@click.version_option(__version__, prog_name="lab")
def lab(verbose: int) -> None:
    """Did this kernel change make that workload slower, by how much, why, and which commit did it?

    \b
    Example:
      lab ab deb:6.1 deb:6.12
    """
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_VisibleFormatter("%(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


class _VisibleFormatter(logging.Formatter):
    """Escapes characters that a terminal would obey: messages quote names from files that are damaged."""

    def format(self, record: logging.LogRecord) -> str:
        # Only now: help should not wait for what it does not need.
        from lab.core.text import visible_lines

        return visible_lines(super().format(record))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script by which a shell completes the lab's command lines.

    It completes commands, options, revisions, workloads with their cases, suites, machines and the ids of results.

    \b
    Examples:
      lab completion bash >~/.local/share/bash-completion/completions/lab
      lab completion zsh >~/.zfunc/_lab
      lab completion fish >~/.config/fish/completions/lab.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101
    click.echo(kind(lab, {}, "lab", "_LAB_COMPLETE").source())


class BashCompletion(BashComplete):
    """Completes the line as the lab splits it: bash also splits at `:`, which kernel specs and cases have."""

    source_template = BashComplete.source_template.replace(
        "COMP_CWORD=$COMP_CWORD", 'COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS"'
    )
    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor's, and the typed part of that one."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        self._typed = words.pop() if words and not line[-1:].isspace() else ""
        return words, self._typed

    def format_completion(self, item: CompletionItem[str]) -> str:
        """The value without the part that bash keeps as words of their own."""
        typed = self._typed.partition("=")[2] if self._typed.startswith("-") else self._typed
        kept = max(typed.rfind(mark) for mark in os.environ["COMP_WORDBREAKS"]) + 1
        return f"{item.type},{item.value[kept:]}"


add_completion_class(BashCompletion)


def main() -> NoReturn:
    """Run the command line and exit with the lab's statuses."""
    _require_streams()
    # Like Ctrl-C: guests are stopped, measurements are kept. nohup ignores SIGHUP, and so do we then.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    sys.exit(run(sys.argv[1:]))


def _require_streams() -> None:
    """Read and write UTF-8 in every locale, and refuse a closed standard output.

    The next file that is opened would take its number, and programs would write into that file.
    """
    if sys.flags.utf8_mode == 0 and locale.getencoding().lower() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - itself, no shell
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    if sys.stdout is None:
        _complain("standard output is closed, so nothing can be printed", None, None)
        sys.exit(2)


def run(arguments: list[str]) -> int:
    """Run one command line; its exit status."""
    for_git = ("bisect", "step") in pairwise(arguments)
    try:
        Path.cwd()
    except FileNotFoundError:
        click.echo("lab: the current folder has been deleted; change to another one", err=True)
        return _ABORT if for_git else UserError.exit_status
    if for_git:
        return _run_for_git(arguments)
    try:
        return _complete(arguments)
    except BaseException as error:
        status = _status_of(error)
        if status <= 1 or not _is_ab(arguments):
            return status
        from lab.core import git

        return _status_for_git(error) if git.bisects(Path.cwd()) else status


def _is_ab(arguments: list[str]) -> bool:
    return next((word for word in arguments if not word.startswith("-")), None) == "ab"


def _status_for_git(error: BaseException) -> int:
    """The status of a failed `lab ab` for `git bisect run`, which takes 2 to 124 for a bad commit: untestable, or stop.

    A kernel that does not build, boot or decide is untestable; anything else says nothing about the commit.
    """
    match error:
        case BuildFailed() | Undecided():
            status = _SKIP
        case GuestFailed():
            status = _SKIP if error.kind.blames == "kernel" else _ABORT
        case _:
            status = _ABORT
    means = "this commit cannot be tested" if status == _SKIP else "git stops"
    click.echo(f"git bisect is under way: status {status}, {means}; `lab bisect step` decides commits", err=True)
    return status


def _run_for_git(arguments: list[str]) -> int:
    """For `git bisect run` every small status is about the commit: misuse and failures of the lab must not be."""
    try:
        status = _complete(arguments)
    except BaseException as error:
        try:
            _status_of(error)
        except Exception:
            logging.getLogger(__name__).exception("lab bisect step itself failed")
        return _ABORT
    return status if status in (0, 1, 125) else _ABORT


def _complete(arguments: list[str]) -> int:
    status = lab.main(args=arguments, prog_name="lab", standalone_mode=False)
    # Else the interpreter would notice a full disk, or a reader that went away, and make that a status.
    sys.stdout.flush()
    return status if isinstance(status, int) else 0


def _status_of(error: BaseException) -> int:
    """Print the error, and return its status. The log has the traceback of the lab's own mistakes."""
    match error:
        case LabError():
            _complain(error.message, error.hint, error.log)
            return error.exit_status
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            _complain("interrupted", None, None)
            return 130
        case click.ClickException():
            with suppress(OSError):
                error.show()
            return 2
        case SystemExit():
            # The reader went away; click's own answer to that is `exit(1)`, which here says that --fail-on matched.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError():
            from lab.core import paths

            failed = paths.failure(error, "the output")
            _complain(failed.message, failed.hint, None)
            # A name that is longer than names can be was typed.
            return 2 if error.errno == errno.ENAMETOOLONG else failed.exit_status
    _complain(f"a mistake of the lab's own: {type(error).__name__}: {error}", "please report it", _traceback_of(error))
    return 4


def _traceback_of(error: BaseException) -> Path | None:
    """The file that the traceback of an error was written to; None if no file can be written, and stderr has it."""
    from lab.core import paths, records

    text = "".join(traceback.format_exception(error))
    log = None
    try:
        log = paths.cache_dir("logs") / f"error-{records.digest(text)[:12]}.log"
        log.write_text(text)
    except OSError:
        with suppress(OSError):
            click.echo(text, err=True)
    return log


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _complain(message: str, hint: str | None, log: object) -> None:
    text = f"lab: {message}"
    if hint:
        text += f"; {hint}"
    if log:
        text += f" (log: {log})"
    # Only now: help should not wait for what it does not need.
    from lab.core.text import visible_lines

    with suppress(OSError):  # the file that stderr is redirected to is full, or gone
        click.echo(visible_lines(text), err=True)
