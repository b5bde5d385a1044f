"""Recipes: what to bisect and how, in a file, for `lab bisect --recipe` and for `git bisect run`."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from lab.core import paths
from lab.core.errors import UserError
from lab.core.records import Record

Fraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class Recipe(Record, frozen=True, kw_only=True):
    """`bisect/recipes/*.toml`. Either good and bad, or old and new; a step of `git bisect run` may do without.

    Everything that is left out is as `lab bisect` has it without the option of that name.
    """

    schema: Literal[1]
    workload: str
    story: str = ""
    case: str | None = None
    metric: str | None = None
    good: str | None = None
    bad: str | None = None
    old: str | None = None
    new: str | None = None
    tree: str | None = None
    first_parent: bool | None = None
    paths: tuple[str, ...] = ()
    seeds: Annotated[int, msgspec.Meta(ge=1)] | None = None
    threshold: Fraction | None = None
    confidence: Fraction | None = None
    probe: Annotated[int, msgspec.Meta(ge=0)] | None = None
    panics: Literal["untestable", "bad"] | None = None
    model: Literal["auto", "none", "tlb", "full"] | None = None
    machine: str | None = None
    cc: str | None = None

    @property
    def selection(self) -> str:
        """What `--workload` would be given."""
        return f"{self.workload}:{self.case}" if self.case else self.workload


def shipped() -> list[str]:
    """The names of the recipes that come with the lab."""
    return sorted(path.stem for path in (paths.room("bisect") / "recipes").glob("*.toml"))


def load(reference: str) -> Recipe:
    """A recipe by file, or by the name of one that comes with the lab. `UserError` names the line that is wrong."""
    path = Path(reference)
    if not path.is_file() and reference in shipped():
        path = paths.room("bisect") / "recipes" / f"{reference}.toml"
    if not path.is_file():
        close = difflib.get_close_matches(path.stem, shipped(), n=1)
        raise UserError(
            f"there is no recipe {reference}",
            hint=f"did you mean {close[0]}?" if close else f"give a file, or one of {', '.join(shipped())}",
        )
    try:
        text = path.read_text(encoding="utf-8")
        raw = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error
    _check_keys(path, text, raw)
    try:
        recipe = msgspec.convert(raw, Recipe)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {error}") from error
    _check_ends(path, recipe)
    return recipe


def _check_keys(path: Path, text: str, raw: dict[str, Any]) -> None:
    known = [field.name for field in msgspec.structs.fields(Recipe)]
    for key in raw:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            raise UserError(f"{path}:{_line_of(text, key)}: unknown key {key!r}", hint=hint)


def _line_of(text: str, key: str) -> int:
    """tomllib keeps no positions; a recipe has no tables of its own, so a key begins its line."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip().strip("[").lstrip("\"'").startswith(key):
            return number
    return 1


def _check_ends(path: Path, recipe: Recipe) -> None:
    pairs = (("good", "bad"), ("old", "new"))
    given = [pair for pair in pairs if any(getattr(recipe, word) is not None for word in pair)]
    if len(given) > 1:
        raise UserError(f"{path}: good and bad, or old and new, but not both")
    for pair in given:
        if missing := [word for word in pair if getattr(recipe, word) is None]:
            raise UserError(f"{path}: {missing[0]} is missing")
