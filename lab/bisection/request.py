"""From the options of `lab bisect` and a recipe to a plan and a range, resolved and checked before any work."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from lab.bisection import commit_range, sources
from lab.bisection.commit_range import History
from lab.bisection.plan import BisectPlan, Panics
from lab.compare import certificates
from lab.compare.judge import metric_of
from lab.compare.plan import ArmPlan, LivePlan
from lab.compare.request import Request, plan_of
from lab.core import paths, records, toml
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.core.records import Record
from lab.guests import exact
from lab.guests.costs import BASES
from lab.guests.run import GUEST_TIMEOUT_S
from lab.kernels import archives, trees
from lab.kernels.kernel import KernelSpec
from lab.stats import defaults
from lab.workloads import selection
from lab.workloads.spec import Case, Workload

PROBES = 3
TERMS = (("good", "bad"), ("old", "new"))
"""The pairs of words for the ends, as `git bisect` has them."""

Fraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Terms = tuple[str, str]


class Options(Record, frozen=True, kw_only=True):
    """The options that a recipe may have too. Others have the default of `lab bisect`."""

    metric: str | None = None
    good: str | None = None
    bad: str | None = None
    old: str | None = None
    new: str | None = None
    tree: str | None = None
    arch: str | None = None
    first_parent: bool | None = None
    paths: tuple[str, ...] = ()
    seeds: Annotated[int, msgspec.Meta(ge=1)] | None = None
    threshold: Fraction | None = None
    confidence: Fraction | None = None
    probe: Annotated[int, msgspec.Meta(ge=0)] | None = None
    panics: Panics | None = None
    model: Literal["auto", "none", "tlb", "full"] | None = None
    machine: str | None = None
    cc: str | None = None

    def terms(self) -> list[Terms]:
        """The pairs of words that name an end."""
        return [pair for pair in TERMS if any(getattr(self, term) is not None for term in pair)]


class Recipe(Options, frozen=True, kw_only=True):
    """`bisect/recipes/*.toml`. Either good and bad, or old and new; a step of `git bisect run` may do without."""

    schema: Literal[1]
    workload: str
    story: str = ""
    case: str | None = None

    @property
    def selection(self) -> str:
        """The argument of `--workload` for it."""
        return f"{self.workload}:{self.case}" if self.case else self.workload


def shipped() -> list[str]:
    """The names of the recipes that come with the lab."""
    return sorted(path.stem for path in (paths.data_folder("bisect") / "recipes").glob("*.toml"))


def load(reference: str) -> Recipe:
    """A recipe by file, or the lab's own recipe by name. `UserError` names the line that is wrong."""
    path = Path(reference)
    if not path.is_file() and reference in shipped():
        path = paths.data_folder("bisect") / "recipes" / f"{reference}.toml"
    if not path.is_file():
        close = difflib.get_close_matches(path.stem, shipped(), n=1)
        raise UserError(
            f"there is no recipe {reference}",
            hint=f"did you mean {close[0]}?" if close else f"give a file, or one of {', '.join(shipped())}",
        )
    recipe = toml.load(path, Recipe)
    given = recipe.terms()
    if len(given) > 1:
        raise UserError(f"{path}: good and bad, or old and new, but not both")
    for pair in given:
        if missing := [term for term in pair if getattr(recipe, term) is None]:
            raise UserError(f"{path}: {missing[0]} is missing")
    return recipe


class BisectRequest(Options, frozen=True, kw_only=True):
    """The options of `lab bisect`; None if nothing was typed."""

    workload: str | None = None
    suite: str | None = None
    recipe: str | None = None
    series: str | None = None
    options: tuple[str, str] | None = None
    by: Literal["files", "hunks"] | None = None
    mode: str = "exact"
    max_seeds: int = defaults.MAX_SEEDS
    qemu: str = exact.QEMU
    guest_timeout: float = GUEST_TIMEOUT_S
    snapshot: bool = True
    speculate: bool = True
    inside: bool = True
    run: str | None = None
    accel: Literal["auto", "kvm", "tcg"] = "auto"
    cpus: int | None = None
    iterations: int | None = None

    def completed(self) -> BisectRequest:
        """The request with its recipe's values for the options that were not typed."""
        if self.mode == "live":
            self._refuse_exact_options()
        if self.run is not None and (self.suite or self.metric or self.by or self.mode == "live"):
            raise UserError(
                "--run asks only whether a command works: no --suite, no --metric, no --by, no --mode live",
                hint="leave the other option out",
            )
        if self.recipe is None:
            return self
        recipe = load(self.recipe)
        names = ["metric", "tree", "seeds", "threshold", "confidence", "probe", "panics", "model", "machine"]
        names += ["cc", "arch"]
        if self.series is None and self.options is None:  # a series has a range of its own
            # One end may be typed, and the other come from the recipe.
            names += [term for pair in self.terms() or TERMS for term in pair]
            names += [] if self.by else ["first_parent", "paths"]
        values = {name: getattr(recipe, name) for name in names if getattr(self, name) in (None, ())}
        workload = self.workload or (None if self.suite else recipe.selection)
        return replace(self, workload=workload, **values)

    def _refuse_exact_options(self) -> None:
        if self.seeds is not None:
            raise UserError("--seeds requires exact mode", hint="live mode boots as often as the search needs")
        if self.model not in (None, "auto", "none"):
            raise UserError("--model requires exact mode: live mode measures real time", hint="leave one of them out")
        if self.metric in BASES:
            raise UserError("--metric instructions and cycles require exact mode", hint="live mode measures real time")

    def ends(self) -> tuple[Terms, tuple[str, str]]:
        """The words for the ends, and the ends."""
        given = self.terms()
        if len(given) > 1:
            raise UserError("give either --good and --bad, or --old and --new")
        if not given:
            raise UserError(
                "both ends of the range are needed", hint="e.g. --good v6.11 --bad v6.12, or --old and --new"
            )
        (terms,) = given
        first, last = (getattr(self, term) for term in terms)
        if not first or not last:
            raise UserError(f"--{terms[bool(first)]} is missing: the {terms[0]} and {terms[1]} ends")
        return terms, (first, last)


def plan(request: BisectRequest, command: Sequence[str], progress: Progress) -> tuple[BisectPlan, History]:
    """The plan, and the range that is searched."""
    request = request.completed()
    if request.by:
        return _plan_of_split(request, request.by, command, progress)
    if request.series or request.options:
        return _plan_of_series(request, command, progress)
    made = plan_for(request, *request.ends(), command, progress)
    commits = commit_range.commits(
        made.old.spec,
        made.new.spec,
        first_parent=bool(request.first_parent) or made.is_live,
        limits=request.paths,
    )
    return made, commits


def _plan_of_split(
    request: BisectRequest, by: Literal["files", "hunks"], command: Sequence[str], progress: Progress
) -> tuple[BisectPlan, History]:
    """A search among files or hunks needs no history: the ends may be of different trees."""
    if request.series or request.options or request.first_parent or request.paths:
        raise UserError(f"--by {by} splits the differences between two ends: no series, no options, no paths")
    if request.mode == "live" or request.panics == "bad":
        raise UserError(f"--by {by} needs exact mode, and numbers of both ends", hint="leave the other option out")
    made = plan_for(request, *request.ends(), command, progress)
    return replace(made, speculate=False), sources.history(made.old.spec, made.new.spec, by)


def _plan_of_series(request: BisectRequest, command: Sequence[str], progress: Progress) -> tuple[BisectPlan, History]:
    """A series brings its ends along; of packages they may be narrowed, and patches need a base."""
    terms = TERMS[0] if request.good or request.bad else TERMS[1]
    if request.first_parent or request.paths:
        raise UserError("--first-parent and paths are for commits, not for a series")
    if request.arch:
        raise UserError("--arch is for commits", hint="packages name theirs, and a series' older end has %arch=NAME")
    first, last = (getattr(request, term) for term in terms)
    tree = request.tree or trees.current()
    if request.series and request.options:
        raise UserError("give either --series or --options")
    if request.options:
        _require_older(first, last, "options are changed on the older end")
        steps = commit_range.options(Path(request.options[0]), Path(request.options[1]), first or "HEAD", tree)
    elif archives.series(request.series or ""):
        steps = commit_range.packages(request.series or "", first, last, progress)
    else:
        _require_older(first, last, "a series of patches is put on the older end")
        steps = _patches(paths.expanded(request.series or ""), first or "", tree)
    return plan_for(request, terms, (steps.old.spec, steps.new.spec), command, progress), steps


def _require_older(first: str | None, last: str | None, why: str) -> None:
    if last is not None or first is None:
        raise UserError(
            f"{why}, and the kernel that it leads to is the newer one",
            hint="give --good SPEC or --old SPEC, and no other end",
        )


def _patches(path: Path, base: str, tree: str) -> History:
    if not path.exists():
        raise UserError(f"{path}: no such mailbox or folder", hint="packages are given as --series 'deb:NAME*'")
    folder = paths.data_dir("series") / (records.file_digest(path)[:24] if path.is_file() else "folder")
    return commit_range.patches(path, base, folder, tree)


class _Search(Request[BisectPlan], frozen=True, kw_only=True):
    """A search between two ends, with defaults for options that were not typed. asked: the others."""

    asked: BisectRequest
    terms: Terms
    ends: tuple[str, str]
    command: list[str]

    @property
    def kernels(self) -> Sequence[str]:
        return self.ends

    def plan(self, specs: Sequence[KernelSpec], live: LivePlan | None) -> BisectPlan:
        asked, (workload, cases) = self.asked, selection.select(self.workload[0])
        old, new = (ArmPlan(spec=spec, cc=self.cc) for spec in specs)
        return BisectPlan(
            **self.common(live),
            terms=self.terms,
            old=old,
            new=new,
            workload=asked.suite or workload.name,
            case=None if asked.suite or len(cases) > 1 else cases[0].name,
            selection=asked.suite or selection.canonical(self.workload[0]),
            suite=asked.suite,
            metric=self.metric or asked.metric or None,
            confidence=defaults.CONFIDENCE if asked.confidence is None else asked.confidence,
            seeds=asked.seeds,
            probes=PROBES if asked.probe is None else asked.probe,
            panics=asked.panics or "untestable",
            speculate=asked.speculate and live is None,
            command=self.command,
            layouts_sd=_layouts_sd(asked, live, workload, cases[0]) if live else None,
            inside=asked.inside,
            run=asked.run,
        )


def plan_for(
    request: BisectRequest, terms: Terms, ends: tuple[str, str], command: Sequence[str], progress: Progress
) -> BisectPlan:
    if not request.workload and not request.suite:
        raise UserError("nothing to measure; give --workload NAME[:CASE], --suite NAME, or a --recipe")
    if request.workload and request.suite:
        raise UserError("--suite and --workload exclude each other", hint="leave one of them out")
    if request.run is not None and request.model is None:
        request = replace(request, model="none")
    selections = (request.workload,) if request.workload else selection.suite(request.suite or "").selections
    names = ("tree", "arch", "model", "machine", "threshold", "cc")
    given = {name: value for name in names if (value := getattr(request, name)) is not None}
    if request.mode == "live":
        _require_one_case(request, *selection.select(selections[0]))
        # Limits of the comparison without the culprit; the search has its own.
        given |= {"perf": False, "max_rounds": defaults.MAX_ROUNDS}
    else:
        given["metric"] = request.metric or None
        if request.accel != "auto" or request.cpus is not None or request.iterations is not None:
            raise UserError(
                "--accel, --cpus and --iterations require --mode live",
                hint="in exact mode vCPUs that contend are part of a workload's name: -w contention@4:fstat",
            )
    asked = _Search(
        asked=request, terms=terms, ends=ends, command=list(command), workload=selections, mode=request.mode,
        accel=request.accel, cpus=request.cpus, iterations=request.iterations, max_seeds=request.max_seeds,
        qemu=request.qemu, guest_timeout=request.guest_timeout, snapshot=request.snapshot, **given,
    )  # fmt: skip
    return plan_of(asked, progress)


def _layouts_sd(request: BisectRequest, live: LivePlan, workload: Workload, case: Case) -> float | None:
    """The distance of layouts in a case, by this host's certificates."""
    metric = metric_of(workload, request.metric, modelled=False)
    present = certificates.setup(exact.find_qemu(request.qemu).version)
    name = f"{workload.name}:{case.name}"
    return certificates.layouts_sd(name, metric.name, present, accelerator=live.accelerator)


def _require_one_case(request: BisectRequest, workload: Workload, cases: Sequence[Case]) -> None:
    """Refuse options that do not fit live mode."""
    if request.suite:
        raise UserError("live mode searches with one case, and a suite has many", hint="name one by --workload")
    if request.panics == "bad":
        raise UserError(
            "a search for a panic needs exact mode, in which a kernel panics each time or never",
            hint="leave --mode live out",
        )
    if len(cases) != 1:
        raise UserError(
            f"live mode searches with one case, and {workload.name} has {len(cases)}",
            hint=f"name it, as in --workload {workload.name}:{cases[0].name}",
        )
    metric_of(workload, request.metric, modelled=False)
