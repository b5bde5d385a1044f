"""The kinds of files in a store, and the commands that read each."""

from dataclasses import dataclass
from pathlib import Path

from lab.core import paths

from ..fakes import store as fakestore
from ..fakes.store import Store

Command = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of file. pattern: below its folder. commands: all that read it; ID is the result's."""

    folder: str = "data"
    result: str = ""
    pattern: str
    commands: tuple[Command, ...]


REPORT: Command = ("report", "ID")
JSON: Command = ("report", "ID", "--json")
PAGE: Command = ("report", "ID", "--format", "html")
LIST: Command = ("report",)
REBUILD: Command = ("history", "rebuild")
STATUS: Command = ("bisect", "status", "ID")

KINDS = {
    "result": Kind(result="ab", pattern="result.json", commands=(LIST, REPORT, JSON, PAGE, REBUILD)),
    "plan": Kind(result="ab", pattern="plan.json", commands=(REPORT, REBUILD, ("ab", "--resume", "ID"))),
    "unfinished": Kind(pattern=f"results/{fakestore.UNFINISHED}/plan.json", commands=(LIST,)),
    "run": Kind(result="ab", pattern="runs/*.json", commands=(PAGE,)),
    "label": Kind(result="ab", pattern="night.json", commands=(REBUILD,)),
    "matrix": Kind(result="matrix", pattern="result.json", commands=(LIST, REPORT, JSON, PAGE, REBUILD)),
    "matrix-plan": Kind(result="matrix", pattern="plan.json", commands=(REPORT, REBUILD)),
    "answer": Kind(result="bisect", pattern="result.json", commands=(LIST, REPORT, JSON, PAGE, REBUILD)),
    "bisect-plan": Kind(result="bisect", pattern="plan.json", commands=(REPORT, STATUS, REBUILD)),
    "history": Kind(result="bisect", pattern="history.json", commands=(PAGE, STATUS, ("bisect", "log", "ID"))),
    "conditions": Kind(result="bisect", pattern="conditions.json", commands=(STATUS,)),
    "journal": Kind(result="bisect", pattern="journal.jsonl", commands=(STATUS, ("bisect", "log", "ID"))),
    "proof": Kind(result="bisect", pattern="proof/*/parent/result.json", commands=(PAGE,)),
    "night": Kind(pattern="nightly/plan/nights/0002.json", commands=(("nightly", "status"),)),
    "acks": Kind(pattern="nightly/acks.json", commands=(("nightly", "status"),)),
    "database": Kind(pattern="history/history.sqlite", commands=(("history", "show"),)),
    "certificate": Kind(pattern="certificates/*/*.json", commands=(("aa", "--list"),)),
    "tree": Kind(pattern="trees/linux.git/tree.json", commands=(("tree", "list"),)),
    "kernel": Kind(folder="cache", pattern="kernels/*/build.json", commands=(("kernel", "list"),)),
    "image": Kind(folder="cache", pattern="images/*/image.json", commands=(("image", "list"),)),
}

# All commands that list what there is: one damaged file must not keep the rest from them.
LISTS: tuple[Command, ...] = (
    LIST, ("history", "show"), REBUILD, ("nightly", "status"), ("aa", "--list"), ("tree", "list"), ("kernel", "list"),
    ("image", "list"), ("gc", "--dry-run"),
)  # fmt: skip


def files_of(kind: Kind, store: Store) -> list[Path]:
    top = (
        store.results[kind.result] if kind.result else paths.data_dir() if kind.folder == "data" else paths.cache_dir()
    )
    return sorted(top.glob(kind.pattern))


def commands_of(kind: Kind, store: Store) -> list[Command]:
    result = store.results[kind.result].name if kind.result else fakestore.UNFINISHED
    return [tuple(result if word == "ID" else word for word in command) for command in kind.commands]
