"""The directive `record`: the fields of a stored record, from the class itself, so that no page can drift from it."""

from __future__ import annotations

import enum
import importlib
import inspect
import types
import typing
from typing import Any

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class RecordTable(SphinxDirective):
    """`{record} lab.compare.plan.Plan`: a table of its fields, and of each record in it that is new to the page."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """The nodes of the tables, made from Markdown."""
        done: set[type] = self.env.temp_data.setdefault("records", set())
        fresh = [one for one in closure(load(self.arguments[0])) if one not in done]
        done.update(fresh)
        for one in fresh:
            self.env.note_dependency(inspect.getfile(one))
        return self.parse_text_to_nodes("\n\n".join(map(markdown, fresh)))


def load(path: str) -> type[msgspec.Struct]:
    """The record that a dotted path names."""
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    assert issubclass(found, msgspec.Struct), path  # noqa: S101
    return found


def closure(record: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """A record and all that its fields hold, directly or not, in the order in which they are met."""
    found = {record: None}
    for hint in typing.get_type_hints(record).values():
        for inner in _records_in(hint):
            found |= dict.fromkeys([inner] if inner in found else closure(inner))
    return list(found)


def _records_in(hint: Any) -> list[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [one for inner in typing.get_args(hint) for one in _records_in(inner)]


def markdown(record: type[msgspec.Struct]) -> str:
    """A record as Markdown: its docstring, and one row for each field."""
    hints = typing.get_type_hints(record)
    rows = [f"| `{tag}` | {value} | |" for tag, value in _tag(record)]
    for field in msgspec.structs.fields(record):
        rows.append(f"| `{field.encode_name}` | {type_name(hints[field.name])} | {_default(field)} |")
    words = inspect.cleandoc(record.__doc__ or "").replace("<", r"\<")
    return "\n".join(
        [f"**`{record.__name__}`**: {words}", "", "| field | type | if it is missing |", "|---|---|---|", *rows]
    )


def _tag(record: type[msgspec.Struct]) -> list[tuple[str, str]]:
    config = record.__struct_config__
    return [(config.tag_field, f'"{config.tag}"')] if config.tag_field else []


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "an error"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return f"`{msgspec.json.encode(value).decode()}`"


def type_name(hint: Any) -> str:
    """A type as JSON has it: `list of string`, `integer or null`, or another record's name."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(type_name(one) for one in arguments)
    if origin in (list, tuple, set, frozenset):
        return _list_name(origin, arguments)
    if origin is dict or getattr(origin, "__name__", "") == "Mapping":
        return f"object of {type_name(arguments[1])}"
    if origin is typing.Literal:
        return " or ".join(f"`{msgspec.json.encode(one).decode()}`" for one in arguments)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"`{hint.__name__}`"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ", ".join(f"`{one.value}`" for one in hint)
    return PLAIN.get(hint, getattr(hint, "__name__", str(hint)))


PLAIN: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "true or false", type(None): "null", Any: "anything",
}  # fmt: skip


def _list_name(origin: type, arguments: tuple[Any, ...]) -> str:
    if origin is tuple and Ellipsis not in arguments:
        return "list: " + ", ".join(type_name(one) for one in arguments)
    return f"list of {type_name(arguments[0])}"


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_directive("record", RecordTable)
    return {"parallel_read_safe": True}
