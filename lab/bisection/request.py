"""From what the user typed, and a recipe, to a plan and a history: everything resolved before any work.

Recipes: what to bisect and how, in a file, for `lab bisect --recipe` and for `git bisect run`.

What of the options is for live mode: checked before anything is built.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from lab.bisection import commit_range, series
from lab.bisection.commit_range import History
from lab.bisection.plan import BisectPlan
from lab.compare.plan import GUEST_TIMEOUT_S, ArmPlan, LivePlan, MeasureOptions
from lab.core import paths, records, toml
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.core.records import Record
from lab.guests import exact, hardware, kvm
from lab.kernels import compilers
from lab.stats import defaults
from lab.workloads import selection as workload_selection
from lab.workloads.spec import Case, Workload


def plan_of(asked: Asked, recipe: Recipe, workload: Workload, cases: Sequence[Case]) -> LivePlan | None:
    """How guests are booted in live mode; None in exact mode, which `auto` takes. `UserError` for what does not fit.

    A search is exact unless live mode is asked for, with KVM too: numbers without noise are never misread.
    """
    if asked.mode != "live":
        if asked.accel != "auto" or asked.cpus is not None or asked.iterations is not None:
            raise UserError("--accel, --cpus and --iterations are of live mode", hint="add --mode live")
        return None
    from lab.bisection import live_runner  # brings numpy along, which exact mode does without
    from lab.compare import live_guests

    _refuse_exact(asked, recipe)
    if len(cases) != 1:
        raise UserError(
            f"live mode searches with one case, and {workload.name} has {len(cases)}",
            hint=f"name it, as in --workload {workload.name}:{cases[0].name}",
        )
    live_runner.metric_of(workload, asked.metric or recipe.metric)
    return live_guests.plan(
        [(workload, cases)], kvm.accelerator(asked.accel, asked.qemu, Progress()), asked.cpus,
        # Of the comparison with the culprit taken out; the search has limits of its own.
        max_rounds=defaults.MAX_ROUNDS, iterations=asked.iterations,
    )  # fmt: skip


def _refuse_exact(asked: Asked, recipe: Recipe) -> None:
    if asked.seeds is not None:
        raise UserError("--seeds is of exact mode", hint="in live mode, the boots decide how many are needed")
    if asked.model not in (None, "auto", "none"):
        raise UserError("--model is of exact mode: live mode measures real time", hint="leave one of them out")
    if recipe.panics == "bad":
        raise UserError(
            "a panic that is looked for needs exact mode, in which a kernel panics each time or never",
            hint="leave --mode live out",
        )


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
    recipe = toml.load(path, Recipe)
    _check_ends(path, recipe)
    return recipe


def _check_ends(path: Path, recipe: Recipe) -> None:
    pairs = (("good", "bad"), ("old", "new"))
    given = [pair for pair in pairs if any(getattr(recipe, word) is not None for word in pair)]
    if len(given) > 1:
        raise UserError(f"{path}: good and bad, or old and new, but not both")
    for pair in given:
        if missing := [word for word in pair if getattr(recipe, word) is None]:
            raise UserError(f"{path}: {missing[0]} is missing")


PROBES = 3
T = TypeVar("T")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options as typed; None where nothing was. A recipe fills in what was not typed."""

    good: str | None = None
    bad: str | None = None
    old: str | None = None
    new: str | None = None
    workload: str | None = None
    metric: str | None = None
    recipe: str | None = None
    tree: str | None = None
    series: str | None = None
    options: tuple[str, str] | None = None
    first_parent: bool = False
    paths: tuple[str, ...] = ()
    mode: str = "auto"
    confidence: float | None = None
    threshold: float | None = None
    seeds: int | None = None
    max_seeds: int = defaults.MAX_SEEDS
    probe: int | None = None
    model: str | None = None
    machine: str | None = None
    cc: str | None = None
    qemu: str = exact.QEMU
    guest_timeout: float = GUEST_TIMEOUT_S
    speculate: bool = True
    inside: bool = True
    accel: Literal["auto", "kvm", "tcg"] = "auto"
    cpus: int | None = None
    iterations: int | None = None


def plan(asked: Asked, command: Sequence[str], progress: Progress) -> tuple[BisectPlan, History]:
    """What will be done, and the range it is done on."""
    recipe = load(asked.recipe) if asked.recipe else Recipe(schema=1, workload="")
    if asked.series or asked.options:
        return _plan_of_series(asked, recipe, command, progress)
    words, ends = ends_of(asked, recipe)
    made = plan_for(asked, recipe, words, ends, command, progress)
    found = commit_range.commits(
        made.old.spec,
        made.new.spec,
        first_parent=asked.first_parent or bool(recipe.first_parent) or made.live is not None,
        limits=asked.paths or recipe.paths,
    )
    return made, found


def _plan_of_series(
    asked: Asked, recipe: Recipe, command: Sequence[str], progress: Progress
) -> tuple[BisectPlan, History]:
    """A series brings its ends along; of packages they may be narrowed, and patches need what they are put on."""
    words = ("good", "bad") if asked.good or asked.bad else ("old", "new")
    if asked.first_parent or asked.paths:
        raise UserError("--first-parent and paths are for commits, not for a series")
    first, last = (asked.good, asked.bad) if words[0] == "good" else (asked.old, asked.new)
    tree = first_of(asked.tree, recipe.tree, "") or None
    if asked.series and asked.options:
        raise UserError("give either --series or --options")
    if asked.options:
        _require_older(first, last, "options are changed on the older end")
        found = series.options(Path(asked.options[0]), Path(asked.options[1]), first or "HEAD", tree)
    elif (asked.series or "").startswith("deb:"):
        found = series.packages(asked.series or "", first, last)
    else:
        _require_older(first, last, "a series of patches is put on the older end")
        found = _patches(Path(asked.series or "").expanduser(), first or "", tree)
    ends = (found.old.spec, found.new.spec)
    return plan_for(asked, recipe, words, ends, command, progress), found


def _require_older(first: str | None, last: str | None, why: str) -> None:
    if last is not None or first is None:
        raise UserError(
            f"{why}, and what that leads to is the newer one", hint="give --good SPEC or --old SPEC, and no other end"
        )


def _patches(path: Path, base: str, tree: str | None) -> History:
    if not path.exists():
        raise UserError(f"{path}: no such mailbox or folder", hint="packages are given as --series 'deb:NAME*'")
    place = paths.data_dir("series") / (records.file_digest(path)[:24] if path.is_file() else "folder")
    return series.patches(path, base, place, tree)


def ends_of(asked: Asked, recipe: Recipe) -> tuple[tuple[str, str], tuple[str, str]]:
    """The words for the ends, and the ends: as typed, else as the recipe has them."""
    for given in (asked, recipe):
        pairs = {("good", "bad"): (given.good, given.bad), ("old", "new"): (given.old, given.new)}
        used = {words: ends for words, ends in pairs.items() if any(ends)}
        if len(used) > 1:
            raise UserError("give either --good and --bad, or --old and --new")
        for words, (first, last) in used.items():
            # One end typed, the other from the recipe.
            first = first or getattr(recipe, words[0])
            last = last or getattr(recipe, words[1])
            if not first or not last:
                raise UserError(
                    f"--{words[0] if not first else words[1]} is missing: the {words[0]} and {words[1]} ends"
                )
            return words, (first, last)
    raise UserError("both ends of the range are needed", hint="e.g. --good v6.11 --bad v6.12, or --old and --new")


def plan_for(
    asked: Asked,
    recipe: Recipe,
    words: tuple[str, str],
    ends: tuple[str, str],
    command: Sequence[str],
    progress: Progress,
) -> BisectPlan:
    """A plan for two ends that are known."""
    selection = asked.workload or recipe.selection
    if not selection:
        raise UserError("what is to be measured? give --workload NAME[:CASE], or a --recipe")
    options = MeasureOptions(
        workload=(selection,),
        tree=first_of(asked.tree, recipe.tree, "") or None,
        model=first_of(asked.model, recipe.model, "auto"),
        machine=first_of(asked.machine, recipe.machine, hardware.DEFAULT),
        threshold=first_of(asked.threshold, recipe.threshold, defaults.THRESHOLD),
        max_seeds=asked.max_seeds,
        cc=first_of(asked.cc, recipe.cc, compilers.DEFAULT),
        qemu=asked.qemu,
        guest_timeout=asked.guest_timeout,
    )
    options.require()
    workload, cases = workload_selection.select(selection)
    live = plan_of(asked, recipe, workload, cases)
    old, new = (ArmPlan(spec=spec, cc=options.cc) for spec in options.resolve(ends, progress))
    return BisectPlan(
        **options.common(live),
        words=words,
        old=old,
        new=new,
        workload=workload.name,
        case=cases[0].name if len(cases) == 1 else None,
        selection=workload_selection.canonical(selection),
        metric=first_of(asked.metric, recipe.metric, "") or None,
        confidence=first_of(asked.confidence, recipe.confidence, defaults.CONFIDENCE),
        seeds=first_of(asked.seeds, recipe.seeds, 0) or None,
        probes=first_of(asked.probe, recipe.probe, PROBES),
        panics=recipe.panics or "untestable",
        speculate=asked.speculate and live is None,
        command=list(command),
        inside=asked.inside,
    )


def first_of(typed: T | None, recipe: T | None, default: T) -> T:
    """The first that was given."""
    return typed if typed is not None else recipe if recipe is not None else default
