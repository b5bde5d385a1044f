"""The plan of an atlas, `atlas.toml`: series of kernels, the cases, and changes that others have published."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from lab.compare.plan import ComparisonPlan, LivePlan
from lab.compare.request import Request, plan_of
from lab.core import records
from lab.core.progress import QUIET, Progress
from lab.core.records import Record
from lab.core.toml import PlanName, TomlFile
from lab.guests import exact, hardware
from lab.guests.run import GUEST_TIMEOUT_S
from lab.kernels import architecture, archives, compilers
from lab.kernels.archives import PackageSource
from lab.kernels.kernel import KernelSpec, resolve
from lab.stats import defaults
from lab.workloads import selection


class SeriesPlan(Record, frozen=True, kw_only=True):
    """Kernels of one builder, the oldest first.

    archive: the word of the packages' specs. packages: patterns of names and versions, such as `trixie-backports/*`.
    points: False for the newest package of each release only. kernels: specs, such as `src:trixie/6.12`.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    archive: str = "deb"
    packages: tuple[str, ...] = ()
    points: bool = True
    kernels: tuple[str, ...] = ()

    @property
    def source(self) -> PackageSource:
        """The archive of its packages."""
        return archives.ARCHIVES[self.archive]


class Known(Record, frozen=True, kw_only=True):
    """A published change. cases: patterns of full names. releases: the first ones with it, backports included."""

    cases: tuple[str, ...]
    releases: tuple[str, ...]
    commit: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12,40}\Z", description="a commit of 12 to 40 digits")]
    subject: str
    link: Annotated[str, msgspec.Meta(pattern=r"^https?://\S+\Z", description="an address of the web")]

    def explains(self, case: str, base: str, test: str) -> bool:
        """True of a step of a case between two releases, if the change came between them."""
        came = any(version_of(base) < version_of(release) <= version_of(test) for release in self.releases)
        return came and any(fnmatchcase(case, pattern) for pattern in self.cases)


def version_of(release: str) -> tuple[int, ...]:
    """The numbers of an upstream release, comparable: 6.12.5 of `6.12.5-1~bpo12+1`, 7.0.0 of `7.0`."""
    match = re.match(r"\d+(?:\.\d+)*", release)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    return tuple((*numbers, 0, 0, 0)[:3])


class AtlasPlan(Record, frozen=True, kw_only=True):
    """A plan. Missing keys have the defaults of `lab ab`.

    suite: its cases, or those of the workloads; the cases of one selection share their guests. only: more workloads, by
    the architecture that alone has them. seeds: number for each cell. tree: of revisions among the kernels.
    """

    schema: Literal[1]
    name: PlanName = ""
    architectures: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = (architecture.DEFAULT,)
    suite: str | None = None
    workloads: tuple[str, ...] = ()
    only: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    seeds: Annotated[int, msgspec.Meta(ge=2, le=24)] = defaults.FIRST_LOOK_SEEDS
    threshold: Annotated[float, msgspec.Meta(gt=0, lt=1)] = defaults.THRESHOLD
    model: Literal["auto", "tlb", "full"] = "auto"
    machine: str = hardware.DEFAULT
    cc: str = compilers.DEFAULT
    qemu: str = exact.QEMU
    guest_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = GUEST_TIMEOUT_S
    series: Annotated[list[SeriesPlan], msgspec.Meta(min_length=1)]
    known: list[Known] = msgspec.field(default_factory=list)
    tree: str | None = None

    def selections(self, guests: str) -> tuple[str, ...]:
        """The selections of an architecture, whose cases share their guests."""
        shared = selection.suite(self.suite).selections if self.suite else self.workloads
        return (*shared, *self.only.get(guests, ()))

    def comparison(self, text: str, spec: KernelSpec) -> ComparisonPlan:
        """The plan of the guests of one selection around a kernel."""
        asked = _Selection(
            spec=spec,
            workload=(text,),
            model=self.model,
            machine=self.machine,
            threshold=self.threshold,
            seeds=self.seeds,
            cc=self.cc,
            qemu=self.qemu,
            guest_timeout=self.guest_timeout_s,
        )
        return plan_of(asked, QUIET)


class _Selection(Request[ComparisonPlan], frozen=True, kw_only=True):
    """One selection of cases in a kernel."""

    spec: KernelSpec

    @property
    def kernels(self) -> Sequence[KernelSpec]:
        return [self.spec]

    def plan(self, specs: Sequence[KernelSpec], live: LivePlan | None) -> ComparisonPlan:
        return ComparisonPlan.of(self, live=live)


def load(path: Path) -> AtlasPlan:
    """Read and check a plan. `UserError` names the file and line of a mistake."""
    file = TomlFile(path)
    plan = file.convert(AtlasPlan)
    if (plan.suite is None) == (not plan.workloads):
        raise file.error("a plan has either a suite or workloads", "suite", hint='e.g. suite = "all"')
    checks: dict[str, Callable[[], object]] = {
        "suite": lambda: [selection.select_all(plan.selections(guests)) for guests in plan.architectures],
        "machine": lambda: hardware.load(plan.machine),
        "architectures": lambda: [architecture.load(name) for name in (*plan.architectures, *plan.only)],
    }
    for key, check in checks.items():
        with file.naming(key):
            check()
    names = [series.name for series in plan.series]
    for number, series in enumerate(plan.series):
        if series.name in names[:number]:
            raise file.error(f"{series.name} is named twice", "series", number, "name")
        if series.archive not in archives.ARCHIVES:
            known = ", ".join(archives.ARCHIVES)
            raise file.error(
                f"no archive is called {series.archive}", "series", number, "archive", hint=f"there is {known}"
            )
        if not series.packages and not series.kernels:
            raise file.error(f"{series.name} has no kernels", "series", number, hint='e.g. packages = ["trixie/*"]')
    if not plan.name:
        plan = msgspec.structs.replace(plan, name=re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._") or "atlas")
    return plan


class PlannedColumn(NamedTuple):
    """A kernel of a series. version: the package's, else the spec."""

    series: str
    version: str
    spec: KernelSpec

    @property
    def is_package(self) -> bool:
        """True for a package of the archive, whose version names the kernel; others are named by a spec."""
        return self.version != self.spec.text

    @property
    def id(self) -> str:
        """A name for files and links: the version, or its usable characters and a digest if it cannot name a file."""
        name = re.sub(r"[^A-Za-z0-9.+~-]+", "-", self.version).strip("-.")
        return name if name == self.version else f"{name}-{records.digest(self.version)[:6]}"


def columns(plan: AtlasPlan, guests: str, progress: Progress) -> list[PlannedColumn]:
    """The kernels of an architecture, series by series, the oldest first."""
    return [column for series in plan.series for column in _of_series(plan, series, guests, progress)]


def _of_series(plan: AtlasPlan, series: SeriesPlan, guests: str, progress: Progress) -> list[PlannedColumn]:
    found: dict[str, PlannedColumn] = {}
    for pattern in series.packages:
        for package in series.source.offered(pattern, progress, guests=guests):
            spec = KernelSpec(text=package.text, source=series.source.labelled(package.label, guests))
            found.setdefault(package.version, PlannedColumn(series.name, package.version, spec))
    ordered = [found[version] for version in series.source.in_order(found)]
    if not series.points:
        ordered = list({version_of(column.version)[:2]: column for column in ordered}.values())
    for text in series.kernels:
        spec = resolve(text, plan.tree, progress=progress)
        if spec.architecture == guests:
            ordered.append(PlannedColumn(series.name, text, spec))
    return ordered


def chosen(found: Sequence[PlannedColumn], patterns: Sequence[str]) -> list[PlannedColumn]:
    """The columns whose version or series matches one of some patterns; all without any."""
    return [
        column
        for column in found
        if not patterns or any(fnmatchcase(word, one) for one in patterns for word in (column.version, column.series))
    ]


def by_interest(found: Iterable[PlannedColumn]) -> list[PlannedColumn]:
    """The columns in the order of measuring: the newest of each release of each series, the oldest, then the others.

    So an atlas that is not finished has all releases before it has all point releases.
    """
    releases: dict[tuple[str, tuple[int, ...]], list[PlannedColumn]] = {}
    for column in found:
        releases.setdefault((column.series, version_of(column.version)[:2]), []).append(column)
    ends = [columns[-1] for columns in releases.values()] + [columns[0] for columns in releases.values()]
    every = [*ends, *(column for columns in releases.values() for column in columns)]
    return list({(column.series, column.version): column for column in every}.values())
