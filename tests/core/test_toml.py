"""Errors in TOML files: the line, the key and what was probably meant."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from lab.core import toml
from lab.core.errors import UserError
from lab.core.records import Record
from lab.core.toml import TomlFile


class Row(Record, frozen=True, kw_only=True):
    name: str
    size: int = 0


class Document(Record, frozen=True, kw_only=True):
    schema: int
    seeds: Annotated[int, msgspec.Meta(ge=1)] = 1
    text: str = ""
    names: tuple[str, ...] = ()
    row: tuple[Row, ...] = ()
    inner: Row | None = None
    by_name: dict[str, Row] = msgspec.field(default_factory=dict)


GOOD = '''\
schema = 1 # a comment
text = """
seed = 3
[[row]]
"""
names = [
  "a",
  "b",
]

[[row]]
name = "first"

[[ row ]]
"name" = "second"

[inner]
name = "x"

[by_name.one]
name = "1"

[by_name."two = 2"]
name = "2"
'''


def write(folder: Path, text: str) -> Path:
    path = folder / "some.toml"
    path.write_text(text)
    return path


def test_a_file_without_errors(tmp_path: Path) -> None:
    read = toml.load(write(tmp_path, GOOD), Document)
    assert [row.name for row in read.row] == ["first", "second"]
    assert read.names == ("a", "b") and read.inner == Row(name="x") and list(read.by_name) == ["one", "two = 2"]


@pytest.mark.parametrize(("old", "new", "message", "hint"), [
    ("names = [", "nams = 1\nnames = [", ":6: unknown key 'nams'", "did you mean names?"),
    ("names = [", "zzz = 1\nnames = [", ":6: unknown key 'zzz'", "known: schema, seeds, text, names"),
    ('"name" = "second"', 'nam = "second"', ":15: unknown key 'nam'", "did you mean name?"),
    ('"name" = "second"', "size = 2", ":14: row[1]: the key 'name' is missing", None),
    ('"name" = "second"', "name = 2", ":15: row[1].name: must be a string, not a whole number", None),
    ('name = "x"', 'name = "x"\nsizes = 1', ":19: unknown key 'sizes'", "did you mean size?"),
    ('name = "x"', 'name = "x"\nsize.a = 1', ":19: inner.size: must be a whole number, not a table", None),
    ("[inner]", "[outer]", ":17: unknown key 'outer'", "known: "),
    ('"b",', "2,", ":6: names[1]: must be a string, not a whole number", None),
    ('name = "2"', "name = 2", ":24: by_name.two = 2.name: must be a string, not a whole number", None),
    ('name = "2"', 'nam = "2"', ":24: unknown key 'nam'", "did you mean name?"),
    ('name = "2"', "", ":23: by_name.two = 2: the key 'name' is missing", None),
    ("schema = 1", "schema = 2", ":1: schema 2 is not known; this lab reads 1", None),
    ("schema = 1", "", ": the key 'schema' is missing", None),
    ('name = "x"', "name = x", ":18: not valid TOML: Invalid value", None),
    ('name = "2"', 'name = "2', ":24: not valid TOML: ", None),
])  # fmt: skip
def test_errors_name_line_and_key(tmp_path: Path, old: str, new: str, message: str, hint: str | None) -> None:
    assert GOOD.count(old) == 1
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        toml.load(path, Document)
    assert caught.value.message.startswith(f"{path}{message}")
    assert (caught.value.hint or "").startswith(hint or "") and bool(caught.value.hint) == bool(hint)


def test_an_error_of_the_callers_names_the_nearest_line(tmp_path: Path) -> None:
    file = TomlFile(write(tmp_path, GOOD))
    for key, line in (
        (("row", 1, "name"), ":15"),
        (("row", 1, "size"), ":14"),
        (("inner",), ":17"),
        (("by_name", "one", "name"), ":21"),
        (("seeds",), ""),
        ((), ""),
    ):
        assert file.error("wrong", *key).message == f"{file.path}{line}: wrong"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*none\.toml: No such file"):
        toml.load(tmp_path / "none.toml", Document)
    (tmp_path / "some.toml").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"cannot read .*some\.toml: "):
        toml.load(tmp_path / "some.toml", Document)
    os.truncate(tmp_path / "some.toml", toml.SIZE_MAX + 1)
    with pytest.raises(UserError, match=r"cannot read .*some\.toml: it is larger than 1 MiB"):
        toml.load(tmp_path / "some.toml", Document)


def test_all_errors_are_named_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("names = [", "nams = 1\nseeds = 0\nnames = [").replace('"name" = "second"', "size = true")
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        toml.load(path, Document)
    assert caught.value.message.splitlines() == [
        f"{path}:6: unknown key 'nams' (did you mean names?)",
        f"{path}:7: seeds: 0 is not at least 1",
        f"{path}:16: row[1]: the key 'name' is missing",
        f"{path}:17: row[1].size: must be a whole number, not true or false",
    ]


def test_a_value_of_another_form_is_told_the_form_in_words(tmp_path: Path) -> None:
    class Kind(Record, frozen=True):
        name: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+\Z", description="a name of a-z")]
        also: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+\Z", description="a name of a-z")] | None = None
        bare: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+\Z")] = "x"

    path = tmp_path / "kind.toml"
    path.write_text('name = "1"\nalso = "2"\nbare = "3"\n')
    with pytest.raises(UserError) as failed:
        toml.load(path, Kind)
    said = failed.value.message
    assert "name: '1' is not a name of a-z" in said and "also: '2' is not a name of a-z" in said
    assert "bare: '3' is not of the form '^[a-z]+" in said
