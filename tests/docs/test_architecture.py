"""ARCHITECTURE.md and CONTRIBUTING.md name what is there: files, and in them functions, classes and constants."""

import ast
import re
from pathlib import Path

import pytest

from ..test_guards import ORDER

TOP = Path(__file__).resolve().parents[2]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
_PATH = re.compile(r"[\w./*-]+/|[\w./*-]*/[\w.*-]+|[\w*-]+\.(?:py|toml|md|yaml)")
_NAME = re.compile(r"([A-Za-z_]\w*(?:\.\w+)?)\(\)|([A-Z]\w+)")
# Names that stand for any, and a folder that only the wheel has.
_NOT_THERE = ("PACKAGE", "MODULE", "NAME", "_data")


def spans(page: str) -> list[str]:
    """The code between backticks, in order."""
    return re.findall(r"`([^`]+)`", re.sub(r"^( {4}|```).*$", "", page, flags=re.MULTILINE))


def wrong(page: str, top: Path = TOP) -> list[str]:
    """The files and names that a page names and that do not exist; a name is looked up in the module before it."""
    names: set[str] = set()
    missing = []
    for span in spans(page):
        if span.startswith("/") or any(word in span for word in _NOT_THERE):
            continue
        if _PATH.fullmatch(span):
            paths = sorted(top.glob(span if "/" in span or (top / span).exists() else f"[lw]*/**/{span}"))
            if not paths:
                missing.append(span)
            elif paths[0].suffix == ".py":
                names = defined(paths[0])
        elif (match := _NAME.fullmatch(span)) and (match[1] or match[2]) not in names:
            missing.append(span)
    return missing


def defined(module: Path) -> set[str]:
    """The functions, classes, methods and constants of a module; methods as `Class.method` too."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_everything_that_is_named_exists(name: str) -> None:
    page = (TOP / name).read_text()
    assert len(spans(page)) > 20
    assert not wrong(page)


def test_the_packages_are_in_the_order_of_their_imports() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (TOP / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert tuple(rows) == ORDER
