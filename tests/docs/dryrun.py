"""The lab's commands, and whether the lab takes a command line, without doing what it says."""

import re
import shlex
from collections.abc import Iterator

import click

from lab.cli import main


def names(group: click.Group = main.lab, *before: str) -> Iterator[tuple[str, ...]]:
    """The words of each command and of each group of commands."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        yield (*before, name)
        if isinstance(command := group.get_command(ctx, name), click.Group):
            yield from names(command, *before, name)


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
