"""Archives of packages: what series, nights and atlases take is the same of any of them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from lab.atlas import plan as atlas_plan
from lab.atlas.plan import AtlasPlan, SeriesPlan
from lab.bisection import commit_range
from lab.core.errors import UserError
from lab.core.progress import QUIET, Progress
from lab.kernels import archives, spec
from lab.kernels.debs import DebSource
from lab.kernels.kernel import resolve
from lab.kernels.spec import Package
from lab.nightly.plan import BranchPlan
from lab.nightly.tips import PackageTips

VERSIONS = ["9", "10", "11"]


class Wheels:
    """Packages whose versions are whole numbers. Their record is Debian's, which this test has at hand."""

    refreshed = 0

    def resolve(self, body: str, progress: Progress) -> DebSource:
        return self.labelled(f"kernel={body}", "x86_64")

    def matching(self, pattern: str, progress: Progress) -> list[Package]:
        return [Package(f"kernel-{version}", version, f"wheel:{version}") for version in VERSIONS]

    def offered(self, pattern: str, progress: Progress, *, guests: str) -> list[Package]:
        return [Package("kernel", version, f"wheel:{version}") for version in VERSIONS]

    def in_order(self, versions: Iterable[str]) -> list[str]:
        return sorted(versions, key=int)

    def labelled(self, label: str, guests: str) -> DebSource:
        package, _, version = label.partition("=")
        return DebSource(package=package, version=version, architecture=guests)

    def name_in(self, body: str) -> str:
        return f"kernel-{body}"

    def beginnings(self) -> list[str]:
        return []

    def refresh(self, progress: Progress) -> None:
        self.refreshed += 1

    def downloaded(self, guests: str) -> Iterator[Path]:
        return iter(())


@pytest.fixture(autouse=True)
def wheels(monkeypatch: pytest.MonkeyPatch) -> Wheels:
    made = Wheels()
    monkeypatch.setitem(archives.ARCHIVES, "wheel", made)
    for name, words in (("PACKAGED", spec.PACKAGED), ("_PREFIXED", spec._PREFIXED)):
        monkeypatch.setattr(spec, name, (*words, "wheel"))
    return made


def test_every_word_has_its_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*spec.PACKAGED} == {*archives.ARCHIVES}
    assert archives.asked("file:/boot/vmlinuz") is archives.asked("v6.12") is archives.asked("wheel") is None


def test_a_spec_is_resolved_by_its_archive() -> None:
    found = resolve("wheel:10@thp=never")
    assert isinstance(found.source, DebSource)
    assert found.source.label == "kernel=10" and dict(found.settings) == {"thp": "never"}
    with pytest.raises(UserError, match="names a kernel that is built already"):
        resolve("wheel:10+fix.patch")
    assert spec.for_architecture("wheel:10", "arm64") == "wheel:10:arm64"


def test_a_series_has_its_packages_in_its_order() -> None:
    found = commit_range.packages("wheel:*@thp=never", None, "wheel:10", QUIET)
    assert [found.old.id, *(one.id for one in found.candidates)] == ["kernel-9", "kernel-10"]
    assert found.candidates[0].spec == "wheel:10@thp=never"
    with pytest.raises(UserError, match="is not in the series"):
        commit_range.packages("wheel:*", "wheel:12", None)
    with pytest.raises(UserError, match="names no package"):
        commit_range.packages("v6.12", None, None)


def test_a_night_measures_its_newest_package(wheels: Wheels) -> None:
    tips = PackageTips(BranchPlan(packages="wheel:all/*"), QUIET)
    assert wheels.refreshed == 1 and tips.newest() == "kernel=11"
    assert tips.is_behind("kernel=9", "kernel=10") and not tips.is_behind("kernel=10", "kernel=9")
    arm = tips.arm("kernel=10", "gcc", QUIET)
    assert arm.spec.text == "wheel:kernel" and arm.spec.source == DebSource(package="kernel", version="10")


def test_an_atlas_has_its_packages_as_columns() -> None:
    plan = AtlasPlan(
        schema=1, name="mine", workloads=("syscalls",), series=(SeriesPlan(name="W", archive="wheel", packages=("*",)),)
    )
    found = atlas_plan.columns(plan, "x86_64", QUIET)
    assert [(column.version, column.spec.text) for column in found] == [(one, f"wheel:{one}") for one in VERSIONS]
