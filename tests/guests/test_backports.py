"""QEMU of the backports beside the host's: unpacked once, chosen for vCPUs that contend, and refused by name."""

from pathlib import Path

import pytest

from lab.core.errors import HostFailed
from lab.core.progress import Progress
from lab.guests import backports, exact
from lab.kernels.package_lists import PackageLists

from ..fakes.processes import program


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Backports whose programs say what the list holds; what was downloaded is added to it."""
    words = ["echo QEMU emulator version 10.0.2"]

    def download(_: PackageLists, package: str, folder: Path, *, hint: str) -> str:
        (folder / "usr" / "bin").mkdir(parents=True, exist_ok=True)
        program(folder / "usr" / "bin" / exact.QEMU, words[0])
        words.append(package)
        return hint

    monkeypatch.setattr(backports.paths, "cache_dir", lambda *parts: tmp_path.joinpath(*parts))
    monkeypatch.setattr(backports, "suite", lambda: "bookworm-backports")
    monkeypatch.setattr(backports, "all_suites", lambda _: PackageLists())
    monkeypatch.setattr(PackageLists, "download", download)
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / exact.QEMU, "echo QEMU emulator version 7.2.22")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(
        exact, "missing_for_contention", lambda qemu, _: [] if qemu.numbers == (10, 0) else ["version 10.0"]
    )
    return words


def test_vcpus_that_contend_have_the_qemu_beside_the_hosts(offered: list[str], tmp_path: Path) -> None:
    with pytest.raises(HostFailed, match=r"/bin/qemu-system-x86_64 has: version 10\.0") as caught:
        exact.find_qemu(contends=True)
    assert caught.value.hint and "`lab doctor --install`, which unpacks that of bookworm-backports" in caught.value.hint
    for _ in range(2):
        backports.install(Progress())
    assert len(offered) == 4, "a second time nothing is downloaded"
    found = exact.find_qemu(contends=True)
    top = tmp_path / "qemu" / "bookworm-backports"
    assert (found.numbers, found.path) == ((10, 0), f"{top}/usr/bin/{exact.QEMU}")
    assert backports.firmware(found.path) == ["-L", f"{top}/usr/share/qemu", "-L", f"{top}/usr/share/seabios"]
    plain = exact.find_qemu()
    assert (plain.numbers, backports.firmware(plain.path)) == ((7, 2), [])
    with pytest.raises(HostFailed, match="/bin/qemu-system-x86_64 has"):
        exact.find_qemu(plain.path, contends=True)  # who names one gets that one


def test_a_qemu_that_cannot_run_is_refused(offered: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offered[0] = "echo libslirp.so.0: no such file >&2; exit 127"
    with pytest.raises(HostFailed, match=r"does not run here: .*libslirp"):
        backports.install(Progress())
    assert not list((tmp_path / "qemu").glob("[!.]*"))
    monkeypatch.setattr(backports, "suite", lambda: None)
    with pytest.raises(HostFailed, match="has no QEMU 10"):
        backports.install(Progress())


@pytest.mark.parametrize(
    ("release", "suite"), [("bookworm", "bookworm-backports"), ("trixie", "trixie"), ("forky", None), ("", None)]
)
def test_the_suite_has_the_right_qemu(monkeypatch: pytest.MonkeyPatch, release: str, suite: str | None) -> None:
    monkeypatch.setattr(backports.platform, "freedesktop_os_release", lambda: {"VERSION_CODENAME": release})
    assert backports.suite() == suite
