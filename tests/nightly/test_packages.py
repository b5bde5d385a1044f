"""Nights on packages: what is new in the archive is measured the night it comes, against what was there before."""

from pathlib import Path

import pytest

from lab.kernels import debs
from lab.kernels.debs import DebSource
from lab.kernels.kernel import Kernel, KernelSpec
from lab.kernels.spec import Package
from lab.nightly import record

from ..fakes.nights import Nights

BRANCH = 'packages = "deb:trixie-backports/*"'


class Archive:
    """A suite whose packages a test adds, and how fast each is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fates: dict[str, float] = {}
        self.refreshed = 0
        monkeypatch.setattr(debs, "refresh", self._refresh)
        monkeypatch.setattr(debs, "offered", lambda pattern, progress, *, guests: self._offers(pattern))

    def _refresh(self, _: object) -> None:
        self.refreshed += 1

    def _offers(self, pattern: str) -> list[Package]:
        assert pattern == "trixie-backports/*"
        return [Package(f"linux-binary-{one}", one, f"deb:trixie-backports/{one}") for one in debs.in_order(self.fates)]


@pytest.fixture
def archive(nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """A plan of packages, with kernels that are as fast as the test says."""
    made = Archive(monkeypatch)

    def obtain(spec: KernelSpec, *_: object, **__: object) -> Kernel:
        assert isinstance(spec.source, DebSource)
        path = tmp_path / spec.source.version
        path.write_text(f"{made.fates[spec.source.version]}\n")
        return Kernel(
            spec=spec, key=spec.source.label, release="6.99", commit=None, bzimage=path, vmlinux=None, symbols=None
        )

    monkeypatch.setattr(KernelSpec, "obtain", obtain)
    nights.write(branch=BRANCH)
    return made


def test_a_new_package_is_measured_the_night_it_comes_and_its_loss_is_news_once(
    nights: Nights, archive: Archive
) -> None:
    archive.fates["7.1.8-1"] = 100.0
    assert nights.run().outcome == "green"
    assert nights.run().outcome == "nothing new"
    archive.fates["7.2.6-1"] = 80.0
    night = nights.run()
    assert night.outcome == "regression" and archive.refreshed == 3
    (branch,) = night.branches
    assert (branch.tree, branch.branch) == ("packages", "deb:trixie-backports/*")
    assert branch.tip == "linux-binary-7.2.6-1=7.2.6-1"
    (comparison,) = branch.measured
    assert comparison.baselines == ("yesterday", "last-good", "release")
    (event,) = nights.events()
    assert (event.kind, record.short(event.base), record.short(event.test)) == ("regression", "7.1.8-1", "7.2.6-1")
    assert event.culprit is None
    archive.fates["7.2.9-1"] = 80.0
    assert nights.run().outcome == "no news"
    archive.fates["7.2.12-1"] = 100.0
    assert nights.run().outcome == "green"
    assert [one.kind for one in nights.events()] == ["regression", "fixed"]
