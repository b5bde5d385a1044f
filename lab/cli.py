"""The command `lab`: what the user types, and the one place where errors become words and statuses."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from typing import NoReturn

import click

from lab import __version__
from lab.errors import LabError

# Imported when used: `lab --help` should not wait for what `lab ab` needs.
_COMMANDS = {
    "ab": "Compare two kernels on a workload.",
    "doctor": "What this machine can do, what not, and what to do about it.",
    "explain": "Why a result's arms differ, by function.",
    "image": "The guest image that both arms boot.",
    "kernel": "Build kernels, list them, clear them out.",
    "matrix": "Measure kernels x settings x workloads, as a table and a heat map.",
    "replay": "Measure a stored result again and compare every number.",
    "report": "Show stored results, in any format, or list them.",
    "tree": "Kernel trees that revisions are looked up in.",
    "workload": "What can be run, and what it measures.",
}


class LazyGroup(click.Group):
    """Loads a command's module when it is called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """One command, imported now."""
        if name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(f"lab.commands.{name}"), name)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

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
      lab ab --base efa7df3e3bb5^ --test efa7df3e3bb5
    """
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(name)s: %(message)s", stream=sys.stderr)


def main() -> NoReturn:
    """Run the command line and exit with the lab's statuses."""
    # SIGTERM like Ctrl-C: guests are stopped, what was measured is kept.
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; its exit status."""
    try:
        status = lab.main(args=arguments, prog_name="lab", standalone_mode=False)
    except LabError as error:
        _complain(error.message, error.hint, error.log)
        return error.exit_status
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted", None, None)
        return 130
    except (BrokenPipeError, SystemExit):
        # The reader went away; click's own answer to that is `exit(1)`, which here says that --fail-on matched.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _complain(f"{error.filename or 'this machine'}: {error.strerror}", None, None)
        return 4
    return status if isinstance(status, int) else 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _complain(message: str, hint: str | None, log: object) -> None:
    text = f"lab: {message}"
    if hint:
        text += f"; {hint}"
    if log:
        text += f" (log: {log})"
    click.echo(text, err=True)
