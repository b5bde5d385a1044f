"""Whether the lab takes a command line, without doing what it says."""

import re
import shlex

import click

from lab.cli import main


def parse(line: str) -> None:
    """Have click take a command line, as far as it can be taken without doing anything."""
    words: list[str] = []
    for word in shlex.split(line, comments=True):
        if re.match(r"[|>&;]|2>", word):
            break
        words.append(word)
    command: click.Command = main.lab
    ctx = main.lab.make_context("lab", words)
    while isinstance(command, click.Group) and (rest := [*ctx._protected_args, *ctx.args]):
        name, found, rest = command.resolve_command(ctx, rest)
        assert found is not None
        command, ctx = found, found.make_context(name, rest, parent=ctx)
