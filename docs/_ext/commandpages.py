"""The command reference: one page for each command, from what click knows of it, for the site and for `man`."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from lab.cli.main import lab

# What Markdown would take for markup. Code between backticks stays as it is.
_SPECIAL = re.compile(r"([\\*_\[\]<>|#])")


def top() -> click.Context:
    """Where all commands begin. They ask their context what help is called."""
    return click.Context(lab, info_name="lab", **lab.context_settings)


def write(folder: Path) -> dict[str, str]:
    """Write all pages into a folder, and nothing else there; page name -> what the command does, in a line."""
    folder.mkdir(exist_ok=True)
    contexts = list(walk(top()))
    texts = {f"{page_name(one)}.md": page(one) for one in contexts}
    for stale in {path.name for path in folder.iterdir()} - set(texts):
        (folder / stale).unlink()
    for name, text in texts.items():
        path = folder / name
        # An untouched page is not built again.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return {page_name(one): _about(one.command) for one in contexts}


def walk(ctx: click.Context) -> Iterator[click.Context]:
    """A command and, depth first, all below it."""
    if ctx.command.hidden:
        return
    yield ctx
    for _, below in _subcommands(ctx):
        yield from walk(below)


def page_name(ctx: click.Context) -> str:
    """`lab-kernel-build`, as git calls its pages."""
    return ctx.command_path.replace(" ", "-")


def page(ctx: click.Context) -> str:
    """The page of one command, in Markdown."""
    usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
    prose, examples = _split(ctx.command.help or "")
    parts = [f"# {ctx.command_path}", "## Synopsis", _code(usage), "## Description", *map(_escaped, prose)]
    if records := _option_records(ctx):
        parts += ["## Options", *(f"`{option}`\n: {_escaped(text) or '(no more to say)'}" for option, text in records)]
    if below := list(_subcommands(ctx)):
        listed = [f"[`{one.command_path}`]({page_name(one)}.md)\n: {_escaped(_about(one.command))}" for _, one in below]
        names = "\n".join(page_name(one) for _, one in below)
        parts += ["## Commands", *listed, f"```{{toctree}}\n:hidden:\n\n{names}\n```"]
    for title, text in examples:
        parts += [f"## {title}", _code(text)]
    return "\n\n".join(parts) + "\n"


def _subcommands(ctx: click.Context) -> Iterator[tuple[str, click.Context]]:
    if not isinstance(ctx.command, click.Group):
        return
    for name in ctx.command.list_commands(ctx):
        command = ctx.command.get_command(ctx, name)
        assert command is not None  # noqa: S101
        if not command.hidden:
            yield name, click.Context(command, info_name=name, parent=ctx)


def _option_records(ctx: click.Context) -> list[tuple[str, str]]:
    found = (one.get_help_record(ctx) for one in ctx.command.get_params(ctx) if isinstance(one, click.Option))
    return [(option, " ".join(text.split())) for option, text in (one for one in found if one)]


def _split(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Paragraphs; and examples, which click is told to leave as they are, or which are a line of their own."""
    prose: list[str] = []
    examples: list[tuple[str, str]] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        title, _, body = paragraph.removeprefix("\b\n").partition("\n" if paragraph.startswith("\b\n") else ": ")
        if re.fullmatch("Examples?:?", title):
            examples.append((title.rstrip(":"), textwrap.dedent(body)))
        elif paragraph.strip():
            prose.append(" ".join(paragraph.split()))
    return prose, examples


def _about(command: click.Command) -> str:
    return command.get_short_help_str(limit=200).rstrip(".")


def _escaped(text: str) -> str:
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(one if one.startswith("`") else _SPECIAL.sub(r"\\\1", one) for one in pieces)


def _code(text: str) -> str:
    return f"```text\n{text}\n```"
