"""The patches that come with the lab, and the source that they are for."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.core.progress import QUIET
from lab.kernels import default_tree
from lab.kernels.package_lists import Offer, PackageLists


@pytest.mark.parametrize("offered", [True, False])
def test_the_source_comes_from_debians_suites_where_the_hosts_own_do_not_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: bool
) -> None:
    class Lists(PackageLists):
        def offers(self, packages: Sequence[str]) -> list[Offer]:
            return [Offer("noble", name, "6.12.1-1") for name in packages if offered]

        def download(self, package: str, folder: Path, *, hint: str) -> str:
            archive = folder / "usr" / "src" / f"{package}.tar.xz"
            archive.parent.mkdir(parents=True)
            archive.touch()
            return "by the host" if self is own else "by all suites"

    own = Lists()
    monkeypatch.setattr(default_tree, "INSTALLED", tmp_path / "none")
    monkeypatch.setattr(default_tree, "HOST", own)
    monkeypatch.setattr(default_tree, "all_suites", lambda progress: Lists(("-c", "conf")))
    found = default_tree.source(tmp_path, QUIET)
    assert found.version == ("by the host" if offered else "by all suites")
    assert found.archive.endswith(f"{default_tree.PACKAGE}.tar.xz")
