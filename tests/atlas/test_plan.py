"""Plans of atlases: read strictly, kernels in the order of their versions, the ends of releases measured first."""

from pathlib import Path

import pytest

from lab.atlas import data, plan
from lab.atlas.plan import Known, PlannedColumn
from lab.core.errors import UserError
from lab.core.progress import Progress
from lab.kernels import debs
from lab.kernels.debs import DebSource
from lab.kernels.kernel import KernelSpec, resolve
from lab.kernels.package_lists import Offer

PLAN = """\
schema = 1
suite = "quick"
[[series]]
name = "Debian 13"
packages = ["trixie/*", "trixie-backports/7.*"]
"""


def written(tmp_path: Path, text: str = PLAN) -> plan.AtlasPlan:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return plan.load(path)


def test_a_plan_has_its_file_s_name_and_the_cases_of_its_suite(tmp_path: Path) -> None:
    loaded = written(tmp_path)
    assert loaded.name == "mine" and loaded.seeds == 3
    assert loaded.selections("x86_64")[0].startswith("syscalls:")


@pytest.mark.parametrize(("old", "new", "message"), [
    ('suite = "quick"', 'suite = "quik"', "no suite is called 'quik'"),
    ('suite = "quick"\n', "", "either a suite or workloads"),
    ("packages", "package", "unknown key 'package'"),
    ('packages = ["trixie/*", "trixie-backports/7.*"]', "", "has no kernels"),
    ("schema = 1", 'schema = 1\narchitectures = ["vax"]', "architectures: "),
    ("schema = 1", "schema = 1\nseeds = 1", "1 is not at least 2"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        written(tmp_path, PLAN.replace(old, new))
    assert "mine.toml" in error.value.message


def test_packages_are_columns_in_the_order_of_their_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = [
        Offer("trixie", "linux-image-6.12.9+deb13-cloud-amd64", "6.12.9-1"),
        Offer("trixie", "linux-image-6.12.10+deb13-cloud-amd64-unsigned", "6.12.10-1"),
        Offer("trixie-updates", "linux-image-6.12.10+deb13-cloud-amd64", "6.12.10-1"),
        Offer("trixie", "linux-image-6.12.10+deb13-rt-amd64", "6.12.10-1"),
        Offer("trixie-backports", "linux-binary-7.2.9+deb13-cloud-amd64", "7.2.9-1~bpo13+1"),
        Offer("trixie-backports", "linux-image-6.18.9+deb13-cloud-amd64", "6.18.9-1~bpo13+1"),
    ]
    monkeypatch.setattr(debs, "all_suites", lambda *_, **__: None)
    monkeypatch.setattr(debs, "kernels", lambda _lists: offers)
    found = plan.columns(written(tmp_path), "x86_64", Progress(quiet=True))
    assert [one.version for one in found] == ["6.12.9-1", "6.12.10-1", "7.2.9-1~bpo13+1"]
    newest = plan.columns(written(tmp_path, f"{PLAN}points = false\n"), "x86_64", Progress(quiet=True))
    assert newest == found[1:]
    assert found[1].spec.source == DebSource(package="linux-image-6.12.10+deb13-cloud-amd64", version="6.12.10-1")
    monkeypatch.setattr(debs, "_find", lambda *_: found[1].spec.source)
    assert resolve(found[1].spec.text) == found[1].spec
    assert [one.version for one in plan.chosen(found, ["6.12.*"])] == ["6.12.9-1", "6.12.10-1"]


def column(version: str, series: str = "Debian 13") -> PlannedColumn:
    return PlannedColumn(series, version, KernelSpec(text=version, source=DebSource(package="p", version=version)))


def test_kernels_of_other_names_have_other_ids() -> None:
    names = ["7.2.9-1~bpo13+1", "efa7df3e3bb5", "efa7df3e3bb5^", "src:trixie/6.12", "src:trixie-6.12"]
    ids = [column(name).id for name in names]
    assert ids[:2] == names[:2] and len(set(ids)) == len(ids)
    assert not any("/" in one or ":" in one for one in ids)


def test_all_releases_come_before_all_point_releases() -> None:
    found = [column(one) for one in ("6.12.90-1", "6.12.94-1", "6.12.95-1", "6.16.3-1", "6.16.12-1", "7.0.4-1")]
    assert [one.version for one in plan.by_interest(found)] == [
        "6.12.95-1", "6.16.12-1", "7.0.4-1", "6.12.90-1", "6.16.3-1", "6.12.94-1",
    ]  # fmt: skip


def test_a_known_change_belongs_to_the_step_that_it_came_with() -> None:
    known = Known(
        cases=("syscalls:mprotect-*",), releases=("6.17", "6.12.50"), commit="cac1db8c3aad", subject="mprotect",
        link="https://example.org",
    )  # fmt: skip
    assert known.explains("syscalls:mprotect-private-4k", "6.16.12", "6.17.8")
    assert known.explains("syscalls:mprotect-private-4k", "6.12.43", "6.12.57")
    assert not known.explains("syscalls:mprotect-private-4k", "6.17.8", "6.17.13")
    assert not known.explains("syscalls:mmap-munmap", "6.16.12", "6.17.8")


def test_the_plan_that_comes_with_the_lab_can_be_read() -> None:
    loaded = plan.load(data.folder() / "atlas.toml")
    assert loaded.architectures == ("x86_64", "arm64") and len(loaded.series) >= 2
    assert len({name for text in loaded.selections("arm64") for name in text.split(",")}) >= 10
    assert set(loaded.selections("x86_64")) - set(loaded.selections("arm64")) == {"boot"}
